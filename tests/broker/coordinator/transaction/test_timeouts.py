"""Tests of what time does: transactions past their timeout and ids nobody uses."""

from __future__ import annotations

import pytest

from onceward.broker.coordinator.result import ProducerIdAndEpoch
from onceward.broker.coordinator.transaction.config import TransactionConfig
from onceward.broker.coordinator.transaction.transaction_shard import (
    ExpirationCheck,
    SendMarkers,
    TransactionTimeout,
)
from onceward.broker.coordinator.transaction.transaction_state import TransactionState
from onceward.broker.errors import ErrorCode

from .context import A0, STORED, TIMEOUT_MS, V1, V2, ShardDialogue, in_state

S = TransactionState
NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
FENCED, UNMAPPED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING

# --- timeouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_a_transaction_past_its_timeout_is_aborted_under_a_bumped_epoch(version: int) -> None:
    dialogue = in_state(S.EMPTY, version=version)
    dialogue.add(STORED, version=version)
    dialogue.time_out()
    assert dialogue.metadata().state is S.PREPARE_ABORT
    assert dialogue.metadata().producer_epoch == 11
    assert dialogue.effects == [SendMarkers("t")]


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_whoever_comes_back_after_the_timeout_is_fenced_and_never_told_invalid_state(
    version: int,
) -> None:
    dialogue = in_state(S.EMPTY, version=version)
    dialogue.add(STORED, version=version)
    dialogue.time_out()
    during = dialogue.end(STORED, commit=True, version=version).error
    assert during is (FENCED if version == V1 else BUSY)
    dialogue.complete()
    assert dialogue.end(STORED, commit=True, version=version).error is FENCED
    assert dialogue.add(STORED, version=version) is FENCED
    verified = dialogue.run(dialogue.shard.verify_partitions("t", STORED, [A0]))
    assert verified == {A0: FENCED}


def test_a_slow_version_2_producer_may_abort_and_go_on_after_the_timeout() -> None:
    dialogue = in_state(S.EMPTY, version=V2)
    dialogue.add(STORED)
    dialogue.time_out()
    dialogue.complete()
    assert dialogue.end(STORED, commit=False) == (NONE, 100, 11)
    assert dialogue.init(STORED) == (NONE, 100, 11)
    assert dialogue.add(ProducerIdAndEpoch(100, 11)) is NONE


def test_a_slow_version_1_producer_is_fenced_after_the_timeout() -> None:
    dialogue = in_state(S.EMPTY, version=V1)
    dialogue.add(STORED, version=V1)
    dialogue.time_out()
    dialogue.complete()
    assert dialogue.init(STORED).error is FENCED
    assert dialogue.init() == (NONE, 100, 12)


def test_the_timer_of_an_earlier_transaction_does_not_abort_the_next() -> None:
    dialogue = in_state(S.EMPTY, version=V2)
    following = dialogue.transact(STORED)
    dialogue.now_ms += 1000
    dialogue.add(following)
    key = TransactionTimeout("t")
    dialogue.timers.clear()
    dialogue.run(dialogue.shard.on_timer(key, dialogue.now_ms))
    assert dialogue.metadata().state is S.ONGOING
    assert dialogue.timers[key] == dialogue.now_ms + TIMEOUT_MS


def test_ending_a_transaction_cancels_its_timer() -> None:
    dialogue = in_state(S.EMPTY, version=V2)
    dialogue.transact(STORED)
    assert TransactionTimeout("t") not in dialogue.timers
    dialogue.run(dialogue.shard.on_timer(TransactionTimeout("t"), dialogue.now_ms))
    assert dialogue.metadata().state is S.COMPLETE_COMMIT


# --- expiration -----------------------------------------------------------------------------------

EXPIRY = TransactionConfig(transactional_id_expiration_ms=5000, expiration_check_interval_ms=100)


def check_expiry(dialogue: ShardDialogue) -> None:
    dialogue.run(dialogue.shard.on_timer(ExpirationCheck(), dialogue.now_ms))


def test_an_idle_id_is_forgotten_and_a_fresh_start_works() -> None:
    dialogue = ShardDialogue(EXPIRY)
    dialogue.init()
    had = dialogue.transact(dialogue.identity())
    dialogue.now_ms += 4999
    check_expiry(dialogue)
    assert dialogue.shard.get("t") is not None
    dialogue.now_ms += 1
    check_expiry(dialogue)
    assert dialogue.shard.get("t") is None
    assert dialogue.log[-1][1] is None
    assert dialogue.timers[ExpirationCheck()] == dialogue.now_ms + 100

    assert dialogue.end(had, commit=True).error is UNMAPPED
    assert dialogue.add(had) is UNMAPPED
    assert dialogue.init(had) == (NONE, 101, 0)


@pytest.mark.parametrize(
    "state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT], ids=lambda state: state.title
)
def test_an_id_with_a_transaction_is_never_forgotten(state: TransactionState) -> None:
    dialogue = in_state(state, version=V2)
    dialogue.now_ms += 10**12
    check_expiry(dialogue)
    assert dialogue.shard.get("t") is not None


def test_forgetting_many_ids_takes_several_batches_in_a_row() -> None:
    dialogue = ShardDialogue(EXPIRY)
    for index in range(1500):
        dialogue.init(transactional_id=f"t{index}")
    dialogue.now_ms += 5000
    check_expiry(dialogue)
    assert len(dialogue.shard.transactions) == 500
    assert dialogue.timers[ExpirationCheck()] == dialogue.now_ms
    check_expiry(dialogue)
    assert not dialogue.shard.transactions
