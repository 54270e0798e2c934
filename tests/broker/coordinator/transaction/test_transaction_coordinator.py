"""Tests of the coordinator as handlers call it, over a log whose commits the test makes."""

from __future__ import annotations

import asyncio

import pytest

from onceward.broker.coordinator.transaction.config import TransactionConfig
from onceward.broker.coordinator.transaction.transaction_coordinator import ConnectionFenced
from onceward.broker.errors import ErrorCode
from onceward.broker.protocol.messages import ListTransactionsRequest

from .context import A0, A1, B0, CoordinatorDialogue, settle
from .ports import OFFSETS, MemoryLog

FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


# --- replies and commits --------------------------------------------------------------------------


async def test_no_reply_leaves_before_its_record_is_committed() -> None:
    log = MemoryLog()
    async with CoordinatorDialogue(log) as dialogue:
        producer = (0, 0)
        for request in (
            lambda: dialogue.init(),
            lambda: dialogue.add(producer, A0),
            lambda: dialogue.produce(producer, A1),
            lambda: dialogue.add_offsets(producer),
            lambda: dialogue.end(producer),
        ):
            written = len(log.records[0])
            task = asyncio.ensure_future(request())
            await settle()
            assert len(log.records[0]) == written + 1
            assert not task.done()
            log.commit()
            await settle()
            assert task.done()


async def test_no_marker_is_written_before_the_decision_is_committed() -> None:
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        producer = await dialogue.producer()
        await dialogue.produce(producer, A0)
        log.auto_commit = False
        task = asyncio.ensure_future(dialogue.end(producer))
        await settle()
        assert not dialogue.sink.attempts
        log.commit()
        assert (await task).error_code == 0
        await settle()
        assert dialogue.sink.attempts == [A0]


async def test_the_answer_to_end_txn_does_not_wait_for_the_markers() -> None:
    async with CoordinatorDialogue() as dialogue:
        dialogue.sink.hold()
        producer = await dialogue.producer()
        await dialogue.produce(producer, A0)
        response = await dialogue.end(producer)
        assert (response.producer_id, response.producer_epoch) == (producer[0], producer[1] + 1)
        assert await dialogue.state() == "PrepareCommit"
        dialogue.sink.release()


@pytest.mark.parametrize("add", [True, False], ids=["add", "verify"])
async def test_a_partition_whose_record_is_not_committed_yet_is_confirmed_only_after_it(
    add: bool,
) -> None:
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        producer = await dialogue.producer()
        log.auto_commit = False
        first = asyncio.ensure_future(dialogue.produce(producer, A0))
        await settle()
        second = asyncio.ensure_future(dialogue.produce(producer, A0, add=add))
        await settle()
        assert not first.done()
        assert not second.done()
        log.commit()
        assert await second == {A0: ErrorCode.NONE}
        await first


