"""The MySQL sink against a real server: tables, columns, types, upserts and deletions."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import field

from onceward.streams import ConfigurationError, Record
from onceward.streams.sinks import MySqlSink, SinkError

from .driven import Driven, driven
from .mysql_server import Database


@asynccontextmanager
async def sink(mysql: Database, **options: Any) -> AsyncIterator[Driven[MySqlSink]]:
    """A started sink into table ``t`` that owns the partition."""
    made = MySqlSink(mysql.dsn(), **{"table": "t", **options})
    try:
        yield await driven(made)
    finally:
        await made.close()


class Colour(enum.Enum):
    RED = "red"


class Place(Record):
    city: str


class Flight(Record):
    id: str
    minutes: int
    delay: float | None = None
    price: Decimal = Decimal(0)
    legs: list[int] = field(default_factory=list)
    at: datetime | None = None
    day: date | None = None
    clock: time | None = None
    took: timedelta | None = None
    raw: bytes = b""
    late: bool = False
    uid: UUID | None = None
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    extra: dict[str, Any] = field(default_factory=dict)
    place: Place | None = None


FLIGHT_COLUMNS = {
    "id": "varchar(255)", "minutes": "bigint", "delay": "double", "price": "decimal(38,9)",
    "legs": "json", "at": "datetime(6)", "day": "date", "clock": "time(6)", "took": "time(6)",
    "raw": "longblob", "late": "tinyint(1)", "uid": "char(36)", "colour": "longtext",
    "kind": "longtext", "extra": "json", "place": "json",
}  # fmt: skip


async def test_a_table_is_made_from_the_value_type_and_rows_are_read_back(mysql: Database) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    full = Flight(
        "a", 5, 1.5, Decimal("1.10"), [1, 2], at, at.date(), time(1, 2),
        timedelta(days=-1, seconds=5), b"\x00\\'x", True, UUID(int=7), Colour.RED, "b",
        {"a": [1, None, "it's \\ \0"]}, Place("Rome"),
    )  # fmt: skip
    async with sink(mysql, key="id", value_type=Flight, create=True) as one:
        await one.write(full, Flight("b", 6))
    first, second = mysql.query("SELECT * FROM t ORDER BY id")
    assert first[:14] == (
        "a", 5, 1.5, Decimal("1.10"), first[4], at.replace(tzinfo=None), at.date(),
        timedelta(hours=1, minutes=2), timedelta(days=-1, seconds=5), b"\x00\\'x", 1,
        str(UUID(int=7)), "red", "b",
    )  # fmt: skip
    assert [json.loads(first[n]) for n in (4, 14, 15)] == [
        [1, 2], {"a": [1, None, "it's \\ \0"]}, {"city": "Rome"}
    ]  # fmt: skip
    assert second[:4] == ("b", 6, None, Decimal(0))
    assert second[5:] == (None, None, None, None, b"", 0, None, "red", "a", "{}", None)
    columns = mysql.query(
        "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'"
    )
    shown = {name: kind.replace("bigint(20)", "bigint") for name, kind in columns}
    if mysql.server.is_mariadb:  # where a document is a text with a condition
        shown |= {name: "json" for name in ("legs", "extra", "place") if shown[name] == "longtext"}
    assert shown == FLIGHT_COLUMNS
    assert mysql.query("SELECT next_offset, epoch FROM onceward_positions") == [(2, 1)]


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
async def test_every_kind_of_model_is_a_row(mysql: Database, value: Any) -> None:
    kind = {"x": int, "y": "INTEGER"} if type(value) is dict else type(value)
    async with sink(mysql, value_type=kind, create=True) as one:
        await one.write(value)
    assert mysql.query("SELECT x, y FROM t") == [(1, 2)]


async def test_rows_with_other_columns_lose_none_of_them_and_get_defaults(mysql: Database) -> None:
    mysql.query("CREATE TABLE t (a int, b int DEFAULT 7, c int, nr int AUTO_INCREMENT PRIMARY KEY)")
    async with sink(mysql) as one:
        await one.write({"a": 1}, {"C": 3, "a": 2}, {"a": 3, "b": 5}, {"a": 4}, {"a": 5, "c": 6})
        await one.write({})
        await one.write({"nr": 0, "a": 9})
    assert mysql.query("SELECT a, b, c FROM t ORDER BY a") == [
        (None, 7, None), (1, 7, None), (2, 7, 3), (3, 5, None), (4, 7, None), (5, 7, 6),
        (9, 7, None),
    ]  # fmt: skip
    assert mysql.query("SELECT nr FROM t WHERE a = 9") == [(0,)]


@pytest.mark.parametrize("kind", ["varchar(9)", "varchar(9) COLLATE utf8mb4_bin"])
async def test_an_upsert_keeps_columns_it_does_not_name_and_a_tombstone_deletes(
    mysql: Database, kind: str
) -> None:
    mysql.query(f"CREATE TABLE t (account {kind}, day int, a int, b int, UNIQUE (day, account))")
    async with sink(mysql, key=["account", "day"]) as one:
        await one.write({"account": "x", "day": 2, "a": 1, "b": 1})
        await one.write(
            {"account": "x", "day": 1, "a": 1},
            {"account": "x", "day": 1, "b": 2},
            {"account": "y", "day": 1, "a": 7},
            {"account": "x", "day": 1, "a": 3},
            (("y", 1), None),
            {"account": "z", "day": 2},
            ({"account": "x", "day": 2}, None),
            {"account": "x", "day": 2, "a": 9},
        )
    assert mysql.query("SELECT * FROM t ORDER BY account, day") == [
        ("x", 1, 3, 2), ("x", 2, 9, None), ("z", 2, None, None)
    ]  # fmt: skip


async def test_inserted_rows_are_deleted_by_key_in_their_order(mysql: Database) -> None:
    mysql.query("CREATE TABLE t (k int, v int)")
    async with sink(mysql, key="k", mode="insert") as one:
        await one.write(
            {"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 3}, (1, None), {"k": 1, "v": 4},
            (3, None), {"k": 3},
        )  # fmt: skip
        await one.write(*((key, None) for key in range(1000, 2500)))
    assert mysql.query("SELECT * FROM t ORDER BY k") == [(1, 4), (2, 3), (3, None)]


async def test_keys_that_only_the_database_takes_for_one_are_written_in_order(
    mysql: Database,
) -> None:
    mysql.query(
        "CREATE TABLE t (k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, a int, b int)"
    )
    async with sink(mysql, key="k") as one:
        await one.write({"k": "a", "a": 1}, {"k": "A", "a": 2}, {"k": "a ", "a": 3})
        assert mysql.query("SELECT a, b FROM t") == [(3, None)]
        await one.write(
            {"k": "a", "a": 5}, {"k": "A", "b": 6}, {"k": "Á", "a": 7}, ("A ", None),
            {"k": "a", "b": 8}, {"k": "b", "a": 1}, ("B", None),
        )  # fmt: skip
        assert mysql.query("SELECT a, b FROM t") == [(None, 8)]


async def test_keys_of_other_types_than_the_column_mean_the_row_they_show(mysql: Database) -> None:
    """Compared with a number, every text that is none is 0 to MySQL."""
    mysql.query("CREATE TABLE t (k varchar(9) PRIMARY KEY)")
    mysql.query("CREATE TABLE n (k bigint PRIMARY KEY)")
    async with sink(mysql, key="k") as one:
        await one.write({"k": "abc"}, {"k": "0"}, {"k": 1}, {"k": "x"})
        await one.write((0, None), (1, None))
    assert mysql.query("SELECT k FROM t ORDER BY k") == [("abc",), ("x",)]
    async with sink(mysql, table="n", key="k", name="n") as two:
        await two.write({"k": 0}, {"k": 2**53}, {"k": str(2**53 + 1)}, {"k": 7.0})
        await two.write((str(2**53 + 1), None), (Decimal(7), None))
        with pytest.raises(SinkError, match="'abc' is no whole number in column 'k'"):
            await two.write(("abc", None))
    assert mysql.query("SELECT k FROM n ORDER BY k") == [(0,), (2**53,)]


SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXT_KEYS = st.sampled_from(["a", "A", "a ", "á", "b", "B", "c"])
CHANGES = st.none() | st.dictionaries(st.sampled_from("xyz"), st.none() | st.integers(0, 9))


@SLOW
@given(
    st.sampled_from(["utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci"]),
    st.lists(st.tuples(TEXT_KEYS, CHANGES), min_size=1, max_size=24),
)
async def test_a_batch_ends_as_its_changes_one_by_one(
    mysql: Database, collation: str, changes: list[tuple[str, dict[str, int | None] | None]]
) -> None:
    found = []
    for whole in (True, False):
        mysql.query("DROP TABLE IF EXISTS t, onceward_positions")
        mysql.query(
            f"CREATE TABLE t (k varchar(9) COLLATE {collation} PRIMARY KEY, x int, y int, z int)"
        )
        values = [(key, row if row is None else {"k": key, **row}) for key, row in changes]
        async with sink(mysql, key="k") as one:
            for batch in [values] if whole else [[value] for value in values]:
                await one.write(*batch)
        found.append(mysql.query("SELECT HEX(WEIGHT_STRING(k)), x, y, z FROM t ORDER BY k"))
    assert found[0] == found[1]


async def test_an_upsert_of_nothing_where_something_must_be_is_refused(mysql: Database) -> None:
    mysql.query("CREATE TABLE t (k int PRIMARY KEY, must int NOT NULL, other int)")
    async with sink(mysql, key="k") as one:
        await one.write({"k": 1, "must": 1}, {"k": 2, "must": 2})
        batch = await one.write(
            {"k": 1, "must": None}, {"k": 2, "must": 3}, {"k": 3, "other": 1}, dead_letters=True
        )
    assert [refusal.at for refusal in batch.refused] == [0, 2]
    assert mysql.query("SELECT k, must FROM t ORDER BY k") == [(1, 1), (2, 3)]


async def test_an_upsert_changes_no_row_with_another_key(mysql: Database) -> None:
    """INSERT ... ON DUPLICATE KEY UPDATE alone changes the row it finds in any unique index."""
    mysql.query(
        "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, k bigint UNIQUE, mail varchar(9) "
        "UNIQUE, n int)"
    )
    big = 2**62 + 1
    async with sink(mysql, key="k") as one:
        await one.write({"k": big, "mail": "a", "n": 1}, {"k": 2, "mail": "b", "n": 2})
        batch = await one.write(
            {"k": 3, "mail": "a", "n": 3},  # would change the row of the first key
            {"k": big, "mail": "b", "n": 4},
            {"k": big, "mail": "c", "n": 5},
            {"k": 4, "mail": "a", "n": 6},  # it is free now
            dead_letters=True,
        )
        assert [refusal.at for refusal in batch.refused] == [0, 1]
        assert "unique index that is not the key" in batch.refused[0].reason
        assert "1062: Duplicate entry 'b'" in batch.refused[1].reason
    assert mysql.query("SELECT k, mail, n FROM t ORDER BY n") == [
        (2, "b", 2), (big, "c", 5), (4, "a", 6)
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_names_are_taken_as_they_are_written(mysql: Database, mode: str) -> None:
    columns = {"order": int, "Mixed": str, "back`tick": int, "per%cent %s": int, "ütf": int}
    options = {"value_type": columns, "create": True, "mode": mode, "key": ["order", "Mixed"]}
    row = dict(zip(columns, [1, "x", 2, 3, 4], strict=True))
    mysql.query(f"CREATE DATABASE `{mysql.name} other`")
    for name, quoted in [
        ("Select", "`Select`"),
        (f"{mysql.name}.user", f"{mysql.name}.`user`"),
        (f'"{mysql.name} other"."with.dot"', f"`{mysql.name} other`.`with.dot`"),
        ('"a`b%"', "`a``b%`"),
    ]:
        async with sink(mysql, table=name, **options) as one:
            await one.write(row, ((7, "y"), None))
        assert mysql.query(f"SELECT * FROM {quoted}") == [(1, "x", 2, 3, 4)]
    mysql.query(f"DROP DATABASE `{mysql.name} other`")


async def test_a_missing_table_column_or_key_is_said_before_anything_runs(mysql: Database) -> None:
    with pytest.raises(
        SinkError, match=r"sink 't' \(table t of mysql://.*\): there is no such table; create"
    ):
        await MySqlSink(mysql.dsn(), table="t").start()
    mysql.query("CREATE TABLE t (x int, u varchar(9), v int)")
    with pytest.raises(SinkError, match="no such table, there is t: names are taken as they are"):
        await MySqlSink(mysql.dsn(), table="T").start()
    with pytest.raises(SinkError, match="the table has no column 'y'; add it, or give add_columns"):
        await MySqlSink(mysql.dsn(), table="t", value_type=Point).start()
    with pytest.raises(SinkError, match="the table has no column 'z', which is to be the key"):
        await MySqlSink(mysql.dsn(), table="t", key="z").start()
    mysql.query("CREATE UNIQUE INDEX a ON t (x, v)")
    mysql.query("CREATE UNIQUE INDEX b ON t (u(3))")
    for key in ("x", "u"):
        with pytest.raises(SinkError, match="upsert needs a primary key or unique index over exac"):
            await MySqlSink(mysql.dsn(), table="t", key=key).start()
    async with sink(mysql, key=["V", "x"]):
        pass


@pytest.mark.parametrize("engine", ["MyISAM", "MEMORY", "Aria", "view", "MERGE"])
async def test_a_table_without_transactions_is_refused(mysql: Database, engine: str) -> None:
    if engine == "Aria" and not mysql.server.is_mariadb:
        pytest.skip("MySQL has no Aria")
    if engine == "view":
        mysql.query("CREATE TABLE u (x int);\nCREATE VIEW t AS SELECT * FROM u")
        message = "t is a view, give the table"
    else:
        mysql.query(f"CREATE TABLE t (x int) ENGINE = {engine}")
        message = "the engine of t is .*, which has no transactions"
    with pytest.raises(SinkError, match=rf"sink 't' \(table t of .*\): {message}"):
        await MySqlSink(mysql.dsn(), table="t").start()


async def test_a_table_that_loses_its_transactions_is_refused_at_the_next_commit(
    mysql: Database,
) -> None:
    mysql.query("CREATE TABLE t (x int)")
    async with sink(mysql) as one:
        await one.write({"x": 1})
        mysql.query("ALTER TABLE t ENGINE = MyISAM")
        with pytest.raises(SinkError, match="the engine of t is MyISAM, which has no"):
            await one.write({"x": 2})
    mysql.query("DROP TABLE onceward_refused")
    mysql.query("CREATE TABLE onceward_refused (x int) ENGINE = MyISAM")
    mysql.query("ALTER TABLE t ENGINE = InnoDB")
    with pytest.raises(SinkError, match="the engine of onceward_refused is MyISAM"):
        await MySqlSink(mysql.dsn(), table="t").start()
    assert mysql.query("SELECT x FROM t") == [(1,)]


async def test_columns_are_added_when_asked_and_only_when_they_are_missing(
    mysql: Database,
) -> None:
    mysql.query("CREATE TABLE t (x int)")
    async with sink(mysql, value_type=Point, add_columns=True) as one:
        await one.write(
            {"x": 1, "Y": 2},
            {"x": 2, "note": "new", "doc": {"a": 1}, "list": [1], "big": 2**64, "none": None},
        )
        doc = '{"a":1}' if mysql.server.is_mariadb else '{"a": 1}'
        assert mysql.query("SELECT x, y, note, doc, list, big, none FROM t ORDER BY x") == [
            (1, 2, None, None, None, None, None),
            (2, None, "new", doc, "[1]", Decimal(2**64), None),
        ]
        reader = mysql.connect()
        reader.begin()
        reader.cursor().execute("SELECT count(*) FROM t")  # holds a lock that an ALTER waits for
        await one.write({"x": 3, "note": "now"})
        reader.close()
    assert mysql.query("SELECT count(*) FROM t") == [(3,)]


@pytest.mark.parametrize("dead_letters", [True, False])
async def test_an_added_column_commits_no_half_of_a_batch(
    mysql: Database, dead_letters: bool
) -> None:
    """An ALTER within the transaction would have committed the position and the rows before it."""
    mysql.query("CREATE TABLE t (x int PRIMARY KEY)")
    async with sink(mysql, add_columns=True) as one:
        await one.write({"x": 1})
        rows: list[dict[str, Any]] = [{"x": 2}, {"x": 1}, {"x": 3, "new": "a"}, {"x": 4, "more": 1}]
        if dead_letters:
            batch = await one.write(*rows, dead_letters=True)
            assert [refusal.at for refusal in batch.refused] == [1]
            expected = [(1, None, None), (2, None, None), (3, "a", None), (4, None, 1)]
        else:
            with pytest.raises(SinkError, match=r"orders-0 at offset 2: .*Duplicate entry '1'"):
                await one.write(*rows)
            expected = [(1, None, None)]
            assert mysql.query("SELECT next_offset FROM onceward_positions") == [(1,)]
    assert mysql.query("SELECT x, new, more FROM t ORDER BY x") == expected


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


async def test_what_the_server_is_set_to_changes_nothing(mysql: Database) -> None:
    hostile = {
        "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", "autocommit": "0",
        "completion_type": "'CHAIN'", "time_zone": "'+05:00'", "default_storage_engine": "'MyISAM'",
        "foreign_key_checks": "0", "sql_safe_updates": "1",
    }  # fmt: skip
    before = {name: mysql.query(f"SELECT @@GLOBAL.{name}")[0][0] for name in hostile}
    for name, value in hostile.items():
        mysql.query(f"SET GLOBAL {name} = {value}")
    try:
        kinds = {"k": str, "at": "timestamp"}
        async with sink(mysql, table="u", key="k", value_type=kinds, create=True) as one:
            await one.write({"k": "it's \\", "at": NOON}, {"k": "b", "at": NOON}, ("b", None))
            batch = await one.write({"k": "x" * 256, "at": NOON}, {"k": "c"}, dead_letters=True)
            assert [refusal.at for refusal in batch.refused] == [0]
    finally:
        for name, value in before.items():
            mysql.query(f"SET GLOBAL {name} = %s", value)
    assert mysql.query("SELECT * FROM u ORDER BY k") == [
        ("c", None),
        ("it's \\", NOON.replace(tzinfo=None)),
    ]
    assert mysql.query("SELECT next_offset FROM onceward_positions") == [(5,)]


async def test_a_batch_larger_than_a_packet_is_split_and_a_value_larger_is_refused(
    mysql: Database,
) -> None:
    (before,) = mysql.query("SELECT @@GLOBAL.max_allowed_packet")[0]
    mysql.query("SET GLOBAL max_allowed_packet = 65536")
    try:
        mysql.query("CREATE TABLE t (x int PRIMARY KEY, y longtext, z longtext)")
        async with sink(mysql, key="x") as one:
            rows: list[dict[str, Any]] = [{"x": x, "y": "ü" * 400, "z": ""} for x in range(300)]
            await one.write(*rows)
            large = {"x": 1000, "y": "'" * 40_000, "z": "small"}
            batch = await one.write({"x": 300}, large, {"x": 301}, dead_letters=True)
    finally:
        mysql.query("SET GLOBAL max_allowed_packet = %s", before)
    ((at, reason),) = batch.refused
    assert at == 1
    assert "the row takes 80" in reason and "(max_allowed_packet)" in reason
    assert "column 'y'" in reason
    assert mysql.query("SELECT count(*), sum(length(y)) FROM t") == [(302, 300 * 800)]


async def test_what_cannot_work_is_refused_at_once() -> None:
    dsn = "mysql://host/db"
    with pytest.raises(ConfigurationError, match="mode='upsert' needs key="):
        MySqlSink(dsn, table="t", mode="upsert")
    with pytest.raises(ConfigurationError, match="create=True needs value_type="):
        MySqlSink(dsn, table="t", create=True)
    with pytest.raises(ConfigurationError, match="key 'nr' is no field of value_type"):
        MySqlSink(dsn, table="t", key="nr", value_type=Point)
    for wrong in ("a.b.c", '"open', "a..b"):
        with pytest.raises(ConfigurationError, match="is no name of a table"):
            MySqlSink(dsn, table=wrong)


def test_the_driver_is_imported_with_the_sink_and_not_before() -> None:
    program = (
        "import sys; sys.modules['pymysql'] = None\n"
        "from onceward.streams import sinks\n"
        "try: sinks.MySqlSink\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "MySqlSink needs PyMySQL" in done.stdout, done.stderr
    assert "pip install 'onceward[mysql]'" in done.stdout
