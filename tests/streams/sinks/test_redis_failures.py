"""The Redis sink when connections, servers and workers fail: every effect once, nothing hangs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.streams import App, Stream
from onceward.streams.cli.main import main
from onceward.streams.errors import WorkerError
from onceward.streams.sinks import RedisSink, SinkError, SinkFenced, SinkTimeout, SinkUnavailable
from onceward.streams.sinks.positions import Claim, Start
from onceward.streams.testing import Outcome, crash_matrix, simulate

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .database_proxy import proxied
from .driven import TP, driven
from .etl import ORDERS, Order, fail_once, is_done, kill, make_cluster, put_orders
from .redis_server import REDIS_COMMIT, RedisServer
from .test_refused import letters
from .test_status import put, run_until_rows


def numbers(redis: RedisServer, key: str = "log") -> list[int]:
    return [int(fields["x"]) for _, fields in redis.client.xrange(key)]


def log(url: str, **options: Any) -> RedisSink:
    """A stream: nothing in it hides what is written twice."""
    return RedisSink(url, **{"kind": "stream", "prefix": "log", **options})


# ownership


async def test_the_former_owner_is_fenced_and_writes_nothing(redis: RedisServer) -> None:
    first = await driven(log(redis.url()))
    await first.write({"x": 1})
    second = await driven(log(redis.url()))
    assert second.claim == Claim(1, 2)
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"x": 2})
    await second.write({"x": 3})
    assert numbers(redis) == [1, 3]
    await first.sink.close()
    await second.sink.close()


async def test_a_commit_that_arrives_after_the_take_over_does_nothing(redis: RedisServer) -> None:
    """The zombie's bytes were on their way for long."""
    async with proxied(redis, REDIS_COMMIT) as slow:
        zombie = await driven(log(redis.url(host=slow.folder)))
        slow.holds.clear()
        writing = asyncio.create_task(zombie.write({"x": 1}))
        await slow.held.wait()
        heir = await driven(log(redis.url()))
        await heir.write({"x": 2})
        slow.holds.set()
        with pytest.raises(SinkFenced):
            await writing
        await zombie.sink.close()
        await heir.sink.close()
    assert numbers(redis) == [2]


async def test_the_same_commit_again_does_nothing(redis: RedisServer) -> None:
    one = await driven(log(redis.url()))
    await one.write({"x": 1})
    one.claim.next_offset = 0
    with pytest.raises(SinkFenced):
        await one.write({"x": 1})
    await one.sink.close()
    assert numbers(redis) == [1]


# connections


