"""Group commit: one pass of syncs in flight; everything appended meanwhile shares the next one.

A pass takes the logs that are dirty, remembers the end of each, syncs all their files at once, and
only then tells each log how far it is durable. An append made while a pass runs is not covered by
it, however the disk orders things: it waits for the next pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from .filesystem import File


class FlushableLog(Protocol):
    """What the flusher needs of a partition log."""

    @property
    def log_end_offset(self) -> int: ...

    def unsynced_files(self) -> Sequence[File]:
        """Every file with appends that are not known durable, sealed segments included."""
        ...

    def flushed_to(self, offset: int) -> None: ...


LogT = TypeVar("LogT", bound=FlushableLog)


class Flusher(Generic[LogT]):
    """Syncs dirty logs and moves their high watermarks.

    ``on_flushed(log)`` runs after each log's high watermark moved (wake the waiters).
    ``on_failure(error)`` runs at once when a sync failed: the kernel may have dropped the pages, so
    the broker must stop and recover without trust in its cache; the flusher does nothing more.
    """

    def __init__(
        self,
        on_flushed: Callable[[LogT], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._dirty: dict[LogT, None] = {}
        self._wake = asyncio.Event()
        self._pass_lock = asyncio.Lock()
        self._failure: OSError | None = None

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def mark_dirty(self, log: LogT) -> None:
        """``log`` got an append; the next pass to start will cover it."""
        self._dirty[log] = None
        self._wake.set()

    def forget(self, log: LogT) -> None:
        """``log`` is deleted: it is not flushed any more."""
        self._dirty.pop(log, None)

    async def run(self) -> None:
        """Flush until cancelled or until a sync fails. Cancelling loses no dirty mark."""
        while not self.failed:
            await self._wake.wait()
            self._wake.clear()
            await self._pass()

    async def flush_all(self) -> None:
        """Return when everything appended before this call is durable (or the flusher failed)."""
        async with self._pass_lock:
            pass  # the pass in flight may have started before the last append
        while self._dirty and not self.failed:
            await self._pass()

    async def _pass(self) -> None:
        async with self._pass_lock:
            taken, self._dirty = self._dirty, {}
            try:
                ends = {log: log.log_end_offset for log in taken}
                files = [file for log in taken for file in log.unsynced_files()]
                await _sync_all(files)
            except OSError as error:
                self._failure = error
                self._on_failure(error)
                return
            except asyncio.CancelledError:
                self._dirty = {**taken, **self._dirty}
                raise
            for log, end in ends.items():
                log.flushed_to(end)
                self._on_flushed(log)


async def _sync_all(files: Sequence[File]) -> None:
    if len(files) == 1:
        await files[0].fsync()
        return
    # The first failure counts at once: a process killed later must have had the time to note it.
    await asyncio.gather(*(file.fsync() for file in files))
