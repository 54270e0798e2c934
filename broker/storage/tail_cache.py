"""The last batches of a log in memory, for the readers that follow right behind the writers."""

from __future__ import annotations

from collections import deque

from ..types import Buffer

LOG_CAPACITY = 1 << 20
TOTAL_CAPACITY = 64 << 20


class TailBudget:
    """Bytes all tails together may hold, and hold now."""

    __slots__ = ("capacity", "used")

    def __init__(self, capacity: int = TOTAL_CAPACITY) -> None:
        self.capacity = capacity
        self.used = 0


class TailCache:
    """A gapless run of batches that ends at the end of the log; the oldest fall out."""

    __slots__ = ("_appended", "_batches", "_budget", "_capacity", "_size")

    def __init__(self, budget: TailBudget, capacity: int = LOG_CAPACITY) -> None:
        self._budget = budget
        self._capacity = capacity
        self._batches: deque[tuple[int, int, bytes]] = deque()
        self._size = 0
        self._appended = False

    def add(self, base_offset: int, next_offset: int, batch: bytes) -> None:
        size = len(batch)
        self._appended = True
        self._batches.append((base_offset, next_offset, batch))
        self._size += size
        self._budget.used += size
        while self._batches and (
            self._size > self._capacity or self._budget.used > self._budget.capacity
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        dropped = len(self._batches.popleft()[2])
        self._size -= dropped
        self._budget.used -= dropped

    def drop_below(self, offset: int) -> None:
        """The files say less than this now: they were compacted."""
        while self._batches and self._batches[0][1] <= offset:
            self._drop_oldest()

    def read(
        self, offset: int, *, limit: int, max_bytes: int, min_one: bool
    ) -> tuple[list[Buffer], int] | None:
        """As ``SegmentStore.read``; None when ``offset`` is not in memory."""
        if not self._batches or offset < self._batches[0][0]:
            return None
        wanted = []
        for batch in reversed(self._batches):
            if batch[1] <= offset:
                break
            wanted.append(batch)
        records: list[Buffer] = []
        while wanted:
            base_offset, next_offset, data = wanted.pop()
            if base_offset >= limit or (len(data) > max_bytes and not min_one):
                break
            records.append(data)
            max_bytes -= len(data)
            min_one = False
            offset = next_offset
        return records, offset

    def drop_idle(self) -> None:
        """Free the memory of a log without appends since the last call."""
        if not self._appended:
            self.clear()
        self._appended = False

    def clear(self) -> None:
        self._budget.used -= self._size
        self._size = 0
        self._batches.clear()
