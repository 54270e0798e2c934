"""The driver's cluster in memory: what a transaction is, and where markers are."""

from __future__ import annotations

import pytest

from onceward.broker.client import (
    FetchedBatch,
    GroupMetadata,
    KafkaError,
    OffsetAndMetadata,
    TopicPartition,
)
from onceward.streams.testing.memory import (
    MemoryCluster,
    MemoryConsumer,
    MemoryKafka,
    MemoryProducer,
)

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create("t", 1)
    return cluster


def kafka(cluster: MemoryCluster) -> MemoryKafka:
    return MemoryKafka(cluster, lambda: 0)


def put(cluster: MemoryCluster, *values: bytes) -> None:
    cluster.append(TP, [None] * len(values), list(values), [0] * len(values))


async def transaction(cluster: MemoryCluster, *values: bytes) -> MemoryProducer:
    producer: MemoryProducer = kafka(cluster).producer(transactional_id="x")
    await producer.init_transactions()
    producer.begin()
    producer.send_batch("t", 0, [None] * len(values), list(values), timestamps=[0] * len(values))
    return producer


def reader(cluster: MemoryCluster, isolation: str = "read_committed") -> MemoryConsumer:
    consumer: MemoryConsumer = kafka(cluster).consumer(isolation=isolation)
    consumer.assign([TP])
    consumer.seek(TP, 0)
    return consumer


def seen(batches: list[FetchedBatch]) -> list[tuple[bytes | None, int]]:
    return [
        pair
        for batch in batches
        for pair in zip(batch.records.values, batch.records.offsets, strict=True)
    ]


async def test_a_transaction_is_seen_when_it_is_committed(cluster: MemoryCluster) -> None:
    put(cluster, b"a")
    producer = await transaction(cluster, b"b", b"c")
    put(cluster, b"d")  # behind an open transaction: not stable yet
    consumer = reader(cluster)
    assert seen(await consumer.fetch(timeout_ms=0)) == [(b"a", 0)]
    more = [consumer.has_more]
    await producer.commit()
    assert [*more, consumer.has_more] == [False, True]
    batches = await consumer.fetch(timeout_ms=0)
    assert seen(batches) == [(b"b", 1), (b"c", 2), (b"d", 3)]
    assert consumer.position(TP) == 5  # beyond the marker
    assert [batch.values for _, batch in cluster.visible("t")] == [[b"a"], [b"b", b"c"], [b"d"]]


async def test_an_aborted_transaction_is_passed_over(cluster: MemoryCluster) -> None:
    producer = await transaction(cluster, b"a")
    await producer.abort()
    consumer = reader(cluster)
    (batch,) = await consumer.fetch(timeout_ms=0)
    assert (len(batch.records), batch.records.next_offset) == (0, 2)
    assert list(cluster.visible("t")) == []
    uncommitted = reader(cluster, "read_uncommitted")
    assert seen(await uncommitted.fetch(timeout_ms=0)) == [(b"a", 0)]


async def test_a_new_producer_aborts_what_the_old_one_left_open(cluster: MemoryCluster) -> None:
    await transaction(cluster, b"a")
    await kafka(cluster).producer(transactional_id="x").init_transactions()
    assert cluster.log(TP).stable_end == 2
    assert list(cluster.visible("t")) == []


async def test_offsets_are_committed_with_their_transaction(cluster: MemoryCluster) -> None:
    consumer: MemoryConsumer = kafka(cluster).consumer(group_id="g")
    for commit in (False, True):
        producer = await transaction(cluster, b"a")
        offsets = {TP: OffsetAndMetadata(7)}
        await producer.send_offsets(offsets, GroupMetadata("g", 1, "m", None))
        assert (await consumer.committed([TP]))[TP] is None
        await (producer.commit() if commit else producer.abort())
    assert (await consumer.committed([TP]))[TP] == OffsetAndMetadata(7)


async def test_reading_starts_within_a_batch(cluster: MemoryCluster) -> None:
    put(cluster, b"a", b"b", b"c")
    consumer = reader(cluster)
    consumer.seek(TP, 1)
    assert seen(await consumer.fetch(timeout_ms=0)) == [(b"b", 1), (b"c", 2)]
    consumer.seek(TP, 0)
    consumer.pause([TP])
    assert await consumer.fetch(timeout_ms=0) == []
    assert consumer.has_more


def test_a_partition_that_does_not_exist_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(KafkaError, match="there is no t-1"):
        cluster.append(TopicPartition("t", 1), [], [], [])
