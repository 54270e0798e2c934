"""Timers of one shard: keys with deadlines, driven by the event loop.

The deadline is in milliseconds of the injected clock; the wait itself is measured by
``loop.time()``, so a wall clock that jumps neither fires nor delays a timer that is already set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..types import Clock
from .result import TimerKey


class Timers:
    """At most one pending timer per key. ``on_expired(key)`` runs as a loop callback."""

    def __init__(self, *, clock: Clock, on_expired: Callable[[TimerKey], None]) -> None:
        self._clock = clock
        self._on_expired = on_expired
        self._handles: dict[TimerKey, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Set or move the timer ``key``; a deadline in the past fires at the next loop turn."""
        self.cancel(key)
        loop = asyncio.get_running_loop()
        delay = max(0, deadline_ms - self._clock()) / 1000
        self._handles[key] = loop.call_at(loop.time() + delay, self._expire, key)

    def cancel(self, key: TimerKey) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _expire(self, key: TimerKey) -> None:
        del self._handles[key]
        self._on_expired(key)
