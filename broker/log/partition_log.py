"""One partition: an append-only sequence of record batches, and what they mean.

Offsets, from low to high::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

The high watermark is what is known to be on disk and moves only in ``flushed_to``. The last stable
offset stops in front of the oldest transaction that is open, or whose marker is not below the high
watermark. Nothing here awaits: each method is one atomic step. Source: Kafka's ``UnifiedLog``.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

from ..errors import ErrorCode, KafkaError
from ..records.batch import BatchHeader, read_header, stamp, stamp_log_append_time
from ..records.control import encode_end_marker
from ..storage.filesystem import File, FileSystem
from ..storage.segment import Segment, StoredBatch
from ..storage.segment_store import SegmentStore
from ..storage.snapshot import AbortedTransaction, LogSnapshot, SnapshotFiles
from ..storage.sparse_index import SparseIndex
from ..storage.tail_cache import TailBudget, TailCache
from ..types import Buffer, TopicPartition
from . import retention, timestamps
from .cleaner import NotCleaned, was_compacted
from .config import LogConfig
from .log_state import CleanEnd, LogState, recover
from .producer_state import VerificationGuard
from .results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    UNDEFINED_EPOCH,
    UNKNOWN_OFFSET,
    AppendResult,
    Isolation,
    Origin,
    ProducerInfo,
    ReadResult,
)
from .validation import validate_batch

_logger = logging.getLogger(__name__)

LOG_START_FILE = "log-start-offset"


class PartitionLog:
    """A partition's log. ``mark_dirty`` is called after each append: flush this log soon.

    Opening recovers: the torn tail is cut, producers and transactions are replayed, and everything
    kept is durable, so the high watermark begins at the end. ``clean`` (from a clean stop) spares
    the scan if it fits the files. ``rewrite`` (a sync failed) trusts no page of the kernel's cache.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        *,
        config: LogConfig,
        leader_epoch: int,
        now_ms: int,
        mark_dirty: Callable[[PartitionLog], None],
        tail_budget: TailBudget,
        clean: CleanEnd | None = None,
        rewrite: bool = False,
    ) -> None:
        self.tp = tp
        self.config = config
        self.leader_epoch = leader_epoch
        self.directory = directory
        self._fs = fs
        self._mark_dirty = mark_dirty
        self._tail = TailCache(tail_budget)
        self._closed = False
        self._pending_snapshots: list[LogSnapshot] = []
        log_start = _read_log_start(fs, directory)
        self._store = SegmentStore(fs, directory)
        self._store.open(log_start)
        self._snapshots = SnapshotFiles(fs, directory)
        self._state: LogState = recover(
            self._store,
            self._snapshots,
            clean,
            now_ms,
            rewrite=rewrite,
            compacted=was_compacted(fs, directory),
        )
        self._log_start_offset = max(log_start, self._store.first_offset)
        if self._log_start_offset > self._store.end_offset:
            self._restart_at(self._log_start_offset)
        self._state.aborted.prune(self._log_start_offset)
        self._state.epochs.truncate_start(self._log_start_offset)
        self._state.epochs.assign(leader_epoch, self._store.end_offset)
        self._high_watermark = self._store.end_offset
        self._state.producers.settle(self._high_watermark)
        self._last_stable_offset = self._stable_offset()

    def _restart_at(self, offset: int) -> None:
        """Damage reached below the log start: the log is empty from there on."""
        self._snapshots.remove(lambda _: False)
        self._store.restart_at(offset)
        self._snapshots.write(self._state.snapshot(offset, segment_base=offset))

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._store.end_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._last_stable_offset

    @property
    def size_bytes(self) -> int:
        return self._store.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._store.segments)

    def append(
        self,
        batch: Buffer,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append one batch as a producer encoded it. Raises KafkaError with nothing changed.

        A duplicate of one of the producer's last five batches is not appended: the result has
        ``duplicate`` set and the original offsets. ``guard`` (of ``verification_guard``) is needed
        for the first batch of a transaction, also from a coordinator.
        """
        self._check_open()
        header = validate_batch(batch, self.config, now_ms, origin)
        log_append_time = now_ms if self.config.log_append_time else NO_TIMESTAMP
        producers = self._state.producers
        if header.producer_id >= 0:
            if origin is Origin.CLIENT:
                original = producers.check_client_batch(header, guard, transaction_version)
                if original is not None:
                    return AppendResult(
                        original.first_offset,
                        original.last_offset,
                        original.timestamp if self.config.log_append_time else NO_TIMESTAMP,
                        self._log_start_offset,
                        duplicate=True,
                    )
            else:
                producers.check_coordinator_batch(header, guard)
        placed = self._write(batch, header, log_append_time)
        self._state.apply_batch(placed, now_ms)
        self._mark_dirty(self)
        return AppendResult(
            placed.base_offset, placed.last_offset, log_append_time, self._log_start_offset
        )

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        now_ms: int,
        transaction_version: int,
    ) -> AppendResult:
        """End a producer's transaction here. Raises KafkaError with nothing changed.

        INVALID_PRODUCER_EPOCH for an old epoch, TRANSACTION_COORDINATOR_FENCED for an old
        coordinator. A marker without data on this partition is written all the same: it fences.
        """
        self._check_open()
        self._state.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version
        )
        batch = encode_end_marker(commit, producer_id, producer_epoch, coordinator_epoch, now_ms)
        placed = self._write(batch, read_header(batch), NO_TIMESTAMP)
        self._state.apply_marker(
            placed, coordinator_epoch=coordinator_epoch, commit=commit, now_ms=now_ms
        )
        self._mark_dirty(self)
        return AppendResult(
            placed.base_offset, placed.last_offset, NO_TIMESTAMP, self._log_start_offset
        )

    def _write(self, batch: Buffer, header: BatchHeader, log_append_time: int) -> BatchHeader:
        """Give the batch its offsets and write it. Returns the header as written."""
        base_offset, epoch = self._store.end_offset, self.leader_epoch
        if log_append_time == NO_TIMESTAMP:
            data = b"".join(stamp(batch, base_offset, epoch))
            placed = BatchHeader(base_offset, header.size, epoch, *header[3:])
        else:
            data = b"".join(stamp_log_append_time(batch, base_offset, epoch, log_append_time))
            placed = read_header(data)
        config, store = self.config, self._store
        try:
            if store.needs_roll(
                placed, max_bytes=config.segment_bytes, max_age_ms=config.segment_ms
            ):
                self._roll()
            store.append(data, placed)
        except OSError as error:
            _logger.error("append to %s failed: %s", self.tp, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._tail.add(base_offset, placed.next_offset, data)
        return placed

    def _roll(self) -> None:
        """Begin a new segment; the snapshot at its base is written once the old one is synced."""
        segment_base = self._store.active.base_offset
        self._store.roll()
        self._pending_snapshots.append(
            self._state.snapshot(self._store.end_offset, segment_base=segment_base)
        )

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.tp} is closed")

    def verification_guard(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> VerificationGuard | None:
        """What to hold while the coordinator is asked whether this partition is in the transaction.

        None when a transaction of the producer is open here already: nothing to ask.
        """
        return self._state.producers.guard_for(producer_id, producer_epoch, base_sequence)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self._state.producers.has_open_transaction(producer_id, producer_epoch)

    def read(
        self, offset: int, *, max_bytes: int, isolation: Isolation, min_one: bool = True
    ) -> ReadResult:
        """Whole batches from the one with ``offset`` on, at most ``max_bytes``.

        The first batch is returned even if it is larger (unless ``min_one`` is False). Nothing at
        or above the high watermark (read_committed: the last stable offset) is ever returned.
        Raises KafkaError(OFFSET_OUT_OF_RANGE) outside [log_start_offset, log_end_offset].
        """
        self._check_open()
        if not self._log_start_offset <= offset <= self._store.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in [{self._log_start_offset}, {self._store.end_offset}]",
            )
        limit = self._limit(isolation)
        records: Sequence[Buffer] = ()
        next_offset = offset
        if offset < limit:
            found = self._tail.read(offset, limit=limit, max_bytes=max_bytes, min_one=min_one)
            if found is None:
                found = self._store.read(offset, limit=limit, max_bytes=max_bytes, min_one=min_one)
            records, next_offset = found
        aborted = None
        if isolation is Isolation.READ_COMMITTED:
            aborted = self._state.aborted.overlapping(offset, next_offset) if records else []
        return ReadResult(
            list(records),
            next_offset,
            self._high_watermark,
            self._last_stable_offset,
            self._log_start_offset,
            aborted,
        )

    def read_all(self, offset: int) -> Iterator[StoredBatch]:
        """Every batch from the one with ``offset`` to the log end."""
        self._check_open()
        yield from self._store.batches(max(offset, self._log_start_offset))

    def offset_for_timestamp(self, timestamp: int, isolation: Isolation) -> tuple[int, int, int]:
        """(offset, timestamp, leader epoch) of the first record at ``timestamp`` (ms) or later.

        -1 asks for the end (high watermark or last stable offset), -2 and -4 for the log start, -3
        for the record with the largest timestamp. (-1, -1, -1) when there is none a reader of this
        isolation may see.
        """
        epochs, limit = self._state.epochs, self._limit(isolation)
        if timestamp == LATEST_TIMESTAMP:
            return limit, NO_TIMESTAMP, epochs.latest
        start = self._log_start_offset
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return start, NO_TIMESTAMP, epochs.epoch_at(start)
        if timestamp == MAX_TIMESTAMP:
            found = timestamps.latest_timestamp(self._store, start=start, limit=limit)
        else:
            found = timestamps.first_at_or_after(self._store, timestamp, start=start, limit=limit)
        if found is None:
            return UNKNOWN_OFFSET, NO_TIMESTAMP, UNDEFINED_EPOCH
        return found.offset, found.timestamp, epochs.epoch_at(found.offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch <= ``epoch`` and its end offset; (-1, -1) when it is still to come."""
        return self._state.epochs.end_offset_for(epoch, self._store.end_offset)

    def _limit(self, isolation: Isolation) -> int:
        if isolation is Isolation.READ_COMMITTED:
            return self._last_stable_offset
        return self._high_watermark

    def unsynced_files(self) -> Sequence[File]:
        return self._store.unsynced_files()

    def flushed_to(self, offset: int) -> None:
        """Everything below ``offset`` is durable: high watermark and last stable offset move."""
        if self._closed:
            return
        self._store.synced_to(offset)
        if offset > self._high_watermark:
            self._high_watermark = offset
            self._settle()
        if self._pending_snapshots:
            self._write_pending_snapshots()

    def _settle(self) -> None:
        self._state.producers.settle(self._high_watermark)
        self._last_stable_offset = max(self._last_stable_offset, self._stable_offset())

    def _stable_offset(self) -> int:
        unstable = self._state.producers.first_unstable_offset
        if unstable is None:
            return self._high_watermark
        return min(self._high_watermark, max(unstable, self._log_start_offset))

    def _write_pending_snapshots(self) -> None:
        """Snapshots whose offset is durable now. A failure is retried at the next flush: until
        then recovery begins further back, and retention keeps the segments."""
        while self._pending_snapshots and self._pending_snapshots[0].offset <= self._high_watermark:
            try:
                self._snapshots.write(self._pending_snapshots[0])
            except OSError as error:
                _logger.warning("no snapshot for %s: %s", self.tp, error)
                return
            del self._pending_snapshots[0]
        bases = {segment.base_offset for segment in self._store.segments}
        self._snapshots.remove(lambda offset: offset in bases)

    def delete_records(self, offset: int) -> int:
        """Move the log start to ``offset`` (-1: the high watermark); it is durable on return.

        Returns the new log start. Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark.
        Producers are kept (KIP-360); segments go with the next ``apply_retention``.
        """
        self._check_open()
        if offset == UNKNOWN_OFFSET:
            offset = self._high_watermark
        if not 0 <= offset <= self._high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in [0, {self._high_watermark}]",
            )
        if offset > self._log_start_offset:
            try:
                self._fs.write_atomic(f"{self.directory}/{LOG_START_FILE}", str(offset).encode())
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            self._move_log_start(offset)
        return self._log_start_offset

    def _move_log_start(self, offset: int) -> None:
        self._log_start_offset = offset
        self._state.aborted.prune(offset)
        self._state.epochs.truncate_start(offset)
        self._settle()

    def apply_retention(self, now_ms: int) -> int:
        """Drop the oldest segments that are expired, too many, or below the log start.

        Returns how many. Only whole segments below the high watermark whose producers are safe in
        a snapshot go. An expired active segment is rolled first.
        """
        self._check_open()
        durable = self._high_watermark == self._store.end_offset
        if durable and retention.active_is_expired(self._store, self.config, now_ms):
            self._roll()
            self._mark_dirty(self)
            self._write_pending_snapshots()
        snapshots = self._snapshots.offsets
        dropped = 0
        while (
            len(self._store.segments) > 1
            and (end := self._store.segments[0].next_offset) <= self._high_watermark
            and end in snapshots
            and retention.oldest_may_go(self._store, self.config, self._log_start_offset, now_ms)
        ):
            self._store.drop_oldest()
            dropped += 1
        if dropped:
            first = self._store.first_offset
            self._snapshots.remove(lambda offset: offset >= first)
            self._move_log_start(max(self._log_start_offset, first))
        self._tail.drop_idle()
        return dropped

    # -- compaction -----------------------------------------------------------------------------

    def settled_segments(self) -> list[Segment]:
        """Sealed segments, oldest first, whose records are durable and their fate known."""
        self._check_open()
        ends = self._snapshots.offsets
        return list(
            itertools.takewhile(
                lambda segment: (
                    segment.next_offset <= self._last_stable_offset and segment.next_offset in ends
                ),
                self._store.segments[:-1],
            )
        )

    def aborted_transactions(self) -> Sequence[AbortedTransaction]:
        return self._state.aborted.since(0)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether these are still segments of the log, which is open."""
        return not self._closed and all(each in self._store.segments for each in segments)

    def replace_segments(
        self, segments: Sequence[Segment], temporary: str, index: SparseIndex
    ) -> None:
        """Put the file ``temporary``, which is durable, in the place of settled neighbours.

        The snapshot at their end takes over their aborted transactions. Raises NotCleaned with
        nothing changed, and OSError: the log is left to the recovery of the next start.
        """
        base, end = segments[0].base_offset, segments[-1].next_offset
        if len(segments) > 1:
            snapshot = self._snapshots.read(end)
            if snapshot is None:
                raise NotCleaned(f"the snapshot at {end} is damaged")
            aborted = [each for each in self._state.aborted.since(base) if each.last_offset < end]
            self._snapshots.write(dataclasses.replace(snapshot, aborted=tuple(aborted)))
        self._store.replace(segments, temporary, index)
        self._tail.drop_below(end)
        self._snapshots.remove(lambda offset: not base < offset < end)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for ``producer_id_expiration_ms``."""
        self._state.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def producers(self) -> list[ProducerInfo]:
        return self._state.producers.infos()

    def close(self) -> CleanEnd:
        """Make everything durable and close. Returns what ``clean`` of the next start takes.

        Raises OSError when a sync fails; the files are closed all the same.
        """
        end, size = self._store.end_offset, self._store.active.size
        try:
            self._store.sync_now()
            self.flushed_to(end)
            if end and end not in self._snapshots.offsets:
                segment_base = self._store.active.base_offset
                self._snapshots.write(self._state.snapshot(end, segment_base=segment_base))
            self._store.write_index_cache()
        finally:
            self.abandon()
        return CleanEnd(end, size)

    def abandon(self) -> None:
        """Close the files as they are: the topic is deleted, or the process is about to die."""
        if not self._closed:
            self._closed = True
            self._tail.clear()
            self._store.close()


def _read_log_start(fs: FileSystem, directory: str) -> int:
    path = f"{directory}/{LOG_START_FILE}"
    return int(fs.read(path)) if fs.exists(path) else 0
