from __future__ import annotations

import pytest

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)

from .conftest import NewTopicFixture
from .wire import read_all


async def test_topics_are_created_described_grown_and_deleted(client: Client) -> None:
    admin = Admin(client)
    topic = NewTopic("admin-topic", 2, configs={"retention.ms": "1000"})
    assert await admin.create_topics([topic], validate_only=True) == {topic.name: None}
    assert await admin.create_topics([topic]) == {topic.name: None}
    (error,) = (await admin.create_topics([topic])).values()
    assert error is not None
    assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    described = await admin.describe_topics([topic.name, "no-such-topic"])
    assert list(described) == [topic.name]
    assert [p.partition for p in described[topic.name].partitions] == [0, 1]
    assert await admin.create_partitions({topic.name: 3}) == {topic.name: None}
    assert await client.partitions_for(topic.name) == [0, 1, 2]
    assert topic.name in await admin.list_topics()
    assert await admin.delete_topics([topic.name]) == {topic.name: None}
    assert topic.name not in await admin.list_topics()


async def test_configs_are_altered_one_by_one(client: Client, new_topic: NewTopicFixture) -> None:
    admin = Admin(client)
    topic = await new_topic(retention_ms="1000")
    await admin.alter_configs(topic, {"max.message.bytes": "2000"})
    configs = await admin.describe_configs(topic)
    assert (configs["retention.ms"].value, configs["max.message.bytes"].value) == ("1000", "2000")
    await admin.alter_configs(topic, {"retention.ms": None})
    assert (await admin.describe_configs(topic))["retention.ms"].value != "1000"
    with pytest.raises(KafkaError):
        await admin.describe_configs("no-such-topic")


async def test_groups_are_listed_described_moved_and_deleted(
    client: Client, new_topic: NewTopicFixture
) -> None:
    admin = Admin(client)
    topic = await new_topic(2)
    tp = TopicPartition(topic, 0)
    consumer = Consumer(client, group_id=topic)
    consumer.subscribe([topic])
    await consumer.poll_group(timeout_ms=10_000)
    group = (await admin.describe_groups([topic]))[topic]
    assert group.state == "Stable"
    assert [m.assignment for m in group.members] == [tuple(sorted(consumer.assignment))]
    assert topic in [listing.group_id for listing in await admin.list_groups()]
    with pytest.raises(KafkaError) as busy:
        await admin.alter_group_offsets(topic, {tp: OffsetAndMetadata(5)})
    assert busy.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    refused = (await admin.delete_groups([topic]))[topic]
    assert refused is not None
    assert refused.code == ErrorCode.NON_EMPTY_GROUP
    await consumer.stop()
    await admin.alter_group_offsets(topic, {tp: OffsetAndMetadata(5)})
    assert await admin.list_group_offsets(topic) == {tp: OffsetAndMetadata(5)}
    assert await admin.delete_groups([topic]) == {topic: None}
    assert (await admin.describe_groups([topic]))[topic].state == "Dead"


async def test_transactions_are_listed_described_and_ended(
    client: Client, new_topic: NewTopicFixture
) -> None:
    admin = Admin(client)
    topic = await new_topic()
    producer = Producer(client, transactional_id=topic)
    await producer.init_transactions()
    producer.begin()
    producer.send_batch(topic, 0, [None], [b"left"], timestamps=1)
    await producer.flush()
    described = await admin.describe_transactions([topic, "no-such-id"])
    assert described["no-such-id"] is None
    open_one = described[topic]
    assert open_one is not None
    assert (open_one.state, open_one.partitions) == ("Ongoing", (TopicPartition(topic, 0),))
    assert (open_one.producer_id, open_one.producer_epoch) == producer.identity
    states = {t.transactional_id: t.state for t in await admin.list_transactions()}
    assert states[topic] == "Ongoing"
    await admin.fence_producers([topic])
    assert await read_all(client, topic) == []
    await producer.close()


async def test_the_cluster_describes_itself(client: Client) -> None:
    cluster = await Admin(client).describe_cluster()
    assert cluster.nodes
    assert cluster.controller_id in [node.node_id for node in cluster.nodes]
