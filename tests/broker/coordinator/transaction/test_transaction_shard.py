"""Tests of the shard's decisions: every state, request and epoch relation of the protocol."""

from __future__ import annotations

import itertools

import pytest

from onceward.broker.coordinator.result import ProducerIdAndEpoch
from onceward.broker.coordinator.transaction.transaction_shard import (
    SendMarkers,
    TransactionTimeout,
)
from onceward.broker.coordinator.transaction.transaction_state import TransactionState
from onceward.broker.errors import ErrorCode

from .context import A0, A1, STORED, TIMEOUT_MS, V1, V2, ShardDialogue, in_state

S = TransactionState
STATES = (
    S.EMPTY,
    S.ONGOING,
    S.PREPARE_COMMIT,
    S.PREPARE_ABORT,
    S.COMPLETE_COMMIT,
    S.COMPLETE_ABORT,
)
PRODUCERS = {
    "current": STORED,
    "retry": ProducerIdAndEpoch(100, 9),
    "old": ProducerIdAndEpoch(100, 8),
    "future": ProducerIdAndEpoch(100, 11),
    "other id": ProducerIdAndEpoch(99, 10),
}
MOVES = "moves"
NONE, INVALID_STATE = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE
BUSY, FENCED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- EndTxn ---------------------------------------------------------------------------------------

END_V1_CURRENT = {
    (S.EMPTY, True): INVALID_STATE,
    (S.EMPTY, False): INVALID_STATE,
    (S.ONGOING, True): MOVES,
    (S.ONGOING, False): MOVES,
    (S.PREPARE_COMMIT, True): BUSY,
    (S.PREPARE_COMMIT, False): INVALID_STATE,
    (S.PREPARE_ABORT, True): INVALID_STATE,
    (S.PREPARE_ABORT, False): BUSY,
    (S.COMPLETE_COMMIT, True): NONE,
    (S.COMPLETE_COMMIT, False): INVALID_STATE,
    (S.COMPLETE_ABORT, True): INVALID_STATE,
    (S.COMPLETE_ABORT, False): NONE,
}


def expected_v1(state: TransactionState, commit: bool, who: str) -> ErrorCode | str:
    if who == "other id":
        return UNMAPPED
    return END_V1_CURRENT[state, commit] if who == "current" else FENCED


END_V2 = {
    (S.EMPTY, True, "current"): INVALID_STATE,
    (S.EMPTY, False, "current"): MOVES,
    (S.EMPTY, True, "retry"): FENCED,
    (S.EMPTY, False, "retry"): FENCED,
    (S.ONGOING, True, "current"): MOVES,
    (S.ONGOING, False, "current"): MOVES,
    (S.ONGOING, True, "retry"): FENCED,
    (S.ONGOING, False, "retry"): FENCED,
    (S.COMPLETE_COMMIT, True, "current"): INVALID_STATE,
    (S.COMPLETE_COMMIT, False, "current"): MOVES,
    (S.COMPLETE_COMMIT, True, "retry"): NONE,
    (S.COMPLETE_COMMIT, False, "retry"): INVALID_STATE,
    (S.COMPLETE_ABORT, True, "current"): INVALID_STATE,
    (S.COMPLETE_ABORT, False, "current"): MOVES,
    (S.COMPLETE_ABORT, True, "retry"): FENCED,  # Kafka up to KAFKA-20785: INVALID_TXN_STATE
    (S.COMPLETE_ABORT, False, "retry"): NONE,
}


def expected_v2(state: TransactionState, commit: bool, who: str) -> ErrorCode | str:
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        return BUSY
    if who == "other id":
        return UNMAPPED
    return END_V2.get((state, commit, who), FENCED)


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("who", PRODUCERS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.title)
def test_end_txn_answers_by_state_outcome_and_epoch(
    state: TransactionState, who: str, commit: bool, version: int
) -> None:
    dialogue = in_state(state, version=version)
    written = len(dialogue.log)
    before = dialogue.metadata()
    expected = (expected_v1 if version == V1 else expected_v2)(state, commit, who)

    answer = dialogue.end(PRODUCERS[who], commit=commit, version=version)

    if expected != MOVES:
        assert answer.error is expected
        assert len(dialogue.log) == written
        assert dialogue.metadata() is before
        if expected is NONE:
            assert answer[1:] == STORED
        return
    bump = 1 if version == V2 else 0
    assert answer == (NONE, STORED.producer_id, STORED.producer_epoch + bump)
    assert dialogue.metadata().state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert dialogue.identity() == (STORED.producer_id, STORED.producer_epoch + bump)
    assert dialogue.effects == [SendMarkers("t")]


@pytest.mark.parametrize("version", [V1, V2])
def test_end_txn_of_an_unknown_id_has_no_mapping(version: int) -> None:
    assert ShardDialogue().end(STORED, commit=True, version=version).error is UNMAPPED


def test_the_answer_to_a_repeated_version_2_end_is_the_lost_answer() -> None:
    dialogue = ShardDialogue()
    dialogue.init()
    first = dialogue.identity()
    dialogue.add(first)
    answer = dialogue.end(first, commit=True)
    assert dialogue.end(first, commit=True).error is BUSY
    dialogue.complete()
    assert dialogue.end(first, commit=True) == answer