async def test_a_log_that_refuses_leaves_the_state_as_it_was() -> None:
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        producer = await dialogue.producer()
        log.refusals.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        answers = await dialogue.produce(producer, A0)
        assert answers == {A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert await dialogue.state() == "Empty"
        log.refusals.append(ErrorCode.KAFKA_STORAGE_ERROR)
        assert (await dialogue.init()).error_code == ErrorCode.NOT_COORDINATOR
        assert await dialogue.produce(producer, A0) == {A0: ErrorCode.NONE}


async def test_requests_before_the_log_is_loaded_and_after_the_stop_are_told_so() -> None:
    dialogue = CoordinatorDialogue()
    for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        assert (await dialogue.init()).error_code == error
        assert await dialogue.add((0, 0)) == [error]
        assert await dialogue.produce((0, 0), A0, add=False) == {A0: error}
        assert (await dialogue.end((0, 0))).error_code == error
        assert (await dialogue.describe()).error_code == error
        listing = await dialogue.coordinator.list_transactions(ListTransactionsRequest())
        assert listing.error_code == error
        await dialogue.coordinator.stop()


# --- the next transaction meets the markers of the last -------------------------------------------


async def test_the_next_transaction_is_told_to_wait_while_markers_are_written() -> None:
    async with CoordinatorDialogue() as dialogue:
        dialogue.sink.hold()
        producer = await dialogue.producer()
        await dialogue.add(producer, A0)
        await dialogue.end(producer, version=3)
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await dialogue.add(producer, A1) == [busy]
        assert await dialogue.add_offsets(producer) == busy
        assert (await dialogue.produce(producer, A1))[A1] == busy
        assert (await dialogue.init()).error_code == busy
        dialogue.sink.release()


async def test_the_next_transaction_starts_as_soon_as_the_markers_are_written() -> None:
    config = TransactionConfig(busy_wait_ms=60_000)
    async with CoordinatorDialogue(config=config) as dialogue:
        dialogue.sink.hold()
        producer = await dialogue.producer()
        await dialogue.produce(producer, A0)
        answer = await dialogue.end(producer)
        following = (answer.producer_id, answer.producer_epoch)
        adding = asyncio.ensure_future(dialogue.produce(following, A1))
        await settle()
        assert not adding.done()
        dialogue.sink.release()
        assert await adding == {A1: ErrorCode.NONE}
        assert await dialogue.state() == "Ongoing"


async def test_waiting_for_the_markers_has_an_end() -> None:
    config = TransactionConfig(busy_wait_ms=30)
    async with CoordinatorDialogue(config=config) as dialogue:
        dialogue.sink.hold()
        producer = await dialogue.producer()
        await dialogue.add(producer, A0)
        await dialogue.end(producer, version=3)
        assert await dialogue.add(producer, A1) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        dialogue.sink.release()


async def test_init_that_fences_is_told_to_come_back_and_then_gets_its_epoch() -> None:
    config = TransactionConfig(busy_wait_ms=60_000)
    async with CoordinatorDialogue(config=config) as dialogue:
        dialogue.sink.hold()
        zombie = await dialogue.producer()
        await dialogue.produce(zombie, A0)
        assert (await dialogue.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        retry = asyncio.ensure_future(dialogue.producer())
        await settle()
        dialogue.sink.release()
        assert await retry == (zombie[0], 2)
        assert (await dialogue.end(zombie)).error_code == FENCED


# --- what each version is told --------------------------------------------------------------------


async def test_versions_older_than_producer_fenced_are_told_invalid_epoch() -> None:
    async with CoordinatorDialogue() as dialogue:
        old = await dialogue.producer()
        await dialogue.producer()
        for version, error in ((1, OLD_FENCED), (2, FENCED)):
            assert await dialogue.add(old, A0, version=version) == [error]
            assert await dialogue.add_offsets(old, version=version) == error
            assert (await dialogue.end(old, version=version)).error_code == error
        assert (await dialogue.init(expected=(0, 9), version=3)).error_code == OLD_FENCED
        assert (await dialogue.init(expected=(0, 9), version=4)).error_code == FENCED


async def test_only_version_5_of_end_txn_has_the_next_identity() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        await dialogue.add(producer)
        response = await dialogue.end(producer, version=4)
        assert (response.producer_id, response.producer_epoch) == (-1, -1)


async def test_malformed_requests_are_refused() -> None:
    async with CoordinatorDialogue() as dialogue:
        invalid = ErrorCode.INVALID_REQUEST
        assert (await dialogue.init(transactional_id="")).error_code == invalid
        assert (await dialogue.init(expected=(1, -1))).error_code == invalid
        assert (await dialogue.init(expected=(-1, 1))).error_code == invalid
        timeout = await dialogue.init(timeout_ms=0)
        assert timeout.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (timeout.producer_id, timeout.producer_epoch) == (-1, -1)
        assert not dialogue.log.records[0]


async def test_a_producer_without_a_transactional_id_gets_an_id_and_leaves_no_record() -> None:
    async with CoordinatorDialogue() as dialogue:
        ids = {(await dialogue.init(transactional_id=None)).producer_id for _ in range(3)}
        assert len(ids) == 3
        assert not dialogue.log.records[0]


async def test_one_unknown_partition_keeps_all_others_out() -> None:
    async with CoordinatorDialogue(deleted=[A1]) as dialogue:
        producer = await dialogue.producer()
        unknown, unattempted = 3, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await dialogue.add(producer, A0, A1, B0) == [unattempted, unknown, unattempted]
        assert await dialogue.state() == "Empty"


async def test_adding_offsets_adds_the_offsets_partition_of_the_group() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        assert await dialogue.add_offsets(producer) == 0
        topics = (await dialogue.describe()).topics
        assert [(topic.topic, topic.partitions) for topic in topics] == [(OFFSETS.topic, [3])]


async def test_verifying_distinguishes_partitions_in_and_out_of_the_transaction() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        await dialogue.add(producer, A0)
        answers = await dialogue.produce(producer, A0, A1, add=False)
        assert answers == {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}


# --- timeouts and expiry --------------------------------------------------------------------------


async def test_a_transaction_nobody_ends_is_aborted() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer(timeout_ms=30)
        await dialogue.produce(producer, A0)
        await dialogue.until_state("CompleteAbort")
        assert [marker.commit for marker in dialogue.sink.markers] == [False]
        assert (await dialogue.end(producer)).error_code == FENCED
        assert await dialogue.produce(producer, A0) == {A0: FENCED}


async def test_a_timeout_the_log_refuses_to_record_is_tried_again() -> None:
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        producer = await dialogue.producer(timeout_ms=10)
        await dialogue.produce(producer, A0)
        log.refusals.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        await dialogue.until_state("CompleteAbort")


async def test_an_id_that_is_idle_for_long_is_forgotten() -> None:
    config = TransactionConfig(transactional_id_expiration_ms=20, expiration_check_interval_ms=5)
    async with CoordinatorDialogue(config=config) as dialogue:
        producer = await dialogue.producer()
        while (await dialogue.describe()).error_code == 0:
            await asyncio.sleep(0.002)
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await dialogue.end(producer)).error_code == mapping
        assert await dialogue.producer(expected=producer) == (producer[0] + 1, 0)


# --- KAFKA-17754 for version 1 clients: connections -----------------------------------------------


@pytest.mark.parametrize("late_commit", [True, False])
async def test_a_late_end_on_an_abandoned_connection_does_not_touch_the_next_transaction(
    late_commit: bool,
) -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        await dialogue.add(producer, A0, connection_id=1)
        # EndTxn is held up on connection 1; the client comes back on connection 2.
        response = await dialogue.end(producer, commit=late_commit, version=3, connection_id=2)
        assert response.error_code == 0
        await dialogue.until_state("CompleteCommit" if late_commit else "CompleteAbort")
        assert await dialogue.add(producer, B0, connection_id=2) == [0]

        with pytest.raises(ConnectionFenced):
            await dialogue.end(producer, commit=late_commit, version=3, connection_id=1)
        with pytest.raises(ConnectionFenced):
            await dialogue.add(producer, A1, connection_id=1)
        with pytest.raises(ConnectionFenced):
            await dialogue.add_offsets(producer, connection_id=1)
        described = await dialogue.describe()
        assert described.transaction_state == "Ongoing"
        assert [topic.topic for topic in described.topics] == ["b"]


async def test_version_2_ends_are_not_fenced_by_connection() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        await dialogue.add(producer, A0, connection_id=2)
        assert (await dialogue.end(producer, version=5, connection_id=1)).error_code == 0


# --- listing --------------------------------------------------------------------------------------


async def test_transactions_are_listed_by_state_producer_and_age() -> None:
    config = TransactionConfig(partitions=4)
    async with CoordinatorDialogue(MemoryLog(4, auto_commit=True), config=config) as dialogue:
        producer = await dialogue.producer()
        for other in ("u", "v"):
            assert (await dialogue.init(transactional_id=other)).error_code == 0
        await dialogue.produce(producer, A0)
        dialogue.clock.offset_ms += 5000

        async def listed(request: ListTransactionsRequest) -> list[str]:
            response = await dialogue.coordinator.list_transactions(request)
            assert response.error_code == 0
            return sorted(state.transactional_id for state in response.transaction_states)

        assert await listed(ListTransactionsRequest()) == ["t", "u", "v"]
        assert await listed(ListTransactionsRequest(state_filters=["Ongoing"])) == ["t"]
        assert await listed(ListTransactionsRequest(state_filters=["Empty", "Dead"])) == ["u", "v"]
        assert await listed(ListTransactionsRequest(producer_id_filters=[1])) == ["u"]
        assert await listed(ListTransactionsRequest(duration_filter=4000)) == ["t"]
        assert await listed(ListTransactionsRequest(duration_filter=60_000)) == []


async def test_state_filters_nobody_knows_are_named() -> None:
    async with CoordinatorDialogue() as dialogue:
        await dialogue.producer()
        response = await dialogue.coordinator.list_transactions(
            ListTransactionsRequest(state_filters=["Asleep", "Ongoing"])
        )
        assert response.unknown_state_filters == ["Asleep"]
        assert response.transaction_states == []


async def test_an_id_pattern_is_refused() -> None:
    async with CoordinatorDialogue() as dialogue:
        response = await dialogue.coordinator.list_transactions(
            ListTransactionsRequest(transactional_id_pattern="(a+)+")
        )
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_a_transaction_is_described_with_its_partitions() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        await dialogue.produce(producer, B0, A1, A0)
        described = await dialogue.describe()
        assert described.transaction_state == "Ongoing"
        assert (described.producer_id, described.producer_epoch) == producer
        assert described.transaction_timeout_ms == 10_000
        assert described.transaction_start_time_ms > 0
        assert [(topic.topic, topic.partitions) for topic in described.topics] == [
            ("a", [0, 1]),
            ("b", [0]),
        ]


async def test_describing_an_unknown_or_empty_id_is_an_error_of_that_id() -> None:
    async with CoordinatorDialogue() as dialogue:
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await dialogue.describe("nobody")).error_code == missing
        assert (await dialogue.describe("")).error_code == ErrorCode.INVALID_REQUEST


def test_settings_are_taken_from_the_brokers_keys() -> None:
    config = TransactionConfig.from_kafka(
        {"transaction.max.timeout.ms": "1000", "node.id": 1}, partitions=3
    )
    assert config == TransactionConfig(partitions=3, max_timeout_ms=1000)
