"""Tests of the moves of one transactional id."""

from __future__ import annotations

import dataclasses

import pytest

from onceward.broker.coordinator.result import ProducerIdAndEpoch
from onceward.broker.coordinator.transaction.transaction_metadata import (
    IllegalTransition,
    TransactionMetadata,
    first_metadata,
)
from onceward.broker.coordinator.transaction.transaction_state import Identity, TransactionState

from .context import A0, A1, V1, V2

EMPTY = first_metadata("t", 1, 1000, 10)
ONGOING = EMPTY.add_partitions([A0], V2, 20)


def prepare(metadata: TransactionMetadata, *, commit: bool, version: int) -> TransactionMetadata:
    return metadata.prepare_end(
        commit=commit, client_version=version, next_producer_id=-1, now_ms=30
    )


def test_the_first_partition_starts_the_transaction_and_later_ones_join_it() -> None:
    more = ONGOING.add_partitions([A1], V2, 25)
    assert (ONGOING.start_ms, more.start_ms, more.last_update_ms) == (20, 20, 25)
    assert more.partitions == {A0, A1}
    assert more.deadline_ms == 1020


def test_version_2_bumps_the_epoch_at_the_end_and_version_1_does_not() -> None:
    assert prepare(ONGOING, commit=True, version=V2).producer_epoch == 1
    assert prepare(ONGOING, commit=True, version=V2).last_producer_epoch == 0
    assert prepare(ONGOING, commit=True, version=V1).producer_epoch == 0


def test_a_complete_transaction_has_no_partitions_and_keeps_its_start() -> None:
    complete = prepare(ONGOING, commit=False, version=V2).complete(40)
    assert complete.state is TransactionState.COMPLETE_ABORT
    assert complete.partitions == frozenset()
    assert (complete.start_ms, complete.last_update_ms) == (20, 40)


def test_an_empty_transaction_can_be_aborted_under_version_2_only() -> None:
    assert prepare(EMPTY, commit=False, version=V2).start_ms == 30
    with pytest.raises(IllegalTransition):
        prepare(EMPTY, commit=False, version=V1)
    with pytest.raises(IllegalTransition):
        prepare(EMPTY, commit=True, version=V2)


def test_a_decided_transaction_takes_no_more_partitions() -> None:
    with pytest.raises(IllegalTransition):
        prepare(ONGOING, commit=True, version=V2).add_partitions([A1], V2, 40)


def test_the_last_epoch_needs_a_next_producer_id_and_no_other_may_have_one() -> None:
    last = dataclasses.replace(ONGOING, producer_epoch=32766)
    with pytest.raises(IllegalTransition):
        prepare(last, commit=True, version=V2)
    with pytest.raises(IllegalTransition):
        ONGOING.prepare_end(commit=True, client_version=V2, next_producer_id=9, now_ms=30)


def test_at_the_last_epoch_markers_keep_the_old_id_and_the_client_gets_the_new_one() -> None:
    last = dataclasses.replace(ONGOING, producer_epoch=32766)
    prepared = last.prepare_end(commit=True, client_version=V2, next_producer_id=9, now_ms=30)
    assert prepared.identity == (1, 32767)
    assert prepared.next_identity == (9, 0)
    complete = prepared.complete(40)
    assert complete.identity == (9, 0)
    assert (complete.previous_producer_id, complete.last_producer_epoch) == (1, 32766)
    assert complete.next_producer_id == -1


@pytest.mark.parametrize(
    ("producer", "identity"),
    [
        ((1, 5), Identity.CURRENT),
        ((1, 4), Identity.RETRY),
        ((1, 3), Identity.FENCED),
        ((1, 6), Identity.FENCED),
        ((2, 5), Identity.UNKNOWN),
    ],
)
def test_an_identity_is_judged_by_id_and_epoch(
    producer: tuple[int, int], identity: Identity
) -> None:
    stored = dataclasses.replace(EMPTY, producer_epoch=5, last_producer_epoch=4)
    assert stored.identify(*producer) is identity


def test_the_epoch_before_a_bump_for_somebody_else_is_no_retry() -> None:
    stored = dataclasses.replace(EMPTY, producer_epoch=5, last_producer_epoch=-1)
    assert stored.identify(1, 4) is Identity.FENCED


def test_the_last_epoch_of_the_previous_id_is_a_retry_until_the_new_id_is_used() -> None:
    last = dataclasses.replace(ONGOING, producer_epoch=32766)
    complete = last.prepare_end(
        commit=True, client_version=V2, next_producer_id=9, now_ms=30
    ).complete(40)
    assert complete.identify(1, 32766) is Identity.RETRY
    assert complete.identify(1, 32765) is Identity.UNKNOWN
    ongoing = complete.add_partitions([A0], V2, 50)
    assert ongoing.identify(1, 32766) is Identity.UNKNOWN


def test_a_fencing_abort_bumps_once_in_both_versions() -> None:
    for version in (V1, V2):
        ongoing = EMPTY.add_partitions([A0], version, 20)
        fenced = ongoing.prepare_fencing_abort(
            last_producer_epoch=-1, next_producer_id=-1, now_ms=30
        )
        assert fenced.complete(40).identity == ProducerIdAndEpoch(1, 1)
