"""The PostgreSQL sink against PostgreSQL: tables, columns, types, upserts and deletions."""

from __future__ import annotations

import enum
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec
import psycopg
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import field
from psycopg.types.range import Range

from onceward.streams import ConfigurationError, Record
from onceward.streams.sinks import PostgresSink, SinkError
from onceward.streams.sinks.changes import insertions, upserts
from onceward.streams.sinks.postgres_types import SMALL, adapt

from .driven import Driven, driven
from .postgres_server import Schema


@asynccontextmanager
async def sink(postgres: Schema, **options: Any) -> AsyncIterator[Driven[PostgresSink]]:
    """A started sink into table ``t`` that owns the partition."""
    made = PostgresSink(postgres.dsn(), **{"table": "t", **options})
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
    tags: tuple[str, ...] = ()
    legs: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
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
    "id": "text", "minutes": "bigint", "delay": "double precision", "price": "numeric",
    "tags": "text[]", "legs": "bigint[]", "places": "jsonb", "at": "timestamp with time zone",
    "day": "date", "clock": "time without time zone", "took": "interval", "raw": "bytea",
    "late": "boolean", "uid": "uuid", "colour": "text", "kind": "text", "extra": "jsonb",
    "place": "jsonb",
}  # fmt: skip


async def test_a_table_is_made_from_the_value_type_and_rows_are_read_back(
    postgres: Schema,
) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    full = Flight(
        "a", 5, 1.5, Decimal("1.10"), ("x", 'q"\\'), [1, 2], [Place("Oslo")], at, at.date(),
        time(1, 2), timedelta(days=-1, seconds=5), b"\x00\\x", True, UUID(int=7), Colour.RED, "b",
        {"a": [1, None]}, Place("Rome"),
    )  # fmt: skip
    async with sink(postgres, key="id", value_type=Flight, create=True) as one:
        await one.write(full, Flight("b", 6))
    rows = postgres.query("SELECT * FROM t ORDER BY id")
    assert rows == [
        ("a", 5, 1.5, Decimal("1.10"), ["x", 'q"\\'], [1, 2], [{"city": "Oslo"}], at, at.date(),
         time(1, 2), timedelta(days=-1, seconds=5), b"\x00\\x", True, UUID(int=7), "red", "b",
         {"a": [1, None]}, {"city": "Rome"}),
        ("b", 6, None, Decimal(0), [], [], [], None, None, None, None, b"", False, None, "red",
         "a", {}, None),
    ]  # fmt: skip
    columns = postgres.query(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 't'::regclass AND attnum > 0"
    )
    assert dict(columns) == FLIGHT_COLUMNS
    assert postgres.query("SELECT next_offset, epoch FROM onceward_positions") == [(2, 1)]


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
async def test_every_kind_of_model_is_a_row(postgres: Schema, value: Any) -> None:
    kind = {"x": int, "y": "INTEGER"} if type(value) is dict else type(value)
    async with sink(postgres, value_type=kind, create=True) as one:
        await one.write(value)
    assert postgres.query("SELECT x, y FROM t") == [(1, 2)]


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
PARIS = timezone(timedelta(hours=1))
VALUES: list[tuple[str, Any, Any]] = [
    ("smallint", -(2**15), -(2**15)),
    ("integer", 2**31 - 1, 2**31 - 1),
    ("bigint", -(2**63), -(2**63)),
    ("bigint", True, 1),
    ("bigint", "17", 17),
    ("numeric", 2**70, Decimal(2**70)),
    ("numeric", 0.1, Decimal("0.1")),
    ("numeric", Decimal("-1E+3"), Decimal(-1000)),
    ("numeric(6,2)", Decimal("1.005"), Decimal("1.01")),
    ("real", 1.5, 1.5),
    ("double precision", 3, 3.0),
    ("double precision", float("inf"), float("inf")),
    ("text", "tab\tline\nback\\slash ünï \\N", "tab\tline\nback\\slash ünï \\N"),
    ("text", 5, "5"),
    ("text", True, "true"),
    ("text", {"a": 1}, '{"a":1}'),
    ("text", ["a"], '["a"]'),
    ("varchar(3)", "abc", "abc"),
    ("char(3)", "a", "a  "),
    ("boolean", False, False),
    ("bytea", bytes(range(256)), bytes(range(256))),
    ("bytea", memoryview(b"ab"), b"ab"),
    ("uuid", UUID(int=2**127), UUID(int=2**127)),
    ("uuid", str(UUID(int=1)), UUID(int=1)),
    ("date", date(1, 1, 1), date(1, 1, 1)),
    ("date", "2026-01-02", date(2026, 1, 2)),
    ("time", time(23, 59, 59, 999999), time(23, 59, 59, 999999)),
    ("interval", timedelta(days=1, microseconds=-1), timedelta(days=1, microseconds=-1)),
    ("timestamptz", NOON.astimezone(PARIS), NOON),
    ("timestamptz", NOON.replace(tzinfo=None), NOON),
    ("timestamptz", "2026-01-02T13:00:00+01:00", NOON),
    ("timestamp", NOON.astimezone(PARIS), NOON.replace(tzinfo=None)),
    ("timestamp", NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
    ("json", {"a": [1, "é"]}, {"a": [1, "é"]}),
    ("jsonb", {"a": {"b": None}}, {"a": {"b": None}}),
    ("jsonb", [1, [2], {"c": 3.5}], [1, [2], {"c": 3.5}]),
    ("jsonb", '{"text": 1}', {"text": 1}),
    ("jsonb", 5, 5),
    ("jsonb", True, True),
    ("jsonb", NOON, "2026-01-02T12:00:00Z"),
    ("jsonb", Place("Oslo"), {"city": "Oslo"}),
    ("integer[]", [1, None, 3], [1, None, 3]),
    ("integer[]", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ("text[]", ("a,b", 'q"', "\\", "NULL", ""), ["a,b", 'q"', "\\", "NULL", ""]),
    ("text[]", [], []),
    ("numeric[]", [Decimal("1.5")], [Decimal("1.5")]),
    ("timestamptz[]", [NOON], [NOON]),
    ("uuid[]", [UUID(int=1)], [UUID(int=1)]),
    ("jsonb[]", [{"a": 1}, None], [{"a": 1}, None]),
    ("colour", Colour.RED, "red"),
    ("positive", 5, 5),
    ("int4range", "[1,5)", Range(1, 5)),
    ("inet", "10.0.0.1", "10.0.0.1/32"),
]


@pytest.mark.parametrize("size", [1, SMALL], ids=["one", "many"])
async def test_every_type_arrives_as_it_was(postgres: Schema, size: int) -> None:
    postgres.query("CREATE TYPE colour AS ENUM ('red', 'green')")
    postgres.query("CREATE DOMAIN positive AS integer CHECK (value > 0)")
    columns = [f"v{number} {kind}" for number, (kind, _, _) in enumerate(VALUES)]
    postgres.query(f"CREATE TABLE t (nr integer, {', '.join(columns)})")
    rows = []
    for number, (_, value, _) in enumerate(VALUES):  # each column is copied by itself
        rows += [{"nr": nr, f"v{number}": value} for nr in range(size)]
        rows.append({"nr": -1, f"v{number}": None})
    async with sink(postgres) as one:
        await one.write(*rows)
    for number, (kind, value, expected) in enumerate(VALUES):
        column = f"v{number}::text" if kind == "inet" else f"v{number}"
        found = postgres.query(f"SELECT {column} FROM t WHERE v{number} IS NOT NULL")
        assert [row[0] for row in found] == [expected] * size, f"{kind} from {value!r}"
    assert postgres.query("SELECT count(*) FROM t") == [(len(rows),)]


async def test_what_is_written_is_a_snapshot() -> None:
    made = PostgresSink("postgresql://host/db", table="t")
    row: Any = {"a": [1, {"b": 2}], "c": {"d": [3]}}
    encoded = made.encode(row, None, None)  # type: ignore[arg-type]
    row["a"][1]["b"] = 5
    row["c"]["d"] = 6
    assert encoded == {"a": [1, {"b": 2}], "c": '{"d":[3]}'}
    as_letter = msgspec.json.decode(msgspec.json.encode(encoded, enc_hook=repr))
    assert as_letter == encoded


async def test_rows_with_other_columns_lose_none_of_them_and_get_defaults(
    postgres: Schema,
) -> None:
    postgres.query("CREATE TABLE t (a int, b int DEFAULT 7, c int, nr serial)")
    async with sink(postgres) as one:
        await one.write({"a": 1}, {"c": 3, "a": 2}, {"a": 3, "b": 5}, {"a": 4}, {"a": 5, "c": 6})
        await one.write({})
    assert postgres.query("SELECT a, b, c FROM t ORDER BY a") == [
        (1, 7, None), (2, 7, 3), (3, 5, None), (4, 7, None), (5, 7, 6), (None, 7, None)
    ]  # fmt: skip


async def test_an_upsert_keeps_columns_it_does_not_name_and_a_tombstone_deletes(
    postgres: Schema,
) -> None:
    postgres.query("CREATE TABLE t (account text, day int, a int, b int, UNIQUE (day, account))")
    async with sink(postgres, key=["account", "day"]) as one:
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
    assert postgres.query("SELECT * FROM t ORDER BY account, day") == [
        ("x", 1, 3, 2), ("x", 2, 9, None), ("z", 2, None, None)
    ]  # fmt: skip


async def test_inserted_rows_are_deleted_by_key_in_their_order(postgres: Schema) -> None:
    postgres.query("CREATE TABLE t (k int, v int)")
    async with sink(postgres, key="k", mode="insert") as one:
        await one.write(
            {"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 3}, (1, None), {"k": 1, "v": 4},
            (3, None), {"k": 3},
        )  # fmt: skip
    assert postgres.query("SELECT * FROM t ORDER BY k") == [(1, 4), (2, 3), (3, None)]


async def test_keys_that_only_the_database_takes_for_one_are_written_in_order(
    postgres: Schema,
) -> None:
    postgres.query("CREATE TABLE t (k numeric PRIMARY KEY, a int, b int)")
    keys = [Decimal("1"), Decimal("1.0"), Decimal("1.00")]
    async with sink(postgres, key="k") as one:
        await one.write(*({"k": key, "a": nr} for nr, key in enumerate(keys)))
        assert postgres.query("SELECT a, b FROM t") == [(2, None)]
        await one.write(
            {"k": keys[0], "a": 5}, {"k": keys[1], "b": 6}, {"k": keys[2], "a": 7}, (keys[1], None),
            {"k": keys[0], "b": 8},
        )  # fmt: skip
    assert postgres.query("SELECT a, b FROM t") == [(None, 8)]


async def test_keys_the_column_makes_alike_are_one_row(postgres: Schema) -> None:
    postgres.query("CREATE TABLE t (k varchar(3) PRIMARY KEY, a int, b int)")
    async with sink(postgres, key="k") as one:
        await one.write({"k": "abc", "a": 1}, {"k": "abc ", "b": 2}, {"k": "abc  ", "a": 3})
    assert postgres.query("SELECT * FROM t") == [("abc", 3, 2)]


OPERATION = st.tuples(
    st.integers(0, 3),
    st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9)),
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(OPERATION, min_size=1, max_size=24), min_size=1, max_size=3))
async def test_a_batch_ends_as_its_changes_one_by_one(
    postgres: Schema, batches: list[list[tuple[int, dict[str, int | None] | None]]]
) -> None:
    postgres.query("DROP TABLE IF EXISTS t, onceward_positions")
    postgres.query("CREATE TABLE t (k int PRIMARY KEY, a int, b int, c int)")
    expected: dict[int, dict[str, int | None]] = {}
    async with sink(postgres, key="k") as one:
        for batch in batches:
            for key, row in batch:
                if row is None:
                    expected.pop(key, None)
                else:
                    expected.setdefault(key, dict.fromkeys("abc")).update(row)
            await one.write(
                *((key, row if row is None else {"k": key, **row}) for key, row in batch)
            )
    found = postgres.query("SELECT * FROM t")
    assert {key: dict(zip("abc", row, strict=True)) for key, *row in found} == expected