def test_the_next_version_2_transaction_may_be_aborted_before_the_last_one_is_complete() -> None:
    dialogue = ShardDialogue()
    dialogue.init()
    dialogue.add(dialogue.identity())
    following = dialogue.end(dialogue.identity(), commit=True)
    assert dialogue.end(ProducerIdAndEpoch(*following[1:]), commit=False).error is BUSY
    dialogue.complete()
    assert dialogue.end(ProducerIdAndEpoch(*following[1:]), commit=False).error is NONE


# --- adding and verifying partitions --------------------------------------------------------------


def expected_add(state: TransactionState, who: str) -> ErrorCode:
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        return BUSY
    return {"other id": UNMAPPED, "current": NONE}.get(who, FENCED)


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("who", PRODUCERS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.title)
def test_adding_a_partition_answers_by_state_and_epoch(
    state: TransactionState, who: str, version: int
) -> None:
    dialogue = in_state(state, version=version)
    before = dialogue.metadata()
    dialogue.now_ms += 5
    error = dialogue.add(PRODUCERS[who], A1, version=version)
    assert error is expected_add(state, who)
    after = dialogue.metadata()
    if error is not NONE:
        assert after is before
        return
    assert after.state is S.ONGOING
    assert after.client_transaction_version == version
    if state is S.ONGOING:
        assert after.partitions == {A0, A1}
        assert after.start_ms == before.start_ms
    else:
        assert after.partitions == {A1}
        assert after.start_ms == dialogue.now_ms
        assert dialogue.timers[TransactionTimeout("t")] == dialogue.now_ms + TIMEOUT_MS


def test_a_partition_that_is_already_in_the_transaction_costs_no_record() -> None:
    dialogue = in_state(S.ONGOING, version=V2)
    written = len(dialogue.log)
    assert dialogue.add(STORED, A0) is NONE
    assert len(dialogue.log) == written


def test_adding_to_an_unknown_id_has_no_mapping() -> None:
    assert ShardDialogue().add(STORED) is UNMAPPED


@pytest.mark.parametrize("who", PRODUCERS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.title)
def test_verifying_answers_by_membership_state_and_epoch(state: TransactionState, who: str) -> None:
    dialogue = in_state(state, version=V1)
    answers = dialogue.run(dialogue.shard.verify_partitions("t", PRODUCERS[who], [A0, A1]))
    if who != "current":
        error = UNMAPPED if who == "other id" else FENCED
        assert answers == {A0: error, A1: error}
    elif state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        assert answers == {A0: BUSY, A1: BUSY}
    else:
        abortable = ErrorCode.TRANSACTION_ABORTABLE
        assert answers == {A0: NONE if state is S.ONGOING else abortable, A1: abortable}
    assert len(dialogue.log) == 1


def test_verifying_for_an_unknown_id_has_no_mapping() -> None:
    dialogue = ShardDialogue()
    assert dialogue.run(dialogue.shard.verify_partitions("t", STORED, [A0])) == {A0: UNMAPPED}


# --- InitProducerId -------------------------------------------------------------------------------


def test_an_unknown_id_gets_a_new_producer_id_and_epoch_0() -> None:
    dialogue = ShardDialogue()
    assert dialogue.init() == (NONE, 100, 0)
    assert dialogue.init(transactional_id="u") == (NONE, 101, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    dialogue = ShardDialogue()
    error = dialogue.init(timeout_ms=timeout_ms).error
    assert error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert dialogue.init(timeout_ms=900_000).error is NONE


INIT_IDLE = {
    None: (NONE, 100, 11),
    "current": (NONE, 100, 11),
    "retry": (NONE, 100, 10),
    "old": (FENCED, -1, -1),
    "future": (FENCED, -1, -1),
    "other id": (FENCED, -1, -1),
}


@pytest.mark.parametrize("who", [None, *PRODUCERS])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.title)
def test_init_producer_id_answers_by_state_and_what_the_caller_had(
    state: TransactionState, who: str | None
) -> None:
    dialogue = in_state(state, version=V2)
    answer = dialogue.init(PRODUCERS[who] if who else None, timeout_ms=777)
    after = dialogue.metadata()
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        assert answer.error is BUSY
    elif state is S.ONGOING:
        aborts = who in (None, "current")
        assert answer.error is (BUSY if aborts else FENCED)
        assert after.state is (S.PREPARE_ABORT if aborts else S.ONGOING)
        assert after.producer_epoch == (11 if aborts else 10)
    else:
        assert answer == INIT_IDLE[who]
        if answer.error is NONE:
            assert (after.state, after.start_ms, after.timeout_ms) == (S.EMPTY, -1, 777)


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_a_stranger_fences_the_ongoing_transaction_and_its_producer_for_good(version: int) -> None:
    dialogue = in_state(S.ONGOING, version=version)
    assert dialogue.init().error is BUSY
    assert dialogue.effects == [SendMarkers("t")]
    assert dialogue.metadata().producer_epoch == 11
    assert dialogue.init().error is BUSY
    dialogue.complete()

    zombie = STORED
    assert dialogue.init(zombie).error is FENCED
    assert dialogue.add(zombie, version=version) is FENCED
    for commit in (True, False):
        assert dialogue.end(zombie, commit=commit, version=version).error is FENCED
    # The epoch of the abort is never handed out to the stranger.
    assert dialogue.init() == (NONE, 100, 12)
    assert dialogue.init(zombie).error is FENCED


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_a_producer_that_aborts_its_own_transaction_by_init_goes_on(version: int) -> None:
    dialogue = in_state(S.ONGOING, version=version)
    assert dialogue.init(STORED).error is BUSY
    dialogue.complete()
    answer = dialogue.init(STORED)
    assert answer == (NONE, 100, 11)
    assert dialogue.init(STORED) == answer
    late = dialogue.end(STORED, commit=True, version=version)
    assert late.error is FENCED


