"""Transactions against a running cluster, in both versions of the protocol."""

from __future__ import annotations

import asyncio

import pytest

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    ErrorCode,
    GroupMetadata,
    KafkaError,
    NeedsReset,
    OffsetAndMetadata,
    Producer,
    ProducerFenced,
    ProducerState,
    TopicPartition,
    TransactionAborted,
)
from onceward.broker.protocol.api import ApiKey

from .conftest import NewTopicFixture, new_client
from .wire import PATIENCE_S, Proxy, read_all


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    """Transactions version."""
    return int(request.param)


async def open_producer(
    client: Client, name: str, version: int, timeout_ms: int = 5_000
) -> Producer:
    producer = Producer(
        client,
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        max_transaction_version=version,
    )
    await producer.init_transactions()
    return producer


async def state_of(client: Client, transactional_id: str) -> str:
    described = (await Admin(client).describe_transactions([transactional_id]))[transactional_id]
    assert described is not None
    return described.state


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    producer.send_batch(topic, partition, [None] * len(values), list(values), timestamps=1)


async def test_committed_records_and_offsets_appear_together(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    source, target = await new_topic(), await new_topic(3)
    tp = TopicPartition(source, 0)
    group = GroupMetadata(source)
    reader = Consumer(client, group_id=source)
    producer = await open_producer(client, source, version)
    for n in range(3):
        producer.begin()
        for partition in range(3):
            send(producer, target, b"%d" % n, partition=partition)
        await producer.commit({tp: OffsetAndMetadata(n + 1)}, group)
        assert (await reader.committed([tp]))[tp] == OffsetAndMetadata(n + 1)
    assert await read_all(client, target, (0, 1, 2)) == [b"0", b"1", b"2"] * 3
    epochs = producer.identity.epoch
    assert epochs == (3 if version == 2 else 0), "version 2 has an epoch per transaction"
    await producer.close()


async def test_aborted_records_and_offsets_never_appear(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    reader = Consumer(client, group_id=topic)
    producer = await open_producer(client, topic, version)
    for n in range(6):
        producer.begin()
        send(producer, topic, b"%d" % n)
        await producer.flush()
        await producer.send_offsets({tp: OffsetAndMetadata(n + 1)}, GroupMetadata(topic))
        send(producer, topic, b"%d!" % n)
        if n % 2:
            await producer.commit()
        else:
            await producer.abort()
    assert await read_all(client, topic) == [b"1", b"1!", b"3", b"3!", b"5", b"5!"]
    assert len(await read_all(client, topic, isolation="read_uncommitted")) == 9
    assert (await reader.committed([tp]))[tp] == OffsetAndMetadata(6)
    await producer.close()


async def test_an_empty_transaction_costs_nothing(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic()
    producer = await open_producer(client, topic, version)
    before = producer.identity
    producer.begin()
    await producer.commit()
    producer.begin()
    send(producer, topic, b"dropped")
    await producer.abort()
    assert producer.identity == before
    producer.begin()
    send(producer, topic, b"kept")
    await producer.commit()
    assert await read_all(client, topic) == [b"kept"]
    await producer.close()


async def test_a_second_producer_aborts_what_the_first_left_and_fences_it(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic()
    first = await open_producer(client, topic, version)
    first.begin()
    send(first, topic, b"left behind")
    await first.flush()
    second = await open_producer(client, topic, version)
    second.begin()
    send(second, topic, b"new")
    await second.commit()
    with pytest.raises(ProducerFenced):
        await first.commit()
    assert first.state is ProducerState.FENCED
    with pytest.raises(ProducerFenced):
        first.begin()
    assert await read_all(client, topic) == [b"new"]
    await first.close()
    await second.close()


async def test_a_fenced_producer_cannot_write(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic()
    first = await open_producer(client, topic, version)
    first.begin()
    send(first, topic, b"one")
    await first.flush()
    await Admin(client).fence_producers([topic])
    send(first, topic, b"two")
    with pytest.raises((TransactionAborted, ProducerFenced)):
        await first.flush()
    with pytest.raises((TransactionAborted, ProducerFenced)):
        await first.commit()
    if first.state is ProducerState.ABORTABLE:
        with pytest.raises(ProducerFenced):
            await first.abort()
    assert first.state is ProducerState.FENCED
    assert await read_all(client, topic) == []
    await first.close()


async def test_a_zombie_member_cannot_commit_offsets(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic(2)
    tp = TopicPartition(topic, 0)
    member = Consumer(client, group_id=topic)
    member.subscribe([topic])
    await member.poll_group(timeout_ms=10_000)
    zombie = member.group_metadata
    assert zombie.generation_id > 0
    producer = await open_producer(client, topic, version)
    producer.begin()
    send(producer, topic, b"ok")
    await producer.commit({tp: OffsetAndMetadata(1)}, zombie)
    await member.stop()
    producer.begin()
    send(producer, topic, b"zombie")
    with pytest.raises(TransactionAborted) as refused:
        await producer.send_offsets({tp: OffsetAndMetadata(2)}, zombie)
    assert refused.value.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(TransactionAborted):
        await producer.commit()
    await producer.abort()
    assert producer.state is ProducerState.READY
    assert await read_all(client, topic, (0, 1)) == [b"ok"]
    await producer.close()


async def test_stable_offsets_are_waited_for(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    consumer = Consumer(client, group_id=topic)
    producer = await open_producer(client, topic, version)
    producer.begin()
    await producer.send_offsets({tp: OffsetAndMetadata(7)}, GroupMetadata(topic))
    assert await consumer.committed([tp], require_stable=False) == {tp: None}
    with pytest.raises(KafkaError) as unstable:
        await consumer.committed([tp], timeout_ms=150)
    assert unstable.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    waiting = asyncio.create_task(consumer.committed([tp]))
    await asyncio.sleep(0.05)
    await producer.commit()
    assert await waiting == {tp: OffsetAndMetadata(7)}
    await producer.close()


async def test_a_failed_produce_makes_the_commit_impossible(
    client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic(2, max_message_bytes="500")
    producer = await open_producer(client, topic, version)
    producer.begin()
    send(producer, topic, b"fine", partition=1)
    send(producer, topic, b"x" * 1000)
    with pytest.raises(TransactionAborted) as refused:
        await producer.flush()
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert producer.state is ProducerState.ABORTABLE
    for again in (producer.commit(), producer.flush()):
        with pytest.raises(TransactionAborted):
            await again
    await producer.abort()
    producer.begin()
    send(producer, topic, b"next", partition=1)
    send(producer, topic, b"next")
    await producer.commit()
    assert await read_all(client, topic, (0, 1)) == [b"next", b"next"]
    await producer.close()


async def test_a_transaction_that_timed_out_is_aborted_and_a_new_one_possible(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = await open_producer(client, topic, 2, timeout_ms=1_000)
    producer.begin()
    send(producer, topic, b"late")
    await producer.flush()
    async with asyncio.timeout(20):
        while await state_of(client, topic) == "Ongoing":
            await asyncio.sleep(0.1)
    with pytest.raises((NeedsReset, ProducerFenced)):
        await producer.commit()
    await producer.close()
    again = await open_producer(client, topic, 2)
    again.begin()
    send(again, topic, b"again")
    await again.commit()
    assert await read_all(client, topic) == [b"again"]
    await again.close()


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
async def test_a_lost_answer_to_the_end_is_settled_by_a_reset(
    bootstrap: str, client: Client, new_topic: NewTopicFixture, version: int, committed: bool
) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    async with Proxy(bootstrap) as proxy:
        options = {"connect": proxy.connect, "request_timeout_ms": 300}
        async with new_client(bootstrap, **options) as unlucky:
            producer = await open_producer(unlucky, topic, version, timeout_ms=1_500)
            producer.begin()
            send(producer, topic, b"one")
            await producer.send_offsets({tp: OffsetAndMetadata(1)}, GroupMetadata(topic))
            proxy.drop = {ApiKey.END_TXN}
            with pytest.raises(NeedsReset):
                if committed:
                    await producer.commit()
                else:
                    await producer.abort()
            assert producer.needs_reset
            assert proxy.dropped >= 1
            with pytest.raises(NeedsReset):
                await producer.commit()
            proxy.drop = set()
            await producer.reset()
            reader = Consumer(client, group_id=topic)
            outcome = (await reader.committed([tp]))[tp]
            assert outcome == (OffsetAndMetadata(1) if committed else None)
            producer.begin()
            send(producer, topic, b"two")
            await producer.commit()
            await producer.close()
    assert await read_all(client, topic) == ([b"one", b"two"] if committed else [b"two"])


async def test_a_reset_of_an_end_that_never_arrived_aborts(
    bootstrap: str, client: Client, new_topic: NewTopicFixture, version: int
) -> None:
    topic = await new_topic()
    async with Proxy(bootstrap) as proxy:
        options = {"connect": proxy.connect, "request_timeout_ms": 300}
        async with new_client(bootstrap, **options) as unlucky:
            producer = await open_producer(unlucky, topic, version, timeout_ms=1_500)
            producer.begin()
            send(producer, topic, b"one")
            await producer.flush()
            proxy.hold = {ApiKey.END_TXN}
            with pytest.raises(NeedsReset):
                await producer.commit()
            held = proxy.held
            assert held >= 1
            proxy.hold = set()
            await producer.reset()
            producer.begin()
            send(producer, topic, b"two")
            await producer.flush()
            proxy.release()
            await asyncio.sleep(0.1)
            seen = await read_all(client, topic, settled=False)
            assert seen == [], "a late EndTxn must not end this one"
            await producer.commit()
            await producer.close()
    assert await read_all(client, topic) == [b"two"]


async def test_version_2_repeats_an_end_that_was_not_answered(
    bootstrap: str, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    async with Proxy(bootstrap) as proxy:
        options = {"connect": proxy.connect, "request_timeout_ms": 300}
        async with new_client(bootstrap, **options) as unlucky:
            producer = await open_producer(unlucky, topic, 2)
            producer.begin()
            send(producer, topic, b"one")
            await producer.flush()
            proxy.drop = {ApiKey.END_TXN}
            ending = asyncio.create_task(producer.commit())
            async with asyncio.timeout(PATIENCE_S):
                while not proxy.dropped:
                    await asyncio.sleep(0.01)
            proxy.drop = set()
            await ending
            assert producer.identity.epoch == 1
            await producer.close()
    assert await read_all(client, topic) == [b"one"]


async def test_a_produce_that_was_not_answered_is_written_once(
    bootstrap: str, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    async with Proxy(bootstrap) as proxy:
        options = {"connect": proxy.connect, "request_timeout_ms": 300}
        async with new_client(bootstrap, **options) as unlucky:
            producer = Producer(unlucky)
            await producer.produce(topic, 0, [None], [b"0"], timestamps=1)
            proxy.drop = {ApiKey.PRODUCE}
            sending = asyncio.create_task(
                producer.produce(topic, 0, [None, None], [b"1", b"2"], timestamps=1)
            )
            async with asyncio.timeout(PATIENCE_S):
                while not proxy.dropped:
                    await asyncio.sleep(0.01)
            proxy.drop = set()
            assert await sending == 1
    assert await read_all(client, topic) == [b"0", b"1", b"2"]
