"""The snapshot file: what a log knows at one offset beyond its record batches.

A snapshot at offset S says: everything below S is durable, and this is the state after replaying
it. It is written at the base offset of each new segment once the old one is synced, and at a clean
stop. It holds the producers, the leader epochs, and the transactions aborted in the segment that
ends at S, so the snapshots of all kept segments together are the log's aborted-transaction index.

Layout (big endian): magic, CRC-32 of the rest, offset, three counts, then producers, their batches,
aborted transactions, epochs. A file that does not check is ignored: older snapshots and replay
stand in.
"""

from __future__ import annotations

import dataclasses
import logging
import zlib
from bisect import insort
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from .filesystem import FileSystem

_logger = logging.getLogger(__name__)

_SUFFIX = ".snapshot"
_MAGIC = b"OWS1"
_PREFIX = Struct(">4sI")
_HEAD = Struct(">qIII")
_PRODUCER = Struct(">qhiqqB")
_BATCH = Struct(">iiqiq")
_ABORTED = Struct(">qqqq")
_EPOCH = Struct(">iq")


class BatchMetadata(NamedTuple):
    """One appended batch of a producer: what a duplicate of it is answered with."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerSnapshot(NamedTuple):
    """A producer's state at the snapshot's offset; ``current_txn_first_offset`` is -1 for none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int
    last_timestamp: int
    batches: tuple[BatchMetadata, ...]


class AbortedTransaction(NamedTuple):
    """An entry of the aborted-transaction index (Kafka's ``AbortedTxn``).

    ``last_offset`` is the ABORT marker's. Every transaction that began below ``last_stable_offset``
    had ended when this one did.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The content of one snapshot file."""

    offset: int
    producers: tuple[ProducerSnapshot, ...]
    aborted: tuple[AbortedTransaction, ...]
    epochs: tuple[EpochEntry, ...]

    def encode(self) -> bytes:
        parts = [
            _HEAD.pack(self.offset, len(self.producers), len(self.aborted), len(self.epochs)),
        ]
        for producer in self.producers:
            parts.append(_PRODUCER.pack(*producer[:5], len(producer.batches)))
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        parts += [_ABORTED.pack(*transaction) for transaction in self.aborted]
        parts += [_EPOCH.pack(*entry) for entry in self.epochs]
        body = b"".join(parts)
        return _PREFIX.pack(_MAGIC, zlib.crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> LogSnapshot | None:
        """None when the file is damaged or of another format."""
        if len(data) < _PREFIX.size + _HEAD.size:
            return None
        magic, crc = _PREFIX.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(memoryview(data)[_PREFIX.size :]) != crc:
            return None
        offset, producer_count, aborted_count, epoch_count = _HEAD.unpack_from(data, _PREFIX.size)
        position = _PREFIX.size + _HEAD.size
        producers = []
        for _ in range(producer_count):
            *fields, batch_count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            batches = []
            for _ in range(batch_count):
                batches.append(BatchMetadata(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            producers.append(ProducerSnapshot._make((*fields, tuple(batches))))
        aborted = []
        for _ in range(aborted_count):
            aborted.append(AbortedTransaction(*_ABORTED.unpack_from(data, position)))
            position += _ABORTED.size
        epochs = []
        for _ in range(epoch_count):
            epochs.append(EpochEntry(*_EPOCH.unpack_from(data, position)))
            position += _EPOCH.size
        return cls(offset, tuple(producers), tuple(aborted), tuple(epochs))


class SnapshotFiles:
    """The snapshot files of one partition directory, named by their offset."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._offsets = sorted(
            int(name.removesuffix(_SUFFIX))
            for name in fs.list(directory)
            if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()
        )

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets that have a file, rising."""
        return self._offsets

    def read(self, offset: int) -> LogSnapshot | None:
        """None when there is no file or it does not check."""
        if offset not in self._offsets:
            return None
        snapshot = LogSnapshot.decode(self._fs.read(self._path(offset)))
        if snapshot is None or snapshot.offset != offset:
            _logger.warning("snapshot %s is damaged and ignored", self._path(offset))
            return None
        return snapshot

    def write(self, snapshot: LogSnapshot) -> None:
        """Write one, durably. Raises OSError."""
        self._fs.write_atomic(self._path(snapshot.offset), snapshot.encode())
        if snapshot.offset not in self._offsets:
            insort(self._offsets, snapshot.offset)

    def remove(self, keep: Callable[[int], bool]) -> None:
        """Remove the files of all offsets but those to keep."""
        for offset in [offset for offset in self._offsets if not keep(offset)]:
            self._fs.remove(self._path(offset))
            self._offsets.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}{_SUFFIX}"