def test_a_replaced_producer_cannot_abort_its_successors_transaction_by_init() -> None:
    dialogue = ShardDialogue()
    dialogue.init()
    zombie = dialogue.identity()
    dialogue.init()
    successor = dialogue.identity()
    dialogue.add(successor)
    assert dialogue.init(zombie).error is FENCED
    assert dialogue.end(successor, commit=True).error is NONE


def test_a_caller_with_a_forgotten_id_gets_a_fresh_one() -> None:
    assert ShardDialogue().init(ProducerIdAndEpoch(5, 7)) == (NONE, 100, 0)


def test_a_retried_init_is_recognised_after_a_restart() -> None:
    dialogue = ShardDialogue()
    dialogue.init()
    had = dialogue.identity()
    answer = dialogue.init(had)
    dialogue.reload()
    assert dialogue.init(had) == answer


# --- completion -----------------------------------------------------------------------------------


def test_markers_of_an_earlier_transaction_do_not_complete_the_next() -> None:
    dialogue = in_state(S.EMPTY, version=V1)
    dialogue.add(STORED, version=V1)
    dialogue.end(STORED, commit=True, version=V1)
    stale = dialogue.metadata()
    dialogue.complete()
    dialogue.add(STORED, version=V1)
    dialogue.end(STORED, commit=True, version=V1)
    assert stale == dialogue.metadata()
    assert dialogue.run(dialogue.shard.complete(stale, dialogue.now_ms)) is False
    assert dialogue.metadata().state is S.PREPARE_COMMIT
    assert dialogue.complete()


def test_a_completion_from_before_a_restart_counts_for_nothing() -> None:
    dialogue = in_state(S.ONGOING, version=V2)
    dialogue.end(STORED, commit=True)
    stale = dialogue.metadata()
    dialogue.reload()
    assert dialogue.run(dialogue.shard.complete(stale, dialogue.now_ms)) is False
    assert dialogue.complete()


# --- KAFKA-17754: a late EndTxn meets the next transaction ----------------------------------------


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product([True, False], repeat=2)), ids=str
)
def test_a_late_version_2_end_never_touches_the_next_transaction(first: bool, second: bool) -> None:
    dialogue = in_state(S.EMPTY, version=V2)
    dialogue.add(STORED)
    answer = dialogue.end(STORED, commit=first)
    dialogue.complete()
    for late in (True, False):
        repeated = dialogue.end(STORED, commit=late)
        if late == first:
            assert repeated == answer
        else:
            assert repeated.error in (FENCED, INVALID_STATE)

    following = ProducerIdAndEpoch(*answer[1:])
    dialogue.add(following, A1)
    for late in (True, False):
        assert dialogue.end(STORED, commit=late).error is FENCED
        assert dialogue.metadata().state is S.ONGOING
    assert dialogue.end(following, commit=second).error is NONE
    for late in (True, False):
        assert dialogue.end(STORED, commit=late).error is BUSY
    dialogue.complete()
    for late in (True, False):
        assert dialogue.end(STORED, commit=late).error is FENCED
    assert dialogue.metadata().state is (S.COMPLETE_COMMIT if second else S.COMPLETE_ABORT)


# --- connections ----------------------------------------------------------------------------------


def test_an_older_connection_is_not_admitted_once_a_newer_one_has_spoken() -> None:
    shard = in_state(S.ONGOING, version=V1).shard
    assert shard.admits_connection("t", STORED, 5)
    assert shard.admits_connection("t", STORED, 5)
    assert shard.admits_connection("t", STORED, 8)
    assert not shard.admits_connection("t", STORED, 5)
    assert shard.admits_connection("t", STORED, 8)


def test_a_stale_producer_on_a_new_connection_does_not_fence_the_live_one() -> None:
    shard = in_state(S.ONGOING, version=V1).shard
    assert shard.admits_connection("t", STORED, 5)
    assert shard.admits_connection("t", PRODUCERS["old"], 9)
    assert shard.admits_connection("t", STORED, 5)


def test_a_new_epoch_starts_with_any_connection() -> None:
    dialogue = in_state(S.EMPTY, version=V1)
    assert dialogue.shard.admits_connection("t", STORED, 9)
    dialogue.init()
    assert dialogue.shard.admits_connection("t", dialogue.identity(), 2)
