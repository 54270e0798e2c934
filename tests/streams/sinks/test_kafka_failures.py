"""Workers that write to another cluster: whatever dies or is lost on the way, every record is there
once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import Client, TopicPartition
from onceward.streams import App, Stream
from onceward.streams.sinks import KafkaSink, SinkFenced
from onceward.streams.testing import LocalCluster
from onceward.streams.testing.proxy import FaultProxy, Frame
from onceward.streams.testing.unsynced import UnsyncedFileSystem

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders
from .kafka_driven import Driven, create, seen, values

COUNT = 30


@asynccontextmanager
async def broker(tmp_path: Path, port: int = 0) -> AsyncIterator[Broker]:
    files = UnsyncedFileSystem()
    async with Broker(tmp_path / "target", f"127.0.0.1:{port}", filesystem=files) as running:
        yield running


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[str]:
    async with broker(tmp_path) as running:
        yield running.bootstrap


@pytest.fixture
async def proxy(target: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(target) as made:
        yield made


def etl(tmp_path: Path, target: str, **options: Any) -> App:
    """Orders to the topic ``out`` over there."""
    app = make_app(tmp_path)
    options = {"topic": "out", "partitions": 2, "timeout": 3.0, **options}
    sink = KafkaSink(target, **options)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[sink])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


async def assert_each_once(target: str, count: int = COUNT, topic: str = "out") -> None:
    found = Counter(json.loads(value or b"null")["id"] for value in await values(target, topic))
    assert found == Counter(range(count))


async def run_to_end(app: App, cluster: FakeCluster) -> None:
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=20)


class Aim:
    """Waits for frame number ``number`` of an API in one direction."""

    def __init__(self, api: str, *, answer: bool, number: int = 1) -> None:
        self.api = api
        self.answer = answer
        self.left = number
        self.hit = asyncio.Event()

    def is_hit(self, frame: Frame) -> bool:
        if frame.api == self.api and frame.is_request is not self.answer:
            self.left -= 1
            if self.left == 0:
                self.hit.set()
                return True
        return False

    async def reset(self, frame: Frame) -> bool:
        return not self.is_hit(frame)

    async def hold(self, frame: Frame) -> bool:
        if self.is_hit(frame):
            await asyncio.Event().wait()
        return True


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of the transactions the cluster offers: 2 has the epochs of KIP-890."""
    monkeypatch.setattr(Client, "transaction_version", request.param)
    return int(request.param)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_the_end_of_a_transaction_may_get_lost_or_its_answer(
    tmp_path: Path, target: str, proxy: FaultProxy, answer: bool, number: int
) -> None:
    """Claims and commits."""
    aim = Aim("END_TXN", answer=answer, number=number)
    proxy.intercept = aim.reset
    address = await proxy.listen("worker")
    cluster = make_cluster(COUNT, batch_records=4)
    await run_to_end(etl(tmp_path, address), cluster)
    assert aim.hit.is_set()
    await assert_each_once(target)


STEPS = [("INIT_PRODUCER_ID", 1), ("INIT_PRODUCER_ID", 2), ("FETCH", 1)]
STEPS += [(api, number) for api in ("PRODUCE", "END_TXN") for number in (1, 2, 3, 4)]
"""Two tasks, and each claims its partition before it commits."""


@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize(("api", "number"), STEPS)
async def test_a_worker_may_die_at_every_step(
    tmp_path: Path, target: str, proxy: FaultProxy, api: str, number: int, answer: bool
) -> None:
    """Before the cluster hears of it, and when it has acted and the worker has not heard."""
    aim = Aim(api, answer=answer, number=number)
    proxy.intercept = aim.hold
    address = await proxy.listen("worker")
    await create(target, "out", 2)
    await create(target, "app-sink-positions", cleanup_policy="compact")
    cluster = make_cluster(COUNT, batch_records=4)
    first_app = etl(tmp_path, address)
    async with worker(first_app, cluster) as first:
        async with asyncio.timeout(10):
            await aim.hit.wait()
        await kill(first)
        (sink,) = first_app.sinks
        assert isinstance(sink, KafkaSink)
        sink._writers.clear()  # a process that died aborts nothing
        await sink.close()
    await run_to_end(etl(tmp_path, target), cluster)
    await assert_each_once(target)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("api", ["PRODUCE", "END_TXN"])
