import asyncio
import contextlib
import errno

import pytest

from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.storage.flusher import Flusher
from onceward.streams.testing.sim import SimDisk
from onceward.streams.testing.sim.disk import SimFile

from ..log.harness import append, open_log


class Bench:
    """A flusher that runs, one log, and what the flusher said."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.sync_gate = asyncio.Event()
        self.log = open_log(self.disk)
        self.flushed: list[int] = []
        self.failures: list[BaseException] = []
        self.flusher: Flusher[PartitionLog] = Flusher(
            lambda log: self.flushed.append(log.high_watermark), self.failures.append
        )

    def append(self) -> None:
        append(self.log, b"x")
        self.flusher.mark_dirty(self.log)

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def let_sync(self) -> None:
        gate = self.disk.sync_gate
        assert gate is not None
        self.disk.sync_gate = asyncio.Event()
        gate.set()
        await self.turn()


@pytest.fixture
async def bench():
    bench = Bench()
    task = asyncio.ensure_future(bench.flusher.run())
    yield bench
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_appends_of_one_turn_share_a_sync(bench):
    for _ in range(10):
        bench.append()
    await bench.turn()
    assert (bench.disk.syncs, bench.flushed) == (1, [])
    await bench.let_sync()
    assert (bench.disk.syncs, bench.flushed) == (1, [10])


async def test_appends_during_a_sync_wait_for_the_next_one(bench):
    bench.append()
    await bench.turn()
    bench.append()
    bench.append()
    await bench.turn()
    assert bench.disk.syncs == 1
    await bench.let_sync()
    assert (bench.disk.syncs, bench.flushed) == (2, [1])
    await bench.let_sync()
    assert bench.flushed == [1, 3]


async def test_flush_all_returns_when_everything_before_it_is_durable(bench):
    bench.append()
    await bench.turn()
    bench.append()
    done = asyncio.ensure_future(bench.flusher.flush_all())
    await bench.let_sync()
    assert not done.done()
    await bench.let_sync()
    await done
    assert bench.log.high_watermark == 2


async def test_a_failed_sync_is_reported_once_and_nothing_is_acknowledged(bench):
    bench.append()
    await bench.turn()
    bench.disk.failing_syncs = True
    await bench.let_sync()
    bench.append()
    await bench.turn()
    await bench.flusher.flush_all()
    assert len(bench.failures) == 1
    assert isinstance(bench.failures[0], OSError)
    assert (bench.flushed, bench.log.high_watermark) == ([], 0)


async def test_a_cancelled_pass_leaves_the_log_dirty(bench):
    append(bench.log, b"x")
    other: Flusher[PartitionLog] = Flusher(lambda log: None, bench.failures.append)
    other.mark_dirty(bench.log)
    task = asyncio.ensure_future(other.run())
    await bench.turn()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    flushing = asyncio.ensure_future(other.flush_all())
    await bench.turn()
    await bench.let_sync()
    await flushing
    assert bench.log.high_watermark == 1


async def test_a_log_that_is_closed_during_a_pass_is_let_go(bench):
    bench.append()
    await bench.turn()
    bench.log.abandon()
    bench.flusher.forget(bench.log)
    await bench.let_sync()
    assert (bench.failures, bench.log.high_watermark) == ([], 0)


class BrokenFile(SimFile):
    """Its syncs fail at once; those of others take their time."""

    async def fsync(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


async def test_a_failed_sync_is_reported_before_the_others_of_its_pass_end(bench, monkeypatch):
    bench.append()
    good = bench.log.unsynced_files()
    broken = bench.disk.open("/broken", create=True)
    broken.__class__ = BrokenFile
    monkeypatch.setattr(bench.log, "unsynced_files", lambda: [*good, broken])
    await bench.turn()
    assert (bench.disk.syncs, len(bench.failures), bench.flushed) == (1, 1, [])
    await bench.let_sync()
    assert (len(bench.failures), bench.flushed) == (1, [])
