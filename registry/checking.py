"""Parsing and comparing away from the event loop, within bounds of time and number.

Python cannot stop a thread, so the bounds of the work itself (``Limits``, the steps of a
comparison) make it end; the time limit here is for who waits for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from .compatibility import LevelVerdict
from .entities import Config
from .errors import RegistryError
from .schemas import Limits, ParsedSchema
from .sources import Comparison, OldVersion, Source, compare, parse, too_slow

R = TypeVar("R")

MAX_CACHED_TEXT = 16 * 1024 * 1024
"""Characters of schema text whose parsed form is kept, which takes about ten times as much."""


class Offload(Protocol):
    """Runs pure work somewhere and returns what it returned or raised."""

    def __call__(self, work: Callable[[], R]) -> Awaitable[R]: ...


class Checker:
    """``workers`` run at once, ``max_waiting`` more may wait; whoever comes then is refused (429).

    ``time_limit_s`` is for one request's work.
    """

    def __init__(
        self,
        offload: Offload,
        limits: Limits,
        *,
        workers: int = 2,
        max_waiting: int = 500,
        time_limit_s: float = 10.0,
    ) -> None:
        self._offload = offload
        self._limits = limits
        self._slots = asyncio.Semaphore(workers)
        self._max = workers + max_waiting
        self._pending = 0
        self._time_limit = time_limit_s
        self._cache: OrderedDict[tuple[Source, bool, bool], ParsedSchema] = OrderedDict()
        self._cached_text = 0

    async def parse(self, source: Source, *, strict: bool, normalize: bool) -> ParsedSchema:
        """Raises ``RegistryError`` 42201, 42209, 429."""
        known = self._cached(source, strict=strict, normalize=normalize)
        if known is not None:
            return known
        parsed = await self._run(
            lambda: parse(source, strict=strict, normalize=normalize, limits=self._limits)
        )
        self._keep(source, strict, normalize, parsed)
        return parsed

    async def compare(
        self, config: Config, new: ParsedSchema, versions: Sequence[OldVersion]
    ) -> LevelVerdict:
        """Raises ``RegistryError`` 42201, 42209, 429."""
        if not versions:
            return LevelVerdict(config.level)
        clock = asyncio.get_running_loop().time
        old = [
            OldVersion(one.number, one.source, self._cached(one.source, strict=False))
            for one in versions
        ]

        def work() -> Comparison:
            deadline = clock() + self._time_limit
            return compare(
                config, new, old, limits=self._limits, expired=lambda: clock() > deadline
            )

        comparison = await self._run(work)
        for one in old:
            parsed = comparison.parsed.get(one.number)
            if parsed is not None:
                self._keep(one.source, False, False, parsed)
        return comparison.verdict

    async def _run(self, work: Callable[[], R]) -> R:
        """Whoever waits is told to come back later; whoever takes too long, that it is too much."""
        if self._pending >= self._max:
            raise _busy()
        self._pending += 1
        try:
            async with asyncio.timeout(self._time_limit):
                await self._slots.acquire()
        except TimeoutError:
            self._pending -= 1
            raise _busy() from None
        except asyncio.CancelledError:
            self._pending -= 1
            raise
        task: asyncio.Task[R] = asyncio.create_task(self._in_slot(work))
        task.add_done_callback(_settled)
        try:
            async with asyncio.timeout(self._time_limit):
                return await asyncio.shield(task)
        except TimeoutError:
            raise too_slow() from None

    async def _in_slot(self, work: Callable[[], R]) -> R:
        """The slot is free again when the work is over, whether anybody still waits or not."""
        try:
            return await self._offload(work)
        finally:
            self._slots.release()
            self._pending -= 1

    # parsed schemas of the past

    def _cached(
        self, source: Source, *, strict: bool, normalize: bool = False
    ) -> ParsedSchema | None:
        key = source, strict, normalize
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
        return found

    def _keep(self, source: Source, strict: bool, normalize: bool, parsed: ParsedSchema) -> None:
        key = source, strict, normalize
        if key in self._cache:
            return
        self._cache[key] = parsed
        self._cached_text += _weight(source)
        while self._cached_text > MAX_CACHED_TEXT and self._cache:
            (oldest, _, _), _ = self._cache.popitem(last=False)
            self._cached_text -= _weight(oldest)


def _busy() -> RegistryError:
    return RegistryError(429, "too many schemas are being checked at once")


def _settled(task: asyncio.Task[R]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waited may be gone


def _weight(source: Source) -> int:
    return 1_000 + len(source.text) + sum(len(one.text) for one in source.resolved)
