"""Tests of the states and the tables that document them."""

from __future__ import annotations

import itertools

from onceward.broker.coordinator.transaction.transaction_state import (
    END_TXN_V1,
    END_TXN_V2,
    LEGAL_PREDECESSORS,
    Identity,
    TransactionState,
)


def test_states_have_the_numbers_and_names_of_kafka() -> None:
    assert {state.value: state.title for state in TransactionState} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_a_decided_transaction_can_only_become_complete_with_the_same_outcome() -> None:
    after = {
        state: {to for to, origins in LEGAL_PREDECESSORS.items() if state in origins}
        for state in TransactionState
    }
    assert after[TransactionState.PREPARE_COMMIT] == {TransactionState.COMPLETE_COMMIT}
    assert after[TransactionState.PREPARE_ABORT] == {TransactionState.COMPLETE_ABORT}
    assert TransactionState.PREPARE_COMMIT in after[TransactionState.ONGOING]
    assert TransactionState.PREPARE_COMMIT not in after[TransactionState.EMPTY]


def test_what_the_answer_tables_leave_open_is_a_legal_move() -> None:
    reachable = [state for state in TransactionState if LEGAL_PREDECESSORS[state]]
    for state, commit in itertools.product(reachable, (True, False)):
        target = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if (state, commit) not in END_TXN_V1:
            assert state in LEGAL_PREDECESSORS[target]
        for identity in (Identity.CURRENT, Identity.RETRY):
            if not state.is_prepared and (state, commit, identity) not in END_TXN_V2:
                assert identity is Identity.CURRENT
                assert state in LEGAL_PREDECESSORS[target]
