"""The administration of replicas, the quorum and ACLs on a single node: what Kafka 4.1 answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
)

from ..wire import Wire, connect
from .test_data import create

NONE, UNKNOWN, INVALID_ASSIGNMENT, INVALID_REQUEST = 0, 3, 39, 42
NO_AUTHORIZER = 54, "No Authorizer is configured."
NOT_NEEDED = 84, "Leader election not needed for topic partition."


# -- leaders --------------------------------------------------------------------------------------


async def elect(
    wire: Wire, version: int, topics: dict[str, list[int]] | None, kind: int = 0
) -> Any:
    asked = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if topics is None
        else [asked(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
    response = await wire.call(request, version)
    return response.error_code, {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
async def test_the_one_broker_leads_what_there_is(wire: Wire, version: int, kind: int) -> None:
    await create(wire)
    assert await elect(wire, version, {"t": [0, 9], "missing": [0]}, kind) == (
        NONE,
        {
            ("t", 0): NOT_NEEDED,
            ("t", 9): (UNKNOWN, "No such partition as t-9"),
            ("missing", 0): (UNKNOWN, "No such topic as missing"),
        },
    )


@pytest.mark.parametrize("version", range(3))
async def test_an_election_of_everything_tells_that_none_was_needed(
    wire: Wire, version: int
) -> None:
    await create(wire)
    response = await wire.call(ElectLeadersRequest(topic_partitions=None), version)
    results = {each.topic: each.partition_result for each in response.replica_election_results}
    assert results["t"] == []
    assert await elect(wire, version, {}) == (NONE, {})


async def test_there_are_two_kinds_of_election(wire: Wire) -> None:
    await create(wire)
    refused = INVALID_REQUEST, "Unknown election type 7"
    assert await elect(wire, 2, {"t": [0]}, 7) == (INVALID_REQUEST, {("t", 0): refused})
    assert await elect(wire, 2, None, 7) == (INVALID_REQUEST, {})


# -- directories ----------------------------------------------------------------------------------


async def move(wire: Wire, version: int, *asked: tuple[str, str, list[int]]) -> Any:
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    request = AlterReplicaLogDirsRequest(
        dirs=[
            directory(path=path, topics=[topic(name=name, partitions=indexes)])
            for path, name, indexes in asked
        ]
    )
    response = await wire.call(request, version)
    return {
        (result.topic_name, each.partition_index): each.error_code
        for result in response.results
        for each in result.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
async def test_replicas_are_in_the_one_directory_already(wire: Wire, version: int) -> None:
    await create(wire)
    here = (await wire.call(DescribeLogDirsRequest(topics=None), 4)).results[0].log_dir
    assert await move(wire, version, (here, "t", [0, 9]), (here, "missing", [0])) == {
        ("t", 0): NONE,
        ("t", 9): UNKNOWN,
        ("missing", 0): UNKNOWN,
    }
    elsewhere = {("t", 0): 57, ("t", 9): 57}
    assert await move(wire, version, ("/elsewhere", "t", [0, 9])) == elsewhere
    assert await move(wire, version, (here + "/", "t", [0])) == {("t", 0): 57}
    assert await move(wire, version, (here, "t", [0]), ("/elsewhere", "t", [0])) == {("t", 0): 57}
    assert await move(wire, version) == {}


# -- reassignments --------------------------------------------------------------------------------


async def reassign(
    wire: Wire, replicas: list[int] | None, topic: str = "t", partition: int = 0
) -> tuple[int, str | None]:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=topic,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(
                        partition_index=partition, replicas=replicas
                    )
                ],
            )
        ]
    )
    old, new = await wire.call(request, 0), await wire.call(request, 1)
    assert old.responses == new.responses
    assert (new.error_code, new.error_message) == (NONE, None)
    [result] = new.responses
    [answer] = result.partitions
    assert (result.name, answer.partition_index) == (topic, partition)
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ([], "an empty replica list."),
        ([9], "broker 9, but no such broker is registered."),
        ([1, 9], "broker 9, but no such broker is registered."),
        ([9, 9], "broker 9, but no such broker is registered."),
        ([-1], "broker -1, but no such broker is registered."),
        ([1, 1], "the broker 1 more than once."),
        ([9, 1, 1], "the broker 1 more than once."),
    ],
    ids=str,
)
async def test_a_partition_stays_on_the_one_broker(
    wire: Wire, replicas: list[int], problem: str
) -> None:
    await create(wire)
    message = f"The manual partition assignment includes {problem}"
    assert await reassign(wire, replicas) == (INVALID_ASSIGNMENT, message)
    assert await reassign(wire, [1]) == (NONE, None)


async def test_there_is_no_reassignment_to_cancel_and_none_to_list(wire: Wire) -> None:
    await create(wire)
    assert await reassign(wire, None) == (85, None)
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for topics in (None, [], [asked(name="t", partition_indexes=[0]), asked(name="missing")]):
        listed = await wire.call(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (listed.error_code, listed.error_message, listed.topics) == (NONE, None, [])


@pytest.mark.parametrize("replicas", [[1], None], ids=str)
async def test_what_does_not_exist_is_not_reassigned(
    wire: Wire, replicas: list[int] | None
) -> None:
    await create(wire)
    for partition in (9, -1):
        missing = UNKNOWN, f"Unable to find partition t:{partition}."
        assert await reassign(wire, replicas, partition=partition) == missing
    missing = UNKNOWN, "Unable to find a topic named missing."
    assert await reassign(wire, replicas, "missing") == missing


async def test_whether_the_number_of_replicas_may_change_is_echoed(wire: Wire) -> None:
    for allowed in (True, False):
        request = AlterPartitionReassignmentsRequest(allow_replication_factor_change=allowed)
        response = await wire.call(request, 1)
        assert response.allow_replication_factor_change is allowed
        assert (response.error_message, response.responses) == ("", [])


# -- the quorum -----------------------------------------------------------------------------------


async def quorum(wire: Wire, version: int, *asked: tuple[str, list[int]]) -> Any:
    topic, partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData
    topics = [
        topic(topic_name=name, partitions=[partition(partition_index=each) for each in indexes])
        for name, indexes in asked
    ]
    return await wire.call(DescribeQuorumRequest(topics=topics), version)


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_the_one_broker(wire: Wire, broker: Broker, version: int) -> None:
    response = await quorum(wire, version, ("__cluster_metadata", [0]))
    [partition] = response.topics[0].partitions
    assert (response.error_code, partition.error_code) == (NONE, NONE)
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    [voter] = partition.current_voters
    assert partition.observers == []
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert (voter.last_caught_up_timestamp > 0) == (version >= 1)
    addresses = [
        (node.node_id, f"{listener.host}:{listener.port}")
        for node in response.nodes
        for listener in node.listeners
    ]
    assert addresses == ([(1, broker.bootstrap)] if version >= 2 else [])


async def test_the_metadata_log_grows_with_every_change_and_over_restarts(tmp_path: Path) -> None:
    seen = []

    async def look(wire: Wire) -> None:
        response = await quorum(wire, 2, ("__cluster_metadata", [0]))
        seen.append(response.topics[0].partitions[0].high_watermark)

    for _ in range(2):
        async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
            await look(wire)
            await create(wire, f"t{len(seen)}")
            await look(wire)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "asked",
    [
        [("t", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [0]), ("t", [0])],
        [("__cluster_metadata", [])],
        [],
    ],
    ids=str,
)
async def test_only_the_metadata_has_a_quorum(
    wire: Wire, version: int, asked: list[tuple[str, list[int]]]
) -> None:
    response = await quorum(wire, version, *asked)
    answered = [(topic.topic_name, topic.partitions) for topic in response.topics]
    assert [
        (name, [each.partition_index for each in partitions]) for name, partitions in answered
    ] == asked
    codes = {each.error_code for _, partitions in answered for each in partitions}
    assert codes <= {UNKNOWN}
    assert response.nodes == []


# -- what has settings ----------------------------------------------------------------------------


async def resources(wire: Wire, version: int, *types: int) -> Any:
    response = await wire.call(ListConfigResourcesRequest(resource_types=list(types)), version)
    return response.error_code, [
        (each.resource_type, each.resource_name)
        for each in response.config_resources
        if not each.resource_name.startswith("__")
    ]


async def test_brokers_and_topics_have_settings(wire: Wire) -> None:
    await create(wire)
    broker, topic = (4, "1"), (2, "t")
    assert await resources(wire, 1) == (NONE, [broker, topic])
    assert await resources(wire, 1, 2) == (NONE, [topic])
    assert await resources(wire, 1, 4, 32) == (NONE, [broker])
    assert await resources(wire, 1, 8, 16, 32) == (NONE, [])
    for unknown in ([0], [1], [99, 2]):
        assert await resources(wire, 1, *unknown) == (35, [])
    assert await resources(wire, 0) == (NONE, [])


# -- access control -------------------------------------------------------------------------------


def acl_filter(cls: Any, **fields: Any) -> Any:
    codes: dict[str, Any] = {"resource_type_filter": 2, "operation": 1, "permission_type": 1}
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return cls(**{**codes, **names, **fields})


def acl(**fields: Any) -> CreateAclsRequest.AclCreation:
    codes: dict[str, Any] = {"resource_type": 2, "operation": 3, "permission_type": 3}
    names = {"resource_name": "t", "principal": "User:a", "host": "*"}
    return CreateAclsRequest.AclCreation(**{**codes, **names, **fields})


@pytest.mark.parametrize("version", range(1, 4))
async def test_without_an_authorizer_there_are_no_acls(wire: Wire, version: int) -> None:
    described = await wire.call(acl_filter(DescribeAclsRequest), version)
    message = "No Authorizer is configured on the broker"
    assert (described.error_code, described.error_message) == (54, message)
    assert described.resources == []
    for count in (0, 2):
        created = await wire.call(CreateAclsRequest(creations=[acl()] * count), version)
        results = [(each.error_code, each.error_message) for each in created.results]
        assert results == [NO_AUTHORIZER] * count
        filters = [acl_filter(DeleteAclsRequest.DeleteAclsFilter)] * count
        deleted = await wire.call(DeleteAclsRequest(filters=filters), version)
        outcomes = [
            (each.error_code, each.error_message, each.matching_acls)
            for each in deleted.filter_results
        ]
        assert outcomes == [(*NO_AUTHORIZER, [])] * count


@pytest.mark.parametrize(
    "request_",
    [
        acl_filter(DescribeAclsRequest, resource_type_filter=0),
        acl_filter(DescribeAclsRequest, pattern_type_filter=0),
        acl_filter(DescribeAclsRequest, operation=0),
        acl_filter(DescribeAclsRequest, permission_type=0),
        CreateAclsRequest(creations=[acl(), acl(resource_type=0)]),
        CreateAclsRequest(creations=[acl(resource_pattern_type=0)]),
        DeleteAclsRequest(
            filters=[acl_filter(DeleteAclsRequest.DeleteAclsFilter, pattern_type_filter=0)]
        ),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_unknown_types_in_acls_close_the_connection(wire: Wire, request_: Any) -> None:
    wire.send(request_, 3)
    assert await wire.closed_by_peer()
