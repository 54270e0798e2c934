"""The PostgreSQL sink when connections, servers and workers fail: every row once, nothing hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import App, Stream
from onceward.streams.sinks import PostgresSink, SinkFenced, SinkUnavailable
from onceward.streams.sinks.positions import Claim

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .database_proxy import DatabaseProxy, proxied
from .driven import Driven, driven
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders
from .postgres_server import Schema
from .test_refused import letters


def numbers(postgres: Schema, column: str = "x") -> list[int]:
    return [row[0] for row in postgres.query(f"SELECT {column} FROM t ORDER BY 1")]


def through(proxy: DatabaseProxy, postgres: Schema) -> str:
    return postgres.dsn(host=proxy.folder)


@pytest.fixture
def table(postgres: Schema) -> Schema:
    postgres.query("CREATE TABLE t (x int)")
    return postgres


# ownership


async def test_the_former_owner_is_fenced_and_writes_nothing(table: Schema) -> None:
    first = await driven(PostgresSink(table.dsn(), table="t"))
    await first.write({"x": 1})
    second = await driven(PostgresSink(table.dsn(), table="t"))
    assert second.claim == Claim(1, 2)
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"x": 2})
    await second.write({"x": 3})
    assert numbers(table) == [1, 3]
    await first.sink.close()
    await second.sink.close()


async def test_the_session_of_a_former_owner_that_is_stuck_in_a_transaction_is_ended(
    table: Schema,
) -> None:
    first = await driven(PostgresSink(table.dsn(), table="t"))
    await first.write({"x": 1})
    stuck = psycopg.connect(table.dsn())  # as that worker, stopped between two statements
    stuck.execute("UPDATE onceward_positions SET next_offset = 2")
    stuck.execute("INSERT INTO t VALUES (99)")
    began = time.monotonic()
    second = await driven(PostgresSink(table.dsn(), table="t", lock_timeout=0.2))
    assert time.monotonic() - began < 5
    assert second.claim == Claim(1, 2)
    await second.write({"x": 2})
    with pytest.raises(psycopg.OperationalError):
        stuck.execute("COMMIT")
    stuck.close()
    with pytest.raises(SinkFenced):
        await first.write({"x": 3})
    assert numbers(table) == [1, 2]
    await first.sink.close()
    await second.sink.close()


async def test_a_stuck_session_that_may_not_be_ended_is_waited_for(table: Schema) -> None:
    first = await driven(PostgresSink(table.dsn(), table="t"))
    role = f"other_{table.name}"
    table.query(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {table.name} TO {role}")
    table.query(f"GRANT ALL ON ALL TABLES IN SCHEMA {table.name} TO {role}")
    second = PostgresSink(table.dsn(user=role), table="t", lock_timeout=0.2)
    await second.start()
    with psycopg.connect(table.dsn()) as stuck:
        stuck.execute("UPDATE onceward_positions SET next_offset = 0")
        with pytest.raises(SinkUnavailable, match="owner of orders-0 is stuck in a transaction"):
            await Driven(second).take_over()
    await Driven(second).take_over()
    await first.sink.close()
    await second.close()


async def test_workers_that_start_at_once_make_one_table_and_take_over_one_after_another(
    postgres: Schema,
) -> None:
    def new() -> PostgresSink:
        return PostgresSink(postgres.dsn(), table="t", value_type=Order, create=True)

    async def start(number: int) -> Driven[PostgresSink]:
        made = Driven(new(), TopicPartition("orders", number % 2))
        await made.sink.start()
        for _ in range(20):
            try:
                await made.take_over()
            except SinkUnavailable:
                continue
            break
        return made

    started = await asyncio.gather(*(start(number) for number in range(6)))
    assert sorted(one.claim.epoch for one in started) == [1, 1, 2, 2, 3, 3]
    for one in started:
        await one.sink.close()


async def test_a_commit_is_never_left_to_a_later_sync(table: Schema) -> None:
    for given, expected in (("off", "on"), ("on", "on"), ("local", "local")):
        dsn = f"{table.dsn()}%20-csynchronous_commit%3D{given}"
        one = await driven(PostgresSink(dsn, table="t"))
        assert one.sink.execute("SHOW synchronous_commit").fetchone() == (expected,)
        await one.sink.close()


# connections


async def test_a_session_ended_by_an_administrator_is_unavailable_and_comes_back(
    table: Schema,
) -> None:
    one = await driven(PostgresSink(table.dsn(), table="t"))
    await one.write({"x": 1})
    table.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
        "onceward t",
    )
    with pytest.raises(SinkUnavailable, match=r"sink 't' .*(AdminShutdown|OperationalError)"):
        await one.write({"x": 2})
    await one.take_over()
    await one.write({"x": 2})
    await one.sink.close()
    assert numbers(table) == [1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_in_mid_commit_leaves_the_position_to_tell(
    table: Schema, when: str
) -> None:
    async with proxied(table.server) as proxy:
        one = await driven(PostgresSink(through(proxy, table), table="t"))
        await one.write({"x": 1})
        proxy.cut = (1, when)
        with pytest.raises(SinkUnavailable, match="OperationalError: "):
            await one.write({"x": 2})
        await one.take_over()
        assert one.claim.next_offset == (1 if when == "before" else 2)
        assert numbers(table) == ([1] if when == "before" else [1, 2])
        await one.sink.close()


async def test_a_server_that_does_not_answer_is_given_up_and_the_loop_goes_on(
    table: Schema,
) -> None:
    async with proxied(table.server) as proxy:
        one = await driven(PostgresSink(through(proxy, table), table="t"))
        one.sink.timeout = 0.2
        proxy.hangs = True
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        counting = asyncio.create_task(count())
        with pytest.raises(SinkUnavailable, match=r"did not answer within 0\.2 s"):
            await one.write({"x": 1})
        counting.cancel()
        assert turns > 5
        one.sink.timeout = 10
        proxy.hangs = False
        await one.take_over()
        await one.write({"x": 1})
        await one.sink.close()
    assert numbers(table) == [1]


# whole workers


def rows_app(tmp_path: Path, dsn: str, **options: Any) -> App:
    app = make_app(tmp_path, **options)
    rows = PostgresSink(dsn, table="t", value_type=Order, create=True, lock_timeout=0.3)
    totals = PostgresSink(
        dsn, table="totals", key="id", value_type=Order, create=True, lock_timeout=0.3
    )
    copies = app.topic("copies", value_type=Order)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            await copies.send(value=order)
            await totals.write({"id": order.id % 7, "amount": order.id})
            yield order

    return app


def assert_exact(postgres: Schema, cluster: FakeCluster, count: int) -> None:
    assert numbers(postgres, "id") == list(range(count))
    assert len(cluster.values("copies")) == count
    for key, amount in postgres.query("SELECT id, amount FROM totals"):
        assert amount in {max(n for n in range(count) if n % 14 == half) for half in (key, key + 7)}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_rows(
    tmp_path: Path, postgres: Schema, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path, postgres.dsn()), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(rows_app(tmp_path, postgres.dsn()), cluster) as second:
        put_orders(cluster, 10, start=30)
        await until(is_done(cluster), second, timeout=10)
    assert_exact(postgres, cluster, 40)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(1, 7))
async def test_connections_lost_at_any_commit_lose_and_repeat_nothing(
    tmp_path: Path, postgres: Schema, which: int, when: str
) -> None:
    cluster = make_cluster(20)
    async with proxied(postgres.server) as proxy:
        app = rows_app(tmp_path, through(proxy, postgres))
        async with worker(app, cluster) as running:
            await until(is_done(cluster), running, timeout=10)
            proxy.cut = (which, when)
            for start in range(20, 60, 5):
                put_orders(cluster, 5, start=start)
                await until(is_done(cluster), running, timeout=10)
        assert proxy.cuts == 1
    assert_exact(postgres, cluster, 60)


async def test_two_workers_share_the_database(tmp_path: Path, postgres: Schema) -> None:
    cluster = make_cluster(40)
    async with (
        worker(rows_app(tmp_path, postgres.dsn()), cluster) as first,
        worker(rows_app(tmp_path, postgres.dsn()), cluster) as second,
    ):
        await until(is_done(cluster), first, second, timeout=10)
        put_orders(cluster, 40, start=40)
        await until(is_done(cluster), first, second, timeout=10)
    assert_exact(postgres, cluster, 80)


async def test_a_server_killed_and_started_again_holds_the_worker_up_and_loses_nothing(
    tmp_path: Path, postgres: Schema
) -> None:
    cluster = make_cluster(20)
    async with worker(rows_app(tmp_path, postgres.dsn()), cluster) as running:
        await until(is_done(cluster), running, timeout=10)
        postgres.close()
        for start in (20, 40):
            postgres.server.kill()
            put_orders(cluster, 20, start=start)
            await asyncio.sleep(0.2)
            assert not is_done(cluster)()
            postgres.server.start()
            await until(is_done(cluster), running, timeout=20)
    assert_exact(postgres, cluster, 60)


async def test_a_constraint_sends_the_record_to_the_dead_letter_topic(
    tmp_path: Path, postgres: Schema
) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 1)
    for number in (1, 2, 2, 3):
        cluster.put("orders", b'{"id":%d,"amount":0}' % number)
    postgres.query("CREATE TABLE t (id integer PRIMARY KEY, amount integer)")
    cluster.injector = fail_once("commit", "before")
    app = rows_app(tmp_path, postgres.dsn(), on_agent_error="dead_letter")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=10)
    assert numbers(postgres, "id") == [1, 2, 3]
    ((value, headers),) = letters(cluster)
    assert value == b'{"id":2,"amount":0}'
    assert (headers["onceward-error"] or b"").startswith(b"UniqueViolation: duplicate key value")


async def test_a_worker_starts_before_its_database_does(tmp_path: Path, postgres: Schema) -> None:
    cluster = make_cluster(20)
    async with proxied(postgres.server) as proxy:
        socket = proxy.folder / postgres.server.socket.name
        away = socket.rename(proxy.folder / "away")
        async with worker(rows_app(tmp_path, through(proxy, postgres)), cluster) as running:
            await asyncio.sleep(0.1)
            assert not is_done(cluster)()
            away.rename(socket)
            await until(is_done(cluster), running, timeout=10)
    assert_exact(postgres, cluster, 20)
