"""What happens when a process dies: the broker, or another member. Our broker only."""

from __future__ import annotations

import asyncio
from pathlib import Path

from onceward.broker import Broker
from onceward.broker.client import (
    Admin,
    Consumer,
    GroupMetadata,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tests.peers.kafka import free_ports

from .conftest import CONFIG, new_client
from .wire import PATIENCE_S, read_all

TOPIC = "t"


async def test_a_member_that_asked_for_it_is_missed_soon_after_its_connection_is_gone(
    tmp_path: Path,
) -> None:
    async with (
        Broker(str(tmp_path), config=CONFIG) as broker,
        new_client(broker.bootstrap) as client,
    ):
        await Admin(client).create_topics([NewTopic(TOPIC, 2)])
        doomed = new_client(broker.bootstrap)
        await doomed.start()
        options = {"group_id": "g", "session_timeout_ms": 30_000, "heartbeat_interval_ms": 50}
        members = [Consumer(each, **options, connection_grace_ms=200) for each in (doomed, client)]
        for member in members:
            member.subscribe([TOPIC])
        async with asyncio.timeout(PATIENCE_S):
            while [len(m.assignment) for m in members] != [1, 1]:
                for member in members:
                    await member.fetch(timeout_ms=10)
        dead, heir = members
        await doomed.close()
        async with asyncio.timeout(2):
            while len(heir.assignment) < 2:
                await heir.fetch(timeout_ms=50)
        await heir.stop()
        await dead.stop()


async def test_producer_and_consumer_go_on_after_the_broker_was_restarted(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    client = new_client(listen)
    tp = TopicPartition(TOPIC, 0)
    consumer = Consumer(client, group_id="g", heartbeat_interval_ms=50)
    producer = Producer(client, transactional_id="x")
    async with Broker(str(tmp_path), listen=listen, config=CONFIG), asyncio.timeout(PATIENCE_S):
        await client.start()
        await Admin(client).create_topics([NewTopic(TOPIC, 1)])
        consumer.subscribe([TOPIC])
        await producer.init_transactions()
        producer.begin()
        producer.send_batch(TOPIC, 0, [None], [b"before"], timestamps=1)
        await producer.commit({tp: OffsetAndMetadata(0)}, GroupMetadata("g"))
        while tp not in consumer.assignment or consumer.position(tp) != 2:
            await consumer.fetch(timeout_ms=20)
        producer.begin()
        producer.send_batch(TOPIC, 0, [None], [b"open"], timestamps=1)
        await producer.flush()
    async with Broker(str(tmp_path), listen=listen, config=CONFIG), asyncio.timeout(PATIENCE_S):
        producer.send_batch(TOPIC, 0, [None], [b"after"], timestamps=1)
        await producer.commit()
        values: list[bytes | None] = []
        while b"after" not in values:
            for batch in await consumer.fetch(timeout_ms=100):
                values += batch.records.values
        assert values == [b"open", b"after"]
        assert await read_all(client, TOPIC) == [b"before", b"open", b"after"]
        await consumer.stop()
        await producer.close()
        await client.close()
