"""Databases that are slow or away, and how much waits in memory for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import App, Stream
from onceward.streams.engine.block import Block
from onceward.streams.engine.outage import Outage
from onceward.streams.engine.sink_progress import SinkProgress
from onceward.streams.sinks import Batch, MemoryDatabase, MemorySink, SinkTimeout, SinkUnavailable
from onceward.streams.sinks.effects import Effects, Room, size_of
from onceward.streams.sinks.positions import Advance

from ..workers import Worker, make_app, until, worker
from .etl import Order, assert_right, etl_app, ids, is_done, make_cluster, put_orders

NEVER = 20.0


class Watched(MemorySink):
    """Knows the size of every batch; too large ones take too long."""

    def __init__(self, database: MemoryDatabase, too_large: int = 1_000_000) -> None:
        super().__init__("rows", database=database)
        self.sizes: list[int] = []
        self.too_large = too_large

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        self.sizes.append(len(batch))
        if len(batch) > self.too_large:
            raise SinkTimeout("no answer")
        await super().commit(batch, advances)


def copying_app(
    tmp_path: Path, sink: MemorySink, *, copies: int = 1, text: str = "", interval: float = NEVER
) -> App:
    app = make_app(tmp_path, commit_interval=interval)

    @app.agent(app.topic("orders", value_type=Order), sink=[sink])
    async def etl(stream: Stream[Order]) -> AsyncIterator[dict[str, int | str]]:
        async for order in stream:
            for _ in range(copies):
                yield {"id": order.id, "text": text}

    return app


def waiting_in(running: Worker) -> int:
    return sum(len(e) for task in running.engine.tasks for e in task.sinks.effects.values())


async def test_a_sink_with_enough_rows_is_committed_before_the_interval_is_over(
    tmp_path: Path,
) -> None:
    cluster, sink = make_cluster(40), Watched(MemoryDatabase())
    sink.batch_rows = 10
    async with worker(copying_app(tmp_path, sink), cluster) as running:
        await until(lambda: len(sink.rows) >= 30, running)
    assert ids(sink.database) == list(range(40))
    assert max(sink.sizes) <= 20


async def test_a_sink_with_enough_bytes_is_committed_before_the_interval_is_over(
    tmp_path: Path,
) -> None:
    cluster, sink = make_cluster(40), Watched(MemoryDatabase())
    sink.batch_bytes = 10_000
    async with worker(copying_app(tmp_path, sink, text="x" * 2_000), cluster) as running:
        await until(lambda: len(sink.rows) >= 35, running)
    assert max(sink.sizes) <= 8


async def test_while_a_database_is_slow_no_more_rows_wait_than_fit_into_a_batch(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()

    class Slow(MemoryDatabase):
        async def wait(self) -> None:
            if self.commits:
                await gate.wait()
            await super().wait()

    sink = Watched(Slow())
    sink.batch_rows = 30
    cluster = make_cluster(20)
    async with worker(copying_app(tmp_path, sink, copies=5), cluster) as running:
        await until(lambda: bool(sink.rows), running)
        put_orders(cluster, 200, start=20)
        most = 0
        for _ in range(100):
            await asyncio.sleep(0.01)
            most = max(most, waiting_in(running))
        assert 0 < most <= 60
        assert "fetch" in cluster.calls[-20:], "the worker answers its group meanwhile"
        gate.set()
        await until(lambda: len(sink.rows) >= 1_100 - 30, running)
    assert len(sink.rows) == 1_100
    assert max(sink.sizes) <= 60


async def test_a_batch_that_takes_too_long_comes_back_half_as_large(tmp_path: Path) -> None:
    cluster, sink = make_cluster(200, batch_records=100), Watched(MemoryDatabase(), 40)
    sink.batch_rows = 100
    async with worker(copying_app(tmp_path, sink, interval=0.1), cluster) as running:
        await until(is_done(cluster), running)
    assert ids(sink.database) == list(range(200))
    assert max(sink.sizes) > 90


async def test_a_database_that_is_away_is_mentioned_once_a_minute_and_the_worker_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away, tries = [False], [0]

    def step(what: str, name: str) -> None:
        if away[0]:
            tries[0] += 1
            raise SinkUnavailable(f"sink {name!r}: connection refused")

    cluster, database = make_cluster(20), MemoryDatabase(on_step=step)
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
        members = dict(cluster.groups["app"].members)
        away[0] = True
        put_orders(cluster, 20, start=20)
        await until(lambda: tries[0] > 5, running)
        told = [record.getMessage() for record in caplog.records if "refused" in record.message]
        assert len(told) == 2, told
        assert "running again from the last commit: committing: sink 'rows'" in told[0]
        assert "bringing up tasks: sink 'rows': connection refused; trying again" in told[1]
        away[0] = False
        await until(is_done(cluster), running)
        assert dict(cluster.groups["app"].members) == members
    assert "tasks are up again after" in caplog.text
    assert_right(cluster, database, 40)


async def test_an_outage_is_told_at_once_then_every_minute_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    outage = Outage(logging.getLogger("test"), "the database answers again")
    outage.over()
    for second in range(130):
        now[0] = float(second)
        outage.tell("away")
    outage.over()
    outage.over()
    outage.tell("away")
    monkeypatch.undo()
    assert [record.getMessage() for record in caplog.records] == [
        "away",
        "away (61 times in 60 s)",
        "away (121 times in 120 s)",
        "the database answers again after 129 s and 130 tries",
        "away",
    ]


def test_progress_is_said_once_a_minute() -> None:
    progress = SinkProgress()
    progress.committed(100, 0)
    assert progress.report(0.0, 5) is None
    progress.committed(499, 1)
    assert progress.report(59.0, 5) is None
    assert progress.report(100.0, 7) == (
        "599 rows in 100 s (6/s), 1 refused, 599 since the start, 7 records to go"
    )
    progress.committed(1, 0)
    assert (
        progress.report(200.0, 0) == "1 rows in 100 s (0/s), 600 since the start, 0 records to go"
    )


def block(size: int) -> Block:
    tp = TopicPartition("orders", 0)
    return Block(tp, [None] * size, [None] * size, list(range(size)), [0] * size, None, size)


def test_what_was_taken_or_undone_does_not_wait_any_more() -> None:
    room, records = Room(100, 1_000_000), block(200)
    first, second = Effects(), Effects()
    for effects in (first, second):
        effects.wait_in(room)

    def add(effects: Effects, count: int) -> bool:
        full = False
        for n in range(count):
            effects.add({"n": n, "text": "abc"}, records, n, "etl")
            if len(effects) >= effects.check_at:
                full = effects.is_full()
        return full

    assert not add(first, 70)
    assert add(second, 70)
    first.take()
    assert not room.is_full
    assert second.take().values and (room.rows, room.bytes) == (0, 0)
    first.mark()
    add(first, 99)
    first.roll_back()
    assert not add(first, 70)
    first.clear()
    assert (room.rows, room.bytes) == (0, 0)


def test_a_room_shrinks_to_what_can_be_taken_in_time_and_grows_again() -> None:
    room = Room(100, 1_000_000)
    room.shrink(90)
    assert room.max_rows == 45
    room.shrink(200)
    assert room.max_rows == 45
    for _ in range(9):
        room.shrink(room.max_rows)
    assert room.max_rows == 16
    for _ in range(9):
        room.grow()
    assert room.max_rows == 100


def test_sizes_are_those_of_what_is_long() -> None:
    assert size_of(b"x" * 1_000) == 1_016
    assert size_of({"a": "x" * 500, "b": ["y" * 500, 1, None]}) == 16 + 516 + 16 + 516 + 32
    assert size_of(Order(1, 2)) == 16 * 3
