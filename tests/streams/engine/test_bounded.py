"""Runs that end: ``onceward worker --until``."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import FetchedBatch, NewTopic, OffsetAndMetadata, TopicPartition
from onceward.broker.records.codec import Records
from onceward.streams import App, Stream
from onceward.streams.cli.processes import start
from onceward.streams.engine.bounded import BoundedRun, bounded_topics, from_text, to_text, within
from onceward.streams.engine.kafka import KafkaCluster
from onceward.streams.engine.worker import connect, learn_bounds, serve
from onceward.streams.errors import ConfigurationError
from onceward.streams.topology import topology_of

TP = TopicPartition("lines", 0)
LINES = 400

APP = """
from onceward.streams import App

app = App("bounded", datadir={folder!r}, commit_interval=0.05, broker={broker!r})
lines = app.topic("lines", value_type=str, partitions=2)
marked = app.topic("marked", key_type=str, value_type=str, partitions=2)
counts = app.Table("counts", key_type=str, default=int, partitions=2)
totals = app.topic("totals", key_type=str, value_type=int, partitions=2)

@app.agent(lines)
async def mark(stream):
    async for line in stream:
        await marked.send(key=line[:2], value=line)

@app.agent(marked)
async def count(stream):
    async for key, line in stream.items():
        counts[key] += 1
        await totals.send(key=key, value=counts[key])
