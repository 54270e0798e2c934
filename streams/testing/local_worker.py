"""A worker of a local cluster: an engine in the running event loop that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ..app import App
from ..engine.engine import Engine
from ..engine.kafka import KafkaCluster
from ..engine.slots import WorkerSlot, take_slot
from ..engine.worker import connect
from ..probe import learn_stages
from ..state import StoreTransaction
from ..topology import topology_of


class LocalEngine(Engine):
    """The engine; after ``kill`` nothing of it reaches the cluster any more."""

    def __init__(self, app: App, kafka: KafkaCluster, slot: WorkerSlot) -> None:
        super().__init__(app, topology_of(app), kafka, slot)
        self.is_killed = False

    async def _shut_down(self) -> None:
        if not self.is_killed:
            await super()._shut_down()
            return
        await self._kafka.close()  # first: neither offsets nor goodbyes leave after this
        await self._background.stop()
        await self._tasks.close_all()
        await self._consumer.stop(leave=False)
        await self._cycle.close()
        self._app.on_engine_stopped(self)


class LocalWorker:
    """A slot, and the engine that runs in it. ``fresh_app`` is called for every start."""

    def __init__(self, fresh_app: Callable[[], App]) -> None:
        self._fresh_app = fresh_app
        self._engine: LocalEngine | None = None
        self._running: asyncio.Task[None] | None = None
        self._undo = ExitStack()
        self._place: tuple[str, Path] | None = None

    async def start(self, bootstrap: str, datadir: Path) -> None:
        """Start; ``is_settled`` says when it runs. Raises ConfigurationError."""
        self._place = (bootstrap, datadir)
        app = self._fresh_app()
        for agent in app.agents.values():
            await learn_stages(agent)
        slot = take_slot(datadir, app.conf.id)
        self._undo.callback(slot.release)
        self._engine = LocalEngine(app, connect(app, bootstrap), slot)
        self._running = asyncio.create_task(self._engine.run(), name="local-worker")

    async def restart(self) -> None:
        """Start again what was killed or failed."""
        if self._place is None:
            raise RuntimeError("the worker was never started")
        await self.start(*self._place)

    async def kill(self) -> None:
        """As SIGKILL would, seen from the cluster. Idempotent; what it failed with is forgotten."""
        engine, running = self._engine, self._running
        self._engine = self._running = None
        if engine is not None and running is not None:
            engine.is_killed = True
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()
        self._undo.close()

    async def stop(self) -> None:
        """Commit and leave. Idempotent. Raises what it failed with."""
        engine, running = self._engine, self._running
        self._engine = self._running = None
        try:
            if engine is not None and running is not None:
                engine.stop()
                await running
        finally:
            self._undo.close()

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    @property
    def is_settled(self) -> bool:
        """Whether all tasks run."""
        return self._engine is not None and self._engine.tasks.is_settled

    @property
    def tasks(self) -> int:
        return 0 if self._engine is None else len(self._engine.tasks.running)

    @property
    def partitions(self) -> int:
        """Input partitions it runs."""
        engine = self._engine
        return 0 if engine is None else sum(len(task.inputs) for task in engine.tasks.running)

    def open_partitions(self, table: str) -> list[StoreTransaction]:
        return [] if self._engine is None else self._engine.open_partitions(table)

    def raise_failure(self) -> None:
        """Raise what it ended with, if it did."""
        if self._running is not None and self._running.done():
            self._running.result()
