"""Faults planted in the broker's coordinators: transactions, groups, and their log."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.broker.coordinator.group.classic_group import ClassicGroup
from onceward.broker.coordinator.group.offsets import OffsetStore
from onceward.broker.coordinator.loading import LoadedLog
from onceward.broker.coordinator.runtime import CoordinatorRuntime
from onceward.broker.coordinator.transaction import transaction_shard
from onceward.broker.coordinator.transaction.marker_writer import MarkerWriter
from onceward.broker.coordinator.transaction.transaction_shard import TransactionShard
from onceward.broker.coordinator.transaction.transaction_state import (
    END_TXN_V2,
    Identity,
    TransactionState,
)
from onceward.broker.coordinator_log import PartitionMarkers
from onceward.broker.errors import ErrorCode
from onceward.broker.types import TopicPartition

from .mutation import Mutation, mutation, rewrite

Patch = pytest.MonkeyPatch


@mutation(
    "torn transaction",
    "lost",
    "no progress",
    "duplicated",
    "wrong",
    "worker failed",
    "wrong offset",
)
def answered_before_it_is_durable(patch: Patch) -> None:
    """Coordinators answer when their records are in the page cache."""
    rewrite(
        patch,
        CoordinatorRuntime,
        "_execute",
        ("if self._nothing_outstanding(context):", "if True:"),
    )


@mutation("torn transaction", "wrong", "lost", scenario="slow decisions")
def markers_before_the_decision_is_durable(patch: Patch) -> None:
    """The markers of a transaction are written while its decision may still be lost."""
    rewrite(
        patch,
        CoordinatorRuntime,
        "_execute",
        (
            "        parked = _Parked(",
            "        self._carry_out(context, _Parked(0, after_commit, None))\n"
            "        after_commit = []\n"
            "        parked = _Parked(",
        ),
    )


@mutation("no progress")
def marker_lost(patch: Patch) -> None:
    """One of a transaction's partitions gets no marker."""
    rewrite(
        patch,
        MarkerWriter,
        "send",
        ("sorted(prepared.partitions)", "sorted(prepared.partitions)[1:] or []"),
    )


@mutation("duplicated", "wrong", "aborted read", "torn transaction")
def abort_marked_as_a_commit(patch: Patch) -> None:
    """The marker of an aborted transaction says that it was committed, on data partitions."""
    write = PartitionMarkers.write_marker

    async def always_commit(self: PartitionMarkers, tp: TopicPartition, **marker: Any) -> None:
        await write(self, tp, **{**marker, "commit": True})

    patch.setattr(PartitionMarkers, "write_marker", always_commit)


@mutation("no progress")
def decided_transactions_not_finished_at_a_restart(patch: Patch) -> None:
    """A restarted broker does not write the markers that were still missing."""
    rewrite(
        patch,
        TransactionShard,
        "on_loaded",
        ("            effects.append(SendMarkers(transactional_id))\n", "            pass\n"),
    )


@mutation("no progress", "torn transaction")
def transactions_forgotten_at_a_restart(patch: Patch) -> None:
    """A restarted broker knows no transactional ids."""
    rewrite(
        patch,
        TransactionShard,
        "on_loaded",
        (
            "    for transactional_id, metadata",
            "    self._transactions.clear()\n    for transactional_id, metadata",
        ),
    )


@mutation(
    covered_by="the abort of the open transaction bumps the epoch, the generation fences the rest"
)
def a_new_producer_fences_nobody(patch: Patch) -> None:
    """InitProducerId gives out the present epoch instead of a new one."""
    rewrite(
        patch,
        TransactionShard,
        "_next_epoch",
        ("current.producer_epoch + 1)", "current.producer_epoch)"),
    )


@mutation("worker failed", "duplicated", "wrong", scenario="zombies")
def epochs_not_checked_by_the_coordinator(patch: Patch) -> None:
    """A fenced producer may add to its successor's transaction and end it."""
    rewrite(
        patch,
        transaction_shard,
        "_identity_error",
        ("if producer.producer_epoch != current.producer_epoch:", "if False:"),
    )
    rewrite(
        patch,
        transaction_shard,
        "_end_answer_v2",
        ("    if identity is Identity.FENCED:\n        return ErrorCode.PRODUCER_FENCED\n", ""),
    )


@mutation("duplicated", "no progress", "wrong", scenario="zombies")
def generation_not_checked(patch: Patch) -> None:
    """Offsets are taken from whoever sends them."""
    rewrite(
        patch,
        ClassicGroup,
        "validate_commit",
        ("    member = self.validate_member", "    return None\n    member = self.validate_member"),
    )


@mutation("lost", "wrong offset")
def pending_offsets_visible(patch: Patch) -> None:
    """Offsets of a transaction count before it is committed."""
    rewrite(
        patch,
        OffsetStore,
        "replay_offset",
        ("if producer_id == NO_PRODUCER_ID", "if True"),
    )


@mutation("lost", "wrong offset")
def aborted_offsets_committed(patch: Patch) -> None:
    """The offsets of an aborted transaction count."""
    rewrite(patch, OffsetStore, "replay_marker", ("    if commit:\n", "    if True:\n"))


@mutation("duplicated", "no progress", "wrong", "offset went back")
def transactional_offsets_forgotten_at_a_restart(patch: Patch) -> None:
    """A restarted broker does not know the offsets that transactions committed."""
    rewrite(
        patch,
        LoadedLog,
        "add",
        ("commit=batch.marker", "commit=False"),
    )


@mutation("no progress", "lost", scenario="impatient")
def repeated_commit_answered_without_looking(patch: Patch) -> None:
    """A commit that is asked for again is confirmed, even if the transaction was aborted."""
    answers = dict(END_TXN_V2)
    answers[TransactionState.COMPLETE_ABORT, True, Identity.RETRY] = ErrorCode.NONE
    answers[TransactionState.COMPLETE_ABORT, True, Identity.CURRENT] = ErrorCode.NONE
    patch.setattr(transaction_shard, "END_TXN_V2", answers)


COORDINATORS: tuple[Mutation, ...] = (
    answered_before_it_is_durable,
    markers_before_the_decision_is_durable,
    marker_lost,
    abort_marked_as_a_commit,
    decided_transactions_not_finished_at_a_restart,
    transactions_forgotten_at_a_restart,
    a_new_producer_fences_nobody,
    epochs_not_checked_by_the_coordinator,
    generation_not_checked,
    pending_offsets_visible,
    aborted_offsets_committed,
    transactional_offsets_forgotten_at_a_restart,
    repeated_commit_answered_without_looking,
)
