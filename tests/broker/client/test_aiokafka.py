"""The same small programs on aiokafka and on our client under its names, with the same results."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import aiokafka.structs
import pytest

import onceward.broker.client.aiokafka as ours

from .conftest import NewTopicFixture

DEADLINE_S = 15.0
NUMBERS = itertools.count(1)
Kafka = Any
"""Either of the two modules."""


@pytest.fixture(params=[aiokafka, ours], ids=["aiokafka", "ours"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return request.param


class Programs:
    """Makes producers and consumers of one module, started, and stops them."""

    def __init__(self, kafka: Kafka, bootstrap: str, stack: contextlib.AsyncExitStack) -> None:
        self.kafka = kafka
        self._bootstrap = bootstrap
        self._stack = stack

    async def producer(self, **options: Any) -> Any:
        made = self.kafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, **options)
        return await self._stack.enter_async_context(made)

    async def consumer(self, *topics: str, **options: Any) -> Any:
        made = self.idle_consumer(*topics, **options)
        return await self._stack.enter_async_context(made)

    def idle_consumer(self, *topics: str, **options: Any) -> Any:
        options = {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 100,
            "consumer_timeout_ms": 50,
            **options,
        }
        return self.kafka.AIOKafkaConsumer(*topics, bootstrap_servers=self._bootstrap, **options)

    def tp(self, topic: str, partition: int = 0) -> Any:
        return self.kafka.TopicPartition(topic, partition)


@pytest.fixture
async def programs(kafka: Kafka, bootstrap: str) -> AsyncIterator[Programs]:
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
        yield Programs(kafka, bootstrap, stack)


def new_group() -> str:
    return f"group-{next(NUMBERS)}"


async def values(consumer: Any, count: int) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [(await consumer.getone()).value for _ in range(count)]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def fill(producer: Any, topic: str, count: int, partition: int = 0) -> None:
    futures = [await producer.send(topic, b"%d" % n, partition=partition) for n in range(count)]
    for future in futures:
        await future


# records


async def test_a_record_comes_back_as_it_was_sent(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = await programs.producer()
    headers = [("h", b"1"), ("n", None)]
    sent = await producer.send_and_wait(
        topic, b"v", b"k", partition=1, timestamp_ms=1_700_000_000_123, headers=headers
    )
    tombstone = await producer.send_and_wait(topic, None, b"k", partition=1)
    assert sent[:6] == (topic, 1, programs.tp(topic, 1), 0, 1_700_000_000_123, 0)
    assert tombstone.offset == 1
    consumer = await programs.consumer(topic)
    first = await consumer.getone()
    assert (first.topic, first.partition, first.offset) == (topic, 1, 0)
    assert (first.key, first.value, tuple(first.headers)) == (b"k", b"v", tuple(headers))
    assert (first.timestamp, first.timestamp_type) == (1_700_000_000_123, 0)
    assert (first.serialized_key_size, first.serialized_value_size) == (1, 1)
    second = await consumer.getone()
    assert (second.value, second.serialized_value_size, tuple(second.headers)) == (None, -1, ())


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_keep_their_order_in_every_compression(
    programs: Programs, new_topic: NewTopicFixture, compression: str | None
) -> None:
    topic = await new_topic()
    producer = await programs.producer(compression_type=compression, max_batch_size=2_000)
    sent = [b"%d %s" % (n, b"x" * 30) for n in range(300)]
    futures = [await producer.send(topic, value) for value in sent]
    await producer.flush()
    assert [future.result().offset for future in futures] == list(range(300))
    assert await values(await programs.consumer(topic), 300) == sent


async def test_equal_keys_go_where_kafka_puts_them(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(10)
    producer = await programs.producer(key_serializer=str.encode, value_serializer=str.encode)
    assert await producer.partitions_for(topic) == set(range(10))
    keys = ["", "a", "key-1", "key-22", "key-333", "päth", "x" * 100]
    sent = [await producer.send_and_wait(topic, "v", key) for key in keys]
    assert [metadata.partition for metadata in sent] == [1, 4, 0, 9, 7, 4, 8]


async def test_a_partitioner_of_the_program_is_asked_with_the_serialized_key(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, asked = await new_topic(3), []

    def partitioner(key: bytes, every: list[int], available: list[int]) -> int:
        asked.append((key, sorted(every), sorted(available)))
        return 2

    producer = await programs.producer(partitioner=partitioner, key_serializer=str.encode)
    assert (await producer.send_and_wait(topic, b"v", "k")).partition == 2
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]


async def test_deserializers_see_keys_and_values(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    await (await programs.producer()).send_and_wait(topic, b"5", b"k")
    consumer = await programs.consumer(topic, key_deserializer=bytes.decode, value_deserializer=int)
    record = await consumer.getone()
    assert (record.key, record.value) == ("k", 5)


async def test_a_batch_made_by_the_program_is_sent_as_it_is(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = await programs.producer(max_batch_size=1_000)
    batch, added = producer.create_batch(), 0
    while batch.append(timestamp=None, key=b"k", value=b"v" * 50, headers=[]) is not None:
        added += 1
    assert batch.record_count() == added > 5
    assert batch.size() <= 1_000
    await producer.send_and_wait(topic, b"before", partition=1)
    future = await producer.send_batch(batch, topic, partition=1)
    assert (await future)[:4] == (topic, 1, programs.tp(topic, 1), 1)
    assert (await producer.send_and_wait(topic, b"after", partition=1)).offset == added + 1


async def test_without_acks_there_is_nothing_to_know(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await programs.producer(acks=0)
    assert await producer.send_and_wait(topic, b"v") is None
    assert await values(await programs.consumer(topic), 1) == [b"v"]


async def test_lingering_records_travel_together(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await programs.producer(linger_ms=150)
    start = asyncio.get_running_loop().time()
    futures = [await producer.send(topic, b"%d" % n) for n in range(3)]
    assert [(await future).offset for future in futures] == [0, 1, 2]
    assert asyncio.get_running_loop().time() - start >= 0.14


async def test_stopping_sends_what_is_buffered(
    programs: Programs, bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = programs.kafka.AIOKafkaProducer(bootstrap_servers=[bootstrap], linger_ms=50)
    await producer.start()
    future = await producer.send(topic, b"v")
    await producer.stop()
    assert future.result().offset == 0
    with pytest.raises(programs.kafka.errors.ProducerClosed):
        await producer.send(topic, b"late")


async def test_an_idempotent_producer_writes_in_order(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = await programs.producer(enable_idempotence=True, max_batch_size=500)
    for partition in (0, 1):
        await fill(producer, topic, 100, partition)
    consumer = await programs.consumer()
    consumer.assign([programs.tp(topic, 1)])
    assert await values(consumer, 100) == [b"%d" % n for n in range(100)]


# reading


async def test_getmany_returns_lists_by_partition_within_its_limits(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = await programs.producer()
    await fill(producer, topic, 5, 0)
    await fill(producer, topic, 5, 1)
    consumer = await programs.consumer(topic)
    found: dict[Any, list[bytes]] = {}
    async with asyncio.timeout(DEADLINE_S):
        while sum(map(len, found.values())) < 10:
            part = await consumer.getmany(timeout_ms=1_000, max_records=3)
            assert 1 <= sum(map(len, part.values())) <= 3
            for tp, records in part.items():
                found.setdefault(tp, []).extend(record.value for record in records)
    expected = [b"%d" % n for n in range(5)]
    assert found == {programs.tp(topic, 0): expected, programs.tp(topic, 1): expected}
    assert await consumer.getmany(timeout_ms=0) == {}
    with pytest.raises(ValueError):
        await consumer.getmany(max_records=0)


async def test_records_can_be_asked_for_by_partition(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = await programs.producer()
    await fill(producer, topic, 2, 0)
    await fill(producer, topic, 2, 1)
    consumer = await programs.consumer(topic)
    one, zero = programs.tp(topic, 1), programs.tp(topic, 0)
    assert [(await consumer.getone(one)).value for _ in range(2)] == [b"0", b"1"]
    assert await consumer.getmany(one, timeout_ms=100) == {}
    assert list(await consumer.getmany(zero, one, timeout_ms=1_000)) == [zero]


async def test_iteration_ends_when_the_consumer_is_stopped(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    await fill(await programs.producer(), topic, 3)
    consumer = await programs.consumer(topic)
    seen = []

    async def iterate() -> None:
        async for record in consumer:
            seen.append(record.value)

    task = asyncio.create_task(iterate())
    await eventually(lambda: len(seen) == 3)
    await consumer.stop()
    await asyncio.wait_for(task, DEADLINE_S)
    with pytest.raises(programs.kafka.ConsumerStoppedError):
        await consumer.getone()
    with pytest.raises(programs.kafka.ConsumerStoppedError):
        await consumer.getmany()


async def test_positions_move_with_what_was_handed_out_and_with_seek(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    await fill(await programs.producer(), topic, 10)
    tp = programs.tp(topic)
    consumer = await programs.consumer(topic)
    assert await consumer.position(tp) == 0
    assert await values(consumer, 3) == [b"0", b"1", b"2"]
    assert await consumer.position(tp) == 3
    assert consumer.highwater(tp) == 10
    assert consumer.last_poll_timestamp(tp) > 0
    consumer.seek(tp, 7)
    assert await consumer.position(tp) == 7
    assert await values(consumer, 1) == [b"7"]
    await consumer.seek_to_beginning(tp)
    assert await values(consumer, 1) == [b"0"]
    await consumer.seek_to_end()
    assert await consumer.position(tp) == 10
    assert await consumer.beginning_offsets([tp]) == {tp: 0}
    assert await consumer.end_offsets([tp]) == {tp: 10}


async def test_offsets_are_found_by_time(programs: Programs, new_topic: NewTopicFixture) -> None:
    topic = await new_topic()
    producer = await programs.producer()
    for n in range(3):
        await producer.send_and_wait(topic, b"%d" % n, timestamp_ms=1_000 + 10 * n)
    tp = programs.tp(topic)
    consumer = await programs.consumer()
    find = consumer.offsets_for_times
    assert await find({tp: 1_005}) == {tp: programs.kafka.OffsetAndTimestamp(1, 1_010)}
    assert await find({tp: 5_000}) == {tp: None}
    with pytest.raises(ValueError):
        await find({tp: -1})


async def test_a_paused_partition_is_silent_until_it_is_resumed(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = await programs.producer()
    await fill(producer, topic, 2, 0)
    await fill(producer, topic, 2, 1)
    consumer = await programs.consumer(topic)
    await values(consumer, 1)
    zero = programs.tp(topic, 0)
    consumer.pause(zero)
    consumer.seek(zero, 0)
    assert consumer.paused() == {zero}
    async with asyncio.timeout(DEADLINE_S):
        while await consumer.position(programs.tp(topic, 1)) < 2:
            await consumer.getmany(timeout_ms=200)
    assert await consumer.getmany(timeout_ms=200) == {}
    consumer.resume(zero)
    assert consumer.paused() == set()
    assert await values(consumer, 2) == [b"0", b"1"]


async def test_without_a_group_a_subscription_is_every_partition(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(3)
    consumer = await programs.consumer(topic)
    assert consumer.assignment() == {programs.tp(topic, n) for n in range(3)}
    assert consumer.subscription() == {topic}
    assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    assert topic in await consumer.topics()


async def test_reading_begins_at_the_end_by_default(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await programs.producer()
    await fill(producer, topic, 3)
    consumer = await programs.consumer(topic, auto_offset_reset="latest")
    assert await consumer.position(programs.tp(topic)) == 3
    await producer.send_and_wait(topic, b"new")
    assert await values(consumer, 1) == [b"new"]


# groups


class Listening:
    """Records what a listener hears; made for either module by ``listener``."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, set[Any]]] = []

    def listener(self, kafka: Kafka) -> Any:
        class Listener(kafka.abc.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            def on_partitions_revoked(inner, revoked: Any) -> None:
                self.heard.append(("revoked", set(revoked)))

            async def on_partitions_assigned(inner, assigned: Any) -> None:
                self.heard.append(("assigned", set(assigned)))

        return Listener()


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
async def test_members_share_the_partitions_and_take_over_committed_positions(
    programs: Programs, new_topic: NewTopicFixture, strategy: str
) -> None:
    topic, group, heard = await new_topic(4), new_group(), Listening()
    options = {
        "group_id": group,
        "partition_assignment_strategy": [aiokafka_assignor(strategy)],
        "enable_auto_commit": False,
    }
    first = programs.idle_consumer(**options)
    first.subscribe([topic], listener=heard.listener(programs.kafka))
    await first.start()
    everything = {programs.tp(topic, n) for n in range(4)}
    assert first.assignment() == everything
    assert heard.heard == [("revoked", set()), ("assigned", everything)]
    second = await programs.consumer(topic, **options)
    await eventually(lambda: len(first.assignment()) == 2 == len(second.assignment()))
    await eventually(lambda: len(heard.heard) == 4)
    assert first.assignment() | second.assignment() == everything
    assert heard.heard[2:] == [("revoked", everything), ("assigned", first.assignment())]
    mine = min(first.assignment())
    await fill(await programs.producer(), topic, 5, mine.partition)
    assert await values(first, 3) == [b"0", b"1", b"2"]
    await first.commit({mine: (2, "note")})
    assert await first.committed(mine) == 2
    await first.stop()
    await eventually(lambda: second.assignment() == everything)
    assert await values(second, 3) == [b"2", b"3", b"4"]


def aiokafka_assignor(name: str) -> Any:
    """The classes programs name: ours goes by their ``name``."""
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    return {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[name]


async def test_both_modules_can_be_members_of_one_group(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic, group = await new_topic(4), new_group()
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await Programs(module, bootstrap, stack).consumer(topic, group_id=group)
            for module in (aiokafka, ours)
        ]
        await eventually(lambda: [len(member.assignment()) for member in members] == [2, 2])
        await members.pop(0).stop()
        await eventually(lambda: [len(member.assignment()) for member in members] == [4])


async def test_positions_are_committed_by_themselves(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, group = await new_topic(), new_group()
    await fill(await programs.producer(), topic, 5)
    tp = programs.tp(topic)
    consumer = await programs.consumer(topic, group_id=group, auto_commit_interval_ms=50)
    await values(consumer, 2)
    async with asyncio.timeout(DEADLINE_S):
        while await consumer.committed(tp) != 2:
            await asyncio.sleep(0.02)
    await values(consumer, 1)
    await consumer.stop()
    again = await programs.consumer(topic, group_id=group, enable_auto_commit=False)
    assert await values(again, 1) == [b"3"]
    assert await again.committed(tp) == 3
    await again.commit()
    assert await again.committed(tp) == 4
    assert await again.seek_to_committed() == {tp: 4}


async def test_a_group_id_also_commits_for_assigned_partitions(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    await fill(await programs.producer(), topic, 5)
    tp, group = programs.tp(topic), new_group()
    consumer = await programs.consumer(group_id=group, enable_auto_commit=False)
    consumer.assign([tp])
    assert consumer.assignment() == {tp}
    assert await consumer.committed(tp) is None
    await values(consumer, 2)
    await consumer.commit()
    again = await programs.consumer(group_id=group, enable_auto_commit=False)
    again.assign([tp])
    assert await again.position(tp) == 2


async def test_a_pattern_finds_its_topics(programs: Programs, new_topic: NewTopicFixture) -> None:
    topic = await new_topic(2)
    await new_topic()
    consumer = await programs.consumer(group_id=new_group())
    consumer.subscribe(pattern=f"^{topic}$")
    await eventually(lambda: len(consumer.assignment()) == 2)
    assert consumer.subscription() == {topic}
    consumer.unsubscribe()
    assert (consumer.subscription(), consumer.assignment()) == (set(), set())


async def test_a_consumer_can_turn_to_other_topics(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    one, two, group = await new_topic(), await new_topic(), new_group()
    producer = await programs.producer()
    await fill(producer, one, 2)
    await fill(producer, two, 2)
    consumer = await programs.consumer(one, group_id=group)
    await values(consumer, 1)
    consumer.subscribe([two])
    assert await values(consumer, 2) == [b"0", b"1"]
    assert consumer.assignment() == {programs.tp(two)}
    consumer.unsubscribe()
    consumer.assign([programs.tp(one)])
    assert await values(consumer, 1) == [b"1"]


# transactions


async def test_only_committed_transactions_are_read(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await programs.producer(transactional_id=f"tx-{next(NUMBERS)}")
    async with producer.transaction():
        await producer.send_and_wait(topic, b"kept")
    with pytest.raises(ZeroDivisionError):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"dropped")
            raise ZeroDivisionError
    await producer.begin_transaction()
    await producer.send(topic, b"kept too")
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"open")
    options = {"isolation_level": "read_committed"}
    consumer = await programs.consumer(topic, **options)
    assert await values(consumer, 2) == [b"kept", b"kept too"]
    assert await consumer.getmany(timeout_ms=300) == {}
    tp = programs.tp(topic)
    # kept, its marker, dropped, its marker, kept too, its marker, open
    assert (await consumer.end_offsets([tp]), consumer.last_stable_offset(tp)) == ({tp: 6}, 6)
    assert consumer.highwater(tp) == 7
    await producer.abort_transaction()


async def test_offsets_are_committed_with_the_transaction(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    source, sink, group = await new_topic(), await new_topic(), new_group()
    await fill(await programs.producer(), source, 6)
    producer = await programs.producer(transactional_id=f"tx-{next(NUMBERS)}")
    consumer = await programs.consumer(
        source, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
    )
    tp = programs.tp(source)
    for commits in (True, False):
        await producer.begin_transaction()
        for value in await values(consumer, 3):
            await producer.send(sink, value)
        await producer.send_offsets_to_transaction({tp: await consumer.position(tp)}, group)
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    async with asyncio.timeout(DEADLINE_S):
        while await consumer.committed(tp) != 3:
            await asyncio.sleep(0.02)
    reader = await programs.consumer(sink, isolation_level="read_committed")
    assert await values(reader, 3) == [b"0", b"1", b"2"]
    assert await reader.getmany(timeout_ms=200) == {}


async def test_a_second_producer_of_a_name_fences_the_first(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, name = await new_topic(), f"tx-{next(NUMBERS)}"
    first = await programs.producer(transactional_id=name)
    await first.begin_transaction()
    await first.send_and_wait(topic, b"lost")
    second = await programs.producer(transactional_id=name)
    async with second.transaction():
        await second.send_and_wait(topic, b"kept")
    with pytest.raises(programs.kafka.errors.ProducerFenced):
        await first.commit_transaction()
    reader = await programs.consumer(topic, isolation_level="read_committed")
    assert await values(reader, 1) == [b"kept"]


async def test_transactional_calls_out_of_order_are_refused(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    refused = programs.kafka.errors.IllegalOperation
    plain = await programs.producer()
    with pytest.raises(refused):
        await plain.begin_transaction()
    with pytest.raises(refused):
        await plain.send_offsets_to_transaction({programs.tp(topic): 1}, "group")
    producer = await programs.producer(transactional_id=f"tx-{next(NUMBERS)}")
    with pytest.raises(refused):
        await producer.send(topic, b"v")
    with pytest.raises(refused):
        await producer.send_offsets_to_transaction({programs.tp(topic): 1}, "group")
    await producer.begin_transaction()
    with pytest.raises(ValueError):
        await producer.send_offsets_to_transaction({programs.tp(topic): 1}, "")
    await producer.abort_transaction()


# errors


async def test_a_topic_that_does_not_exist_is_an_error(programs: Programs) -> None:
    producer = await programs.producer(request_timeout_ms=300)
    # An illegal name: brokers that create topics on demand do not create it.
    with pytest.raises(programs.kafka.errors.KafkaError) as caught:
        await producer.send(f"no such topic {next(NUMBERS)}", b"v")
    assert caught.value.errno in (3, 17)


async def test_no_server_is_a_connection_error(kafka: Kafka) -> None:
    for made in (
        kafka.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1"),
        kafka.AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1"),
    ):
        with pytest.raises(kafka.errors.KafkaConnectionError) as caught:
            await made.start()
        assert caught.value.retriable
        await made.stop()


async def test_a_missing_offset_is_raised_and_mended_by_seek(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, errors = await new_topic(), programs.kafka.errors
    await fill(await programs.producer(), topic, 3)
    tp = programs.tp(topic)
    options = {"auto_offset_reset": "none", "group_id": new_group(), "enable_auto_commit": False}
    consumer = await programs.consumer(topic, **options)
    with pytest.raises(errors.NoOffsetForPartitionError):
        await asyncio.wait_for(consumer.getone(), DEADLINE_S)
    consumer.seek(tp, 2)
    assert await values(consumer, 1) == [b"2"]
    consumer.seek(tp, 1_000)
    with pytest.raises(errors.OffsetOutOfRangeError) as caught:
        await asyncio.wait_for(consumer.getone(), DEADLINE_S)
    assert caught.value.errno == 1
    await consumer.seek_to_beginning(tp)
    assert await values(consumer, 1) == [b"0"]


async def test_what_does_not_fit_is_refused(programs: Programs, new_topic: NewTopicFixture) -> None:
    topic = await new_topic(max_message_bytes="1000")
    errors = programs.kafka.errors
    producer = await programs.producer(max_request_size=2_000)
    with pytest.raises(errors.MessageSizeTooLargeError):
        await producer.send(topic, b"x" * 2_000)
    future = await producer.send(topic, b"x" * 1_500)
    with pytest.raises(errors.MessageSizeTooLargeError):
        await future
    assert (await producer.send_and_wait(topic, b"x" * 500)).offset == 0
    for wrong in ("text", 5):
        with pytest.raises(TypeError):
            await producer.send(topic, wrong)
    with pytest.raises(AssertionError):
        await producer.send(topic)
    with pytest.raises(AssertionError):
        await producer.send(topic, b"v", partition=77)


async def test_calls_that_do_not_fit_the_state_are_refused(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    kafka, topic = programs.kafka, await new_topic()
    tp, other = programs.tp(topic), programs.tp("other", 9)
    consumer = await programs.consumer()
    with pytest.raises(kafka.IllegalOperation):
        await consumer.commit()
    with pytest.raises(kafka.IllegalOperation):
        await consumer.committed(tp)
    with pytest.raises(TypeError):
        consumer.subscribe()
    with pytest.raises(TypeError):
        consumer.subscribe([topic], pattern="x")
    with pytest.raises(ValueError):
        consumer.subscribe(pattern="(")
    consumer.assign([tp])
    illegal = kafka.errors.IllegalStateError
    with pytest.raises(illegal):
        consumer.subscribe([topic])
    with pytest.raises(illegal):
        await consumer.position(other)
    with pytest.raises(illegal):
        consumer.seek(other, 1)
    with pytest.raises(illegal):
        consumer.pause(other)
    with pytest.raises(illegal):
        await consumer.seek_to_end(other)
    with pytest.raises(ValueError):
        consumer.seek(tp, -1)
    member = await programs.consumer(topic, group_id=new_group())
    with pytest.raises(illegal):
        await member.commit({other: 1})
    for wrong in ({}, {tp: "x"}, {tp: (1, 2, 3)}):
        with pytest.raises(ValueError):
            await member.commit(wrong)
    with pytest.raises(TypeError):
        await member.commit({"x": 1})


def test_error_codes_have_the_same_classes(kafka: Kafka) -> None:
    names = {
        1: "OffsetOutOfRangeError",
        3: "UnknownTopicOrPartitionError",
        7: "RequestTimedOutError",
        10: "MessageSizeTooLargeError",
        22: "IllegalGenerationError",
        25: "UnknownMemberIdError",
        47: "InvalidProducerEpoch",
        51: "ConcurrentTransactions",
        999: "UnknownError",
    }
    for code, name in names.items():
        cls = kafka.errors.for_code(code)
        assert cls.__name__ == name
        assert issubclass(cls, kafka.errors.KafkaError)
    error = kafka.errors.UnknownTopicOrPartitionError("t")
    assert (error.errno, error.message) == (3, "UNKNOWN_TOPIC_OR_PARTITION")
    assert error.retriable and error.invalid_metadata
    assert str(error) == "[Error 3] UnknownTopicOrPartitionError: t"
