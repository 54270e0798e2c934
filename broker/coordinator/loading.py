"""What a shard must see of its log at start: of each key the last record that counts.

A record replaces what an older one of its key said, so replaying only the newest gives the same
state; that is also why these topics may be compacted. A load then costs the shard its live keys,
however often they were written. Sans-I/O: batches in, records to replay out.
"""

from __future__ import annotations

from typing import NamedTuple

from ..types import NO_PRODUCER_ID
from .log_writer import LoadedBatch


class Survivor(NamedTuple):
    """A record to replay; ``producer_id`` -1 = not part of an open transaction."""

    offset: int
    producer_id: int
    key: bytes
    value: bytes | None


class LoadedLog:
    """Takes the batches of a log in order. ``last_offset`` is -1 before the first.

    Records of a transaction count from its commit on and are dropped by its abort; those of a
    transaction that is still open survive as such, since nobody knows yet whether they will count.
    A plain tombstone also ends what is pending for its key.
    """

    def __init__(self) -> None:
        self.last_offset = -1
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    def add(self, batch: LoadedBatch) -> None:
        if batch.marker is not None:
            self.last_offset = batch.base_offset
            self._end(batch.producer_id, commit=batch.marker)
            return
        self.last_offset = batch.base_offset + max(0, len(batch.records) - 1)
        plain = batch.producer_id == NO_PRODUCER_ID
        newest = self._newest if plain else self._pending.setdefault(batch.producer_id, {})
        for offset, (key, value) in enumerate(batch.records, batch.base_offset):
            newest[key] = offset, value
            if value is None and plain:
                for pending in self._pending.values():
                    pending.pop(key, None)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        for key, record in self._pending.pop(producer_id, {}).items():
            newest = self._newest.get(key)
            # A record written while the transaction was open is newer than the transaction's.
            if commit and (newest is None or newest[0] < record[0]):
                self._newest[key] = record

    def survivors(self) -> list[Survivor]:
        """What to replay, in the order of the log. Call once, after the last batch."""
        groups = [(NO_PRODUCER_ID, self._newest), *self._pending.items()]
        return sorted(
            Survivor(offset, producer_id, key, value)
            for producer_id, records in groups
            for key, (offset, value) in records.items()
        )
