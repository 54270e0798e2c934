"""Timers, crontabs and tasks of an app: coroutines that run beside the agents of a worker."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import WorkerError
from .context import CURRENT
from .cron import Crontab
from .worker_context import WorkerContext


@dataclass(frozen=True, slots=True)
class Background:
    """A declared timer (``interval`` in seconds), crontab, or task (neither: runs once)."""

    name: str
    fun: Callable[..., Any]
    interval: float | None = None
    crontab: Crontab | None = None
    on_leader: bool = False


class BackgroundRunner:
    """Runs every ``Background`` of a worker; ``on_failure`` hears of an exception in one of
    them."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        app: object,
        now_ms: Callable[[], int],
        is_leader: Callable[[], bool],
        on_failure: Callable[[WorkerError], None],
    ) -> None:
        self._context = context
        self._app = app
        self._now_ms = now_ms
        self._is_leader = is_leader
        self._on_failure = on_failure
        self._running: list[asyncio.Task[None]] = []

    def start(self, declared: Sequence[Background]) -> None:
        for background in declared:
            context = contextvars.copy_context()
            context.run(CURRENT.set, self._context)
            task = asyncio.get_running_loop().create_task(
                self._run(background), name=background.name, context=context
            )
            task.add_done_callback(functools.partial(self._done, background))
            self._running.append(task)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []

    def _run(self, background: Background) -> Coroutine[Any, Any, None]:
        if background.interval is not None:
            return self._repeat(background, background.interval)
        if background.crontab is not None:
            return self._at_times(background, background.crontab)
        return self._once(background)

    async def _once(self, background: Background) -> None:
        if background.on_leader and not self._is_leader():
            return
        takes_app = len(inspect.signature(background.fun).parameters) > 0
        result = background.fun(self._app) if takes_app else background.fun()
        if inspect.isawaitable(result):
            await result

    async def _repeat(self, background: Background, interval: float) -> None:
        """Every ``interval`` seconds without drift; times missed by a slow call are skipped."""
        loop = asyncio.get_running_loop()
        due = loop.time() + interval
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._once(background)
            now = loop.time()
            due = due + interval if due + interval > now else now + interval

    async def _at_times(self, background: Background, crontab: Crontab) -> None:
        while True:
            now = self._now_ms() / 1000
            await asyncio.sleep(crontab.next_after(now) - now)
            await self._once(background)

    def _done(self, background: Background, done: asyncio.Task[None]) -> None:
        if done.cancelled() or done.exception() is None:
            return
        cause = done.exception()
        error = WorkerError(f"{background.name} failed: {type(cause).__name__}: {cause}")
        error.__cause__ = cause
        self._on_failure(error)
