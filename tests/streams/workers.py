"""Running engines over the fake cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onceward.streams import App
from onceward.streams.engine.engine import Engine
from onceward.streams.engine.slots import WorkerSlot, take_slot
from onceward.streams.engine.worker import make_engine

from .fakes import FakeCluster, FakeConsumer, FakeKafka


def make_app(tmp_path: Path, **options: Any) -> App:
    """An app with short intervals whose files are in ``tmp_path``."""
    options = {
        "commit_interval": 0.01,
        "store": "memory://",
        "datadir": str(tmp_path),
        "topic_partitions": 1,
        **options,
    }
    return App(options.pop("id", "app"), **options)


class Worker:
    """A running engine."""

    def __init__(
        self, engine: Engine, kafka: FakeKafka, slot: WorkerSlot, running: asyncio.Task[None]
    ) -> None:
        self.engine = engine
        self.kafka = kafka
        self.slot = slot
        self.running = running
        self.is_killed = False

    @property
    def consumer(self) -> FakeConsumer:
        return self.kafka.consumers[0]

    async def stop(self) -> None:
        self.engine.stop()
        await self.running

    async def kill(self) -> None:
        """As SIGKILL: nothing is closed, aborted or left; the kernel releases the slot."""
        self.is_killed = True
        self.engine._shut_down = _nothing  # type: ignore[method-assign]
        self.running.cancel()
        await asyncio.wait([self.running])
        for task in self.engine.tasks:
            await task._stop_agents()
        self.slot.release()


@asynccontextmanager
async def worker(app: App, cluster: FakeCluster) -> AsyncIterator[Worker]:
    """One worker; stopped at the end unless it ended by itself."""
    kafka = FakeKafka(cluster)
    slot = take_slot(app.conf.datadir, app.conf.id)
    engine = await make_engine(app, kafka, slot)
    running = asyncio.create_task(engine.run())
    try:
        made = Worker(engine, kafka, slot, running)
        yield made
        if not made.is_killed:
            engine.stop()
            await running
    finally:
        running.cancel()
        await asyncio.wait([running])
        slot.release()


async def until(condition: Callable[[], bool], *workers: Worker, timeout: float = 5.0) -> None:
    """Wait for a condition; a worker that failed meanwhile raises what it failed with."""
    async with asyncio.timeout(timeout):
        while not condition():
            for one in workers:
                if one.running.done():
                    one.running.result()
            await asyncio.sleep(0.002)


async def _nothing() -> None: ...
