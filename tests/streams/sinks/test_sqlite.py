"""The SQLite sink against SQLite: types, columns, bad rows, other writers, and whole workers."""

from __future__ import annotations

import asyncio
import enum
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import pydantic
import pytest

from onceward.streams import App, ConfigurationError, Record, Stream
from onceward.streams.sinks import SinkError, SinkFenced, SinkUnavailable, SqliteSink
from onceward.streams.sinks.positions import Claim
from onceward.streams.sinks.rows import plain

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .driven import driven
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders
from .test_refused import letters


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.commit()
        connection.close()


class Flight(Record):
    id: str
    minutes: int
    delay: float | None = None
    tags: tuple[str, ...] = ()
    at: datetime | None = None
    raw: bytes = b""


async def test_a_table_is_made_from_the_value_type_and_rows_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    one = await driven(SqliteSink(path, table="flights", key="id", value_type=Flight, create=True))
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    await one.write(Flight("a", 5, 1.5, ("x",), at, b"\x00"), Flight("b", 6))
    await one.sink.close()
    assert query(path, "SELECT * FROM flights ORDER BY id") == [
        ("a", 5, 1.5, '["x"]', "2026-01-02T03:04:05Z", b"\x00"),
        ("b", 6, None, "[]", None, b""),
    ]
    columns = {row[1]: row[2] for row in query(path, "PRAGMA table_info(flights)")}
    assert columns == {
        "id": "TEXT", "minutes": "INTEGER", "delay": "REAL", "tags": "TEXT", "at": "TEXT",
        "raw": "BLOB",
    }  # fmt: skip
    assert query(path, "SELECT next_offset, epoch FROM onceward_positions") == [(2, 1)]


@dataclass
class Point:
    x: int
    y: int


class Named(TypedDict):
    x: int
    y: int


class Model(pydantic.BaseModel):
    x: int
    y: int


@pytest.mark.parametrize("value", [Point(1, 2), Named(x=1, y=2), Model(x=1, y=2), {"x": 1, "y": 2}])
async def test_every_kind_of_model_is_a_row(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "rows.db"
    kind = {"x": int, "y": "INTEGER"} if type(value) is dict else type(value)
    one = await driven(SqliteSink(path, table="points", value_type=kind, create=True))
    await one.write(value)
    await one.sink.close()
    assert query(path, "SELECT x, y FROM points") == [(1, 2)]


async def test_an_upsert_keeps_columns_it_does_not_name_and_a_tombstone_deletes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.db"
    query(path, "CREATE TABLE totals (account TEXT, day INT, a INT, b INT, UNIQUE (account, day))")
    one = await driven(SqliteSink(path, table="totals", key=["account", "day"]))
    await one.write(
        {"account": "x", "day": 1, "a": 1},
        {"account": "x", "day": 1, "b": 2},
        {"account": "y", "day": 1, "a": 7},
        {"account": "x", "day": 1, "a": 3},
        (("y", 1), None),
        {"account": "z", "day": 2},
    )
    await one.sink.close()
    assert query(path, "SELECT * FROM totals ORDER BY account") == [
        ("x", 1, 3, 2), ("z", 2, None, None)
    ]  # fmt: skip


async def test_what_is_written_is_a_snapshot(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "rows.db", table="rows")
    row = {"a": [1], "b": Decimal("1.10"), "c": True}
    encoded = sink.encode(row, None, None)  # type: ignore[arg-type]
    row["a"] = [2]
    assert encoded == {"a": "[1]", "b": "1.10", "c": 1}


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        (17, None, "a row is a dict, Record, dataclass or model, not int: 17"),
        ({"amount": 1}, None, "a row has no 'account', which is its key"),
        (None, {"day": 1}, "None deletes the row with a key of account, but the key is"),
    ],
)
def test_what_is_no_row_is_the_agents_error(value: Any, key: Any, message: str) -> None:
    sink = SqliteSink("rows.db", table="totals", key="account")
    with pytest.raises((TypeError, ValueError), match=message):
        sink.encode(value, key, None)  # type: ignore[arg-type]


def test_declarations_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="mode='upsert' needs key="):
        SqliteSink("rows.db", table="t", mode="upsert")
    with pytest.raises(ConfigurationError, match="create=True needs value_type="):
        SqliteSink("rows.db", table="t", create=True)
    with pytest.raises(ConfigurationError, match="key 'nr' is no field of value_type"):
        SqliteSink("rows.db", table="t", key="nr", value_type=Point)
    with pytest.raises(ConfigurationError, match="'merge' is not one of 'insert', 'upsert'"):
        SqliteSink("rows.db", table="t", key="nr", mode="merge")