async def test_what_a_zombie_has_on_its_way_is_not_seen(
    target: str, proxy: FaultProxy, api: str
) -> None:
    """It was stopped in the middle of a commit, and goes on when its heir is done."""
    address = await proxy.listen("zombie")
    async with Driven(KafkaSink(address, topic="out", partitions=1)) as zombie:
        await zombie.write({"id": 0})
        aim, goes_on = Aim(api, answer=False), asyncio.Event()

        async def hold(frame: Frame) -> bool:
            if aim.is_hit(frame):
                await goes_on.wait()
            return True

        proxy.intercept = hold
        writing = asyncio.ensure_future(zombie.write({"id": 1}, {"id": 2}))
        await aim.hit.wait()
        async with Driven(KafkaSink(target, topic="out")) as heir:
            assert heir.at() == 1
            await heir.write({"id": 1})
            goes_on.set()
            with pytest.raises(SinkFenced):
                await writing
            await heir.write({"id": 2})
            await heir.take_over()
            assert heir.at() == 3
    await assert_each_once(target, 3)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_other_cluster_has_it_and_this_one_not_yet(
    tmp_path: Path, target: str, when: str
) -> None:
    cluster = make_cluster(COUNT)
    cluster.injector = fail_once("commit", when)
    async with worker(etl(tmp_path, target), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    await run_to_end(etl(tmp_path, target), cluster)
    await assert_each_once(target)


async def test_a_commit_that_fails_here_is_repeated_without_the_records_there(
    tmp_path: Path, target: str
) -> None:
    cluster = make_cluster(COUNT)
    cluster.injector = fail_once("commit", "before")
    await run_to_end(etl(tmp_path, target), cluster)
    await assert_each_once(target)


async def test_a_broker_that_goes_away_and_comes_back_is_waited_for(tmp_path: Path) -> None:
    cluster = make_cluster(10)
    async with broker(tmp_path) as running:
        port = int(running.bootstrap.rpartition(":")[2])
        async with worker(etl(tmp_path, running.bootstrap), cluster) as one:
            await until(is_done(cluster), one)
            await running.stop()
            put_orders(cluster, 20, start=10)
            await asyncio.sleep(0.1)
            assert not is_done(cluster)()
            async with broker(tmp_path, port) as again:
                await until(is_done(cluster), one, timeout=20)
                await assert_each_once(again.bootstrap)


async def test_a_broker_that_is_not_there_yet_is_waited_for(tmp_path: Path, target: str) -> None:
    cluster = make_cluster(10)
    async with FaultProxy(target) as proxy:
        address = await proxy.listen("worker")
        proxy.partition("worker")
        async with worker(etl(tmp_path, address, timeout=0.5), cluster) as one:
            await asyncio.sleep(0.1)
            proxy.heal()
            await until(is_done(cluster), one, timeout=20)
    await assert_each_once(target, 10)


async def test_what_the_cluster_does_not_take_is_dead_lettered_once(
    tmp_path: Path, target: str
) -> None:
    """Also after a crash, which loses the transaction that would have held the dead letter. A row
    of such a size is not in the dead letter again."""
    await create(target, "out", 2, max_message_bytes="400000")
    cluster = make_cluster(20)
    cluster.injector = fail_once("commit", "before")
    app = make_app(tmp_path)
    sink = KafkaSink(target, topic="out", on_error="dead_letter", name="other")

    @app.agent(app.topic("orders", value_type=Order, partitions=2))
    async def etl(stream: Stream[Order]) -> None:
        async for order in stream:
            blob = "x" * (500_000 if order.id == 7 else 1)
            await sink.write({"id": order.id, "blob": blob})

    await run_to_end(app, cluster)
    (letter,) = cluster.read("app-dead-letter")
    headers = dict(letter.headers)
    assert headers["onceward-sink"] == b"other"
    assert b"the limit is 400000" in (headers["onceward-error"] or b"")
    assert "onceward-row" not in headers
    found = {json.loads(value or b"")["id"] for value in await values(target, "out")}
    assert found == set(range(20)) - {7}


async def test_the_other_cluster_may_be_the_same_one(tmp_path: Path) -> None:
    app = App("same", store="memory://", datadir=str(tmp_path))
    orders = app.topic("orders", key_type=str, value_type=Order, partitions=2)
    async with LocalCluster() as cluster:
        sink = KafkaSink(cluster.bootstrap, topic="out", partitions=2)

        @app.agent(orders, sink=[sink])
        async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
            async for order in stream:
                yield order

        async with LocalCluster(app) as source:
            for number in range(20):
                await source.send("orders", f"k{number}", Order(id=number, amount=0))
            await source.wait_until_processed()
        await assert_each_once(cluster.bootstrap, 20)
        assert {each.key for each in await seen(cluster.bootstrap, "out")} == {
            b"k%d" % number for number in range(20)
        }
        positions = await sink.positions("same")
    assert set(positions) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert sum(position.effects for position in positions.values()) == 20
