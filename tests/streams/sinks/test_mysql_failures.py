"""The MySQL sink when connections, servers and workers fail: every row once, nothing hangs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from onceward.broker import Broker
from onceward.broker.client import TopicPartition
from onceward.streams import App, Stream
from onceward.streams.cli.main import main
from onceward.streams.sinks import MySqlSink, SinkError, SinkFenced, SinkUnavailable
from onceward.streams.sinks.errors import SinkTimeout
from onceward.streams.sinks.positions import Claim, Position, Start

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .database_proxy import DatabaseProxy, proxied
from .driven import Driven, driven
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders
from .mysql_server import Database
from .test_refused import letters
from .test_status import put, run_until_rows

COMMIT = b"\x03COMMIT"
"""A packet with this statement."""


def numbers(mysql: Database, column: str = "x") -> list[int]:
    return [row[0] for row in mysql.query(f"SELECT {column} FROM t ORDER BY 1")]


def through(proxy: DatabaseProxy, mysql: Database) -> str:
    return mysql.dsn(host=proxy.folder)


@pytest.fixture
def table(mysql: Database) -> Database:
    mysql.query("CREATE TABLE t (x int)")
    return mysql


# ownership


async def test_the_former_owner_is_fenced_and_writes_nothing(table: Database) -> None:
    first = await driven(MySqlSink(table.dsn(), table="t"))
    await first.write({"x": 1})
    second = await driven(MySqlSink(table.dsn(), table="t"))
    assert second.claim == Claim(1, 2)
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"x": 2})
    await second.write({"x": 3})
    assert numbers(table) == [1, 3]
    await first.sink.close()
    await second.sink.close()


async def test_a_commit_without_effects_moves_nothing_and_is_no_loss(table: Database) -> None:
    """MySQL counts rows that change, unless it is told to count those it finds."""
    one = await driven(MySqlSink(table.dsn(), table="t"))
    await one.write()
    await one.write()
    assert await one.sink.positions("app") == {one.tp: Position(0, 1, 0)}
    await one.sink.close()


def stuck(sink: MySqlSink, *statements: str) -> None:
    """As a worker that is stopped in the middle of a transaction."""
    sink.begin()
    for statement in statements:
        sink.execute(statement)


async def test_the_session_of_a_former_owner_that_is_stuck_in_a_transaction_is_ended(
    table: Database,
) -> None:
    first = await driven(MySqlSink(table.dsn(), table="t"))
    await first.write({"x": 1})
    stuck(first.sink, "UPDATE onceward_positions SET next_offset = 2", "INSERT INTO t VALUES (99)")
    began = time.monotonic()
    second = await driven(MySqlSink(table.dsn(), table="t", lock_timeout=0.2))
    assert time.monotonic() - began < 5
    assert second.claim == Claim(1, 2)
    await second.write({"x": 2})
    with pytest.raises(pymysql.OperationalError):
        first.sink.execute("COMMIT")
    first.sink.connection.cut()
    with pytest.raises(SinkUnavailable):
        await first.write({"x": 3})
    with pytest.raises(SinkFenced):
        await first.write({"x": 3})
    assert numbers(table) == [1, 2]
    await first.sink.close()
    await second.sink.close()


async def test_the_session_of_a_worker_that_is_stuck_in_taking_over_is_ended(
    table: Database,
) -> None:
    first = await driven(MySqlSink(table.dsn(), table="t"))
    await first.write({"x": 1})
    second = MySqlSink(table.dsn(), table="t")
    await second.start()
    second.begin()
    positions = second._positions("app")
    positions.take_over(second.execute, first.tp, Start(None, 0))
    third = await driven(MySqlSink(table.dsn(), table="t", lock_timeout=0.2))
    assert third.claim == Claim(1, 2)
    assert first.sink.execute("SELECT 1").fetchone() == (1,), "the owner before is left alone"
    with pytest.raises(pymysql.OperationalError):
        second.execute("COMMIT")
    for sink in (first.sink, second, third.sink):
        await sink.close()


async def test_a_stuck_session_that_may_not_be_ended_is_waited_for(table: Database) -> None:
    first = await driven(MySqlSink(table.dsn(), table="t"))
    user = f"other_{table.name}"
    table.query(f"CREATE USER {user}@localhost")
    table.query(f"GRANT ALL ON {table.name}.* TO {user}@localhost")
    second = MySqlSink(table.dsn(user=user), table="t", lock_timeout=0.2)
    await second.start()
    stuck(first.sink, "UPDATE onceward_positions SET next_offset = 0")
    with pytest.raises(SinkUnavailable, match="owner of orders-0 is stuck in a transaction"):
        await Driven(second).take_over()
    first.sink.execute("ROLLBACK")
    await Driven(second).take_over()
    await first.sink.close()
    await second.close()


async def test_workers_that_start_at_once_make_one_table_and_take_over_one_after_another(
    mysql: Database,
) -> None:
    def new() -> MySqlSink:
        return MySqlSink(mysql.dsn(), table="t", value_type=Order, create=True)

    async def start(number: int) -> Driven[MySqlSink]:
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


async def test_two_that_take_over_a_new_partition_at_once_both_try_again(table: Database) -> None:
    first = MySqlSink(table.dsn(), table="t")
    await first.start()
    other = table.connect()
    other.begin()
    place = "('app', 't', 'orders', 0, 5, 1, 0)"
    other.cursor().execute(f"INSERT INTO onceward_positions VALUES {place}")
    taking = asyncio.create_task(Driven(first).take_over())
    await asyncio.sleep(0.3)
    other.commit()
    with pytest.raises(SinkUnavailable, match="IntegrityError 1062"):
        await taking
    await Driven(first).take_over()
    other.close()
    await first.close()


async def test_positions_are_read_without_making_or_taking_anything(table: Database) -> None:
    looker = MySqlSink(table.dsn(), table="t")
    with pytest.raises(SinkError, match=r"sink 't' .* 1146: Table .*onceward_positions"):
        await looker.positions("app")
    assert len(table.query("SHOW TABLES")) == 1
    one = await driven(MySqlSink(table.dsn(), table="t"))
    await one.write({"x": 1}, {"x": 2})
    assert await looker.positions("app") == {one.tp: Position(2, 1, 0)}
    assert await looker.positions("another") == {}
    await one.write({"x": 3})
    await one.sink.close()


async def test_the_table_stays_as_it_is_until_the_transaction_ends(table: Database) -> None:
    """So that an index made in between cannot lead an upsert to another row."""
    one = await driven(MySqlSink(table.dsn(), table="t"))
    one.sink.begin()
    one.sink._current_table()
    other = table.connect()
    other.cursor().execute("SET lock_wait_timeout = 1")
    with pytest.raises(pymysql.OperationalError, match="1205"):
        other.cursor().execute("CREATE UNIQUE INDEX i ON t (x)")
    one.sink.execute("ROLLBACK")
    other.cursor().execute("CREATE UNIQUE INDEX i ON t (x)")
    other.close()
    await one.sink.close()


# locks


async def test_a_lock_that_is_not_got_undoes_the_whole_batch(table: Database) -> None:
    """MySQL by itself undoes only the statement that waited, and goes on in the transaction."""
    table.query("CREATE TABLE u (x int PRIMARY KEY, y int)")
    table.query("INSERT INTO u VALUES (1, 0), (2, 0)")
    one = await driven(MySqlSink(table.dsn(), table="u", key="x", lock_timeout=0.2))
    other = table.connect()
    other.begin()
    other.cursor().execute("UPDATE u SET y = 7 WHERE x = 2")
    with pytest.raises(SinkUnavailable, match="OperationalError 1205"):
        await one.write({"x": 1, "y": 1}, (9, None), {"x": 2, "y": 2}, dead_letters=True)
    other.rollback()
    assert table.query("SELECT * FROM u ORDER BY x") == [(1, 0), (2, 0)]
    await one.write({"x": 1, "y": 1}, (9, None), {"x": 2, "y": 2}, dead_letters=True)
    assert table.query("SELECT * FROM u ORDER BY x") == [(1, 1), (2, 2)]
    other.close()
    await one.sink.close()


async def test_a_deadlock_is_tried_again_and_dead_letters_nothing(table: Database) -> None:
    table.query("CREATE TABLE u (x int PRIMARY KEY, y int)")
    table.query("INSERT INTO u VALUES (1, 0), (2, 0)")
    one = await driven(MySqlSink(table.dsn(), table="u", key="x", mode="insert", lock_timeout=10))
    other = table.connect()
    other.begin()
    rows = ", ".join(f"({number}, 0)" for number in range(100, 600))
    # the one that has changed more rows goes on
    other.cursor().execute(f"INSERT INTO u (x, y) VALUES {rows}")
    other.cursor().execute("UPDATE u SET y = 7 WHERE x = 2")
    writing = asyncio.create_task(one.write((1, None), {"x": 3}, (2, None), dead_letters=True))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(other.cursor().execute, "UPDATE u SET y = 7 WHERE x = 1")
    with pytest.raises(SinkUnavailable, match="OperationalError 1213"):
        await writing
    other.rollback()
    await one.write((1, None), {"x": 3}, (2, None))
    assert table.query("SELECT x FROM u") == [(3,)]
    other.close()
    await one.sink.close()


# connections


async def test_a_session_ended_by_an_administrator_is_unavailable_and_comes_back(
    table: Database,
) -> None:
    one = await driven(MySqlSink(table.dsn(), table="t"))
    await one.write({"x": 1})
    table.query(f"KILL {one.sink.connection.thread_id()}")
    with pytest.raises(SinkUnavailable, match=r"sink 't' .*OperationalError \d+"):
        await one.write({"x": 2})
    await one.take_over()
    await one.write({"x": 2})
    await one.sink.close()
    assert numbers(table) == [1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_in_mid_commit_leaves_the_position_to_tell(
    table: Database, when: str
) -> None:
    async with proxied(table.server, COMMIT) as proxy:
        one = await driven(MySqlSink(through(proxy, table), table="t"))
        await one.write({"x": 1})
        proxy.cut = (1, when)
        with pytest.raises(SinkUnavailable, match="OperationalError 2013: Lost connection"):
            await one.write({"x": 2})
        await one.take_over()
        assert one.claim.next_offset == (1 if when == "before" else 2)
        assert numbers(table) == ([1] if when == "before" else [1, 2])
        await one.sink.close()


async def test_a_server_that_does_not_answer_is_given_up_and_the_loop_goes_on(
    table: Database,
) -> None:
    async with proxied(table.server, COMMIT) as proxy:
        one = await driven(MySqlSink(through(proxy, table), table="t"))
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
    assert numbers(table) == [1]


# whole workers


def rows_app(tmp_path: Path, dsn: str, **options: Any) -> App:
    app = make_app(tmp_path, **options)
    rows = MySqlSink(dsn, table="t", value_type=Order, create=True, lock_timeout=1)
    totals = MySqlSink(dsn, table="totals", key="id", value_type=Order, create=True, lock_timeout=1)
    copies = app.topic("copies", value_type=Order)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            await copies.send(value=order)
            await totals.write({"id": order.id % 7, "amount": order.id})
            yield order

    return app


def assert_exact(mysql: Database, cluster: FakeCluster, count: int) -> None:
    assert numbers(mysql, "id") == list(range(count))
    assert len(cluster.values("copies")) == count
    for key, amount in mysql.query("SELECT id, amount FROM totals"):
        assert amount in {max(n for n in range(count) if n % 14 == half) for half in (key, key + 7)}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_rows(
    tmp_path: Path, mysql: Database, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path, mysql.dsn()), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(rows_app(tmp_path, mysql.dsn()), cluster) as second:
        put_orders(cluster, 10, start=30)
        await until(is_done(cluster), second, timeout=10)
    assert_exact(mysql, cluster, 40)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(1, 7))
async def test_connections_lost_at_any_commit_lose_and_repeat_nothing(
    tmp_path: Path, mysql: Database, which: int, when: str
) -> None:
    cluster = make_cluster(20)
    async with proxied(mysql.server, COMMIT) as proxy:
        app = rows_app(tmp_path, through(proxy, mysql))
        async with worker(app, cluster) as running:
            await until(is_done(cluster), running, timeout=10)
            proxy.cut = (which, when)
            for start in range(20, 60, 5):
                put_orders(cluster, 5, start=start)
                await until(is_done(cluster), running, timeout=10)
        assert proxy.cuts == 1
    assert_exact(mysql, cluster, 60)


async def test_two_workers_share_the_database(tmp_path: Path, mysql: Database) -> None:
    cluster = make_cluster(40)
    async with (
        worker(rows_app(tmp_path, mysql.dsn()), cluster) as first,
        worker(rows_app(tmp_path, mysql.dsn()), cluster) as second,
    ):
        await until(is_done(cluster), first, second, timeout=10)
        put_orders(cluster, 40, start=40)
        await until(is_done(cluster), first, second, timeout=10)
    assert_exact(mysql, cluster, 80)


async def test_a_server_killed_and_started_again_holds_the_worker_up_and_loses_nothing(
    tmp_path: Path, mysql: Database
) -> None:
    cluster = make_cluster(20)
    async with worker(rows_app(tmp_path, mysql.dsn()), cluster) as running:
        await until(is_done(cluster), running, timeout=10)
        mysql.close()
        for start in (20, 40):
            mysql.server.kill()
            put_orders(cluster, 20, start=start)
            await asyncio.sleep(0.2)
            assert not is_done(cluster)()
            mysql.server.start()
            await until(is_done(cluster), running, timeout=20)
    assert_exact(mysql, cluster, 60)


async def test_a_constraint_sends_the_record_to_the_dead_letter_topic(
    tmp_path: Path, mysql: Database
) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 1)
    for number in (1, 2, 2, 3):
        cluster.put("orders", b'{"id":%d,"amount":0}' % number)
    mysql.query("CREATE TABLE t (id integer PRIMARY KEY, amount integer)")
    cluster.injector = fail_once("commit", "before")
    app = rows_app(tmp_path, mysql.dsn(), on_agent_error="dead_letter")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=10)
    assert numbers(mysql, "id") == [1, 2, 3]
    ((value, headers),) = letters(cluster)
    assert value == b'{"id":2,"amount":0}'
    assert (headers["onceward-error"] or b"").startswith(b"IntegrityError 1062: Duplicate entry")


async def test_a_worker_starts_before_its_database_does(tmp_path: Path, mysql: Database) -> None:
    cluster = make_cluster(20)
    async with proxied(mysql.server, COMMIT) as proxy:
        socket = proxy.folder / mysql.server.socket.name
        away = socket.rename(proxy.folder / "away")
        async with worker(rows_app(tmp_path, through(proxy, mysql)), cluster) as running:
            await asyncio.sleep(0.1)
            assert not is_done(cluster)()
            away.rename(socket)
            await until(is_done(cluster), running, timeout=10)
    assert_exact(mysql, cluster, 20)


APP = """
from onceward.streams import App, Record
from onceward.streams.sinks import MySqlSink

