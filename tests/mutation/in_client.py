"""Faults planted in the client library: fetching, producing, transactions, membership."""

from __future__ import annotations

import pytest

from onceward.broker.client.fetcher import Fetcher
from onceward.broker.client.membership import GroupMember
from onceward.broker.client.outbox import Outbox
from onceward.broker.client.positions import PartitionStates
from onceward.broker.client.producer import Producer
from onceward.broker.client.sender import Delivery
from onceward.broker.client.transaction import TransactionRequests

from .mutation import Mutation, mutation, rewrite

Patch = pytest.MonkeyPatch


@mutation("aborted read", "wrong", "duplicated")
def aborted_transactions_delivered(patch: Patch) -> None:
    """The fetcher overlooks the list of aborted transactions in an answer."""
    rewrite(patch, Fetcher, "_decode", ("for a in aborted]", "for a in ()]"))


@mutation("skipped read", "lost")
def position_one_too_far(patch: Patch) -> None:
    """After a batch reading goes on one offset too far, when there is more to read."""
    rewrite(
        patch,
        PartitionStates,
        "take",
        (
            "state.position = batch.records.next_offset",
            "state.position = batch.records.next_offset\n"
            "        state.position += state.position < batch.high_watermark",
        ),
    )


@mutation("worker failed", "non-monotonic read", "duplicated")
def position_one_too_near(patch: Patch) -> None:
    """After a batch reading goes on at its last record."""
    rewrite(
        patch,
        PartitionStates,
        "take",
        (
            "state.position = batch.records.next_offset",
            "state.position = batch.records.next_offset - (len(batch.records.offsets) > 1)",
        ),
    )


@mutation("worker failed", "duplicated", "wrong", "lost", "non-monotonic read", scenario="zombies")
def stale_answers_taken(patch: Patch) -> None:
    """What was fetched from before a seek is used after it."""
    rewrite(
        patch,
        PartitionStates,
        "is_current",
        (
            "return self._states.get(state.tp) is state and state.version == version",
            "return self._states.get(state.tp) is state",
        ),
    )


@mutation("input duplicated")
def no_idempotence(patch: Patch) -> None:
    """The producer sends without producer id and sequence numbers."""
    rewrite(patch, Producer, "_flush", ("if self._idempotent and", "if False and"))


@mutation("input lost", "worker failed", "lost")
def failed_batch_dropped(patch: Patch) -> None:
    """A batch whose request got no answer counts as written."""
    rewrite(
        patch,
        Delivery,
        "_send",
        ("self._on_error(batch, error)", "self._on_success(batch, 0, -1)"),
    )


@mutation("duplicated", "wrong")
def refused_offsets_overlooked(patch: Patch) -> None:
    """A transaction is committed although the group refused its offsets."""
    rewrite(
        patch,
        TransactionRequests,
        "commit_offsets",
        ("_offset_errors", "lambda response: ()"),
    )


@mutation("duplicated", "no progress", "wrong", scenario="zombies")
def offsets_without_generation(patch: Patch) -> None:
    """The group is not told on whose behalf offsets are committed (before KIP-447)."""
    rewrite(
        patch,
        TransactionRequests,
        "commit_offsets",
        ("group.generation_id", "-1"),
        ("group.member_id", '""'),
        ("group.group_instance_id", "None"),
    )


@mutation("lost", "wrong", "no progress", scenario="version 1")
def unknown_outcome_taken_for_a_commit(patch: Patch) -> None:
    """A commit without an answer counts as done."""
    rewrite(
        patch,
        Producer,
        "_on_end_failed",
        ("if not committed and error.code in _NOTHING_TO_ABORT:", "if committed:"),
    )


@mutation("no progress")
def heartbeats_stop(patch: Patch) -> None:
    """A member sends one heartbeat and then no more."""
    rewrite(patch, GroupMember, "_beat", ("while True:", "for _ in range(1):"))


@mutation("duplicated", "wrong")
def outputs_outside_the_transaction(patch: Patch) -> None:
    """Outputs are written as if there were no transaction."""
    _outside(patch, "True")


@mutation("wrong", "table differs")
def changelogs_outside_the_transaction(patch: Patch) -> None:
    """Changelogs are written as if there were no transaction."""
    _outside(patch, 'tp.topic.endswith("changelog")')


def _outside(patch: Patch, condition: str) -> None:
    rewrite(
        patch,
        Outbox,
        "encode",
        ("transactional=transactional,\n", f"transactional=transactional and not {condition},\n"),
    )


CLIENT: tuple[Mutation, ...] = (
    aborted_transactions_delivered,
    position_one_too_far,
    position_one_too_near,
    stale_answers_taken,
    no_idempotence,
    failed_batch_dropped,
    refused_offsets_overlooked,
    offsets_without_generation,
    unknown_outcome_taken_for_a_commit,
    heartbeats_stop,
    outputs_outside_the_transaction,
    changelogs_outside_the_transaction,
)
