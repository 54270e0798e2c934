"""The facade over a running runtime: protocol messages in and out, errors in the right fields."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from onceward.broker.coordinator.group.config import GroupConfig
from onceward.broker.coordinator.group.group_coordinator import GroupCoordinator
from onceward.broker.coordinator.log_writer import LoadedBatch
from onceward.broker.coordinator.result import Record
from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CommittedLog:
    """A LogWriter whose appends are committed at once."""

    def __init__(self, partitions: int) -> None:
        self.batches: list[list[LoadedBatch]] = [[] for _ in range(partitions)]
        self.end = [0] * partitions

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        guard: object | None = None,
    ) -> tuple[int, int]:
        base = self.end[partition]
        batch = LoadedBatch(base, producer_id, producer_epoch, None, list(records))
        self.batches[partition].append(batch)
        self.end[partition] += len(records)
        return base, self.end[partition] - 1

    def append_marker(
        self, partition: int, *, producer_id: int, producer_epoch: int, commit: bool, **_: Any
    ) -> int:
        self.batches[partition].append(
            LoadedBatch(self.end[partition], producer_id, producer_epoch, commit, [])
        )
        self.end[partition] += 1
        return self.end[partition] - 1

    async def committed(self, partition: int, offset: int) -> None:
        assert offset < self.end[partition]

    def read_all(self, partition: int) -> Iterator[LoadedBatch]:
        yield from self.batches[partition]


def new_coordinator(log: CommittedLog) -> GroupCoordinator:
    return GroupCoordinator(
        writer=log,
        partitions=len(log.batches),
        config=GroupConfig(),
        clock=lambda: 1_000,
        rng=random.Random(1),
    )


@pytest.fixture
def log() -> CommittedLog:
    return CommittedLog(partitions=3)


@pytest.fixture
async def coordinator(log: CommittedLog) -> AsyncIterator[GroupCoordinator]:
    coordinator = new_coordinator(log)
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


def join_request(member_id: str = "", **options: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    }
    return JoinGroupRequest(**values | options)


async def join(
    coordinator: GroupCoordinator, member_id: str = "", *, api_version: int = 9, **options: Any
) -> JoinGroupResponse:
    return await coordinator.join_group(
        join_request(member_id, **options),
        client_id="app",
        client_host="/127.0.0.1",
        api_version=api_version,
        connection_id=1,
    )


async def stable_member(coordinator: GroupCoordinator, **options: Any) -> str:
    """The only member of the Stable group ``g``."""
    member = (await join(coordinator, **options)).member_id
    joined = await join(coordinator, member, **options)
    await coordinator.sync_group(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=member,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"all")
            ],
        ),
        connection_id=1,
    )
    return member


def commit_request(**options: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=options.pop("group_id", "g"),
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5
                    )
                ],
            )
        ],
        **options,
    )


def txn_request(**options: Any) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=9
                    )
                ],
            )
        ],
        **options,
    )


async def fetched(coordinator: GroupCoordinator, *, stable: bool = False) -> tuple[int, int]:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = await coordinator.fetch_offsets("g", topics, require_stable=stable)
    (partition,) = group.topics[0].partitions
    return partition.committed_offset, partition.error_code


def partition_error(response: Any) -> ErrorCode:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return ErrorCode(partition.error_code)


async def test_a_member_joins_syncs_beats_commits_and_leaves(
    coordinator: GroupCoordinator,
) -> None:
    member = await stable_member(coordinator)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert (await coordinator.heartbeat(beat, connection_id=1)).error_code == 0
    commit = commit_request(member_id=member, generation_id_or_member_epoch=1)
    assert (
        partition_error(await coordinator.commit_offsets(commit, api_version=8)) is ErrorCode.NONE
    )
    assert await fetched(coordinator) == (5, 0)
    leave = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member)]
    )
    left = await coordinator.leave_group(leave, api_version=5)
    assert [each.error_code for each in left.members] == [0]
    assert (await coordinator.heartbeat(beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_member_ids_are_the_client_or_instance_id_and_a_random_uuid(
    coordinator: GroupCoordinator,
) -> None:
    dynamic = (await join(coordinator)).member_id
    static = (await join(coordinator, group_id="s", group_instance_id="slot")).member_id
    prefix, version, variant = dynamic[:4], dynamic[4:][14], dynamic[4:][19]
    assert (prefix, version) == ("app-", "4")
    assert variant in "89ab"
    assert static.startswith("slot-")


async def test_a_session_timeout_out_of_bounds_is_refused(coordinator: GroupCoordinator) -> None:
    for timeout in (5_999, 1_800_001):
        answer = await join(coordinator, session_timeout_ms=timeout)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_an_empty_group_id_is_refused_except_for_commits(
    coordinator: GroupCoordinator,
) -> None:
    code = ErrorCode.INVALID_GROUP_ID
    assert (await join(coordinator, group_id="")).error_code == code
    assert (await coordinator.sync_group(SyncGroupRequest())).error_code == code
    assert (await coordinator.heartbeat(HeartbeatRequest())).error_code == code
    left = await coordinator.leave_group(LeaveGroupRequest(), api_version=5)
    assert left.error_code == code
    commit = commit_request(group_id="")
    assert (
        partition_error(await coordinator.commit_offsets(commit, api_version=8)) is ErrorCode.NONE
    )


async def test_leaving_before_version_3_has_a_top_level_error(
    coordinator: GroupCoordinator,
) -> None:
    member = await stable_member(coordinator)
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        request = LeaveGroupRequest(group_id="g", member_id=member)
        answer = await coordinator.leave_group(request, api_version=2)
        assert (answer.error_code, answer.members) == (expected, [])


async def test_a_refused_commit_is_an_error_of_every_partition(
    coordinator: GroupCoordinator,
) -> None:
    commit = commit_request(member_id="m", generation_id_or_member_epoch=3)
    illegal = await coordinator.commit_offsets(commit, api_version=8)
    assert partition_error(illegal) is ErrorCode.ILLEGAL_GENERATION
    missing = await coordinator.commit_offsets(commit, api_version=9)
    assert partition_error(missing) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_transactional_offsets_become_visible_with_the_marker(
    coordinator: GroupCoordinator,
) -> None:
    assert (
        partition_error(
            await coordinator.txn_commit_offsets(txn_request(), api_version=5, guard=None)
        )
        is ErrorCode.NONE
    )
    assert await fetched(coordinator, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    await coordinator.complete_transaction(
        coordinator.partition_for("g"),
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        commit=True,
        transaction_version=2,
    )
    assert await fetched(coordinator, stable=True) == (9, 0)


async def test_a_restarted_coordinator_goes_on_from_the_log(
    coordinator: GroupCoordinator, log: CommittedLog
) -> None:
    member = await stable_member(coordinator)
    await coordinator.txn_commit_offsets(txn_request(), api_version=5, guard=None)
    await coordinator.stop()
    restarted = new_coordinator(log)
    await restarted.start()
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert (await restarted.heartbeat(beat)).error_code == 0
    assert await fetched(restarted, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    await restarted.stop()


async def test_a_loading_coordinator_says_so_in_every_answer(log: CommittedLog) -> None:
    coordinator = new_coordinator(log)
    assert (await join(coordinator)).error_code == LOADING
    assert (await coordinator.sync_group(SyncGroupRequest(group_id="g"))).error_code == LOADING
    left = await coordinator.leave_group(LeaveGroupRequest(group_id="g"), api_version=5)
    assert left.error_code == LOADING
    assert (
        partition_error(await coordinator.commit_offsets(commit_request(), api_version=8))
        is LOADING
    )
    assert (
        partition_error(
            await coordinator.txn_commit_offsets(txn_request(), api_version=5, guard=None)
        )
        is LOADING
    )
    old = await coordinator.txn_commit_offsets(txn_request(), api_version=1, guard=None)
    assert partition_error(old) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    delete = OffsetDeleteRequest(group_id="g")
    assert (await coordinator.delete_offsets(delete)).error_code == LOADING
    assert (await coordinator.list_groups(ListGroupsRequest())).error_code == LOADING
    with pytest.raises(KafkaError):
        await coordinator.fetch_offsets("g", None, require_stable=True)
    with pytest.raises(KafkaError):
        await coordinator.topics_deleted(["t"])
    coordinator.connection_closed(1)


async def test_a_heartbeat_while_loading_is_accepted(log: CommittedLog) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await new_coordinator(log).heartbeat(beat)).error_code == 0


async def test_stop_answers_a_parked_join(coordinator: GroupCoordinator) -> None:
    await stable_member(coordinator)
    member = (await join(coordinator)).member_id
    parked = asyncio.ensure_future(join(coordinator, member))
    await asyncio.sleep(0)
    await coordinator.stop()
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_closed_connection_expires_a_member_that_asked_for_it(
    coordinator: GroupCoordinator,
) -> None:
    await stable_member(coordinator, connection_grace_ms=0)
    coordinator.connection_closed(1)
    await asyncio.sleep(0.005)
    (group,) = (await coordinator.list_groups(ListGroupsRequest())).groups
    assert group.group_state == "Empty"


async def test_a_stable_group_is_described_with_subscriptions_and_assignments(
    coordinator: GroupCoordinator,
) -> None:
    member = await stable_member(coordinator)
    request = DescribeGroupsRequest(groups=["g"])
    (group,) = (await coordinator.describe_groups(request, api_version=6)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (described,) = group.members
    assert (described.member_id, described.client_id) == (member, "app")
    assert described.client_host == "/127.0.0.1"
    assert (described.member_metadata, described.member_assignment) == (b"m", b"all")


async def test_a_rebalancing_group_is_described_without_them(
    coordinator: GroupCoordinator,
) -> None:
    member = await stable_member(coordinator)
    parked = asyncio.ensure_future(
        join(coordinator, (await join(coordinator)).member_id, rebalance_timeout_ms=1)
    )
    await asyncio.sleep(0)
    request = DescribeGroupsRequest(groups=["g"])
    (group,) = (await coordinator.describe_groups(request, api_version=6)).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_id for each in group.members} > {member}
    assert {each.member_metadata for each in group.members} == {b""}
    parked.cancel()


async def test_an_unknown_group_is_dead_and_from_version_6_on_not_found(
    coordinator: GroupCoordinator,
) -> None:
    request = DescribeGroupsRequest(groups=["nope"])
    (old,) = (await coordinator.describe_groups(request, api_version=5)).groups
    assert (old.error_code, old.group_state, old.error_message) == (0, "Dead", None)
    (new,) = (await coordinator.describe_groups(request, api_version=6)).groups
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message


async def test_groups_are_listed_by_state_and_type(coordinator: GroupCoordinator) -> None:
    await stable_member(coordinator)
    await coordinator.commit_offsets(commit_request(group_id="simple"), api_version=8)

    async def listed(states: list[str], types: list[str]) -> dict[str, tuple[str, str, str]]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return {
            each.group_id: (each.protocol_type, each.group_state, each.group_type)
            for each in (await coordinator.list_groups(request)).groups
        }

    stable, simple = ("consumer", "Stable", "classic"), ("", "Empty", "classic")
    assert await listed([], []) == {"g": stable, "simple": simple}
    assert await listed(["stable"], []) == {"g": stable}
    assert await listed(["Empty", "Dead"], ["Classic"]) == {"simple": simple}
    assert await listed([], ["consumer"]) == {}


async def test_groups_and_offsets_are_deleted_with_an_error_each(
    coordinator: GroupCoordinator,
) -> None:
    await stable_member(coordinator)
    await coordinator.commit_offsets(commit_request(group_id="simple"), api_version=8)
    names = ["simple", "g", "nope", ""]
    answer = await coordinator.delete_groups(DeleteGroupsRequest(groups_names=names))
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("simple", ErrorCode.NONE),
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("nope", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


async def test_offsets_are_deleted_per_partition(coordinator: GroupCoordinator) -> None:
    await coordinator.commit_offsets(commit_request(), api_version=8)
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name="t",
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)],
            )
        ],
    )
    assert partition_error(await coordinator.delete_offsets(request)) is ErrorCode.NONE
    assert await fetched(coordinator) == (-1, 0)
    gone = await coordinator.delete_offsets(request)
    assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_deleted_topics_lose_their_offsets_in_every_group(
    coordinator: GroupCoordinator,
) -> None:
    await coordinator.commit_offsets(commit_request(), api_version=8)
    await coordinator.topics_deleted(["t"])
    assert await fetched(coordinator) == (-1, 0)
