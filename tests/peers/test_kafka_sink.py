"""The Kafka sink with Apache Kafka as its target.

pytest -m peers tests/peers/test_kafka_sink.py
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward.broker.client import Admin, Client, TopicPartition
from onceward.streams import App, Stream
from onceward.streams.sinks import KafkaSink, SinkError, SinkFenced
from onceward.streams.testing.proxy import FaultProxy, Frame

from ..streams.sinks.etl import Order, fail_once, is_done, kill, make_cluster
from ..streams.sinks.kafka_driven import Driven, create, new_client, seen, values
from ..streams.workers import make_app, until, worker
from .kafka import JavaKafka

pytestmark = pytest.mark.peers

COUNT = 200


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"sink-{time.time_ns()}"


def etl(tmp_path: Path, bootstrap: str, topic: str) -> App:
    app = make_app(tmp_path, id=f"app-{topic}", commit_interval=0.1)
    sink = KafkaSink(bootstrap, topic=topic, partitions=3, compression="gzip")

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[sink])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


@pytest.mark.parametrize("when", ["before", "after"])
async def test_every_record_is_there_once_after_a_worker_died(
    java_kafka: JavaKafka, tmp_path: Path, topic: str, when: str
) -> None:
    target, cluster = java_kafka.bootstrap, make_cluster(COUNT, batch_records=20)
    cluster.injector = fail_once("commit", when)
    async with worker(etl(tmp_path, target, topic), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first, timeout=30)
        await kill(first)
    app = etl(tmp_path, target, topic)
    async with worker(app, cluster) as second:
        await until(is_done(cluster, app=app.conf.id), second, timeout=30)
    found = Counter(json.loads(value or b"")["id"] for value in await values(target, topic))
    assert found == Counter(range(COUNT))
    (sink,) = app.sinks
    assert isinstance(sink, KafkaSink)
    positions = await sink.positions(app.conf.id)
    half = COUNT // 2
    assert {tp: (at.next_offset, at.effects) for tp, at in positions.items()} == {
        TopicPartition("orders", n): (half, half) for n in range(2)
    }


@pytest.mark.parametrize("version", [1, 2])
async def test_what_a_zombie_has_on_its_way_is_not_seen(
    java_kafka: JavaKafka, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "transaction_version", version)
    async with FaultProxy(java_kafka.bootstrap) as proxy:
        address = await proxy.listen("zombie")
        held, goes_on = asyncio.Event(), asyncio.Event()
        sink = KafkaSink(address, topic=topic, partitions=1)
        async with Driven(sink) as zombie:
            await zombie.write({"id": 0})

            async def hold(frame: Frame) -> bool:
                if frame.api == "END_TXN" and frame.is_request:
                    held.set()
                    await goes_on.wait()
                return True

            proxy.intercept = hold
            writing = asyncio.ensure_future(zombie.write({"id": 1}))
            await held.wait()
            async with Driven(KafkaSink(java_kafka.bootstrap, topic=topic)) as heir:
                assert heir.at() == 1
                await heir.write({"id": 1}, {"id": 2})
                goes_on.set()
                with pytest.raises(SinkFenced):
                    await writing
                await heir.write(None)
    assert await values(java_kafka.bootstrap, topic) == [
        b'{"id":0}', b'{"id":1}', b'{"id":2}', None
    ]  # fmt: skip


async def test_what_it_refuses_is_named_and_the_rest_lands(
    java_kafka: JavaKafka, topic: str
) -> None:
    target = java_kafka.bootstrap
    await create(target, topic, max_message_bytes="2000", cleanup_policy="compact")
    async with Driven(KafkaSink(target, topic=topic)) as owner:
        with pytest.raises(SinkError, match="the limit is 2000"):
            await owner.write(b"a", b"x" * 3000)
        await owner.take_over()
        batch = await owner.write(
            b"a", b"x" * 3000, *[b"b" * 100] * 30, dead_letters=True, headers=(("h", b"1"),)
        )
        assert [refusal.at for refusal in batch.refused] == [1]
        with pytest.raises(SinkError, match="INVALID_TIMESTAMP"):
            await owner.write(b"late", timestamp=int(time.time() * 1000) + 10**8)
        await owner.take_over()
        batch = await owner.write(
            b"late", timestamp=int(time.time() * 1000) + 10**8, dead_letters=True
        )
        assert [refusal.at for refusal in batch.refused] == [0]
        assert owner.at() == 33
    found = await seen(target, topic)
    assert [each.value for each in found] == [b"a", *[b"b" * 100] * 30]
    assert {each.headers for each in found} == {(("h", b"1"),)}


async def test_it_keeps_the_positions_in_a_compacted_topic(
    java_kafka: JavaKafka, topic: str
) -> None:
    async with Driven(KafkaSink(java_kafka.bootstrap, topic=topic, partitions=1)):
        pass
    async with new_client(java_kafka.bootstrap) as client:
        configs = await Admin(client).describe_configs("app-sink-positions")
    assert configs["cleanup.policy"].value == "compact"
    assert configs["segment.bytes"].value == str(8 * 1024 * 1024)