async def test_a_missing_table_column_or_key_is_said_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    with pytest.raises(SinkError, match=r"sink 'points' \(table points of .*: there is no such t"):
        await SqliteSink(path, table="points").start()
    query(path, "CREATE TABLE points (x INT)")
    with pytest.raises(SinkError, match="the table has no column 'y'; add it, or give add_columns"):
        await SqliteSink(path, table="points", value_type=Point).start()
    with pytest.raises(
        SinkError, match="upsert needs a primary key or unique index over exactly x"
    ):
        await SqliteSink(path, table="points", key="x").start()
    with pytest.raises(SinkError, match="file is not a database"):
        (tmp_path / "text").write_text("this is not what SQLite writes" * 100)
        await SqliteSink(tmp_path / "text", table="points").start()


async def test_columns_are_added_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    query(path, "CREATE TABLE points (x INT)")
    one = await driven(SqliteSink(path, table="points", value_type=Point, add_columns=True))
    await one.write({"x": 1, "y": 2}, {"x": 3, "note": "new"})
    await one.sink.close()
    assert query(path, "SELECT x, y, note FROM points") == [(1, 2, None), (3, None, "new")]


BAD = {
    "a column the table has not": ({"x": 2, "z": 1}, "the table has no column 'z'"),
    "a constraint": ({"x": 1}, "IntegrityError: UNIQUE constraint failed: points.x"),
    "a type": ({"x": "two"}, "IntegrityError: cannot store TEXT value in INTEGER column points.x"),
    "a number too big": ({"x": 2**63}, "OverflowError: Python int too large"),
    "text that is none": ({"x": 2, "y": "\ud800"}, "UnicodeEncodeError: .*surrogates"),
}


@pytest.mark.parametrize(("row", "reason"), BAD.values(), ids=BAD.keys())
async def test_a_row_the_database_refuses_is_named_and_nothing_lands(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "rows.db"
    query(path, "CREATE TABLE points (x INTEGER UNIQUE, y TEXT) STRICT")
    one = await driven(SqliteSink(path, table="points"))
    await one.write({"x": 1})
    message = rf"sink 'points' \(table points of .*\) refuses .* orders-0 at offset 4: {reason}"
    with pytest.raises(SinkError, match=message):
        await one.write({"x": 10}, {"x": 11}, {"x": 12}, row, {"x": 13})
    assert query(path, "SELECT x FROM points") == [(1,)]
    assert query(path, "SELECT next_offset FROM onceward_positions") == [(1,)]
    await one.sink.close()


@pytest.mark.parametrize(("row", "reason"), BAD.values(), ids=BAD.keys())
async def test_the_rest_lands_when_refused_rows_are_dead_letters(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "rows.db"
    query(path, "CREATE TABLE points (x INTEGER UNIQUE, y TEXT) STRICT")
    one = await driven(SqliteSink(path, table="points"))
    await one.write({"x": 1})
    batch = await one.write({"x": 10}, row, {"x": 11}, {"x": 12}, row, dead_letters=True)
    assert [refusal.at for refusal in batch.refused] == [1, 4]
    assert query(path, "SELECT x FROM points ORDER BY x") == [(1,), (10,), (11,), (12,)]
    assert query(path, 'SELECT "offset" FROM onceward_refused') == [(2,), (5,)]
    await one.take_over()
    assert sorted(id_.offset for id_ in one.claim.refused) == [2, 5]
    await one.sink.close()


async def test_the_former_owner_is_fenced_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    first = await driven(SqliteSink(path, table="points", value_type=Point, create=True))
    await first.write({"x": 1})
    second = await driven(SqliteSink(path, table="points"))
    assert second.claim == Claim(1, 2)
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"x": 2})
    await second.write({"x": 3})
    assert query(path, "SELECT x FROM points") == [(1,), (3,)]
    await first.sink.close()
    await second.sink.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def test_a_database_locked_by_another_program_is_unavailable_and_comes_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.db"
    sink = SqliteSink(path, table="points", value_type=Point, create=True, busy_timeout=0.05)
    one = await driven(sink)
    with locked(path), pytest.raises(SinkUnavailable, match="database is locked"):
        await one.write({"x": 1})
    await one.write({"x": 1})
    await sink.close()
    assert query(path, "SELECT x FROM points") == [(1,)]


