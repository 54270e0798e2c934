"""Members that say goodbye are gone at once: nobody waits for their session to end.

Both clients leave with version 1 of LeaveGroup, which names one member.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient

from .broker_process import BrokerProcess

Unique = Callable[[str], str]
SESSION_MS = 60_000
AT_ONCE_S = 10.0


async def create(broker: BrokerProcess, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.close()


def member(broker: BrokerProcess, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.address,
        group_id=topic,
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=100,
        rebalance_timeout_ms=SESSION_MS,
    )


async def owns(consumer: AIOKafkaConsumer, count: int) -> None:
    async with asyncio.timeout(AT_ONCE_S):
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=50)


async def test_an_aiokafka_consumer_hands_its_partitions_over_when_it_stops(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("stopping")
    await create(shared_broker, topic)
    first, second = member(shared_broker, topic), member(shared_broker, topic)
    await first.start()
    await second.start()
    await asyncio.gather(owns(first, 1), owns(second, 1))
    await first.stop()
    await owns(second, 2)
    await second.stop()


async def test_an_aiokafka_consumer_commits_by_itself_after_it_unsubscribed(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("unsubscribing")
    await create(shared_broker, topic)
    consumer = member(shared_broker, topic)
    await consumer.start()
    await owns(consumer, 2)
    consumer.unsubscribe()
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    async with asyncio.timeout(AT_ONCE_S):
        # Asks for the committed offset on the connection it leaves on, so it has left after this.
        await consumer.position(partition)
        await consumer.commit({partition: 0})
        assert await consumer.committed(partition) == 0
    await consumer.stop()


async def test_a_librdkafka_consumer_leaves_an_empty_group_behind(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("closing")
    await create(shared_broker, topic)
    options = {"bootstrap.servers": shared_broker.address, "session.timeout.ms": SESSION_MS}
    consumer = Consumer({**options, "group.id": topic})
    consumer.subscribe([topic])
    deadline = time.monotonic() + AT_ONCE_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    assert len(consumer.assignment()) == 2
    consumer.close()
    admin = AdminClient({"bootstrap.servers": shared_broker.address})
    group = admin.describe_consumer_groups([topic])[topic].result(AT_ONCE_S)
    assert group.state is ConsumerGroupState.EMPTY
    admin.delete_consumer_groups([topic])[topic].result(AT_ONCE_S)
