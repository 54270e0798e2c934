"""Faults planted in the broker's logs: what is durable, what is visible, what is recovered."""

from __future__ import annotations

import pytest

from onceward.broker.handlers import produce
from onceward.broker.log import producer_state
from onceward.broker.log.aborted_txns import AbortedTransactions
from onceward.broker.log.log_state import LogState
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.producer_state import ProducerEntry, ProducerStates
from onceward.broker.storage import flusher
from onceward.broker.storage.segment import Segment
from onceward.broker.storage.segment_store import SegmentStore

from .mutation import Mutation, mutation, rewrite

Patch = pytest.MonkeyPatch


@mutation("worker failed", "input lost", "lost")
def acknowledged_before_the_fsync(patch: Patch) -> None:
    """A Produce is answered when its records are in the page cache."""
    rewrite(patch, produce, "_is_flushed", ("    if append", "    return True\n    if append"))


@mutation("worker failed", "no progress", "input lost", "lost")
def high_watermark_is_the_log_end(patch: Patch) -> None:
    """Records are shown before they are on disk."""
    shown = (
        "    self._mark_dirty(self)\n",
        "    self._high_watermark = self._store.end_offset\n"
        "    self._settle()\n"
        "    self._mark_dirty(self)\n",
    )
    rewrite(patch, PartitionLog, "append", shown)
    rewrite(patch, PartitionLog, "append_marker", shown)


@mutation("worker failed", "input lost", "lost")
def sync_skipped(patch: Patch) -> None:
    """The flusher counts files as synced without syncing them."""
    rewrite(
        patch,
        flusher,
        "_sync_all",
        ("    if len(files) == 1:", "    return\n    if len(files) == 1:"),
    )


@mutation("worker failed", "input lost", "no progress", "lost", scenario="slow disk")
def failed_sync_overlooked(patch: Patch) -> None:
    """The error of a sync is swallowed, as if the data were on disk."""
    rewrite(
        patch,
        flusher,
        "_sync_all",
        (
            "        await files[0].fsync()\n",
            "        await asyncio.gather(files[0].fsync(), return_exceptions=True)\n",
        ),
        ("for file in files))", "for file in files), return_exceptions=True)"),
    )


@mutation("input lost", "lost", "worker failed", "no progress", scenario="segments")
def sealed_segment_not_synced(patch: Patch) -> None:
    """When the log rolls over, only the new segment is synced."""
    rewrite(
        patch,
        SegmentStore,
        "unsynced_files",
        ("in self._unsynced]", "in self._unsynced[-1:]]"),
    )


@mutation("aborted read")
def stable_offset_one_too_far(patch: Patch) -> None:
    """The last stable offset is one behind the first record of an open transaction."""
    rewrite(
        patch,
        PartitionLog,
        "_stable_offset",
        ("max(unstable, self._log_start_offset)", "unstable + 1"),
    )


@mutation("aborted read")
def stable_offset_ignores_open_transactions(patch: Patch) -> None:
    """The last stable offset is the high watermark."""
    rewrite(
        patch,
        PartitionLog,
        "_stable_offset",
        ("if unstable is None:", "if True:"),
    )


@mutation("aborted read", "wrong", "duplicated")
def aborted_transactions_not_listed(patch: Patch) -> None:
    """A fetch answer does not say which transactions were aborted."""
    rewrite(
        patch,
        AbortedTransactions,
        "overlapping",
        ("    found = []\n", "    return []\n"),
    )


@mutation("wrong", "aborted read", "duplicated")
def aborted_transactions_forgotten_at_a_restart(patch: Patch) -> None:
    """Recovery does not find the aborted transactions in the log again."""
    rewrite(
        patch,
        LogState,
        "replay",
        ("            commit=marker.commit,\n", "            commit=True,\n"),
    )


@mutation("aborted read", "wrong", "duplicated", scenario="segments")
def aborted_transactions_forgotten_at_a_roll(patch: Patch) -> None:
    """A restarted broker does not take over the aborted transactions of older segments."""
    rewrite(
        patch,
        LogState,
        "load",
        ("    self.aborted.load(start.aborted)\n", "    self.aborted.load(())\n"),
    )


