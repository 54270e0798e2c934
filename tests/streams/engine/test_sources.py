"""A split of a source as a task: when it takes rows, and how many."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

from onceward.broker.client import TopicPartition
from onceward.streams import App
from onceward.streams.engine.sources import SourceTask
from onceward.streams.engine.task import Task, TaskId
from onceward.streams.errors import WorkerError
from onceward.streams.sources import Row, Rows, Source
from onceward.streams.state import MemoryStore, StoreTransaction
from onceward.streams.topology import topology_of


class Events:
    def __init__(self) -> None:
        self.failures: list[WorkerError] = []
        self.full = 0

    def task_progressed(self, task: Task) -> None: ...

    def task_wants_commit(self, task: Task) -> None:
        self.full += 1

    def task_failed(self, task: Task, error: WorkerError) -> None:
        self.failures.append(error)

    def task_needs_rewind(self, task: Task, reason: str) -> None: ...


def counting(value: Any = "x") -> Callable[..., AsyncIterator[Row]]:
    async def count(position: int | None) -> AsyncIterator[Row]:
        for n in itertools.count(0 if position is None else position + 1):
            yield Row(n, value)

    return count


class Running:
    """One split, started."""

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        app = App("app", store="memory://", **settings)
        self.source: Source = app.source("rows")(function)
        (sub,) = topology_of(app).sub_topologies
        table = self.source.positions
        self.store = StoreTransaction(MemoryStore(), table.encode_value, table.decode_value)
        self.events = Events()
        self.input = TopicPartition(self.source.positions_topic.name, 0)
        self.task = SourceTask(
            TaskId(0, 0), sub, [self.input], {table.name: self.store}, app.conf, self.events,
            lambda: 1_000,
        )  # fmt: skip

    async def start(self) -> None:
        self.task.restoring()
        self.task.start({self.input: 0})
        await turns()

    @property
    def rows(self) -> int:
        return len(self.task.outputs)

    def take(self) -> int:
        """A commit cycle; returns the rows of its transaction."""
        taken = len(self.task.outputs)
        self.task.outputs.take()
        self.store.prepare()
        self.task.records_since_commit = 0
        self.task.end_cut()
        self.store.flush(self.store.store.checkpoint + 1)
        return taken


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_row_is_taken_between_a_cut_and_its_end() -> None:
    running = Running(counting())
    await running.start()
    running.task.request_cut()
    before = running.rows
    assert before > 0
    assert running.task.is_parked
    await turns()
    assert running.rows == before
    assert running.take() == before
    assert dict(running.store.store.items()) == {b"0": b"%d" % (before - 1)}
    await turns()
    assert running.rows > 0
    await running.task.close()


async def test_rows_wait_for_a_commit_when_there_are_as_many_as_a_transaction_takes() -> None:
    running = Running(counting(), commit_records=1_000)
    await running.start()
    await turns()
    assert (running.rows, running.events.full) == (1_000, 1)
    running.task.request_cut()
    assert running.take() == 1_000
    await turns()
    assert running.rows == 1_000
    await running.task.close()


async def test_rows_wait_for_a_commit_when_they_are_large() -> None:
    running = Running(counting("x" * 1_000_000))
    await running.start()
    await turns()
    assert (running.rows, running.events.full) == (17, 1)
    running.task.request_cut()
    running.take()
    await turns()
    assert running.rows == 17
    await running.task.close()


async def test_the_fence_goes_with_every_commit_whether_the_offset_moved_or_not() -> None:
    running = Running(counting())
    await running.start()
    assert running.task.changed_positions() == {running.input: 0}
    await running.task.close()


async def test_a_function_that_never_waits_gives_others_their_turn() -> None:
    running = Running(counting(), commit_records=1_000_000)
    await running.start()
    before = running.rows
    await turns(1)
    assert running.rows - before == 512
    await running.task.close()


async def test_an_empty_chunk_only_moves_the_position() -> None:
    async def empty(position: int | None) -> AsyncIterator[Rows]:
        yield Rows(5, [])

    running = Running(empty)
    await running.start()
    assert running.rows == 0
    assert running.task.is_dirty
    assert running.task.has_ended
    running.task.request_cut()
    running.take()
    assert dict(running.store.store.items()) == {b"0": b"5"}
    await running.task.close()


async def test_what_was_not_committed_is_read_again_after_a_rewind() -> None:
    starts: list[Any] = []

    async def count(position: int | None) -> AsyncIterator[Row]:
        starts.append(position)
        for n in range(0 if position is None else position + 1, 3):
            yield Row(n, n)

    running = Running(count)
    await running.start()
    await running.task.suspend()
    assert running.rows == 0
    running.task.start({running.input: 0})
    await turns()
    running.task.request_cut()
    assert running.take() == 3
    await running.task.suspend()
    running.task.start({running.input: 0})
    await turns()
    assert starts == [None, None, 2]
    assert running.events.failures == []
    await running.task.close()


async def test_a_function_that_swallows_being_cancelled_adds_no_row() -> None:
    async def stubborn(position: int | None) -> AsyncIterator[Row]:
        for n in range(3):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass
            yield Row(n, n)

    running = Running(stubborn)
    await running.start()
    await running.task.suspend()
    await turns()
    assert running.rows == 0
    running.task.start({running.input: 0})
    await turns()
    assert (running.rows, running.task.is_dirty) == (0, False)
    await running.task.close()
    assert running.rows == 0


async def test_positions_of_another_split_are_refused() -> None:
    running = Running(counting())
    running.store.store.write([(b"other", b"5")], 1)
    running.task.restoring()
    try:
        running.task.start({running.input: 0})
    except WorkerError as error:
        assert "split '0' is where split 'other' was" in str(error)
    else:
        raise AssertionError("it was not refused")
    await running.task.close()