@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_names_are_taken_as_they_are_written(postgres: Schema, mode: str) -> None:
    postgres.query('CREATE SCHEMA "other schema"')
    columns = {"order": int, "Mixed": str, 'quo"te': int, "per%cent %s": int, "ütf": int}
    options = {"value_type": columns, "create": True, "mode": mode, "key": ["order", "Mixed"]}
    row = dict(zip(columns, [1, "x", 2, 3, 4], strict=True))
    for name, quoted in [
        ("Select", '"Select"'),
        (f"{postgres.name}.user", f'{postgres.name}."user"'),
        ('"other schema"."with.dot"', '"other schema"."with.dot"'),
        ('"a""b%"', '"a""b%"'),
    ]:
        async with sink(postgres, table=name, **options) as one:
            await one.write(row, ((7, "y"), None))
        assert postgres.query(f"SELECT * FROM {quoted}") == [(1, "x", 2, 3, 4)]
    postgres.query('DROP SCHEMA "other schema" CASCADE')
    for wrong in ("", "a.b.c", '"open', "a..b"):
        with pytest.raises(ConfigurationError, match=r"is no name of a table|needs a name"):
            PostgresSink(postgres.dsn(), table=wrong)


async def test_a_missing_table_column_or_key_is_said_before_anything_runs(
    postgres: Schema,
) -> None:
    with pytest.raises(
        SinkError, match=r"sink 't' \(table t of postgresql://.*\): there is no such table; create"
    ):
        await PostgresSink(postgres.dsn(), table="t").start()
    postgres.query("CREATE TABLE t (x int, u int)")
    with pytest.raises(SinkError, match="no such table, there is t: names are taken as they are"):
        await PostgresSink(postgres.dsn(), table="T").start()
    with pytest.raises(SinkError, match="the table has no column 'y'; add it, or give add_columns"):
        await PostgresSink(postgres.dsn(), table="t", value_type=Point).start()
    with pytest.raises(SinkError, match="the table has no column 'z', which is to be the key"):
        await PostgresSink(postgres.dsn(), table="t", key="z").start()
    postgres.query("CREATE UNIQUE INDEX ON t (x, u); CREATE UNIQUE INDEX ON t (x) WHERE x > 1")
    with pytest.raises(SinkError, match="upsert needs a primary key or unique index over exactly"):
        await PostgresSink(postgres.dsn(), table="t", key="x").start()


