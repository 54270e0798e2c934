"""Tests at the end of the int16 epochs: ids rotate, retries stay retries, nothing wraps."""

from __future__ import annotations

import dataclasses
import random

import pytest

from onceward.broker.coordinator.result import ProducerIdAndEpoch
from onceward.broker.coordinator.transaction.transaction_metadata import first_metadata
from onceward.broker.coordinator.transaction.transaction_state import TransactionState
from onceward.broker.errors import ErrorCode

from .context import TIMEOUT_MS, V1, V2, ShardDialogue

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
OLD_ID = 50


def at_epoch(epoch: int, *, version: int = V2) -> tuple[ShardDialogue, ProducerIdAndEpoch]:
    dialogue = ShardDialogue()
    dialogue.set(
        dataclasses.replace(
            first_metadata("t", OLD_ID, TIMEOUT_MS, dialogue.now_ms),
            producer_epoch=epoch,
            client_transaction_version=version,
        )
    )
    return dialogue, ProducerIdAndEpoch(OLD_ID, epoch)


def test_version_2_transactions_run_over_the_end_of_the_epochs() -> None:
    dialogue, producer = at_epoch(32760)
    seen = [producer]
    for round_number in range(20):
        assert dialogue.add(producer) is NONE
        commit = round_number % 3 != 0
        answer = dialogue.end(producer, commit=commit)
        assert dialogue.metadata().producer_id == producer.producer_id
        assert dialogue.metadata().producer_epoch == producer.producer_epoch + 1
        assert dialogue.end(producer, commit=commit).error is BUSY
        assert dialogue.complete()
        for _ in range(2):
            assert dialogue.end(producer, commit=commit) == answer
        producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        seen.append(producer)
    assert seen[6] == (OLD_ID, 32766)
    assert seen[7] == (100, 0)
    assert seen[-1] == (100, 13)


@pytest.mark.parametrize("commit", [True, False])
def test_during_the_overflow_the_client_already_has_the_next_id_and_is_told_to_wait(
    commit: bool,
) -> None:
    dialogue, producer = at_epoch(32766)
    dialogue.add(producer)
    answer = dialogue.end(producer, commit=commit)
    following = ProducerIdAndEpoch(*answer[1:])
    assert following == (100, 0)
    assert dialogue.add(following) is BUSY
    assert dialogue.end(following, commit=False).error is BUSY
    dialogue.complete()
    assert dialogue.add(following) is NONE


def test_an_overflow_survives_a_restart_at_every_step() -> None:
    dialogue, producer = at_epoch(32766)
    dialogue.add(producer)
    answer = dialogue.end(producer, commit=True)
    dialogue.reload()
    assert dialogue.metadata().identity == (OLD_ID, 32767)
    dialogue.complete()
    dialogue.reload()
    assert dialogue.end(producer, commit=True) == answer
    assert dialogue.add(ProducerIdAndEpoch(*answer[1:])) is NONE


def test_a_timeout_at_the_last_version_2_epoch_rotates_the_id() -> None:
    dialogue, producer = at_epoch(32766)
    dialogue.add(producer)
    dialogue.time_out()
    assert dialogue.identity() == (OLD_ID, 32767)
    dialogue.complete()
    assert dialogue.identity() == (100, 0)
    assert dialogue.end(producer, commit=True).error is FENCED
    assert dialogue.end(producer, commit=False) == (NONE, 100, 0)
    assert dialogue.init(producer) == (NONE, 100, 0)


def test_a_stranger_at_the_last_version_2_epoch_fences_and_rotates() -> None:
    dialogue, zombie = at_epoch(32766)
    dialogue.add(zombie)
    assert dialogue.init().error is BUSY
    dialogue.complete()
    assert dialogue.init() == (NONE, 100, 1)
    assert dialogue.init(zombie).error is FENCED
    assert dialogue.end(zombie, commit=False).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("expects", [True, False])
def test_init_at_the_last_epoch_rotates_and_its_retry_gets_the_same(expects: bool) -> None:
    dialogue, producer = at_epoch(32766)
    answer = dialogue.init(producer if expects else None)
    assert answer == (NONE, 100, 0)
    if expects:
        assert dialogue.init(producer) == answer
    else:
        assert dialogue.init(producer).error is FENCED


def test_init_hands_out_the_last_client_epoch_and_no_higher() -> None:
    dialogue, _ = at_epoch(32765)
    assert dialogue.init() == (NONE, OLD_ID, 32766)
    assert dialogue.init() == (NONE, 100, 0)


@pytest.mark.parametrize("expects", [True, False])
def test_a_version_1_transaction_fenced_at_the_last_epoch_rotates_at_the_next_init(
    expects: bool,
) -> None:
    dialogue, producer = at_epoch(32766, version=V1)
    expected = producer if expects else None
    assert dialogue.transact(producer, version=V1) == producer
    dialogue.add(producer, version=V1)
    assert dialogue.init(expected).error is BUSY
    assert dialogue.identity() == (OLD_ID, 32767)
    dialogue.complete()
    answer = dialogue.init(expected)
    assert answer == (NONE, 100, 0)
    if expects:
        assert dialogue.init(producer) == answer


@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_over_the_end_hands_out_an_identity_twice_or_above_the_last(seed: int) -> None:
    rng = random.Random(seed)
    dialogue, producer = at_epoch(32755)
    handed_out = [producer]
    for _ in range(60):
        if rng.random() < 0.8:
            assert dialogue.add(producer) is NONE
            action = rng.choice(["commit", "abort", "timeout", "own init", "stranger"])
        else:
            action = rng.choice(["own init", "stranger"])
        ongoing = dialogue.metadata().state is TransactionState.ONGOING
        if action in ("commit", "abort"):
            answer = dialogue.end(producer, commit=action == "commit")
            dialogue.complete()
        elif action == "timeout":
            dialogue.time_out()
            dialogue.complete()
            answer = dialogue.end(producer, commit=False)
        else:
            expected = producer if action == "own init" else None
            if ongoing:
                assert dialogue.init(expected).error is BUSY
                dialogue.complete()
            answer = dialogue.init(expected)
            if expected is not None:
                assert dialogue.init(expected) == answer
        if rng.random() < 0.3:
            dialogue.reload()
        assert answer.error is NONE
        producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        assert producer.producer_epoch <= 32766
        handed_out.append(producer)
    assert len(set(handed_out)) == len(handed_out)
    assert handed_out[-1].producer_id == 100
