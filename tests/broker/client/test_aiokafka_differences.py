"""What our client under aiokafka's names does otherwise than aiokafka, on purpose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import onceward.broker.client.aiokafka as kafka

from .conftest import NewTopicFixture
from .test_aiokafka import Programs, eventually, fill, new_group, values

errors = kafka.errors


@pytest.fixture
async def programs(bootstrap: str) -> AsyncIterator[Programs]:
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        yield Programs(kafka, bootstrap, stack)


def counting_clock() -> Any:
    ticks = iter(range(1_000, 2_000))
    return lambda: next(ticks)


# options


@pytest.mark.parametrize(
    "option",
    [
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_PLAINTEXT"},
        {"ssl_context": object()},
        {"sasl_plain_username": "me"},
        {"sasl_oauth_token_provider": object()},
        {"connections_max_idle_ms": 1_000},
    ],
)
async def test_an_option_that_cannot_be_honoured_is_refused(option: dict[str, Any]) -> None:
    name = next(iter(option))
    for make in (kafka.AIOKafkaProducer, kafka.AIOKafkaConsumer):
        with pytest.raises(kafka.ConfigurationError, match=name):
            make(**option)


async def test_options_of_one_side_are_checked_too() -> None:
    for option in (
        {"acks": 2},
        {"compression_type": "brotli"},
        {"transactional_id": "t", "acks": 1},
    ):
        with pytest.raises(ValueError):
            kafka.AIOKafkaProducer(**option)
    for option in (
        {"client_rack": "r"},
        {"partition_assignment_strategy": ["sticky"]},
        {"partition_assignment_strategy": [object()]},
        {"auto_offset_reset": "oldest"},
        {"isolation_level": "serializable"},
        {"max_poll_records": 0},
    ):
        with pytest.raises(ValueError):
            kafka.AIOKafkaConsumer(**option)
    with pytest.raises(TypeError, match="nonsense"):
        kafka.AIOKafkaConsumer(nonsense=1)


async def test_time_can_be_given(programs: Programs, new_topic: NewTopicFixture) -> None:
    producer = await programs.producer(clock=counting_clock())
    sent = await producer.send_and_wait(await new_topic(), b"v")
    assert 1_000 <= sent.timestamp < 2_000


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        ("localhost", "localhost:9092"),
        ("a:1,b", "a:1,b:9092"),
        (["a:1", "[::1]:2"], "a:1,[::1]:2"),
        ("::1", "[::1]:9092"),
    ],
)
def test_bootstrap_servers_come_in_every_form_of_aiokafka(given: Any, servers: str) -> None:
    assert kafka.options.bootstrap_string(given) == servers


# transactions


async def test_a_record_that_could_not_be_sent_makes_the_commit_fail(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, small = await new_topic(), await new_topic(max_message_bytes="1000")
    producer = await programs.producer(transactional_id="tx")
    await producer.begin_transaction()
    await producer.send(topic, b"dropped")
    lost = await producer.send(small, b"x" * 2_000)
    with pytest.raises(errors.MessageSizeTooLargeError):
        await producer.commit_transaction()
    with pytest.raises(errors.MessageSizeTooLargeError):
        await lost
    with pytest.raises(errors.MessageSizeTooLargeError):
        await producer.begin_transaction()
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send(topic, b"kept")
    consumer = await programs.consumer(topic, isolation_level="read_committed")
    assert await values(consumer, 1) == [b"kept"]


async def test_a_transaction_block_that_cannot_commit_leaves_the_producer_ready(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, small = await new_topic(), await new_topic(max_message_bytes="1000")
    producer = await programs.producer(transactional_id="tx")
    with pytest.raises(errors.MessageSizeTooLargeError):
        async with producer.transaction():
            lost = await producer.send(small, b"x" * 2_000)
    assert lost.exception() is not None
    async with producer.transaction():
        assert (await producer.send_and_wait(topic, b"v")).offset == 0


async def test_after_a_failed_batch_an_idempotent_producer_goes_on(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(max_message_bytes="1000")
    producer = await programs.producer(enable_idempotence=True)
    await producer.send_and_wait(topic, b"0")
    with pytest.raises(errors.MessageSizeTooLargeError):
        await producer.send_and_wait(topic, b"x" * 2_000)
    assert (await producer.send_and_wait(topic, b"1")).offset == 1


async def test_offsets_of_a_member_that_was_replaced_are_refused(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, group = await new_topic(), new_group()
    options = {"group_id": group, "enable_auto_commit": False}
    consumer = await programs.consumer(topic, isolation_level="read_committed", **options)
    outdated = consumer.group_metadata()
    await programs.consumer(topic, **options)
    await eventually(lambda: consumer.group_metadata() != outdated)
    tp = kafka.TopicPartition(topic, 0)
    producer = await programs.producer(transactional_id="tx")
    with pytest.raises(errors.IllegalGenerationError):
        async with producer.transaction():
            await producer.send_offsets_to_transaction({tp: 1}, outdated)
    async with producer.transaction():
        await producer.send_offsets_to_transaction({tp: 1}, consumer.group_metadata())
    assert await consumer.committed(tp) == 1


async def test_committed_waits_for_undecided_transactions(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, group = await new_topic(), new_group()
    tp = kafka.TopicPartition(topic, 0)
    producer = await programs.producer(transactional_id="tx")
    consumer = await programs.consumer(group_id=group, isolation_level="read_committed")
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({tp: (7, "note")}, group)
    asking = asyncio.create_task(consumer.committed(tp))
    await asyncio.sleep(0.1)
    assert not asking.done()
    await producer.commit_transaction()
    assert await asking == 7


async def test_stopping_ends_an_open_transaction(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await programs.producer(transactional_id="tx")
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"dropped")
    await producer.stop()
    await (await programs.producer()).send_and_wait(topic, b"read")
    consumer = await programs.consumer(topic, isolation_level="read_committed")
    assert await values(consumer, 1) == [b"read"]


# reading


async def test_a_record_that_cannot_be_deserialized_is_not_lost(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await programs.producer()
    for value in (b"1", b"one", b"2"):
        await producer.send_and_wait(topic, value)
    tp = kafka.TopicPartition(topic, 0)
    consumer = await programs.consumer(topic, value_deserializer=int)
    assert await values(consumer, 1) == [1]
    for _ in range(2):
        with pytest.raises(ValueError, match="one"):
            await consumer.getone()
        assert await consumer.position(tp) == 1
    consumer.seek(tp, 2)
    assert await values(consumer, 1) == [2]


async def test_an_idle_partition_has_a_high_watermark(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    await fill(await programs.producer(), topic, 3)
    consumer = await programs.consumer(topic, auto_offset_reset="latest")
    tp = kafka.TopicPartition(topic, 0)
    await eventually(lambda: consumer.highwater(tp) == 3)


# groups


class Listener(kafka.ConsumerRebalanceListener):
    """Asks for positions and seeks while partitions are being assigned."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self.revoked: list[set[Any]] = []
        self.lost: list[set[Any]] = []
        self.positions: list[int] = []

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self.revoked.append(revoked)

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        for tp in sorted(assigned):
            self.positions.append(await self.consumer.position(tp))
            if not self.positions[-1]:
                self.consumer.seek(tp, 1)

    def on_partitions_lost(self, lost: set[Any]) -> None:
        self.lost.append(lost)