"""


def batch(offsets: list[int], next_offset: int) -> FetchedBatch:
    values: list[bytes | None] = [b"%d" % offset for offset in offsets]
    records = Records([None] * len(offsets), values, offsets, list(offsets), None, next_offset)
    return FetchedBatch(TP, records, 100, 100, 0)


@pytest.mark.parametrize(
    ("end", "kept", "position"),
    [(10, [3, 4, 8], 10), (9, [3, 4, 8], 9), (8, [3, 4], 8), (6, [3, 4], 6), (4, [3], 4)],
)
def test_a_batch_is_cut_at_the_bound_even_where_compaction_left_holes(
    end: int, kept: list[int], position: int
) -> None:
    found = within(batch([3, 4, 8], 10), end)
    assert found is not None
    assert (found.records.offsets, found.records.next_offset) == (kept, position)
    assert found.records.values == [b"%d" % offset for offset in kept]


def test_a_batch_behind_the_bound_is_left_alone() -> None:
    assert within(batch([3, 4], 5), 3) is None
    assert within(batch([], 9), 8) is None, "control records behind the bound"
    assert within(batch([], 9), 9) is not None


def test_bounds_survive_the_way_to_another_process() -> None:
    bounds = {TP: 7, TopicPartition("a", 1): 0}
    assert from_text(to_text(bounds)) == bounds
    for text in ("{", "[1]", '{"a": 3}', '{"a": {"x": 1}}'):
        with pytest.raises(ConfigurationError, match="no offsets"):
            from_text(text)


def two_inputs(tmp_path: Path) -> App:
    app = App("both", datadir=str(tmp_path))

    @app.agent(app.topic("left", value_type=str))
    async def left(stream: Stream[str]) -> None:
        async for _ in stream:
            pass

    @app.agent(app.topic("right", value_type=str))
    async def right(stream: Stream[str]) -> None:
        async for _ in stream:
            pass

    return app


def test_which_topics_have_an_end_is_asked_when_it_is_not_clear(tmp_path: Path) -> None:
    topology = topology_of(two_inputs(tmp_path))
    with pytest.raises(ConfigurationError, match="left, right: say with --until-topic"):
        bounded_topics(topology, [])
    with pytest.raises(ConfigurationError, match="no agent reads the topic up"):
        bounded_topics(topology, ["up"])
    assert bounded_topics(topology, ["right"]) == ["right"]
    with pytest.raises(ConfigurationError, match="no end to run to"):
        bounded_topics(topology_of(App("empty")), [])


def test_an_app_with_sources_has_no_end(tmp_path: Path) -> None:
    app = two_inputs(tmp_path)

    @app.source(app.topic("left", value_type=str))
    async def ticks(position: int | None) -> AsyncIterator[None]:
        yield None

    with pytest.raises(ConfigurationError, match="app with sources"):
        bounded_topics(topology_of(app), ["left"])


class Chain:
    """A cluster in which ``lines`` is done and one record is left in ``middle``. It is handled
    right after the first look at offsets or ends, and leaves a record in ``last``."""

    def __init__(self) -> None:
        self.middle, self.last = TopicPartition("middle", 0), TopicPartition("last", 0)
        self.ends = {TP: 5, self.middle: 4, self.last: 0}
        self.offsets = {TP: 5, self.middle: 3}

    def _look(self, seen: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = dict(seen)
        self.offsets[self.middle], self.ends[self.last] = 4, 1
        return found

    def admin(self) -> Chain:
        return self

    def consumer(self) -> Chain:
        return self

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: OffsetAndMetadata(at) for tp, at in self._look(self.offsets).items()}

    async def describe_topics(self, names: list[str]) -> dict[str, Any]:
        one = SimpleNamespace(partitions=[SimpleNamespace(partition=0)])
        return dict.fromkeys(names, one)

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(
        self, tps: list[TopicPartition], isolation: str
    ) -> dict[TopicPartition, int]:
        found = self._look(self.ends)
        return {tp: found[tp] for tp in tps}


async def test_a_record_that_moves_on_between_two_looks_is_not_overlooked() -> None:
    chain: Any = Chain()
    topology: Any = SimpleNamespace(source_topics=("last", "lines", "middle"))
    run = BoundedRun(chain, topology, "group", {TP: 5})
    assert not await run.is_done(), "one record is in the last topic"
    assert not await run.is_done()
    chain.offsets[chain.last] = 1
    assert await run.is_done()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[str]:
    async with Broker(data_dir=str(tmp_path / "broker")) as running:
        yield running.bootstrap


async def put(kafka: KafkaCluster, first: int, last: int, timestamp: int = 1) -> None:
    producer = kafka.producer()
    for partition in (0, 1):
        values: list[bytes | None] = [b"k%d-%d" % (n % 7, n) for n in range(first, last)]
        mine = values[partition::2]
        await producer.produce("lines", partition, [None] * len(mine), mine, timestamps=timestamp)
    await producer.close()


async def totals(kafka: KafkaCluster) -> Counter[str]:
    """What came out: how often each count of each key."""
    tps = [TopicPartition("totals", 0), TopicPartition("totals", 1)]
    consumer = kafka.consumer(isolation="read_committed")
    ends = await consumer.end_offsets(tps, "read_committed")
    await consumer.start()
    consumer.assign(tps)
    found: Counter[str] = Counter()
    async with asyncio.timeout(20):
        while any((consumer.position(tp) or 0) < ends[tp] for tp in tps):
            for fetched in await consumer.fetch(timeout_ms=100):
                records = fetched.records
                found.update(
                    f"{(key or b'').decode()}={(value or b'').decode()}"
                    for key, value in zip(records.keys, records.values, strict=True)
                )
    await consumer.stop()
    return found


def expected(lines: int) -> Counter[str]:
    counts = Counter(n % 7 for n in range(lines))
    return Counter(f"k{key}={n}" for key, count in counts.items() for n in range(1, count + 1))


def write_app(tmp_path: Path, broker: str) -> str:
    file = tmp_path / "bounded_app.py"
    file.write_text(APP.format(folder=str(tmp_path / "app"), broker=broker))
    return f"{file}:app"


async def test_workers_end_when_all_up_to_the_bound_is_done_and_nothing_behind_it(
    tmp_path: Path, broker: str
) -> None:
    target = write_app(tmp_path, broker)
    kafka = connect(App("probe", broker=broker, datadir=str(tmp_path)))
    await kafka.start()
    await kafka.admin().create_topics([NewTopic("lines", 2, 1)])
    await put(kafka, 0, LINES, timestamp=1_000)
    await put(kafka, LINES, LINES + 100, timestamp=2_000)
    log = tmp_path / "log"

    async def run(*options: str) -> None:
        process = await start("worker", target, "--until-topic", "lines", *options, log=log)
        try:
            assert await asyncio.wait_for(process.wait(), 40) == 0, log.read_text()[-3000:]
        finally:
            if process.returncode is None:
                process.kill()

    await run("--workers", "2", "--until", "@2000")
    assert await totals(kafka) == expected(LINES)
    offsets = await kafka.admin().list_group_offsets("bounded")
    assert {offsets[TopicPartition("lines", p)].offset for p in (0, 1)} == {LINES // 2}

    await run("--until", "latest")
    assert await totals(kafka) == expected(LINES + 100)
    await run("--until", "latest")  # nothing is left to do
    assert await totals(kafka) == expected(LINES + 100)
    await kafka.close()


async def test_a_run_ends_while_more_is_being_written(tmp_path: Path, broker: str) -> None:
    app = App("live", broker=broker, datadir=str(tmp_path / "live"), commit_interval=0.02)
    seen = app.topic("totals", value_type=str, partitions=2)

    @app.agent(app.topic("lines", value_type=str, partitions=2))
    async def copy(stream: Stream[str]) -> None:
        async for line in stream:
            await seen.send(key="k", value=line)

    kafka = connect(app)
    await kafka.start()
    await kafka.admin().create_topics([NewTopic("lines", 2, 1)])
    await put(kafka, 0, 50)

    async def go_on() -> None:
        number = 50
        while True:
            await put(kafka, number, number + 10)
            number += 10
            await asyncio.sleep(0.01)

    bounds = await learn_bounds(app, "latest")
    writing = asyncio.create_task(go_on())
    async with asyncio.timeout(30):
        await serve(app, bounds=bounds)
    writing.cancel()
    await asyncio.wait([writing])
    found = await totals(kafka)
    await kafka.close()
    assert bounds == {TP: 25, TopicPartition("lines", 1): 25}
    assert sorted(json.loads(line.partition("=")[2].partition("-")[2]) for line in found) == list(
        range(50)
    )


async def test_an_end_that_is_none_is_refused(tmp_path: Path, broker: str) -> None:
    app = App("none", broker=broker, datadir=str(tmp_path))

    @app.agent(app.topic("lines", value_type=str))
    async def read(stream: Stream[str]) -> None:
        async for _ in stream:
            pass

    with pytest.raises(ConfigurationError, match="no topic lines yet"):
        await learn_bounds(app, "latest")
    kafka = connect(app)
    await kafka.start()
    await kafka.admin().create_topics([NewTopic("lines", 1, 1)])
    await kafka.close()
    with pytest.raises(ConfigurationError, match="give latest, or @"):
        await learn_bounds(app, "tomorrow")