@mutation("input duplicated", "duplicated")
def sequences_not_checked(patch: Patch) -> None:
    """A batch that was written already is written again when it is sent again."""
    rewrite(
        patch, ProducerEntry, "duplicate_of", ("for batch in self.batches:", "for batch in ():")
    )
    rewrite(patch, ProducerEntry, "check_sequence", ("if base_sequence != expected:", "if False:"))


@mutation("worker failed", scenario="bursts")
def four_batches_remembered(patch: Patch) -> None:
    """Of five batches in flight the oldest is not recognised when it comes again."""
    patch.setattr(producer_state, "REMEMBERED_BATCHES", 4)


@mutation("input lost", "worker failed", "lost")
def duplicate_answered_with_the_log_end(patch: Patch) -> None:
    """A batch that comes again is answered with an offset at which it is not."""
    rewrite(
        patch,
        PartitionLog,
        "append",
        (
            "                    original.first_offset,\n",
            "                    self._store.end_offset,\n",
        ),
    )


@mutation("input duplicated")
def producers_forgotten_at_a_restart(patch: Patch) -> None:
    """Recovery does not find out which batches of a producer are in the log."""
    rewrite(
        patch,
        LogState,
        "replay",
        (
            "        self.apply_batch(header, now_ms)\n",
            "        self.apply_batch(header, now_ms)\n"
            "        if not header.is_transactional:\n"
            "            self.producers.load(())\n",
        ),
    )


@mutation("input duplicated", "wrong", "aborted read", "torn transaction", "no progress")
def open_transactions_forgotten_at_a_restart(patch: Patch) -> None:
    """Recovery takes records of open transactions for ordinary ones."""
    rewrite(
        patch,
        LogState,
        "replay",
        ("        self.apply_batch(header, now_ms)\n", ""),
        ("    else:\n", ""),
    )


@mutation("worker failed", "no progress", "input lost", "lost")
def last_batch_cut_at_a_restart(patch: Patch) -> None:
    """Recovery throws the last batch of a log away, although it is whole."""
    rewrite(
        patch,
        Segment,
        "recover",
        (
            "    for batch in self.batches():\n",
            "    for batch in list(self.batches())[:-1]:\n",
        ),
    )


@mutation("no progress", "worker failed", "wrong", "input lost", "lost", scenario="slow disk")
def checksums_not_checked_at_a_restart(patch: Patch) -> None:
    """Recovery takes a torn batch for a whole one when its length is right."""
    rewrite(
        patch,
        Segment,
        "recover",
        ("or not crc_is_valid(batch.data, 0, header.size)", ""),
    )


@mutation(covered_by="the coordinator is asked about the first batch of every transaction")
def epochs_not_checked_by_the_log(patch: Patch) -> None:
    """A log takes batches and markers of a producer that was fenced."""
    rewrite(
        patch,
        ProducerEntry,
        "check_epoch",
        ("if producer_epoch < self.producer_epoch:", "if False:"),
    )


@mutation("aborted read")
def transaction_over_at_its_first_marker(patch: Patch) -> None:
    """A marker settles every transaction that is open in the log."""
    rewrite(
        patch,
        ProducerStates,
        "apply_marker",
        ("    self._ongoing.pop(producer_id, None)\n", "    self._ongoing.clear()\n"),
    )


BROKER_LOG: tuple[Mutation, ...] = (
    acknowledged_before_the_fsync,
    high_watermark_is_the_log_end,
    sync_skipped,
    failed_sync_overlooked,
    sealed_segment_not_synced,
    stable_offset_one_too_far,
    stable_offset_ignores_open_transactions,
    aborted_transactions_not_listed,
    aborted_transactions_forgotten_at_a_restart,
    aborted_transactions_forgotten_at_a_roll,
    sequences_not_checked,
    four_batches_remembered,
    duplicate_answered_with_the_log_end,
    producers_forgotten_at_a_restart,
    open_transactions_forgotten_at_a_restart,
    last_batch_cut_at_a_restart,
    checksums_not_checked_at_a_restart,
    epochs_not_checked_by_the_log,
    transaction_over_at_its_first_marker,
)