class Order(Record):
    id: int

app = App("shop", datadir={folder!r}, store="memory://", commit_interval=0.02, broker={broker!r})
orders = app.topic("orders", value_type=Order, partitions=2)
rows = MySqlSink({dsn!r}, table="rows", value_type=Order, create=True)

@app.agent(orders, sink=[rows])
async def etl(stream):
    async for order in stream:
        yield order
"""


async def test_sinks_status_shows_where_mysql_is(
    tmp_path: Path, mysql: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(data_dir=str(tmp_path / "broker")) as broker:
        source = tmp_path / "shop_mysql_app.py"
        options = {"folder": str(tmp_path), "broker": broker.bootstrap, "dsn": mysql.dsn()}
        source.write_text(APP.format(**options))
        target = f"{source}:app"
        await put(target, [b'{"id":%d}' % n for n in range(5)], 0)
        assert await asyncio.to_thread(main, ["sinks", "status", target]) == 1
        assert "sink 'rows' (table rows of mysql://root@" in capsys.readouterr().err
        await run_until_rows(target, tmp_path)
        assert await asyncio.to_thread(main, ["sinks", "status", target, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["position"], row["effects"], row["epoch"]) for row in found] == [
        (0, 5, 5, 1), (1, 0, 0, 1)
    ]  # fmt: skip
    assert mysql.query("SELECT count(*) FROM `rows`") == [(5,)]