async def test_columns_are_added_when_asked_and_only_when_they_are_missing(
    postgres: Schema,
) -> None:
    postgres.query("CREATE TABLE t (x int)")
    async with sink(postgres, value_type=Point, add_columns=True) as one:
        await one.write(
            {"x": 1, "y": 2},
            {"x": 2, "note": "new", "doc": {"a": 1}, "list": [1], "big": 2**64, "none": None},
        )
        assert postgres.query("SELECT x, y, note, doc, list, big, none FROM t ORDER BY x") == [
            (1, 2, None, None, None, None, None),
            (2, None, "new", {"a": 1}, [1], Decimal(2**64), None),
        ]
        with psycopg.connect(postgres.dsn()) as reader:
            reader.execute("SELECT count(*) FROM t")  # holds a lock that an ALTER waits for
            await one.write({"x": 3, "note": "now"})
    assert postgres.query("SELECT count(*) FROM t") == [(3,)]


async def test_row_level_security_is_no_obstacle(postgres: Schema) -> None:
    owner = f"owner_{postgres.name}"
    postgres.query(f"CREATE ROLE {owner} LOGIN; GRANT ALL ON SCHEMA {postgres.name} TO {owner}")
    postgres.query(f"CREATE TABLE t (x int); ALTER TABLE t OWNER TO {owner}")
    postgres.query(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY"
    )
    postgres.query("CREATE POLICY p ON t WITH CHECK (x < 5)")
    one = await driven(PostgresSink(postgres.dsn(user=owner), table="t"))
    batch = await one.write({"x": 1}, {"x": 9}, {"x": 2}, dead_letters=True)
    await one.sink.close()
    assert [refusal.at for refusal in batch.refused] == [1]
    assert postgres.query("SELECT x FROM t") == [(1,), (2,)]