async def test_a_listener_can_ask_for_positions_and_seek(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, listener = await new_topic(), Listener()
    await fill(await programs.producer(), topic, 3)
    consumer = listener.consumer = await programs.consumer(group_id=new_group())
    consumer.subscribe([topic], listener=listener)
    assert await values(consumer, 2) == [b"1", b"2"]
    assert listener.positions == [0]


async def test_what_a_listener_raises_reaches_the_program(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    class Broken(Listener):
        async def on_partitions_assigned(self, assigned: set[Any]) -> None:
            raise ZeroDivisionError

    topic = await new_topic()
    consumer = await programs.consumer(group_id=new_group())
    consumer.subscribe([topic], listener=Broken())
    with pytest.raises(ZeroDivisionError):
        await values(consumer, 1)


async def test_a_cooperative_member_keeps_what_it_does_not_give_away(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, listener = await new_topic(4), Listener()
    options = {"group_id": new_group(), "partition_assignment_strategy": ["cooperative-sticky"]}
    first = listener.consumer = await programs.consumer(**options)
    first.subscribe([topic], listener=listener)
    await eventually(lambda: len(first.assignment()) == 4)
    second = await programs.consumer(topic, **options)
    await eventually(lambda: len(second.assignment()) == 2)
    assert len(first.assignment()) == 2
    assert [revoked for revoked in listener.revoked if revoked] == [second.assignment()]


async def test_a_consumer_that_does_not_read_loses_its_partitions_until_it_does(
    programs: Programs, new_topic: NewTopicFixture
) -> None:
    topic, group, listener = await new_topic(), new_group(), Listener()
    await fill(await programs.producer(), topic, 3)
    tp = kafka.TopicPartition(topic, 0)
    options = {"group_id": group, "max_poll_interval_ms": 300}
    slow = listener.consumer = await programs.consumer(**options)
    slow.subscribe([topic], listener=listener)
    assert await values(slow, 1) == [b"1"]
    await eventually(lambda: slow.assignment() == set())
    assert listener.revoked[-1] == {tp}
    other = await programs.consumer(topic, group_id=group)
    assert await values(other, 1) == [b"2"]
    await other.stop()
    assert await slow.getmany(timeout_ms=500) == {}
    await eventually(lambda: slow.assignment() == {tp})


async def test_a_commit_after_the_partitions_went_elsewhere_fails(
    programs: Programs, new_topic: NewTopicFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    topic, group = await new_topic(), new_group()
    options = {"group_id": group, "session_timeout_ms": 500, "enable_auto_commit": False}
    outdated = await programs.consumer(topic, heartbeat_interval_ms=60_000, **options)
    joining = asyncio.create_task(programs.consumer(topic, **options))
    tp = kafka.TopicPartition(topic, 0)
    # Without heartbeats it does not hear of the rebalance: only its commits tell.
    with pytest.raises(errors.CommitFailedError):
        async with asyncio.timeout(10):
            while True:
                await outdated.commit({tp: 1})
                await asyncio.sleep(0.02)
    await joining
