"""``onceward verify --processes``: examples as real processes under real faults, and wrong apps.

``ONCEWARD_ROUNDS=20`` makes the first two longer.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.streams import ConfigurationError
from onceward.streams.cli.main import main
from onceward.streams.testing import AnomalyFound, ReferenceFailed, verify_processes
from onceward.streams.testing.processes import RECORDS, ProcessVerification
from onceward.streams.testing.scenario import Scenario

from .targets import Postgres

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORD_COUNT = f"{ROOT / 'examples' / 'word_count.py'}:app"
SHOP = f"{ROOT / 'examples' / 'shop' / 'shop.py'}:app"
ROUNDS = int(os.environ.get("ONCEWARD_ROUNDS", "1"))

ROWS_APP = """
from onceward.streams import App
from onceward.streams.sinks import SqliteSink

app = App("rows", store="memory://")
words = app.topic("words", key_type=str, value_type=str, partitions=3)
rows = SqliteSink("rows.db", table="rows", mode="insert", value_type={"word": str}, create=True)

@app.agent(words, sink=[rows])
async def store(stream):
    async for word in stream:
        yield {"word": word}
"""

# a table made a global: its counts do not survive a crash, nor another worker taking over
FORGETFUL_SHOP = (
    (ROOT / "examples" / "shop" / "shop.py")
    .read_text(encoding="utf-8")
    .replace(
        'numbers = app.Table("numbers", key_type=str, value_type=int, default=int, partitions=4)',
        "numbers = __import__('collections').Counter()",
    )
)


def processes_of(directory: Path) -> list[str]:
    """Command lines of what still runs on data below ``directory``."""
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the test's own."""
    server = Postgres("postgres", tmp_path)
    try:
        server.start()
        yield server.at
    finally:
        server.remove()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs of a test have their directories; none of their processes is left at its
    end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_words_are_counted_once_by_real_processes(work: Path) -> None:
    report = verify_processes(WORD_COUNT, rounds=ROUNDS, seed=1)
    assert report.rounds == ROUNDS
    assert report.faults
    assert processes_of(work) == []
    assert not list(work.glob("onceward-verify-*")), "a round that was right leaves nothing behind"


def test_the_shop_bills_once_and_the_own_check_sees_it(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = work / "own.py"
    check.write_text(
        "def check(outcome):\n"
        "    orders = [order.id for _, order in outcome.output('orders')]\n"
        "    receipts = [receipt.order for _, receipt in outcome.output('receipts')]\n"
        "    assert sorted(orders) == sorted(receipts)\n"
    )
    arguments = ["verify", SHOP, "--processes", "--rounds", str(ROUNDS), "--seed", "2"]
    assert main([*arguments, "--check", f"{check}:check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rounds"] == ROUNDS
    assert report["failures"] == []
    assert processes_of(work) == []


def test_rows_of_a_database_are_read_back_and_those_of_one_round_are_gone_in_the_next(
    work: Path,
) -> None:
    database, emptied = work / "rows.db", work / "emptied"
    app = work / "rows_app.py"
    app.write_text(ROWS_APP.replace("rows.db", str(database)))
    with pytest.raises(ConfigurationError, match="--before"):
        ProcessVerification(Scenario(f"{app}:app"))
    seen: list[int] = []
    verify_processes(
        f"{app}:app",
        rounds=1,
        seed=3,
        records=60,
        before=f"rm -f {database}*; echo once >> {emptied}",
        check=lambda outcome: seen.append(len(outcome.sink("rows"))),
    )
    assert seen == [60]
    assert emptied.read_text().split() == ["once"] * 3  # two runs without faults, and the round


def test_rows_in_postgresql_are_read_back(
    postgres: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_UNDER_FIRE", "postgres")
    monkeypatch.setenv("SINK_UNDER_FIRE_AT", postgres)
    statement = "DROP TABLE IF EXISTS rows, totals, onceward_positions"
    empty = f"import psycopg; psycopg.connect({postgres!r}, autocommit=True).execute({statement!r})"
    seen: list[int] = []
    report = verify_processes(
        f"{HERE / 'sink_app.py'}:app",
        rounds=1,
        seed=4,
        before=shlex.join([sys.executable, "-c", empty]),
        check=lambda outcome: seen.append(len(outcome.sink("rows"))),
    )
    assert seen == [RECORDS]
    assert report.uncompared == []
    assert processes_of(work) == []


def test_a_count_in_a_global_is_found_wrong(work: Path) -> None:
    app = work / "forgetful_app.py"
    app.write_text(FORGETFUL_SHOP)
    with pytest.raises(AnomalyFound) as caught:
        verify_processes(f"{app}:app", rounds=4)
    told = str(caught.value)
    assert "What happened" in told
    assert "--processes --seed" in told
    (directory,) = work.glob("onceward-verify-*")
    assert str(directory) in told
    assert (directory / "worker-0.log").exists()


def test_an_app_that_fails_by_itself_is_told_in_its_own_words(work: Path) -> None:
    app = work / "failing_app.py"
    app.write_text(ROWS_APP.replace("yield", "raise ValueError(word); yield"))
    with pytest.raises(ReferenceFailed, match="ValueError"):
        verify_processes(f"{app}:app", rounds=1)
    assert processes_of(work) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_interrupted(work: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "onceward.streams.cli", "verify", WORD_COUNT, "--processes"]
    running = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(work)}
    )
    try:
        deadline = time.monotonic() + 60
        while not any("processes_worker" in line for line in processes_of(work)):
            assert time.monotonic() < deadline, "no worker was started"
            time.sleep(0.05)
        running.send_signal(number)
        assert running.wait(30) != 0
    finally:
        running.kill()
    deadline = time.monotonic() + 40  # a broker nobody talks to any more ends after 20 seconds
    while left := processes_of(work):
        assert time.monotonic() < deadline, left
        assert number is signal.SIGKILL, left
        time.sleep(0.2)