def test_what_cannot_work_is_refused_at_once() -> None:
    dsn = "postgresql://host/db"
    with pytest.raises(ConfigurationError, match="mode='upsert' needs key="):
        PostgresSink(dsn, table="t", mode="upsert")
    with pytest.raises(ConfigurationError, match="create=True needs value_type="):
        PostgresSink(dsn, table="t", create=True)
    with pytest.raises(ConfigurationError, match="key 'nr' is no field of value_type"):
        PostgresSink(dsn, table="t", key="nr", value_type=Point)


def test_psycopg_is_imported_with_the_sink_and_not_before() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from onceward.streams import sinks\n"
        "try: sinks.PostgresSink\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "PostgresSink needs psycopg 3" in done.stdout, done.stderr
    assert "pip install 'onceward[postgres]'" in done.stdout


def test_a_big_batch_of_every_shape_is_one_statement_per_shape() -> None:
    shapes = [dict.fromkeys(("k", *names), 1) for names in itertools.combinations("abc", 2)]
    rows = [{**shapes[nr % 3], "k": nr} for nr in range(300)]
    assert [len(change.rows) for change in insertions(rows)] == [100, 100, 100]
    assert [len(change.rows) for change in upserts(rows, ["k"])] == [100, 100, 100]


def test_buffers_in_lists_are_bytes_and_copies() -> None:
    buffer = bytearray(b"x")
    made = adapt([buffer, [memoryview(b"y"), None], (b"z", 1)])
    buffer[0] = 0
    assert made == [b"x", [b"y", None], [b"z", 1]]