async def test_a_call_that_takes_too_long_is_given_up_and_the_loop_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    sink = SqliteSink(path, table="points", value_type=Point, create=True, busy_timeout=0.6)
    one = await driven(sink)
    sink.timeout = 0.1
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    counting = asyncio.create_task(count())
    with locked(path):
        with pytest.raises(SinkUnavailable, match=r"did not answer within 0\.1 s"):
            await one.write({"x": 1})
        with pytest.raises(SinkUnavailable, match="still does not answer"):
            await one.write({"x": 1})
    counting.cancel()
    assert turns > 5
    sink.timeout = 5
    await one.take_over()
    rows = query(path, "SELECT x FROM points")
    assert len(rows) == one.claim.next_offset, "whether it was written, the position tells"
    await one.write({"x": 2})
    await sink.close()
    assert query(path, "SELECT x FROM points") == [*rows, (2,)]


def rows_app(tmp_path: Path, **options: Any) -> App:
    app = make_app(tmp_path, **options)
    rows = SqliteSink(tmp_path / "rows.db", table="rows", value_type=Order, create=True)
    copies = app.topic("copies", value_type=Order)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            await copies.send(value=order)
            yield order

    return app


def written(tmp_path: Path) -> list[int]:
    return [row[0] for row in query(tmp_path / "rows.db", "SELECT id FROM rows ORDER BY id")]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_rows(
    tmp_path: Path, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path), cluster) as first:
        await until(lambda: cluster.injector is not None and "commit" in cluster.calls, first)
        await kill(first)
    async with worker(rows_app(tmp_path), cluster) as second:
        put_orders(cluster, 10, start=30)
        await until(is_done(cluster), second)
    assert written(tmp_path) == list(range(40))
    assert len(cluster.values("copies")) == 40


async def test_two_workers_share_the_database(tmp_path: Path) -> None:
    cluster = make_cluster(40)
    async with (
        worker(rows_app(tmp_path), cluster) as first,
        worker(rows_app(tmp_path), cluster) as second,
    ):
        await until(is_done(cluster), first, second)
        put_orders(cluster, 40, start=40)
        await until(is_done(cluster), first, second)
    assert written(tmp_path) == list(range(80))


async def test_a_locked_database_holds_the_worker_up_and_nothing_is_lost(tmp_path: Path) -> None:
    cluster = make_cluster(10)
    async with worker(rows_app(tmp_path), cluster) as running:
        await until(is_done(cluster), running)
        for sink in running.engine._topology.sinks:
            assert isinstance(sink, SqliteSink)
            sink.execute("PRAGMA busy_timeout = 10")
            sink._busy_timeout = 0.01
        with locked(tmp_path / "rows.db"):
            put_orders(cluster, 10, start=10)
            await asyncio.sleep(0.2)
            assert not is_done(cluster)()
        await until(is_done(cluster), running)
    assert written(tmp_path) == list(range(20))


async def test_a_constraint_sends_the_record_to_the_dead_letter_topic(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 1)
    for amount in (1, 2, 2, 3):
        cluster.put("orders", b'{"id":%d,"amount":0}' % amount)
    query(tmp_path / "rows.db", "CREATE TABLE rows (id INTEGER PRIMARY KEY, amount INTEGER)")
    cluster.injector = fail_once("commit", "before")
    app = rows_app(tmp_path, on_agent_error="dead_letter")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert written(tmp_path) == [1, 2, 3]
    ((value, headers),) = letters(cluster)
    assert value == b'{"id":2,"amount":0}'
    assert headers["onceward-error"] == b"IntegrityError: UNIQUE constraint failed: rows.id"


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, 1),
        (Colour.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
        (memoryview(b"ab"), b"ab"),
        (["a", {"b": None}], '["a",{"b":null}]'),
        (Point(1, 2), '{"x":1,"y":2}'),
    ],
)
def test_values_without_a_type_of_their_own_are_text(value: Any, expected: Any) -> None:
    assert plain(value) == expected


async def test_a_database_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    cluster = make_cluster(10)
    app = make_app(tmp_path)
    folder = tmp_path / "volume"
    rows = SqliteSink(folder / "rows.db", table="rows", value_type=Order, create=True)

    @app.agent(app.topic("orders", value_type=Order), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    async with worker(app, cluster) as running:
        await asyncio.sleep(0.05)
        folder.mkdir()
        await until(is_done(cluster), running)
    assert written(folder) == list(range(10))
