"""Unmodified aiokafka against a broker process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import ProducerFenced, UnknownTopicOrPartitionError

from .broker_process import BrokerProcess

Unique = Callable[[str], str]
DEADLINE_S = 20.0


@contextlib.asynccontextmanager
async def administration(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    async with administration(broker) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])


@contextlib.asynccontextmanager
async def producing(broker: BrokerProcess, **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, **config)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@contextlib.asynccontextmanager
async def consuming(
    broker: BrokerProcess, *topics: str, **config: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **config}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=broker.address, **options)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def send(producer: AIOKafkaProducer, topic: str, values: list[bytes]) -> list[int]:
    """The offsets of the values, all in partition 0."""
    sent = [await producer.send(topic, value, partition=0) for value in values]
    return [(await future).offset for future in sent]


async def read(consumer: AIOKafkaConsumer, count: int) -> list[bytes | None]:
    async with asyncio.timeout(DEADLINE_S):
        return [(await consumer.getone()).value for _ in range(count)]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_in_every_compression(
    shared_broker: BrokerProcess, unique: Unique, compression: str | None
) -> None:
    topic = unique("compressed")
    await create(shared_broker, topic)
    sent = [b"%d %s" % (number, b"x" * 50) for number in range(200)]
    async with producing(shared_broker, compression_type=compression) as producer:
        assert await send(producer, topic, sent) == list(range(200))
    async with consuming(shared_broker, topic) as consumer:
        assert await read(consumer, 200) == sent


async def test_a_topic_is_created_by_its_first_use(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("auto")
    async with producing(shared_broker) as producer:
        await send(producer, topic, [b"x"])
        assert await producer.partitions_for(topic) == {0}


async def test_an_idempotent_producer_keeps_order(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("idempotent")
    await create(shared_broker, topic)
    sent = [b"%d" % number for number in range(500)]
    async with producing(shared_broker, enable_idempotence=True, max_batch_size=400) as producer:
        assert await send(producer, topic, sent) == list(range(500))


async def test_a_group_goes_on_when_a_member_is_killed(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic, group = unique("group"), unique("group")
    await create(shared_broker, topic, 3)
    options = {"group_id": group, "session_timeout_ms": 1500, "heartbeat_interval_ms": 200}
    script = str(Path(__file__).with_name("aiokafka_member.py"))
    victim = await asyncio.create_subprocess_exec(
        sys.executable, script, shared_broker.address, group, topic
    )
    try:
        async with (
            consuming(shared_broker, topic, **options) as one,
            consuming(shared_broker, topic, **options) as two,
            producing(shared_broker) as producer,
        ):
            async with asyncio.timeout(DEADLINE_S):
                while {len(one.assignment()), len(two.assignment())} != {1}:
                    await asyncio.sleep(0.02)
            victim.kill()
            for partition in range(3):
                await producer.send_and_wait(topic, b"%d" % partition, partition=partition)
            received: set[bytes | None] = set()

            async def collect(consumer: AIOKafkaConsumer) -> None:
                async for record in consumer:
                    received.add(record.value)

            readers = [asyncio.ensure_future(collect(each)) for each in (one, two)]
            async with asyncio.timeout(DEADLINE_S):
                while len(received) < 3:
                    await asyncio.sleep(0.02)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            assert len(one.assignment()) + len(two.assignment()) == 3
    finally:
        with contextlib.suppress(ProcessLookupError):
            victim.kill()
        await victim.wait()


async def test_transactions_move_records_and_offsets_together(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    source, sink, group = unique("in"), unique("out"), unique("etl")
    await create(shared_broker, source)
    await create(shared_broker, sink)
    async with producing(shared_broker) as producer:
        await send(producer, source, [b"%d" % number for number in range(60)])
    where = TopicPartition(source, 0)
    async with (
        consuming(
            shared_broker, source, group_id=group, isolation_level="read_committed"
        ) as consumer,
        producing(shared_broker, transactional_id=unique("tx")) as producer,
    ):
        done, attempt = 0, 0
        while done < 60:
            batch: dict[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(
                timeout_ms=2000, max_records=10
            )
            records = batch.get(where, [])
            if not records:
                continue
            attempt += 1
            await producer.begin_transaction()
            sent = [await producer.send(sink, b"out " + record.value) for record in records]
            await asyncio.gather(*sent)
            offsets = {where: records[-1].offset + 1}
            await producer.send_offsets_to_transaction(offsets, group)
            if attempt % 3 == 0:
                await producer.abort_transaction()
                consumer.seek(where, records[0].offset)
                continue
            await producer.commit_transaction()
            done += len(records)
        assert await consumer.committed(where) == 60
    async with consuming(shared_broker, sink, isolation_level="read_committed") as reader:
        assert await read(reader, 60) == [b"out %d" % number for number in range(60)]
    async with consuming(shared_broker, sink) as reader:
        assert len(set(await read(reader, 80))) == 60, "the aborted ones are there, uncommitted"


async def test_a_second_producer_with_the_same_id_fences_the_first(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic, name = unique("fenced"), unique("tx")
    await create(shared_broker, topic)
    first = AIOKafkaProducer(bootstrap_servers=shared_broker.address, transactional_id=name)
    await first.start()
    await first.begin_transaction()
    await first.send_and_wait(topic, b"lost")
    async with producing(shared_broker, transactional_id=name) as second:
        with pytest.raises(ProducerFenced):
            await first.commit_transaction()
        async with second.transaction():
            await second.send(topic, b"kept")
    await first.stop()
    async with consuming(shared_broker, topic, isolation_level="read_committed") as reader:
        assert await read(reader, 1) == [b"kept"]


async def test_topics_groups_and_offsets_are_administered(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic, group = unique("admin"), unique("admin")
    await create(shared_broker, topic)
    async with administration(shared_broker) as admin:
        await admin.create_partitions({topic: NewPartitions(3)})
        [described] = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        where = TopicPartition(topic, 1)
        async with consuming(shared_broker, group_id=group) as consumer:
            consumer.assign([where])
            await consumer.commit({where: 4})
            assert await consumer.end_offsets([where]) == {where: 0}
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets[where].offset == 4
        assert group in {name for name, _ in await admin.list_consumer_groups()}
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()


async def test_offsets_for_times_are_found(shared_broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("times")
    await create(shared_broker, topic)
    where = TopicPartition(topic, 0)
    async with producing(shared_broker) as producer:
        for second in (1, 2, 3):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=second * 1000)
    async with consuming(shared_broker) as consumer:
        found = await consumer.offsets_for_times({where: 1500})
        assert (found[where].offset, found[where].timestamp) == (1, 2000)


async def test_a_killed_broker_comes_back_with_everything_it_acknowledged(
    own_broker: BrokerProcess,
) -> None:
    await create(own_broker, "kept")
    where = TopicPartition("kept", 0)
    member = {"group_id": "readers", "session_timeout_ms": 1500, "heartbeat_interval_ms": 200}
    async with (
        producing(own_broker, enable_idempotence=True) as producer,
        consuming(own_broker, "kept", **member) as consumer,
    ):
        await send(producer, "kept", [b"%d" % number for number in range(100)])
        assert len(await read(consumer, 70)) == 70
        await consumer.commit({where: 70})
        own_broker.kill()
        pending = [await producer.send("kept", b"%d" % n, partition=0) for n in range(100, 120)]
        own_broker.start()
        await asyncio.wait_for(asyncio.gather(*pending), DEADLINE_S)
    async with consuming(own_broker, "kept", **member) as consumer:
        assert await read(consumer, 50) == [b"%d" % number for number in range(70, 120)]


async def test_records_beyond_the_limit_are_refused_and_the_rest_goes_on(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("limits")
    async with administration(shared_broker) as admin:
        await admin.create_topics(
            [NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "1000"})]
        )
    async with producing(shared_broker) as producer:
        with pytest.raises(Exception, match="MessageSizeTooLarge"):
            await producer.send_and_wait(topic, bytes(2000))
        await producer.send_and_wait(topic, b"small")


async def test_an_unknown_partition_is_reported(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("partitions")
    await create(shared_broker, topic)
    async with consuming(shared_broker) as consumer:
        consumer.assign([TopicPartition(topic, 7)])
        with pytest.raises((UnknownTopicOrPartitionError, TimeoutError)):
            await asyncio.wait_for(consumer.end_offsets([TopicPartition(topic, 7)]), 1)
