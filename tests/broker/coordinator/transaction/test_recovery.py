"""Tests of restarts: at every record boundary, and replay against the live state."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.broker.coordinator.result import ProducerIdAndEpoch
from onceward.broker.coordinator.transaction.config import TransactionConfig
from onceward.broker.coordinator.transaction.transaction_metadata import first_metadata
from onceward.broker.coordinator.transaction.transaction_shard import (
    ExpirationCheck,
    SendMarkers,
    TransactionTimeout,
)
from onceward.broker.coordinator.transaction.transaction_state import TransactionState
from onceward.broker.errors import ErrorCode

from .context import A0, A1, B0, V1, V2, CoordinatorDialogue, ShardDialogue, settle
from .ports import MemoryLog

S = TransactionState


def busy_day(dialogue: ShardDialogue, version: int) -> None:
    """Commits, aborts, a timeout, a fence and an overflow of two ids."""
    for transactional_id in ("t", "u"):
        dialogue.init(transactional_id=transactional_id)
    producer = dialogue.identity()
    for commit in (True, False):
        producer = dialogue.transact(producer, commit=commit, version=version)
        other = dialogue.identity("u")
        dialogue.add(other, A0, B0, version=version, transactional_id="u")
        dialogue.end(other, commit=not commit, version=version, transactional_id="u")
        dialogue.complete("u")
    dialogue.add(producer, A0, A1, version=version)
    dialogue.time_out()
    dialogue.complete()
    dialogue.init()
    dialogue.add(dialogue.identity(), version=version)
    dialogue.init()
    dialogue.complete()
    dialogue.init()
    dialogue.transact(dialogue.identity(), version=version)


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_after_a_crash_at_any_record_every_transaction_comes_to_its_end(version: int) -> None:
    whole = ShardDialogue()
    busy_day(whole, version)
    assert len(whole.log) > 20
    for prefix in range(len(whole.log) + 1):
        dialogue = ShardDialogue(first_producer_id=1000)
        dialogue.log = list(whole.log)
        dialogue.now_ms = whole.now_ms
        dialogue.reload(prefix)
        before = dict(dialogue.shard.transactions)
        prepared = {key for key, metadata in before.items() if metadata.state.is_prepared}
        ongoing = {key for key, metadata in before.items() if metadata.state is S.ONGOING}
        assert {
            effect.transactional_id
            for effect in dialogue.effects
            if isinstance(effect, SendMarkers)
        } == prepared
        assert {
            key.transactional_id for key in dialogue.timers if isinstance(key, TransactionTimeout)
        } == ongoing
        for transactional_id in prepared:
            decided = before[transactional_id]
            assert dialogue.complete(transactional_id)
            done = dialogue.metadata(transactional_id)
            commit = decided.state is S.PREPARE_COMMIT
            assert done.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
            assert done.identity == decided.next_identity
        for transactional_id in ongoing:
            dialogue.time_out(transactional_id)
            assert dialogue.metadata(transactional_id).state is S.PREPARE_ABORT
            assert dialogue.complete(transactional_id)
        assert all(metadata.state.is_idle for metadata in dialogue.shard.transactions.values())


async def test_after_a_crash_at_any_record_the_coordinator_finishes_what_was_decided() -> None:
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        producer = await dialogue.producer(timeout_ms=20)
        for commit in (True, False):
            await dialogue.produce(producer, A0)
            await dialogue.produce(producer, A1)
            answer = await dialogue.end(producer, commit=commit)
            await dialogue.until_state("CompleteCommit" if commit else "CompleteAbort")
            producer = (answer.producer_id, answer.producer_epoch)
    total = len(log.records[0])
    assert total == 9
    for keep in range(1, total + 1):
        expected = {
            1: "Empty",
            2: "CompleteAbort",  # ongoing: aborted at its timeout
            3: "CompleteAbort",
            4: "CompleteCommit",  # decided: committed, whatever was written of the markers
            5: "CompleteCommit",
        }.get(keep, "CompleteAbort")
        async with CoordinatorDialogue(
            log.crashed(keep=keep), store=dialogue.store, coordinator_epoch=8
        ) as restarted:
            await restarted.until_state(expected)
            if keep == 4:
                marked = {(marker.tp, marker.producer) for marker in restarted.sink.markers}
                assert marked == {(A0, (0, 1)), (A1, (0, 1))}
                assert {marker.coordinator_epoch for marker in restarted.sink.markers} == {8}


async def test_a_decision_that_was_not_committed_is_neither_answered_nor_acted_upon() -> None:
    log = MemoryLog(auto_commit=True)
    dialogue = CoordinatorDialogue(log)
    await dialogue.coordinator.start()
    producer = await dialogue.producer()
    await dialogue.produce(producer, A0)
    log.auto_commit = False
    ending = asyncio.ensure_future(dialogue.end(producer))
    await settle()
    await dialogue.coordinator.stop()
    assert (await ending).error_code == ErrorCode.NOT_COORDINATOR
    assert not dialogue.sink.attempts
    survivor = log.crashed()
    survivor.auto_commit = True
    async with CoordinatorDialogue(survivor) as restarted:
        assert await restarted.state() == "Ongoing"
        assert (await restarted.end(producer, commit=True)).error_code == 0
        await restarted.until_state("CompleteCommit")


async def test_short_transactions_with_restarts_during_markers_never_hang() -> None:
    log = MemoryLog(auto_commit=True)
    store = CoordinatorDialogue().store
    producer = (0, 0)
    rng = random.Random(16352)
    for round_number in range(100):
        async with CoordinatorDialogue(log, store=store) as dialogue:
            if round_number == 0:
                producer = await dialogue.producer()
            else:
                await dialogue.until_state("CompleteCommit")
            for _ in range(rng.randrange(3)):
                await dialogue.add(producer, A0)
                assert (await dialogue.end(producer, version=3)).error_code == 0
                await dialogue.until_state("CompleteCommit")
            dialogue.sink.hold()
            assert await dialogue.add(producer, A0, A1) == [0, 0]
            assert (await dialogue.end(producer, version=3)).error_code == 0
            for _ in range(rng.randrange(5)):
                await settle()
            log = log.crashed()
    async with CoordinatorDialogue(log, store=store) as dialogue:
        await dialogue.until_state("CompleteCommit")


ACTIONS = st.tuples(
    st.sampled_from(
        [
            "init",
            "own init",
            "add",
            "add2",
            "commit",
            "abort",
            "complete",
            "timer",
            "time",
            "expire",
        ]
    ),
    st.sampled_from(["t", "u", "v"]),
    st.sampled_from([V1, V2]),
    st.integers(0, 2),
)


def act(dialogue: ShardDialogue, action: str, key: str, version: int, back: int) -> None:
    """One request of some client: ``back`` epochs behind the stored one."""
    known = dialogue.shard.get(key)
    stored = known.identity if known else ProducerIdAndEpoch(1, 0)
    producer = ProducerIdAndEpoch(stored.producer_id, max(0, stored.producer_epoch - back))
    if action == "init":
        dialogue.init(transactional_id=key)
    elif action == "own init":
        dialogue.init(producer, transactional_id=key)
    elif action in ("add", "add2"):
        partition = A0 if action == "add" else B0
        dialogue.add(producer, partition, version=version, transactional_id=key)
    elif action in ("commit", "abort"):
        commit = action == "commit"
        dialogue.end(producer, commit=commit, version=version, transactional_id=key)
    elif action == "complete" and known is not None and known.state.is_prepared:
        dialogue.complete(key)
    elif action == "timer":
        dialogue.run(dialogue.shard.on_timer(TransactionTimeout(key), dialogue.now_ms))
    elif action == "time":
        dialogue.now_ms += 6000
    elif action == "expire":
        dialogue.run(dialogue.shard.on_timer(ExpirationCheck(), dialogue.now_ms))


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=60), st.sampled_from([0, 32762]))
def test_replaying_the_log_gives_the_live_state(
    actions: list[tuple[str, str, int, int]], first_epoch: int
) -> None:
    dialogue = ShardDialogue(TransactionConfig(transactional_id_expiration_ms=20_000))
    start = first_metadata("t", 7, 10_000, dialogue.now_ms)
    dialogue.set(dataclasses.replace(start, producer_epoch=first_epoch))
    for action, key, version, back in actions:
        act(dialogue, action, key, version, back)
    live = dict(dialogue.shard.transactions)
    assert all(0 <= metadata.producer_epoch <= 32767 for metadata in live.values())
    dialogue.reload()
    assert dict(dialogue.shard.transactions) == live
