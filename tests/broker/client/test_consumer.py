from __future__ import annotations

import asyncio

import pytest

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    KafkaError,
    NoOffsetForPartition,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)

from .conftest import NewTopicFixture
from .wire import PATIENCE_S, read_all


async def fill(client: Client, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    producer = Producer(client)
    values: list[bytes | None] = [b"%d" % n for n in range(first, first + count)]
    await producer.produce(topic, partition, [None] * count, values, timestamps=1)
    await producer.close()


async def take(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(values) < count:
            for batch in await consumer.fetch(timeout_ms=500):
                values += batch.records.values
    return values


async def test_records_come_back_as_they_were_sent(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    producer = Producer(client, compression="zstd")
    headers = [(("h", b"1"), ("n", None)), ()]
    producer.send_batch(topic, 0, [b"k", None], [None, b"v"], timestamps=[5, 6], headers=headers)
    (produced,) = await producer.flush()
    assert (produced.base_offset, produced.records_count) == (0, 2)
    consumer = Consumer(client)
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    async with asyncio.timeout(PATIENCE_S):
        while not (batches := await consumer.fetch(timeout_ms=500)):
            pass
    records = batches[0].records
    assert (records.keys, records.values) == ([b"k", None], [None, b"v"])
    assert (records.offsets, records.timestamps) == ([0, 1], [5, 6])
    assert records.headers is not None
    assert [tuple(each) for each in records.headers] == headers
    assert (batches[0].tp, batches[0].high_watermark, consumer.position(tp)) == (tp, 2, 2)
    await consumer.stop()


async def test_fetch_waits_for_data_and_no_longer(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    consumer = Consumer(client)
    consumer.assign([TopicPartition(topic, 0)])
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert await consumer.fetch(timeout_ms=150) == []
    assert 0.1 < loop.time() - begun < 2
    waiting = asyncio.create_task(consumer.fetch(timeout_ms=5_000))
    await asyncio.sleep(0.05)
    await fill(client, topic, 1)
    (batch,) = await waiting
    assert batch.records.values == [b"0"]
    await consumer.stop()


async def test_a_nudge_ends_the_fetch_that_waits_or_else_the_next(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    consumer = Consumer(client)
    consumer.assign([TopicPartition(topic, 0)])
    async with asyncio.timeout(PATIENCE_S):
        consumer.nudge()
        assert await consumer.fetch(timeout_ms=600_000) == []
        waiting = asyncio.create_task(consumer.fetch(timeout_ms=600_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        consumer.nudge()
        assert await waiting == []
    await consumer.stop()


async def test_seek_drops_what_was_fetched_ahead(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    await fill(client, topic, 10)
    consumer = Consumer(client)
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    assert len(await take(consumer, 10)) == 10
    await fill(client, topic, 5, first=10)
    await asyncio.sleep(0.1)
    consumer.seek(tp, 3)
    assert consumer.position(tp) == 3
    assert await take(consumer, 12) == [b"%d" % n for n in range(3, 15)]
    await consumer.stop()


async def test_a_paused_partition_is_not_returned_until_it_is_resumed(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = Consumer(client)
    consumer.assign([first, second])
    consumer.pause([first])
    await fill(client, topic, 2, partition=0)
    await fill(client, topic, 2, partition=1, first=2)
    assert await take(consumer, 2) == [b"2", b"3"]
    assert await consumer.fetch(timeout_ms=100) == []
    assert consumer.paused == {first}
    consumer.resume([first])
    assert await take(consumer, 2) == [b"0", b"1"]
    with pytest.raises(KeyError, match="not assigned"):
        consumer.pause([TopicPartition(topic, 9)])
    await consumer.stop()


async def test_without_a_committed_offset_the_reset_policy_decides(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    await fill(client, topic, 3)
    strict = Consumer(client, group_id=f"{topic}-strict", auto_offset_reset="none")
    strict.assign([tp])
    with pytest.raises(NoOffsetForPartition, match=f"no committed offset: {topic}-0"):
        await strict.fetch(timeout_ms=5_000)
    strict.seek(tp, 1)
    assert await take(strict, 2) == [b"1", b"2"]
    await strict.stop()
    late = Consumer(client, auto_offset_reset="latest")
    late.assign([tp])
    assert await late.fetch(timeout_ms=100) == []
    async with asyncio.timeout(PATIENCE_S):
        while late.position(tp) is None:
            await late.fetch(timeout_ms=10)
    assert late.position(tp) == 3
    await late.stop()


async def test_a_committed_offset_is_where_the_next_consumer_begins(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    await fill(client, topic, 5)
    consumer = Consumer(client, group_id=topic)
    consumer.assign([tp])
    assert await consumer.committed([tp]) == {tp: None}
    await consumer.commit({tp: OffsetAndMetadata(3, 0, "note")})
    assert await consumer.committed([tp]) == {tp: OffsetAndMetadata(3, 0, "note")}
    assert await take(consumer, 2) == [b"3", b"4"]
    await consumer.stop()


async def test_a_position_that_was_deleted_is_reset(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    await fill(client, topic, 5)
    assert await Admin(client).delete_records({tp: 3}) == {tp: 3}
    consumer = Consumer(client)
    consumer.assign([tp])
    consumer.seek(tp, 1)
    assert await take(consumer, 2) == [b"3", b"4"]
    await consumer.stop()
    strict = Consumer(client, auto_offset_reset="none")
    strict.assign([tp])
    strict.seek(tp, 1)
    with pytest.raises(NoOffsetForPartition, match="does not exist any more"):
        await strict.fetch(timeout_ms=5_000)
    await strict.stop()


async def test_offsets_are_found_by_time(client: Client, new_topic: NewTopicFixture) -> None:
    topic = await new_topic()
    tp = TopicPartition(topic, 0)
    producer = Producer(client)
    for time in (100, 200, 300):
        await producer.produce(topic, 0, [None], [b"x"], timestamps=time)
    consumer = Consumer(client)
    found = await consumer.offsets_for_times({tp: 150})
    assert (found[tp] is not None) and found[tp][:2] == (1, 200)
    assert await consumer.offsets_for_times({tp: 400}) == {tp: None}
    assert await consumer.beginning_offsets([tp]) == {tp: 0}
    assert await consumer.end_offsets([tp]) == {tp: 3}
    await consumer.stop()


async def test_many_partitions_and_batches_arrive_complete_and_in_order(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(5)
    producer = Producer(client, max_batch_bytes=2_000)
    expected: list[bytes | None] = [b"%d" % n for n in range(1_000)]
    for partition in range(5):
        producer.send_batch(topic, partition, [None] * 1_000, expected, timestamps=1)
    produced = await producer.flush()
    assert sum(p.records_count for p in produced) == 5_000
    assert len(produced) > 25, "batches are cut, so that requests are pipelined"
    for partition in range(5):
        assert await read_all(client, topic, [partition]) == expected


async def test_subscribing_needs_a_group_and_excludes_assigning(client: Client) -> None:
    with pytest.raises(ValueError, match="group_id"):
        Consumer(client).subscribe(["t"])
    consumer = Consumer(client, group_id="g")
    consumer.assign([TopicPartition("t", 0)])
    with pytest.raises(ValueError, match="not both"):
        consumer.subscribe(["t"])
    await consumer.stop()
    with pytest.raises(ValueError, match="stopped"):
        await consumer.fetch(timeout_ms=0)


async def test_a_batch_that_does_not_fit_the_topic_is_refused(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(max_message_bytes="500")
    producer = Producer(client)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        await producer.produce(topic, 0, [None], [b"x" * 1000], timestamps=1)
    assert await producer.produce(topic, 0, [None], [b"small"], timestamps=1) == 0
