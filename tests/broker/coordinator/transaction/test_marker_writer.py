"""Tests of writing end markers: which errors are retried, skipped or given up."""

from __future__ import annotations

import pytest

from onceward.broker.errors import ErrorCode

from .context import A0, A1, B0, CoordinatorDialogue, settle
from .ports import OFFSETS, Marker, MemoryLog


async def commit_two_partitions(dialogue: CoordinatorDialogue) -> tuple[int, int]:
    producer = await dialogue.producer()
    assert await dialogue.add(producer, A0, A1) == [0, 0]
    assert (await dialogue.end(producer, version=3)).error_code == 0
    return producer


async def test_every_partition_gets_one_marker_with_the_epochs_of_the_prepare_record() -> None:
    async with CoordinatorDialogue(coordinator_epoch=7) as dialogue:
        producer = await dialogue.producer()
        await dialogue.produce(producer, A0, B0, OFFSETS)
        await dialogue.end(producer, version=5)
        await dialogue.until_state("CompleteCommit")
        bumped = (producer[0], producer[1] + 1)
        assert sorted(dialogue.sink.markers) == [
            Marker(tp, bumped, True, 7, 2) for tp in (OFFSETS, A0, B0)
        ]


async def test_version_1_markers_carry_the_unchanged_epoch() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await commit_two_partitions(dialogue)
        await dialogue.until_state("CompleteCommit")
        assert sorted(dialogue.sink.markers) == [
            Marker(tp, producer, True, 7, 0) for tp in (A0, A1)
        ]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_only_the_partition_that_failed_is_tried_again(error: ErrorCode) -> None:
    async with CoordinatorDialogue() as dialogue:
        dialogue.sink.errors[A1] += [error, error]
        await commit_two_partitions(dialogue)
        await settle()
        shown = await dialogue.describe()
        assert shown.transaction_state == "PrepareCommit"
        assert [(topic.topic, topic.partitions) for topic in shown.topics] == [("a", [1])]
        await dialogue.until_state("CompleteCommit")
        assert dialogue.sink.attempts == [A0, A1, A1, A1]


async def test_a_partition_that_cannot_hold_transactions_counts_as_marked() -> None:
    async with CoordinatorDialogue() as dialogue:
        dialogue.sink.errors[A1] += [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
        await commit_two_partitions(dialogue)
        await dialogue.until_state("CompleteCommit")
        assert dialogue.sink.attempts == [A0, A1]


async def test_a_deleted_partition_is_skipped() -> None:
    async with CoordinatorDialogue() as dialogue:
        producer = await dialogue.producer()
        await dialogue.add(producer, A0, A1)
        dialogue.deleted.add(A1)
        await dialogue.end(producer, version=3)
        await dialogue.until_state("CompleteCommit")
        assert dialogue.sink.attempts == [A0]


async def test_a_partition_deleted_between_two_attempts_is_skipped() -> None:
    async with CoordinatorDialogue() as dialogue:
        dialogue.sink.errors[A1] += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100
        await commit_two_partitions(dialogue)
        await settle()
        dialogue.deleted.add(A1)
        await dialogue.until_state("CompleteCommit")


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
async def test_a_fenced_marker_leaves_the_completion_to_whoever_is_newer(error: ErrorCode) -> None:
    async with CoordinatorDialogue() as dialogue:
        dialogue.sink.errors[A1] += [error]
        await commit_two_partitions(dialogue)
        await settle()
        assert dialogue.sink.attempts == [A0, A1]
        assert await dialogue.state() == "PrepareCommit"
        survivor = dialogue.log.crashed()
    async with CoordinatorDialogue(survivor, coordinator_epoch=8) as restarted:
        await restarted.until_state("CompleteCommit")


async def test_a_refused_complete_record_is_tried_again() -> None:
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        dialogue.sink.hold()
        await commit_two_partitions(dialogue)
        log.refusals += [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
        dialogue.sink.release()
        await dialogue.until_state("CompleteCommit")
        assert sorted(dialogue.sink.attempts) == [A0, A1]


async def test_a_complete_record_for_which_the_disk_was_full_is_tried_again() -> None:
    """Given up, the transactional id would be busy until the broker restarts."""
    log = MemoryLog(auto_commit=True)
    async with CoordinatorDialogue(log) as dialogue:
        dialogue.sink.hold()
        await commit_two_partitions(dialogue)
        log.refusals += [ErrorCode.KAFKA_STORAGE_ERROR]
        dialogue.sink.release()
        await dialogue.until_state("CompleteCommit")


async def test_a_marker_that_breaks_is_reported_as_a_failure() -> None:
    dialogue = CoordinatorDialogue()
    await dialogue.coordinator.start()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    dialogue.sink.write_marker = broken  # type: ignore[method-assign, assignment]
    await commit_two_partitions(dialogue)
    await settle()
    assert [type(failure) for failure in dialogue.failures] == [ZeroDivisionError]
    await dialogue.coordinator.stop()


async def test_stopping_gives_up_markers_under_way_and_the_next_start_takes_them_up() -> None:
    dialogue = CoordinatorDialogue()
    await dialogue.coordinator.start()
    dialogue.sink.hold()
    await commit_two_partitions(dialogue)
    await settle()
    await dialogue.coordinator.stop()
    assert not dialogue.sink.markers
    async with CoordinatorDialogue(dialogue.log.crashed()) as restarted:
        await restarted.until_state("CompleteCommit")
        assert sorted(marker.tp for marker in restarted.sink.markers) == [A0, A1]
