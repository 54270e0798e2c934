"""What a test sees of a broker from outside: through unmodified aiokafka only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

QUIET_MS = 1500
WAIT_S = 60.0

Records = list[ConsumerRecord[bytes | None, bytes | None]]


async def create(broker: str, *topics: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        response = await admin.create_topics([NewTopic(name, partitions, 1) for name in topics])
        failed = [error for error in response.topic_errors if error[1]]
        assert not failed, failed
    finally:
        await admin.close()


async def until_topic_exists(broker: str, topic: str) -> None:
    """Raises TimeoutError."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        async with asyncio.timeout(WAIT_S):
            while topic not in await admin.list_topics():
                await asyncio.sleep(0.1)
    finally:
        await admin.close()


async def send(broker: str, topic: str, rows: Iterable[tuple[bytes | None, bytes]]) -> None:
    """Rows of key and value; acknowledged by all replicas when this returns."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True, linger_ms=5)
    await producer.start()
    try:
        sent = [await producer.send(topic, key=key, value=value) for key, value in rows]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def read(
    broker: str, topic: str, enough: Callable[[Records], bool], *, timeout_s: float = WAIT_S
) -> Records:
    """The committed records of a topic from its start, until ``enough`` and nothing more comes.

    Raises AssertionError when ``timeout_s`` seconds pass before.
    """
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        metadata_max_age_ms=500,
    )
    await consumer.start()
    records: Records = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await consumer.getmany(timeout_ms=QUIET_MS)
                for batch in found.values():
                    records.extend(batch)
                if not found and enough(records):
                    return records
    except TimeoutError:
        raise AssertionError(f"{len(records)} records of {topic} are not enough") from None
    finally:
        await consumer.stop()


async def committed(broker: str, group: str) -> dict[TopicPartition, int]:
    """Offsets a group has committed."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return {tp: found.offset for tp, found in offsets.items() if found.offset >= 0}
    finally:
        await admin.close()
