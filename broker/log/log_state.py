"""Everything a log knows beyond its batches, and how it is found again at start.

The state after offset S is the state of a snapshot at some offset below S plus the replay of the
batches between; replay and the append path apply the same methods.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..records.batch import BatchHeader
from ..records.control import parse_end_marker
from ..storage.segment import StoredBatch
from ..storage.segment_store import SegmentStore
from ..storage.snapshot import AbortedTransaction, LogSnapshot, SnapshotFiles
from .aborted_txns import AbortedTransactions
from .leader_epochs import LeaderEpochs
from .producer_state import ProducerStates

_logger = logging.getLogger(__name__)


class LogState:
    """Producers, aborted transactions and leader epochs of one partition."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.aborted = AbortedTransactions()
        self.epochs = LeaderEpochs()

    def apply_batch(self, header: BatchHeader, now_ms: int) -> None:
        """A data batch is in the log; ``header`` is as written."""
        if header.producer_id >= 0:
            self.producers.apply_batch(header, header.base_offset, now_ms)

    def apply_marker(
        self, header: BatchHeader, *, coordinator_epoch: int, commit: bool, now_ms: int
    ) -> None:
        """A marker is in the log; ``header`` is as written."""
        completed = self.producers.apply_marker(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            offset=header.base_offset,
            timestamp=now_ms,
        )
        if completed is not None and completed.aborted:
            self.aborted.append(self.producers.aborted(completed))

    def replay(self, batch: StoredBatch, now_ms: int) -> None:
        """A batch found in the log. Producers count as heard of at ``now_ms``, so none expires
        because of the (client's) timestamps in old batches."""
        header = batch.header
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.is_control and header.producer_id >= 0:
            marker = parse_end_marker(batch.data)
            self.apply_marker(
                header,
                coordinator_epoch=marker.coordinator_epoch,
                commit=marker.commit,
                now_ms=now_ms,
            )
        else:
            self.apply_batch(header, now_ms)

    def snapshot(self, offset: int, *, segment_base: int) -> LogSnapshot:
        """The state at ``offset``, the end of the log, in the segment from ``segment_base`` on."""
        return LogSnapshot(
            offset,
            tuple(self.producers.snapshot()),
            self.aborted.since(segment_base),
            self.epochs.entries,
        )

    def load(self, start: ReplayStart) -> None:
        snapshot = start.snapshot
        self.producers.load(snapshot.producers if snapshot is not None else ())
        self.epochs.load(snapshot.epochs if snapshot is not None else ())
        self.aborted.load(start.aborted)


class ReplayStart(NamedTuple):
    """Where replay begins: ``offset``, in segment number ``segment``, after loading the rest."""

    offset: int
    segment: int
    snapshot: LogSnapshot | None
    aborted: list[AbortedTransaction]


def find_replay_start(store: SegmentStore, snapshots: SnapshotFiles) -> ReplayStart:
    """The newest snapshot that has a valid one at the end of every kept segment before it.

    Everything below it is durable and its index of aborted transactions is complete.
    """
    first = store.first_offset
    start = ReplayStart(first, 0, snapshots.read(first), [])
    for number, segment in enumerate(store.segments[1:], 1):
        snapshot = snapshots.read(segment.base_offset)
        if snapshot is None:
            return start
        # When compaction was about to join segments, the last one's snapshot speaks for all.
        known = start.aborted[-1].last_offset if start.aborted else -1
        start.aborted.extend(each for each in snapshot.aborted if each.last_offset > known)
        start = ReplayStart(segment.base_offset, number, snapshot, start.aborted)
    for offset in reversed(snapshots.offsets):
        if offset <= store.active.base_offset:
            break
        snapshot = snapshots.read(offset)
        if snapshot is not None:
            start.aborted.extend(snapshot.aborted)
            return ReplayStart(offset, start.segment, snapshot, start.aborted)
    return start


class CleanEnd(NamedTuple):
    """How a log was left by a clean stop."""

    end_offset: int
    active_size: int


def recover(
    store: SegmentStore,
    snapshots: SnapshotFiles,
    clean: CleanEnd | None,
    now_ms: int,
    *,
    rewrite: bool = False,
    compacted: bool = False,
) -> LogState:
    """Find the end of the log and the state at it; cut what is torn. All of it is durable then.

    ``rewrite``: a sync failed here, so what no snapshot vouches for is written anew. ``compacted``:
    offsets may be missing.
    """
    state = LogState()
    start = find_replay_start(store, snapshots)
    state.load(start)
    if clean is not None and (start.offset, store.active.size) == clean:
        store.trust_end(start.offset)
        return state
    missing = [segment.base_offset for segment in store.segments[start.segment :]]
    for batch in store.recover(start.segment, rewrite=rewrite, gaps=compacted):
        if batch.header.base_offset >= start.offset:
            _write_missing(snapshots, state, missing, batch.header.base_offset)
            state.replay(batch, now_ms)
    end = store.end_offset
    _write_missing(snapshots, state, missing, end)
    snapshots.remove(lambda offset: offset <= end)
    if end < start.offset:
        # Damage below the snapshot: what it says never happened.
        start = find_replay_start(store, snapshots)
        state.load(start)
        for batch in store.batches(start.offset):
            state.replay(batch, now_ms)
    store.fs.fsync_dir(store.directory)
    return state


def _write_missing(
    snapshots: SnapshotFiles, state: LogState, bases: list[int], offset: int
) -> None:
    """Snapshots between segments that a crash prevented: without them the older segment could never
    be dropped or compacted. ``state`` is that at ``offset``; what is below is durable.

    ``bases`` are those of the segments being replayed; the ones passed are taken off.
    """
    while len(bases) > 1 and bases[1] <= offset:
        segment_base = bases.pop(0)
        if bases[0] not in snapshots.offsets:
            try:
                snapshots.write(state.snapshot(bases[0], segment_base=segment_base))
            except OSError as error:
                _logger.warning("no snapshot at %d: %s", bases[0], error)
