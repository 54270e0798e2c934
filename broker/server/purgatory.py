"""Where requests wait for a partition to move.

A waiter names the partitions it depends on and a test; the test is run again whenever one of them
is reported by ``notify`` (its high watermark or last stable offset moved, or it is gone). Tests
must be cheap and change nothing: one flush runs those of every waiter of the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from ..types import TopicPartition


class _Waiter:
    __slots__ = ("future", "satisfied")

    def __init__(self, satisfied: Callable[[], bool], future: asyncio.Future[bool]) -> None:
        self.satisfied = satisfied
        self.future = future

    def finish(self, result: bool) -> None:
        if not self.future.done():
            self.future.set_result(result)


class Purgatory:
    """Waiters by partition. One per broker; single event loop."""

    def __init__(self) -> None:
        self._waiters: dict[TopicPartition, dict[_Waiter, None]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Waiters, counted once per partition they wait for."""
        return sum(len(waiters) for waiters in self._waiters.values())

    def notify(self, tp: TopicPartition) -> None:
        """The partition moved: release the waiters whose test now holds."""
        for waiter in list(self._waiters.get(tp, ())):
            if waiter.satisfied():
                waiter.finish(True)

    async def wait(
        self,
        partitions: Collection[TopicPartition],
        satisfied: Callable[[], bool],
        timeout_s: float | None,
    ) -> bool:
        """Return True as soon as ``satisfied()`` holds, False after the timeout or at shutdown."""
        if satisfied():
            return True
        if self._closed or (timeout_s is not None and timeout_s <= 0):
            return False
        loop = asyncio.get_running_loop()
        waiter = _Waiter(satisfied, loop.create_future())
        timer = None if timeout_s is None else loop.call_later(timeout_s, waiter.finish, False)
        for tp in partitions:
            self._waiters.setdefault(tp, {})[waiter] = None
        try:
            return await waiter.future
        finally:
            if timer is not None:
                timer.cancel()
            self._remove(waiter, partitions)

    def _remove(self, waiter: _Waiter, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            waiters = self._waiters.get(tp)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[tp]

    def close(self) -> None:
        """Release everybody with False; nothing waits from now on."""
        self._closed = True
        for waiters in list(self._waiters.values()):
            for waiter in list(waiters):
                waiter.finish(False)