async def test_a_connection_closed_by_the_server_is_unavailable_and_comes_back(
    redis: RedisServer,
) -> None:
    one = await driven(log(redis.url()))
    await one.write({"x": 1})
    redis.client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(SinkUnavailable, match=r"sink 'log' .*ConnectionError"):
        await one.write({"x": 2})
    await one.take_over()
    await one.write({"x": 2})
    await one.sink.close()
    assert numbers(redis) == [1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_in_mid_commit_leaves_the_position_to_tell(
    redis: RedisServer, when: str
) -> None:
    async with proxied(redis, REDIS_COMMIT) as proxy:
        one = await driven(log(redis.url(host=proxy.folder)))
        await one.write({"x": 1})
        proxy.cut = (1, when)
        with pytest.raises(SinkUnavailable, match="ConnectionError: "):
            await one.write({"x": 2})
        await one.take_over()
        assert one.claim.next_offset == (1 if when == "before" else 2)
        assert numbers(redis) == ([1] if when == "before" else [1, 2])
        await one.sink.close()


async def test_a_server_that_does_not_answer_is_given_up_and_the_loop_goes_on(
    redis: RedisServer,
) -> None:
    async with proxied(redis, REDIS_COMMIT) as proxy:
        one = await driven(log(redis.url(host=proxy.folder)))
        one.sink.timeout = 0.2
        proxy.hangs = True
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        counting = asyncio.create_task(count())
        with pytest.raises(SinkTimeout, match=r"did not answer within 0\.2 s"):
            await one.write({"x": 1})
        counting.cancel()
        assert turns > 5
        one.sink.timeout = 10
        proxy.hangs = False
        await one.take_over()
        await one.write({"x": 1})
        await one.sink.close()
    assert numbers(redis) == [1]


# servers that lose what they have


async def test_a_server_killed_after_its_answer_has_everything(redis: RedisServer) -> None:
    one = await driven(log(redis.url()))
    for number in range(3):
        await one.write({"x": 3 * number}, {"x": 3 * number + 1}, {"x": 3 * number + 2})
        redis.kill()
        redis.start()
        with pytest.raises(SinkUnavailable):
            await one.write({"x": 99})
        await one.take_over()
        assert one.claim.next_offset == 3 * number + 3
    await one.sink.close()
    assert numbers(redis) == list(range(9))


async def test_a_file_cut_off_within_a_commit_has_nothing_of_it(redis: RedisServer) -> None:
    """As a power failure leaves it: the server wrote half of a script's effects."""
    one = await driven(log(redis.url()))
    await one.write({"x": 1}, {"x": 2})
    await one.write({"x": 3}, {"x": 4})
    redis.kill()
    (file,) = redis.folder.glob("appendonlydir/*.incr.aof")
    whole = file.read_bytes()
    assert whole.rstrip().endswith(b"EXEC")
    file.write_bytes(whole[:-60])
    redis.start()
    with pytest.raises(SinkUnavailable):
        await one.write({"x": 99})
    await one.take_over()
    assert one.claim.next_offset == 2
    assert numbers(redis) == [1, 2]
    await one.sink.close()


async def test_a_server_that_forgot_what_a_worker_knows_it_had_is_not_trusted(
    redis: RedisServer,
) -> None:
    one = await driven(log(redis.url()))
    await one.write({"x": 1}, {"x": 2})
    redis.client.flushall()
    with pytest.raises(SinkFenced):
        await one.write({"x": 3})
    with pytest.raises(
        SinkError, match="knows nothing of orders-0 any more, but had it up to offset 2"
    ):
        await one.sink.take_over("app", {TP: Start(1, 1)})
    assert redis.client.dbsize() == 0
    claims = await one.sink.take_over("app", {TP: Start(None, 0)})
    assert claims[TP] == Claim(0, 1), "nothing is committed: all is written again"
    await one.sink.close()


# whole workers


def redis_app(tmp_path: Path, url: str, **options: Any) -> App:
    app = make_app(tmp_path, **options)
    rows = RedisSink(url, kind="list", prefix="rows")
    totals = RedisSink(url, prefix="total:", key="id")
    copies = app.topic("copies", value_type=Order)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            await copies.send(value=order)
            await totals.write({"id": order.id % 7, "amount": order.id})
            yield order

    return app


def assert_exact(redis: RedisServer, cluster: FakeCluster, count: int) -> None:
    ids = Counter(json.loads(row)["id"] for row in redis.client.lrange("rows", 0, -1))
    assert ids == Counter(range(count))
    assert len(cluster.values("copies")) == count
    for key in range(7):
        amount = int(redis.client.hget(f"total:{key}", "amount"))
        assert amount in {max(n for n in range(count) if n % 14 == half) for half in (key, key + 7)}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_lists(
    tmp_path: Path, redis: RedisServer, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(redis_app(tmp_path, redis.url()), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(redis_app(tmp_path, redis.url()), cluster) as second:
        put_orders(cluster, 10, start=30)
        await until(is_done(cluster), second, timeout=10)
    assert_exact(redis, cluster, 40)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(1, 7))
async def test_connections_lost_at_any_commit_lose_and_repeat_nothing(
    tmp_path: Path, redis: RedisServer, which: int, when: str
) -> None:
    cluster = make_cluster(20)
    async with proxied(redis, REDIS_COMMIT) as proxy:
        app = redis_app(tmp_path, redis.url(host=proxy.folder))
        async with worker(app, cluster) as running:
            await until(is_done(cluster), running, timeout=10)
            proxy.cut = (which, when)
            for start in range(20, 60, 5):
                put_orders(cluster, 5, start=start)
                await until(is_done(cluster), running, timeout=10)
        assert proxy.cuts == 1
    assert_exact(redis, cluster, 60)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(1, 5))
async def test_a_worker_killed_in_mid_commit_has_a_right_heir(
    tmp_path: Path, redis: RedisServer, which: int, when: str
) -> None:
    """After which its commit may still be on its way to the server, or was never sent."""
    cluster = make_cluster(20)
    async with proxied(redis, REDIS_COMMIT) as proxy:
        proxy.cut = (which, when)
        async with worker(redis_app(tmp_path, redis.url(host=proxy.folder)), cluster) as first:
            for start in range(20, 60, 5):
                put_orders(cluster, 5, start=start)
                await until(lambda: is_done(cluster)() or proxy.cuts == 1, first, timeout=10)
                if proxy.cuts == 1:
                    break
            await kill(first)
        assert proxy.cuts == 1
    async with worker(redis_app(tmp_path, redis.url()), cluster) as second:
        put_orders(cluster, 5, start=start + 5)
        await until(is_done(cluster), second, timeout=10)
    assert_exact(redis, cluster, start + 10)


async def test_two_workers_share_the_server(tmp_path: Path, redis: RedisServer) -> None:
    cluster = make_cluster(40)
    async with (
        worker(redis_app(tmp_path, redis.url()), cluster) as first,
        worker(redis_app(tmp_path, redis.url()), cluster) as second,
    ):
        await until(is_done(cluster), first, second, timeout=10)
        put_orders(cluster, 40, start=40)
        await until(is_done(cluster), first, second, timeout=10)
    assert_exact(redis, cluster, 80)
    positions = await RedisSink(redis.url(), prefix="rows").positions("app")
    reached = {tp: (at.next_offset, at.effects) for tp, at in positions.items()}
    assert reached == dict.fromkeys(ORDERS, (40, 40))


async def test_a_server_killed_and_started_again_holds_the_worker_up_and_loses_nothing(
    tmp_path: Path, redis: RedisServer
) -> None:
    cluster = make_cluster(20)
    async with worker(redis_app(tmp_path, redis.url()), cluster) as running:
        await until(is_done(cluster), running, timeout=10)
        for start in (20, 40):
            redis.kill()
            put_orders(cluster, 20, start=start)
            await asyncio.sleep(0.2)
            assert not is_done(cluster)()
            redis.start()
            await until(is_done(cluster), running, timeout=20)
    assert_exact(redis, cluster, 60)


async def test_a_worker_starts_before_its_server_does(tmp_path: Path, redis: RedisServer) -> None:
    cluster = make_cluster(20)
    async with proxied(redis, REDIS_COMMIT) as proxy:
        away = (proxy.folder / redis.socket.name).rename(proxy.folder / "away")
        async with worker(redis_app(tmp_path, redis.url(host=proxy.folder)), cluster) as running:
            await asyncio.sleep(0.1)
            assert not is_done(cluster)()
            away.rename(proxy.folder / redis.socket.name)
            await until(is_done(cluster), running, timeout=10)
    assert_exact(redis, cluster, 20)


async def test_a_server_behind_kafkas_offsets_stops_the_worker(
    tmp_path: Path, redis: RedisServer
) -> None:
    """It lost what it had acknowledged: rows would be missing."""
    cluster = make_cluster(20)
    async with worker(redis_app(tmp_path, redis.url()), cluster) as first:
        await until(is_done(cluster), first, timeout=10)
    redis.client.hset("onceward_positions:app:rows", "orders:0", "7 1 7")
    with pytest.raises(WorkerError, match=r"has orders-0 only up to offset 7, but the group has"):
        async with worker(redis_app(tmp_path, redis.url()), cluster) as second:
            await until(lambda: False, second, timeout=5)


async def test_a_key_of_another_type_sends_the_record_to_the_dead_letter_topic(
    tmp_path: Path, redis: RedisServer
) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 1)
    for number in (1, 2, 3):
        cluster.put("orders", b'{"id":%d,"amount":0}' % number)
    redis.client.set("total:2", "text")
    cluster.injector = fail_once("commit", "before")
    app = redis_app(tmp_path, redis.url(), on_agent_error="dead_letter")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=10)
    assert redis.client.llen("rows") == 3
    assert redis.client.hgetall("total:3") == {"id": "3", "amount": "3"}
    ((value, headers),) = letters(cluster)
    assert value == b'{"id":2,"amount":0}'
    assert headers["onceward-error"] == b"key 'total:2' is a string already"
    assert headers["onceward-sink"] == b"total"


