"""Groups and offsets through the wire: what the handlers add to the coordinator's own rules."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.protocol.messages import (
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

from ..wire import Wire, connect
from .test_data import create


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    fields.setdefault("session_timeout_ms", 5000)
    return JoinGroupRequest(
        group_id="g",
        rebalance_timeout_ms=3000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0")],
        **fields,
    )


async def join(wire: Wire) -> Any:
    """A member that is alone in its group, assigned and stable."""
    first = await wire.call(join_request(), 5)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await wire.call(join_request(first.member_id), 5)
    assert joined.error_code == 0
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=b"all"
    )
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment],
    )
    assert (await wire.call(request, 3)).assignment == b"all"
    return joined


async def commit(wire: Wire, offset: int, version: int = 8, **fields: Any) -> list[int]:
    """Commit for t-0, t-9 and missing-0; returns their codes."""
    part = OffsetCommitRequest.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        group_id=fields.pop("group_id", "g"),
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    part(partition_index=index, committed_offset=offset, committed_metadata="m")
                    for index in indexes
                ],
            )
            for name, indexes in (("t", (0, 9)), ("missing", (0,)))
        ],
        **fields,
    )
    response = await wire.call(request, version)
    return [p.error_code for topic in response.topics for p in topic.partitions]


async def fetch(wire: Wire, version: int, *, every: bool = False) -> Any:
    if version >= 8:
        topics = (
            None
            if every
            else [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        )
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)
        response = await wire.call(OffsetFetchRequest(groups=[group]), version)
        return response.groups[0]
    old = (
        None
        if every
        else [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    return await wire.call(OffsetFetchRequest(group_id="g", topics=old), version)


def offsets(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, p.partition_index): p.committed_offset
        for topic in response.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize("version", range(7))
async def test_this_broker_coordinates_everything(wire: Wire, broker: Broker, version: int) -> None:
    for kind in (0, 1) if version else (0,):
        request = (
            FindCoordinatorRequest(key_type=kind, coordinator_keys=["g", "h"])
            if version >= 4
            else FindCoordinatorRequest(key="g", key_type=kind)
        )
        response = await wire.call(request, version)
        answers = response.coordinators if version >= 4 else [response]
        assert len(answers) == (2 if version >= 4 else 1)
        for answer in answers:
            assert (answer.error_code, answer.node_id) == (0, 1)
            assert f"{answer.host}:{answer.port}" == broker.bootstrap


async def test_an_unknown_kind_of_coordinator_is_refused(wire: Wire) -> None:
    response = await wire.call(FindCoordinatorRequest(key="g", key_type=2), 3)
    assert response.error_code == 42


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_where_the_partition_exists(wire: Wire, version: int) -> None:
    await create(wire)
    assert await commit(wire, 7, version) == [0, 3, 3]
    for fetch_version in range(1, 10):
        assert offsets(await fetch(wire, fetch_version)) == {("t", 0): 7, ("t", 1): -1}
    for fetch_version in range(2, 10):
        assert offsets(await fetch(wire, fetch_version, every=True)) == {("t", 0): 7}


async def test_offsets_survive_a_restart(tmp_path: Any) -> None:
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        await create(wire)
        await commit(wire, 7)
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        assert offsets(await fetch(wire, 7))["t", 0] == 7


@pytest.mark.parametrize("version", range(1, 10))
async def test_an_error_of_the_group_is_also_where_aiokafka_looks(
    wire: Wire, broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    monkeypatch.setattr(broker.groups, "fetch_offsets", refuse)
    response = await fetch(wire, version)
    if version >= 8:
        assert (response.error_code, response.topics) == (15, [])
        return
    assert response.error_code == (14 if version >= 2 else 0)
    [topic] = response.topics
    assert [(p.error_code, p.committed_offset) for p in topic.partitions] == [(14, -1)] * 2


async def test_a_deleted_topic_takes_its_offsets_along(wire: Wire) -> None:
    await create(wire)
    await commit(wire, 7)
    await wire.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    await create(wire)
    assert offsets(await fetch(wire, 7))["t", 0] == -1


async def test_a_parked_join_lets_later_requests_of_its_connection_pass(
    wire: Wire, broker: Broker
) -> None:
    leader = await join(wire)
    async with await connect(broker) as other:
        required = await other.call(join_request(), 5)
        parked = other.send(join_request(required.member_id), 5)
        after = other.send(ListGroupsRequest(), 3)
        await asyncio.sleep(0.02)
        beat = HeartbeatRequest(
            group_id="g", generation_id=leader.generation_id, member_id=leader.member_id
        )
        assert (await wire.call(beat, 3)).error_code == 27
        rejoined = wire.send(join_request(leader.member_id), 5)
        joined = await other.receive(parked)
        assert joined.generation_id == leader.generation_id + 1
        assert [g.group_id for g in (await other.receive(after)).groups] == ["g"]
        assert len((await wire.receive(rejoined)).members) == 2


async def test_a_member_is_described_listed_and_leaves(wire: Wire) -> None:
    member = await join(wire)
    request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
    known, unknown = (await wire.call(request, 5)).groups
    assert (known.group_state, known.protocol_data) == ("Stable", "range")
    [described] = known.members
    assert (described.member_id, described.client_id) == (member.member_id, "wire")
    assert described.client_host == "/127.0.0.1"
    assert described.member_assignment == b"all"
    assert known.authorized_operations == 0b1_0100_1000
    assert (unknown.error_code, unknown.group_state) == (0, "Dead")
    assert (await wire.call(request, 6)).groups[1].error_code == 69
    assert (await wire.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == 68
    leave = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member.member_id)]
    )
    assert (await wire.call(leave, 4)).members[0].error_code == 0
    response = await wire.call(DeleteGroupsRequest(groups_names=["g", "none"]), 2)
    assert [result.error_code for result in response.results] == [0, 69]


@pytest.mark.parametrize("version", [0, 2])
async def test_a_member_leaves_in_the_versions_that_name_only_one(wire: Wire, version: int) -> None:
    await create(wire)
    member = await join(wire)
    leave = LeaveGroupRequest(group_id="g", member_id=member.member_id)
    assert (await wire.call(leave, version)).error_code == 0
    [group] = (await wire.call(DescribeGroupsRequest(groups=["g"]), 3)).groups
    assert group.group_state == "Empty"
    assert (await wire.call(leave, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_are_deleted(wire: Wire) -> None:
    await create(wire)
    await commit(wire, 7)
    partitions = [
        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)
    ]
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=partitions)
    response = await wire.call(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert response.error_code == 0
    assert [each.error_code for each in response.topics[0].partitions] == [0, 3]
    assert offsets(await fetch(wire, 7))["t", 0] == -1


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
async def test_a_member_says_its_protocol_from_version_5_of_the_sync_on(
    wire: Wire, missing: str
) -> None:
    first = await wire.call(join_request(), 7)
    joined = await wire.call(join_request(first.member_id), 7)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert (await wire.call(dataclasses.replace(request, **{missing: None}), 5)).error_code == 23
    assert (await wire.call(request, 5)).error_code == 0


async def test_a_member_that_asked_for_it_expires_soon_after_its_connection(
    wire: Wire, broker: Broker
) -> None:
    async with await connect(broker) as other:
        first = await other.call(join_request(connection_grace_ms=50), 6)
        joined = await other.call(join_request(first.member_id, connection_grace_ms=50), 6)
        assert joined.error_code == 0
    async with asyncio.timeout(4):  # far below the session timeout
        while True:
            [group] = (await wire.call(DescribeGroupsRequest(groups=["g"]), 5)).groups
            if not group.members:
                break
            await asyncio.sleep(0.02)
