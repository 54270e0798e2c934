"""An event loop that runs until there is nothing to do, on a clock that is moved by hand.

Nothing here waits in real time, with one exception: while user code has sockets open or work in an
executor, and is in the middle of something, those are given real time to answer.
"""

from __future__ import annotations

import asyncio
import enum
import math
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_PATIENCE_S = 5.0
"""Real seconds that sockets and executors are waited for before virtual time goes on."""
_MAX_TURNS = 1_000_000
"""Turns of the loop without a moment at which nothing is ready: somebody spins."""
_MAX_AGAIN = 10_000
"""Moments at which nothing is ready, without the clock moving on."""


class Verdict(enum.Enum):
    """What a judge says when no callback is ready.

    DONE   what was asked for is reached; the clock goes to where it should, then ``run`` returns
    AGAIN  the judge made something ready
    BUSY   something is half done: it waits for a timer, a socket or an executor
    """

    DONE = "done"
    AGAIN = "again"
    BUSY = "busy"


Judge = Callable[[], Verdict]


class Stuck(Exception):
    """Something is half done and nothing can make it go on (or it takes too long)."""


class SteppingLoop(asyncio.SelectorEventLoop):
    """``run(judge, until)`` is the only way it runs. ``time()`` is virtual seconds from 0.

    Usable where another event loop is running: that one stands still meanwhile.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._judge: Judge | None = None
        self._until = 0.0
        self._limit = math.inf
        self._turns = 0
        self._again = 0
        self._jobs = 0
        self._lent: float | None = None
        self._quiet = _Selector(self)
        super().__init__(self._quiet)
        # asyncio takes timers this much too early: less would be lost in a float after some months
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._now

    def run(self, judge: Judge, *, until: float | None = None, limit_s: float = 3600.0) -> None:
        """Run until ``judge`` says DONE and every timer up to ``until`` (default: now) has run.

        Raises Stuck when BUSY lasts longer than ``limit_s`` virtual seconds after ``until``, or
        when nothing is left to wait for.
        """
        self._judge = judge
        self._until = self._now if until is None else max(until, self._now)
        self._limit = self._until + limit_s
        self._turns = self._again = 0
        with _standing_still():
            try:
                self.run_forever()
            finally:
                self._judge = None

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result. Raises Stuck and what the coroutine raises."""
        task = self.create_task(coroutine)
        try:
            self.run(lambda: Verdict.DONE if task.done() else Verdict.BUSY)
        finally:
            if not task.done():
                task.cancel()
        return task.result()

    def shut_down(self) -> None:
        """Cancel every task, let the cancelled ones end, close. Idempotent."""
        if self.is_closed():
            return
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        try:
            self.run(lambda: _until_all(tasks))
            self.run_coroutine(self.shutdown_asyncgens())
        finally:
            self.close()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As asyncio's; the loop waits for the result in real time."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    @property
    def has_jobs(self) -> bool:
        """Whether an executor works on something."""
        return self._jobs > 0

    def _job_done(self, _: Any) -> None:
        self._jobs -= 1

    # called by the selector

    def before_select(self, timeout: float | None) -> float:
        """How long to wait for sockets in real seconds. ``timeout`` 0: callbacks are ready."""
        self._lent = None
        if timeout == 0:
            self._turns += 1
            if self._turns > _MAX_TURNS:
                raise Stuck("it spins: the event loop never comes to rest")
            return 0.0
        self._turns = 0
        judge = self._judge
        if judge is None:
            raise RuntimeError("a SteppingLoop runs with run()")
        verdict = judge()
        if verdict is Verdict.AGAIN:
            self._again += 1
            if self._again > _MAX_AGAIN:
                raise Stuck("it makes no progress")
            return 0.0
        if verdict is Verdict.DONE:
            if timeout is None or self._now + timeout > self._until:
                self._now = self._until
                self.stop()
                return 0.0
            self._advance(timeout)
            return 0.0
        return self._wait_busy(timeout)

    def after_select(self, found: bool) -> None:
        """Time that was really waited for in vain has passed here too."""
        lent, self._lent = self._lent, None
        if lent is not None and not found:
            self._advance(lent)

    def _wait_busy(self, timeout: float | None) -> float:
        if self._now >= self._limit:
            raise Stuck(f"it is still at it after {self._limit - self._until:g} virtual seconds")
        if self._jobs or self._quiet.has_sockets:
            self._lent = _PATIENCE_S if timeout is None else min(timeout, _PATIENCE_S)
            if timeout is None and not self._jobs:
                self._limit = min(self._limit, self._now + _PATIENCE_S)
            return self._lent
        if timeout is None:
            raise Stuck("it waits for something that never comes")
        self._advance(timeout)
        return 0.0

    def _advance(self, seconds: float) -> None:
        later = self._now + seconds
        self._now = later if later > self._now else math.nextafter(self._now, math.inf)
        self._again = 0


class _Selector(selectors.DefaultSelector):
    """Tells the loop when it would have to wait."""

    def __init__(self, loop: SteppingLoop) -> None:
        super().__init__()
        self._loop = loop

    @property
    def has_sockets(self) -> bool:
        return len(self.get_map()) > 1  # one is the loop's own, for waking up

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        wait = self._loop.before_select(timeout)
        found = super().select(wait)
        self._loop.after_select(bool(found))
        return found


def _until_all(tasks: set[asyncio.Task[Any]]) -> Verdict:
    return Verdict.DONE if all(task.done() for task in tasks) else Verdict.BUSY


@contextmanager
def _standing_still() -> Iterator[None]:
    """Without the running event loop of this thread, if there is one, and its current task."""
    outer = asyncio._get_running_loop()
    if outer is None:
        yield
        return
    task = asyncio.current_task(outer)
    if task is not None:
        asyncio.tasks._leave_task(outer, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
        if task is not None:
            asyncio.tasks._enter_task(outer, task)
