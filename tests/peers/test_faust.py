"""Unmodified faust-streaming programs, run by ``faust worker`` against ``onceward broker``.

    pip install '.[test,faust]' && pytest -m peers tests/peers/test_faust.py

The programs give no setting for the broker's sake. Where one reads a topic with a table, the topic
is created first with Faust's eight partitions, as Faust asks for on any broker. Input is sent when
a worker is ready: what arrives while Faust 0.15 restores a table it may skip or repeat, on Apache
Kafka as well as here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from ..clients.broker_process import BrokerProcess
from .faust_worker import PROGRAMS, FaustWorker
from .onceward_worker import OncewardWorker
from .outside import Records, committed, create, read, send, until_topic_exists

faust = pytest.importorskip("faust", reason="Faust is missing: pip install '.[test,faust]'")

pytestmark = pytest.mark.peers

FAUST_PARTITIONS = 8
LINES = ["to be or not to be", "that is the question", "to sleep to dream"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.config = {}  # as started by a user
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert broker.log() == "", "a healthy broker has nothing to warn of"


async def test_hello_world_sends_and_receives(broker: BrokerProcess, tmp_path: Path) -> None:
    with FaustWorker("hello_world", broker.address, tmp_path) as worker:
        worker.wait_for("Hello from Faust to you", count=3)
        worker.stop()
        seen = len(worker.lines("Hello from Faust to you"))

    offsets = await committed(broker.address, "hello-world")
    assert offsets[TopicPartition("greetings", 0)] == seen


async def test_word_count_keeps_its_table_over_a_restart(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await create(broker.address, "lines", "words", "totals", partitions=FAUST_PARTITIONS)
    rows = [(None, line.encode()) for line in LINES * 40]
    words = Counter(word for line in LINES for word in line.split())

    with FaustWorker("word_count", broker.address, tmp_path, "first") as worker:
        worker.wait_for("Worker ready")
        await send(broker.address, "lines", rows)
        await read(broker.address, "totals", lambda found: len(found) >= 40 * words.total())
        worker.stop()
    with FaustWorker("word_count", broker.address, tmp_path, "second") as worker:
        worker.wait_for("Worker ready")
        await send(broker.address, "lines", rows)
        totals = await read(
            broker.address, "totals", lambda found: len(found) >= 80 * words.total()
        )
        worker.stop()

    assert counts_of(totals) == {
        word: list(range(1, 80 * count + 1)) for word, count in words.items()
    }
    changelog = await read(
        broker.address, "faust-words-counts-changelog", lambda found: bool(found)
    )
    state = {json.loads(record.key or b""): json.loads(record.value or b"") for record in changelog}
    assert state == {word: 80 * count for word, count in words.items()}


async def test_a_killed_worker_repeats_but_loses_nothing(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await create(broker.address, "orders", "copies", partitions=FAUST_PARTITIONS)
    half = 1000

    with FaustWorker("at_least_once", broker.address, tmp_path, "first") as worker:
        worker.wait_for("Worker ready")
        await send(broker.address, "orders", orders(range(half)))
        await read(broker.address, "copies", lambda found: len(numbers(found)) >= half // 4)
        worker.kill()
    with FaustWorker("at_least_once", broker.address, tmp_path, "second") as worker:
        worker.wait_for("Worker ready")
        await send(broker.address, "orders", orders(range(half, 2 * half)))
        copies = await read(broker.address, "copies", lambda found: len(numbers(found)) >= 2 * half)
        worker.stop()

    assert numbers(copies) == set(range(2 * half))
    offsets = await committed(broker.address, "faust-copy")
    assert sum(found for tp, found in offsets.items() if tp.topic == "orders") == 2 * half


async def test_partitions_move_when_a_second_worker_joins_and_leaves(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await create(broker.address, "orders", "copies", partitions=FAUST_PARTITIONS)
    third = 400

    with (
        FaustWorker("at_least_once", broker.address, tmp_path, "first") as first,
        FaustWorker("at_least_once", broker.address, tmp_path, "second") as second,
    ):
        first.wait_for("Worker ready")
        second.wait_for("Worker ready")
        await send(broker.address, "orders", orders(range(third)))
        await read(broker.address, "copies", lambda found: len(numbers(found)) >= third)
        second.stop()
        await send(broker.address, "orders", orders(range(third, 2 * third)))
        await read(broker.address, "copies", lambda found: len(numbers(found)) >= 2 * third)
        with FaustWorker("at_least_once", broker.address, tmp_path, "third") as joined:
            joined.wait_for("Worker ready")
            await send(broker.address, "orders", orders(range(2 * third, 3 * third)))
            copies = await read(
                broker.address, "copies", lambda found: len(numbers(found)) >= 3 * third
            )
            joined.stop()
        first.stop()

    assert numbers(copies) == set(range(3 * third))


async def test_faust_records_are_value_types_of_an_onceward_app(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await create(broker.address, "orders", "copies", partitions=2)
    accounts = {f"a{number % 50}" for number in range(200)}

    with FaustWorker("at_least_once", broker.address, tmp_path) as faust_worker:
        faust_worker.wait_for("Worker ready")
        await send(broker.address, "orders", orders(range(200)))
        await read(broker.address, "copies", lambda found: len(found) >= 200)
        faust_worker.stop()
    with OncewardWorker(PROGRAMS / "totals_app.py", broker.address, tmp_path) as worker:
        await until_topic_exists(broker.address, "account-totals")
        totals = await read(broker.address, "account-totals", lambda found: len(found) >= 200)
        worker.stop()

    last = {(record.key or b"").decode(): json.loads(record.value or b"") for record in totals}
    assert last.keys() == accounts
    assert sorted(n for total in last.values() for n in total["orders"]) == list(range(200))
    assert {total["last"]["__faust"]["ns"] for total in last.values()} == {"totals_app.Order"}


async def test_a_faust_program_moves_over_with_its_state_when_only_the_import_is_changed(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await create(broker.address, "lines", "words", "totals", partitions=FAUST_PARTITIONS)
    rows = [(None, line.encode()) for line in LINES * 40]
    words = Counter(word for line in LINES for word in line.split())
    program = tmp_path / "word_count.py"
    text = (PROGRAMS / "word_count.py").read_text()
    program.write_text(text.replace("import faust\n", "import onceward.streams as faust\n"))

    with FaustWorker("word_count", broker.address, tmp_path) as faust_worker:
        faust_worker.wait_for("Worker ready")
        await send(broker.address, "lines", rows)
        await read(broker.address, "totals", lambda found: len(found) >= 40 * words.total())
        faust_worker.stop()
    for runs in (2, 3):
        with OncewardWorker(program, broker.address, tmp_path) as worker:
            await send(broker.address, "lines", rows)
            enough = runs * 40 * words.total()
            totals = await read(broker.address, "totals", lambda found, n=enough: len(found) >= n)
            worker.stop()

    assert counts_of(totals) == {
        word: list(range(1, 120 * count + 1)) for word, count in words.items()
    }


def orders(wanted: range) -> list[tuple[bytes | None, bytes]]:
    return [
        (b"a%d" % (number % 50), b'{"number": %d, "account": "a%d"}' % (number, number % 50))
        for number in wanted
    ]


def numbers(records: Records) -> set[int]:
    return {json.loads(record.value or b"")["number"] for record in records}


def counts_of(totals: Records) -> dict[str, list[int]]:
    """Each word's counts in the order they came."""
    found: dict[str, list[int]] = {}
    for record in totals:
        found.setdefault((record.key or b"").decode(), []).append(int(record.value or b""))
    return found
