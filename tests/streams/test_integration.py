"""Apps on the real broker and client, in one process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import NewTopic, TopicPartition
from onceward.streams import App, Record, Stream
from onceward.streams.engine.engine import Engine
from onceward.streams.engine.kafka import KafkaCluster
from onceward.streams.engine.slots import take_slot
from onceward.streams.engine.worker import connect, make_engine

WORDS = [f"w{n % 7}" for n in range(300)]


class Order(Record):
    id: int
    amount: int


class Cluster:
    """A broker and a client to look at it with."""

    def __init__(self, kafka: KafkaCluster, bootstrap: str) -> None:
        self.kafka = kafka
        self.bootstrap = bootstrap

    async def create(self, topic: str, partitions: int) -> None:
        await self.kafka.admin().create_topics([NewTopic(topic, partitions, 1)])

    async def put(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        producer = self.kafka.producer()
        await producer.produce(
            topic, partition, [None] * len(values), list(values), timestamps=1_700_000_000_000
        )
        await producer.close()

    async def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Everything a read_committed reader sees, partition after partition."""
        consumer = self.kafka.consumer()
        await consumer.start()
        description = (await self.kafka.admin().describe_topics([topic]))[topic]
        tps = [TopicPartition(topic, each.partition) for each in description.partitions]
        ends = await consumer.end_offsets(tps, "read_committed")
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        found: list[tuple[bytes | None, bytes | None]] = []
        while any((consumer.position(tp) or 0) < ends[tp] for tp in tps):
            for batch in await consumer.fetch(timeout_ms=200):
                found.extend(zip(batch.records.keys, batch.records.values, strict=True))
        await consumer.stop()
        return found

    async def committed(self, group: str) -> int:
        offsets = await self.kafka.admin().list_group_offsets(group)
        return sum(offset.offset for offset in offsets.values())

    async def until_committed(self, group: str, count: int, *engines: Engine) -> None:
        async with asyncio.timeout(20):
            while await self.committed(group) < count:
                await asyncio.sleep(0.02)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Broker(data_dir=str(tmp_path / "broker")) as broker:
        probe = App("probe", broker=broker.bootstrap, datadir=str(tmp_path))
        kafka = connect(probe)
        await kafka.start()
        yield Cluster(kafka, broker.bootstrap)
        await kafka.close()


@asynccontextmanager
async def worker(app: App) -> AsyncIterator[Engine]:
    slot = take_slot(app.conf.datadir, app.conf.id)
    engine = await make_engine(app, connect(app), slot)
    running = asyncio.create_task(engine.run())
    try:
        yield engine
        engine.stop()
        await running
    finally:
        running.cancel()
        await asyncio.wait([running])
        slot.release()


def count_app(cluster: Cluster, tmp_path: Path, **options: Any) -> App:
    app = App(
        "counter", broker=cluster.bootstrap, datadir=str(tmp_path / "app"), commit_interval=0.02,
        **options,
    )  # fmt: skip
    counted = app.topic("counted", key_type=str, value_type=int, partitions=2)
    counts = app.Table("counts", key_type=str, default=int)

    @app.agent(app.topic("words", value_type=str, partitions=2))
    async def count(stream: Stream[str]) -> None:
        async for word in stream:
            counts[word] += 1
            await counted.send(key=word, value=counts[word])

    return app


async def put_words(cluster: Cluster, words: list[str]) -> None:
    for partition in (0, 1):
        mine = [w.encode() for w in words if int(w[1:]) % 2 == partition]
        await cluster.put("words", mine, partition)


def expected(words: list[str]) -> Counter[tuple[bytes, bytes]]:
    totals = Counter(words)
    return Counter(
        (word.encode(), b"%d" % n) for word, total in totals.items() for n in range(1, total + 1)
    )


async def test_a_transform_reads_writes_and_commits(cluster: Cluster, tmp_path: Path) -> None:
    app = App("double", broker=cluster.bootstrap, datadir=str(tmp_path / "app"))
    doubled = app.topic("doubled", value_type=Order, partitions=3)

    @app.agent(app.topic("orders", value_type=Order, partitions=2))
    async def double(stream: Stream[Order]) -> None:
        async for order in stream:
            await doubled.send(key=str(order.id), value=Order(order.id, 2 * order.amount))

    await cluster.create("orders", 2)
    for partition in (0, 1):
        values = [b'{"id":%d,"amount":%d}' % (n, n) for n in range(partition, 200, 2)]
        await cluster.put("orders", values, partition)
    async with worker(app):
        await cluster.until_committed("double", 200)
    assert sorted(v or b"" for _, v in await cluster.read("doubled")) == sorted(
        b'{"id":%d,"amount":%d}' % (n, 2 * n) for n in range(200)
    )


@pytest.mark.parametrize("store", ["memory://", "rocksdb://"])
async def test_words_are_counted_across_a_restart(
    cluster: Cluster, tmp_path: Path, store: str
) -> None:
    await cluster.create("words", 2)
    await put_words(cluster, WORDS)
    async with worker(count_app(cluster, tmp_path, store=store)):
        await cluster.until_committed("counter", len(WORDS))
    await put_words(cluster, WORDS)
    async with worker(count_app(cluster, tmp_path, store=store)):
        await cluster.until_committed("counter", 2 * len(WORDS))
    assert Counter(await cluster.read("counted")) == expected(WORDS * 2)


async def test_workers_that_come_and_go_change_no_result(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create("words", 2)

    def has(count: int, *engines: Engine) -> Callable[[], bool]:
        return lambda: all(len(engine.tasks.running) == count for engine in engines)

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    async with worker(count_app(cluster, tmp_path)) as first:
        await put_words(cluster, WORDS)
        await until(has(2, first))
        async with worker(count_app(cluster, tmp_path)) as second:
            await put_words(cluster, WORDS)
            await until(has(1, first, second))
            await put_words(cluster, WORDS)
        await until(has(2, first))
        await cluster.until_committed("counter", 3 * len(WORDS))
    assert Counter(await cluster.read("counted")) == expected(WORDS * 3)


async def test_an_app_without_workers_can_send(cluster: Cluster, tmp_path: Path) -> None:
    app = App("client", broker=cluster.bootstrap, datadir=str(tmp_path / "app"))
    topic = app.topic("greetings", value_type=str, partitions=1)
    await topic.send(key="a", value="hello", headers={"h": b"1"})
    await app.close_client()
    assert await cluster.read("greetings") == [(b"a", b"hello")]
