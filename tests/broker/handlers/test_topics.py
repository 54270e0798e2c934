"""Metadata and the administration of topics, as the wire shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)

from ..wire import Wire, connect


def asked(name: str | None, topic_id: bytes = bytes(16)) -> MetadataRequest.MetadataRequestTopic:
    return MetadataRequest.MetadataRequestTopic(name=name, topic_id=topic_id)


def creatable(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


async def create(wire: Wire, *topics: Any, version: int = 7, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await wire.call(request, version)).topics


async def names(wire: Wire) -> set[str]:
    response = await wire.call(MetadataRequest(topics=None), 9)
    return {topic.name for topic in response.topics if not topic.is_internal}


@pytest.mark.parametrize("version", range(14))
async def test_metadata_names_the_one_broker_as_leader_of_everything(
    wire: Wire, broker: Broker, version: int
) -> None:
    await create(wire, creatable("t", 2))
    response = await wire.call(MetadataRequest(topics=[asked("t")]), version)
    host, port = broker.bootstrap.split(":")
    assert [(node.host, node.port) for node in response.brokers] == [(host, int(port))]
    [topic] = response.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [partition.leader_id for partition in topic.partitions] == [1, 1]
    if version >= 7:
        assert [partition.leader_epoch for partition in topic.partitions] == [0, 0]
    if version >= 10:
        assert topic.topic_id != bytes(16)


async def test_a_topic_asked_for_twice_is_answered_once(wire: Wire) -> None:
    await create(wire, creatable("t"))
    response = await wire.call(MetadataRequest(topics=[asked("t"), asked("t")]), 9)
    assert [topic.name for topic in response.topics] == ["t"]


async def test_an_empty_list_means_all_topics_in_version_0_and_none_later(wire: Wire) -> None:
    await create(wire, creatable("t"))
    all_topics = await wire.call(MetadataRequest(topics=[]), 0)
    assert "t" in {topic.name for topic in all_topics.topics}
    assert (await wire.call(MetadataRequest(topics=[]), 1)).topics == []
    assert "t" in {t.name for t in (await wire.call(MetadataRequest(topics=None), 1)).topics}


async def test_an_unknown_topic_is_created_only_when_broker_and_request_allow_it(
    wire: Wire, tmp_path: Path
) -> None:
    response = await wire.call(
        MetadataRequest(topics=[asked("no")], allow_auto_topic_creation=False), 9
    )
    assert response.topics[0].error_code == 3
    response = await wire.call(MetadataRequest(topics=[asked("yes"), asked("not/legal")]), 4)
    assert [topic.error_code for topic in response.topics] == [0, 17]
    assert len(response.topics[0].partitions) == 1
    assert await names(wire) == {"yes"}
    config = {"auto.create.topics.enable": False}
    async with (
        Broker(str(tmp_path / "other"), config=config) as other,
        await connect(other) as stern,
    ):
        response = await stern.call(MetadataRequest(topics=[asked("no")]), 3)
        assert response.topics[0].error_code == 3


async def test_num_partitions_is_the_default_of_created_topics(tmp_path: Path) -> None:
    async with (
        Broker(str(tmp_path), config={"num.partitions": 4}) as broker,
        await connect(broker) as wire,
    ):
        response = await wire.call(MetadataRequest(topics=[asked("auto")]), 4)
        assert len(response.topics[0].partitions) == 4
        [outcome] = await create(wire, creatable("given", -1, -1))
        assert outcome.num_partitions == 4


async def test_topics_are_found_by_id(wire: Wire) -> None:
    [outcome] = await create(wire, creatable("t"))
    response = await wire.call(
        MetadataRequest(topics=[asked(None, outcome.topic_id), asked(None, b"x" * 16)]), 12
    )
    assert [(t.name, t.error_code) for t in response.topics] == [("t", 0), (None, 100)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (creatable("a" * 250), 17),
        (creatable(""), 17),
        (creatable(".."), 17),
        (creatable("a b"), 17),
        (creatable("__consumer_offsets"), 36),
        (creatable("exists"), 36),
        (creatable("with_underscore.x"), 17),
        (creatable("t", 0), 37),
        (creatable("t", -2), 37),
        (creatable("t", 1, 3), 38),
        (creatable("t", no_such_thing="1"), 40),
        (creatable("t", retention_ms="soon"), 40),
        (creatable("t", retention_ms=None), 40),
        (creatable("t", cleanup_policy="shred"), 40),
    ],
    ids=str,
)
async def test_topics_that_cannot_be_are_refused(wire: Wire, topic: Any, code: int) -> None:
    await create(wire, creatable("exists"), creatable("with.underscore_x"))
    [outcome] = await create(wire, topic)
    assert outcome.error_code == code
    assert outcome.error_message
    assert await names(wire) == {"exists", "with.underscore_x"}


async def test_a_topic_named_twice_is_refused_and_the_others_are_created(wire: Wire) -> None:
    outcomes = await create(wire, creatable("a"), creatable("b"), creatable("a"))
    assert {o.name: o.error_code for o in outcomes} == {"a": 42, "b": 0}
    assert await names(wire) == {"b"}


async def test_default_counts_need_version_4(wire: Wire) -> None:
    [outcome] = await create(wire, creatable("t", -1, -1), version=3)
    assert outcome.error_code == 37


async def test_assignments_name_this_broker_and_exclude_the_counts(wire: Wire) -> None:
    def assigned(partitions: int, *brokers: int) -> Any:
        topic = creatable("t", partitions, -1)
        topic.assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=i, broker_ids=[broker])
            for i, broker in enumerate(brokers)
        ]
        return topic

    assert (await create(wire, assigned(1, 1)))[0].error_code == 42
    assert (await create(wire, assigned(-1, 1, 2)))[0].error_code == 39
    [outcome] = await create(wire, assigned(-1, 1, 1))
    assert (outcome.error_code, outcome.num_partitions) == (0, 2)


async def test_validate_only_creates_nothing(wire: Wire) -> None:
    [outcome] = await create(wire, creatable("t", 3), validate_only=True)
    assert (outcome.error_code, outcome.num_partitions) == (0, 3)
    assert await names(wire) == set()


async def test_the_answer_tells_the_settings_and_where_they_come_from(wire: Wire) -> None:
    [outcome] = await create(wire, creatable("t", retention_ms="1000"))
    settings = {config.name: (config.value, config.config_source) for config in outcome.configs}
    assert settings["retention.ms"] == ("1000", 1)
    assert settings["segment.bytes"] == ("1073741824", 5)


async def test_deleted_topics_are_gone_by_name_and_by_id(wire: Wire) -> None:
    outcomes = await create(wire, creatable("a"), creatable("b"), creatable("c"))
    response = await wire.call(DeleteTopicsRequest(topic_names=["a", "missing"]), 5)
    assert [(r.name, r.error_code) for r in response.responses] == [("a", 0), ("missing", 3)]
    state = DeleteTopicsRequest.DeleteTopicState
    by_id = [state(name=None, topic_id=outcomes[1].topic_id), state(topic_id=b"?" * 16)]
    response = await wire.call(DeleteTopicsRequest(topics=by_id), 6)
    assert [(r.name, r.error_code) for r in response.responses] == [("b", 0), (None, 100)]
    response = await wire.call(DeleteTopicsRequest(topic_names=["__consumer_offsets"]), 5)
    assert response.responses[0].error_code == 17
    response = await wire.call(DeleteTopicsRequest(topic_names=["c", "c"]), 5)
    assert [(r.name, r.error_code) for r in response.responses] == [("c", 42)]
    assert await names(wire) == {"c"}


async def test_partitions_are_added_and_never_taken_away(wire: Wire) -> None:
    await create(wire, creatable("t", 2))

    async def grow(name: str, count: int, validate_only: bool = False) -> int:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=count, assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        return int((await wire.call(request, 3)).results[0].error_code)

    assert await grow("missing", 3) == 3
    assert await grow("t", 2) == 37
    assert await grow("t", 5, validate_only=True) == 0
    assert await grow("t", 3) == 0
    response = await wire.call(MetadataRequest(topics=[asked("t")]), 9)
    assert len(response.topics[0].partitions) == 3


async def test_the_cluster_is_described(wire: Wire, broker: Broker) -> None:
    response = await wire.call(DescribeClusterRequest(), 1)
    assert response.cluster_id == broker.metadata.cluster_id
    assert [node.broker_id for node in response.brokers] == [response.controller_id] == [1]
    refused = await wire.call(DescribeClusterRequest(endpoint_type=2), 1)
    assert refused.error_code == 42


async def test_topic_partitions_are_described_page_by_page(wire: Wire) -> None:
    await create(wire, creatable("a", 3), creatable("b", 2))
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in "ab"],
            response_partition_limit=2,
            cursor=cursor,
        )
        response = await wire.call(request, 0)
        seen += [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        if response.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


async def test_the_log_directory_is_described(wire: Wire, broker: Broker) -> None:
    await create(wire, creatable("t", 2))
    response = await wire.call(DescribeLogDirsRequest(topics=None), 4)
    [result] = response.results
    assert result.log_dir == broker.data_dir
    partitions = {t.name: len(t.partitions) for t in result.topics}
    assert partitions["t"] == 2
