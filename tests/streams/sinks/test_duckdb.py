"""The DuckDB sink against DuckDB: types, upserts, refused rows, one process at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.streams import App, ConfigurationError, Record, Stream
from onceward.streams.sinks import DuckDbSink, SinkError, SinkFenced, SinkUnavailable

from ..workers import make_app, until, worker
from .driven import Driven, driven
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path)) as connection:
        found: list[tuple[Any, ...]] = connection.execute(statement).fetchall()
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.duckdb"


@asynccontextmanager
async def sink(path: Path, **options: Any) -> AsyncIterator[Driven[DuckDbSink]]:
    made = DuckDbSink(path, **{"table": "t", **options})
    try:
        yield await driven(made)
    finally:
        await made.close()


class Flight(Record):
    id: str
    minutes: int
    delay: float | None = None
    price: Decimal = Decimal(0)
    tags: tuple[str, ...] = ()
    at: datetime | None = None
    day: date | None = None
    took: timedelta | None = None
    raw: bytes = b""
    late: bool = False
    uid: UUID | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - a Record's default is copied


async def test_a_table_is_made_from_the_value_type_and_rows_are_read_back(path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    full = Flight(
        "a", 5, 1.5, Decimal("1.10"), ("x", 'q"'), at, at.date(), timedelta(hours=1), b"\x00\\x",
        True, UUID(int=7), {"a": [1, None]},
    )  # fmt: skip
    async with sink(path, key="id", value_type=Flight, create=True) as one:
        await one.write(full, Flight("b", 6))
    assert query(path, "SELECT * FROM t ORDER BY id") == [
        ("a", 5, 1.5, Decimal("1.10"), ["x", 'q"'], at, at.date(), timedelta(hours=1), b"\x00\\x",
         True, UUID(int=7), '{"a":[1,null]}'),
        ("b", 6, None, Decimal(0), [], None, None, None, b"", False, None, "{}"),
    ]  # fmt: skip
    assert query(path, "SELECT next_offset, epoch FROM onceward_positions") == [(2, 1)]


async def test_rows_with_other_columns_lose_none_of_them(path: Path) -> None:
    query(path, "CREATE TABLE t (a integer, b integer DEFAULT 7, c json)")
    async with sink(path) as one:
        await one.write({"a": 1}, {"c": [3], "a": 2}, {"a": 3, "b": 5}, {"a": 4}, {})
    assert query(path, "SELECT * FROM t ORDER BY a") == [
        (1, 7, None), (2, 7, "[3]"), (3, 5, None), (4, 7, None), (None, 7, None)
    ]  # fmt: skip


OPERATION = st.tuples(
    st.integers(0, 3),
    st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9)),
)


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(OPERATION, min_size=1, max_size=24), min_size=1, max_size=3))
async def test_a_batch_ends_as_its_changes_one_by_one(
    path: Path, batches: list[list[tuple[int, dict[str, int | None] | None]]]
) -> None:
    query(path, "DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS onceward_positions")
    query(path, "CREATE TABLE t (k integer PRIMARY KEY, a integer, b integer, c integer)")
    expected: dict[int, dict[str, int | None]] = {}
    async with sink(path, key="k") as one:
        for batch in batches:
            for key, row in batch:
                if row is None:
                    expected.pop(key, None)
                else:
                    expected.setdefault(key, dict.fromkeys("abc")).update(row)
            await one.write(
                *((key, row if row is None else {"k": key, **row}) for key, row in batch)
            )
    found = query(path, "SELECT * FROM t")
    assert {key: dict(zip("abc", row, strict=True)) for key, *row in found} == expected


async def test_keys_that_only_the_database_takes_for_one_are_written_in_order(path: Path) -> None:
    query(path, "CREATE TABLE t (k decimal(9, 2) PRIMARY KEY, a integer, b integer)")
    one, same = Decimal("1"), Decimal("1.00")
    async with sink(path, key="k") as written:
        await written.write({"k": one, "a": 1}, {"k": same, "b": 2}, {"k": one, "a": 3})
    assert query(path, "SELECT a, b FROM t") == [(3, 2)]


async def test_a_missing_table_column_or_key_is_said_before_anything_runs(path: Path) -> None:
    with pytest.raises(SinkError, match=r"sink 't' \(table t of .*\): there is no such table"):
        await DuckDbSink(path, table="t").start()
    query(path, "CREATE TABLE t (x integer)")
    with pytest.raises(SinkError, match="the table has no column 'y'; add it, or give add_columns"):
        await DuckDbSink(path, table="t", value_type={"x": int, "y": int}).start()
    with pytest.raises(SinkError, match="upsert needs a primary key or unique index over"):
        await DuckDbSink(path, table="t", key="x").start()
    (path.parent / "text").write_text("this is not what DuckDB writes" * 1000)
    with pytest.raises(SinkError, match="not a valid DuckDB database"):
        await DuckDbSink(path.parent / "text", table="t").start()
    with pytest.raises(ConfigurationError, match="create=True needs value_type="):
        DuckDbSink(path, table="t", create=True)


async def test_columns_are_added_when_asked(path: Path) -> None:
    query(path, "CREATE TABLE t (x integer)")
    async with sink(path, add_columns=True, value_type={"x": int, "y": int}) as one:
        await one.write({"x": 1, "y": 2}, {"x": 2, "note": "new", "doc": {"a": 1}, "list": [1]})
    assert query(path, "SELECT x, y, note, doc, list FROM t ORDER BY x") == [
        (1, 2, None, None, None), (2, None, "new", '{"a":1}', [1])
    ]  # fmt: skip


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a column the table has not": ({"x": 2, "no": 1}, "the table has no column 'no'"),
    "a key that is there": ({"x": 1}, "ConstraintException: .*[Dd]uplicate key"),
    "a key of the batch": ({"x": 12}, "ConstraintException: .*[Dd]uplicate key"),
    "a type": ({"x": "two"}, "ConversionException: .*Could not convert string 'two'"),
    "a number too big": ({"x": 2**40}, "ConversionException: "),
    "text that is none": ({"x": 2, "y": "\ud800"}, ".*: .*(surrogate|UTF-8|utf-8)"),
    "nothing where something must be": ({"x": 2, "must": None}, "ConstraintException: .*NOT NULL"),
    "a condition": ({"x": 2, "plus": -1}, "ConstraintException: .*CHECK"),
}
TABLE = """
    CREATE TABLE t (
        x integer UNIQUE, y varchar, must integer NOT NULL DEFAULT 0, plus integer CHECK (plus > 0)
    )"""


@pytest.mark.parametrize(("row", "reason"), BAD.values(), ids=BAD.keys())
async def test_a_refused_row_is_named_or_a_dead_letter(
    path: Path, row: dict[str, Any], reason: str
) -> None:
    query(path, TABLE)
    rows = [{"x": x, "y": f"row {x}"} for x in range(10, 30)]
    async with sink(path, key="x", mode="insert") as one:
        await one.write({"x": 1})
        message = rf"sink 't' \(table t of .*\) refuses .* orders-0 at offset 14: {reason}"
        with pytest.raises(SinkError, match=message):
            await one.write(*rows[:13], row, *rows[13:])
        batch = await one.write(*rows[:11], row, *rows[11:], row, dead_letters=True)
        assert [refusal.at for refusal in batch.refused] == [11, 21]
    assert query(path, "SELECT x FROM t ORDER BY x") == [(1,), *[(x,) for x in range(10, 30)]]
    assert query(path, 'SELECT "offset" FROM onceward_refused') == [(12,), (22,)]


async def test_the_former_owner_is_fenced_and_writes_nothing(path: Path) -> None:
    query(path, "CREATE TABLE t (x integer)")
    first = await driven(DuckDbSink(path, table="t"))
    await first.write({"x": 1})
    second = await driven(DuckDbSink(path, table="t"))
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"x": 2})
    await second.write({"x": 3})
    await first.sink.close()
    await second.sink.close()
    assert query(path, "SELECT x FROM t") == [(1,), (3,)]


HOLDER = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


async def test_a_file_that_another_process_has_open_is_waited_for(path: Path) -> None:
    query(path, "CREATE TABLE t (x integer)")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"open\n"
        one = DuckDbSink(path, table="t")
        with pytest.raises(SinkUnavailable, match="One process at a time can write to a DuckDB"):
            await one.start()
        holder.kill()
    made = await driven(one)
    await made.write({"x": 1})
    await one.close()
    assert query(path, "SELECT x FROM t") == [(1,)]


def rows_app(tmp_path: Path, path: Path) -> App:
    app = make_app(tmp_path)
    rows = DuckDbSink(path, table="t", value_type=Order, create=True)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_rows(
    tmp_path: Path, path: Path, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path, path), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(rows_app(tmp_path, path), cluster) as second:
        put_orders(cluster, 10, start=30)
        await until(is_done(cluster), second, timeout=10)
    assert [row[0] for row in query(path, "SELECT id FROM t ORDER BY id")] == list(range(40))