STATUS_APP = """
from onceward.streams import App, Record
from onceward.streams.sinks import RedisSink

class Order(Record):
    id: int

app = App("shop", datadir={folder!r}, store="memory://", commit_interval=0.02, broker={broker!r})
rows = RedisSink({url!r}, key="id", prefix="order:")

@app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
async def etl(stream):
    async for order in stream:
        yield order
"""


async def test_status_shows_where_it_is_with_a_real_broker(
    tmp_path: Path, redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(data_dir=str(tmp_path / "broker")) as broker:
        source = tmp_path / "redis_status_app.py"
        source.write_text(
            STATUS_APP.format(folder=str(tmp_path), broker=broker.bootstrap, url=redis.url())
        )
        target = f"{source}:app"
        await put(target, [b'{"id":%d}' % n for n in range(5)], 0)
        await run_until_rows(target, tmp_path)
        assert await asyncio.to_thread(main, ["sinks", "status", target, "--json"]) == 0
        first, _ = json.loads(capsys.readouterr().out)
        assert (first["position"], first["effects"], first["epoch"]) == (5, 5, 1)
        assert first["strength"] == "transactional"
        redis.kill()
        try:
            assert await asyncio.to_thread(main, ["sinks", "status", target]) == 1
        finally:
            redis.start()
        assert "sink 'order' (hash order:* in unix://" in capsys.readouterr().err


# without a server


def simulated_app() -> App:
    """As a simulation runs it, with a database in memory instead."""
    app = App("redis-app", commit_interval=0.05)
    log = RedisSink("redis://localhost", kind="list", prefix="log")
    state = RedisSink("redis://localhost", prefix="n:", kind="string")

    @app.agent(app.topic("numbers", value_type=int, partitions=1), sink=[log])
    async def collect(stream: Stream[int]) -> Any:
        async for number in stream:
            await state.write(None if number % 5 == 4 else number, key=number % 3)
            yield {"number": number}

    return app


INPUT = {"numbers": [(None, number) for number in range(12)]}


def check(outcome: Outcome) -> None:
    assert [row["number"] for row in outcome.sink("log")] == list(range(12))
    assert {row["key"]: row["value"] for row in outcome.sink("n")} == {1: 10, 2: 11}


def test_a_simulation_has_the_sinks_rows_without_a_server() -> None:
    simulate(simulated_app, input=INPUT, seeds=2, check=check)
    crash_matrix(simulated_app, input=INPUT, budget=1, pairs=1, check=check)


def test_a_proxy_finds_commits_by_what_they_begin_with() -> None:
    from onceward.streams.sinks import redis_script

    assert redis_script.COMMIT.encode().startswith(REDIS_COMMIT)
