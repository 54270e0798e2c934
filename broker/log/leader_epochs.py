"""Which leader epoch wrote which stretch of a log (Kafka's ``LeaderEpochFileCache``).

One entry per start of the broker that wrote here, so the list is short.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ..storage.snapshot import EpochEntry
from .results import UNDEFINED_EPOCH, UNKNOWN_OFFSET


class LeaderEpochs:
    """Epochs and their first offsets, both rising."""

    def __init__(self) -> None:
        self._entries: list[EpochEntry] = []

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def load(self, entries: Iterable[EpochEntry]) -> None:
        self._entries = list(entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """``epoch`` writes from ``start_offset`` on; no effect unless it is a new, higher one."""
        if epoch > self.latest:
            # An epoch that wrote nothing gives its place to the next one.
            while self._entries and self._entries[-1].start_offset >= start_offset:
                self._entries.pop()
            self._entries.append(EpochEntry(epoch, start_offset))

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote ``offset``; -1 when unknown."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[number - 1].epoch if number else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch <= ``epoch`` and where it ended; (-1, -1) for one still to come."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNKNOWN_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        number = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if number == len(self._entries):
            return UNDEFINED_EPOCH, UNKNOWN_OFFSET
        floor = self._entries[number - 1].epoch if number else epoch
        return floor, self._entries[number].start_offset

    def truncate_start(self, log_start_offset: int) -> None:
        """The log begins at ``log_start_offset`` now."""
        number = bisect_right(self._entries, log_start_offset, key=lambda entry: entry.start_offset)
        if number:
            epoch = self._entries[number - 1].epoch
            self._entries[:number] = [EpochEntry(epoch, log_start_offset)]
