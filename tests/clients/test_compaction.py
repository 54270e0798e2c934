"""Compacted topics, read by clients that are not ours while the broker compacts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from onceward.broker import Broker
from onceward.broker.client import Admin, Client, NewTopic, Producer

KEYS = 7
TRANSACTIONS = 150
PATIENCE_S = 20.0
TOPIC = "latest"
CONFIG = {"log.cleaner.backoff.ms": "20", "log.retention.check.interval.ms": "50"}
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "2048",
    "min.cleanable.dirty.ratio": "0.01",
}


def new_client(broker: Broker) -> Client:
    return Client(broker.bootstrap, clock=lambda: time.time_ns() // 1_000_000, rng=random.Random(1))


async def write(client: Client) -> dict[bytes, bytes]:
    """Transactions, a third of them aborted; returns what the committed ones left."""
    await Admin(client).create_topics([NewTopic(TOPIC, 1, configs=TOPIC_CONFIG)])
    producer = Producer(client, transactional_id="writer")
    await producer.init_transactions()
    latest: dict[bytes, bytes] = {}
    for number in range(TRANSACTIONS):
        producer.begin()
        records = {b"k%d" % (number % KEYS): b"%d" % number, b"each": b"%d" % number}
        keys: list[bytes | None] = list(records)
        values: list[bytes | None] = list(records.values())
        producer.send_batch(TOPIC, 0, keys, values, timestamps=time.time_ns() // 1_000_000)
        await producer.flush()
        if number % 3 == 1:
            await producer.abort()
        else:
            await producer.commit()
            latest |= records
    await producer.close()
    return latest


@pytest.fixture
async def compacting(tmp_path: Path) -> AsyncIterator[tuple[Broker, dict[bytes, bytes]]]:
    async with Broker(tmp_path, config=CONFIG) as broker, new_client(broker) as client:
        latest = await write(client)
        log = next(log for log in broker.logs.logs() if log.tp.topic == TOPIC)
        async with asyncio.timeout(PATIENCE_S):
            while log.size_bytes > 10_000 or log.last_stable_offset < log.log_end_offset:
                await asyncio.sleep(0.02)
        yield broker, latest


async def test_aiokafka_reads_the_newest_value_of_every_key(
    compacting: tuple[Broker, dict[bytes, bytes]],
) -> None:
    broker, latest = compacting
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        tp = TopicPartition(TOPIC, 0)
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        found: dict[bytes, bytes] = {}
        count = 0
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.position(tp) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found |= {record.key: record.value for record in records}
                    count += len(records)
        assert found == latest
        assert count < TRANSACTIONS
    finally:
        await consumer.stop()


async def test_librdkafka_reads_the_newest_value_of_every_key(
    compacting: tuple[Broker, dict[bytes, bytes]],
) -> None:
    broker, latest = compacting
    found = await asyncio.to_thread(read_with_librdkafka, broker.bootstrap)
    assert found == latest


def read_with_librdkafka(bootstrap: str) -> dict[bytes, bytes]:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition(TOPIC, 0, 0)])
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                return found
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found[key] = value
        raise AssertionError("the end of the partition was never reached")
    finally:
        consumer.close()


async def test_what_was_compacted_is_there_after_a_restart(tmp_path: Path) -> None:
    async with Broker(tmp_path, config=CONFIG) as broker, new_client(broker) as client:
        latest = await write(client)
        log = next(log for log in broker.logs.logs() if log.tp.topic == TOPIC)
        async with asyncio.timeout(PATIENCE_S):
            while log.size_bytes > 10_000 or log.last_stable_offset < log.log_end_offset:
                await asyncio.sleep(0.02)
        size = log.size_bytes
    async with Broker(tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        log = next(log for log in broker.logs.logs() if log.tp.topic == TOPIC)
        assert log.size_bytes <= size
        assert await asyncio.to_thread(read_with_librdkafka, broker.bootstrap) == latest
