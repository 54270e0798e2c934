"""Types and values in MySQL: each arrives as it was."""

from __future__ import annotations

import enum
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.streams import Record

from .mysql_server import Database
from .test_mysql import sink


class Colour(enum.Enum):
    RED = "red"


class Place(Record):
    city: str


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
BARE = NOON.replace(tzinfo=None)
PARIS = timezone(timedelta(hours=1))
VALUES: list[tuple[str, Any, Any]] = [
    ("smallint", -(2**15), -(2**15)),
    ("integer", 2**31 - 1, 2**31 - 1),
    ("bigint", -(2**63), -(2**63)),
    ("bigint unsigned", 2**64 - 1, 2**64 - 1),
    ("bigint", True, 1),
    ("bigint", "17", 17),
    ("bigint", 5.0, 5),
    ("bigint", Decimal("2E+2"), 200),
    ("year", 2026, 2026),
    ("decimal(30,0)", 2**70, Decimal(2**70)),
    ("decimal(20,10)", 0.1, Decimal("0.1")),
    ("decimal(20,10)", "12.5", Decimal("12.5")),
    ("decimal(10,2)", Decimal("-1E+3"), Decimal(-1000)),
    ("decimal(6,2)", Decimal("1.005"), Decimal("1.01")),
    ("float", 1.5, 1.5),
    ("double", 3, 3.0),
    ("double", 1.7976931348623157e308, 1.7976931348623157e308),
    ("double", Decimal("0.1"), 0.1),
    ("double", "2.5", 2.5),
    (
        "text",
        "tab\tline\nback\\slash ünï 🚀 \\N '\"%s%",
        "tab\tline\nback\\slash ünï 🚀 \\N '\"%s%",
    ),
    ("text", "a\0b'c\\", "a\0b'c\\"),
    ("text", 5, "5"),
    ("text", 1.5, "1.5"),
    ("text", True, "true"),
    ("text", NOON, "2026-01-02T12:00:00+00:00"),
    ("text", {"a": 1}, '{"a":1}'),
    ("text", ["a"], '["a"]'),
    ("varchar(3)", "abc", "abc"),
    ("varchar(3) character set latin1", "été", "été"),
    ("char(3)", "a", "a"),
    ("boolean", False, 0),
    ("bit(1)", True, b"\x01"),
    ("blob", bytes(range(256)), bytes(range(256))),
    ("blob", memoryview(b"ab"), b"ab"),
    ("blob", "é", "é".encode()),
    ("binary(16)", UUID(int=2**127), UUID(int=2**127).bytes),
    ("char(36)", UUID(int=2**127), str(UUID(int=2**127))),
    ("date", date(1000, 1, 1), date(1000, 1, 1)),
    ("date", "2026-01-02", date(2026, 1, 2)),
    ("date", NOON, date(2026, 1, 2)),
    ("time(6)", time(23, 59, 59, 999999), timedelta(hours=24, microseconds=-1)),
    ("time(6)", timedelta(hours=-838, minutes=-59), timedelta(hours=-838, minutes=-59)),
    ("time(6)", timedelta(days=1, microseconds=-1), timedelta(days=1, microseconds=-1)),
    ("datetime(6)", NOON.astimezone(PARIS), BARE),
    ("datetime(6)", BARE.replace(microsecond=7), BARE.replace(microsecond=7)),
    ("datetime", "2026-01-02T13:00:00+01:00", BARE),
    ("datetime", "2026-01-02T12:00:00Z", BARE),
    ("datetime", date(2026, 1, 2), BARE.replace(hour=0)),
    ("timestamp", NOON.astimezone(PARIS), BARE),
    ("timestamp", "2026-01-02 12:00:00", BARE),
    ("enum('red','1')", Colour.RED, "red"),
    ("enum('red','1')", "1", "1"),
    ("json", {"a": [1, "é"]}, {"a": [1, "é"]}),
    ("json", [1, [2], {"c": 3.5}], [1, [2], {"c": 3.5}]),
    ("json", '{"text": 1}', {"text": 1}),
    ("json", 5, 5),
    ("json", True, True),
    ("json", NOON, "2026-01-02T12:00:00Z"),
    ("json", Place("Oslo"), {"city": "Oslo"}),
]


@pytest.mark.parametrize("size", [1, 8], ids=["one", "many"])
async def test_every_type_arrives_as_it_was(mysql: Database, size: int) -> None:
    columns = [f"v{number} {kind} NULL" for number, (kind, _, _) in enumerate(VALUES)]
    mysql.query(f"CREATE TABLE t (nr integer, {', '.join(columns)})")
    rows = []
    for number, (_, value, _) in enumerate(VALUES):
        rows += [{"nr": nr, f"v{number}": value} for nr in range(size)]
        rows.append({"nr": -1, f"v{number}": None})
    async with sink(mysql) as one:
        await one.write(*rows)
    for number, (kind, value, expected) in enumerate(VALUES):
        found = [
            json.loads(row[0]) if kind == "json" else row[0]
            for row in mysql.query(f"SELECT v{number} FROM t WHERE v{number} IS NOT NULL")
        ]
        assert found == [expected] * size, f"{kind} from {value!r}"
    assert mysql.query("SELECT count(*) FROM t") == [(len(rows),)]


ALL_FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_categories=["Cs"])), st.binary(), ALL_FLOATS
        ),
        min_size=1,
    )
)
async def test_texts_bytes_and_floats_are_kept_exactly(
    mysql: Database, values: list[tuple[str | None, bytes, float]]
) -> None:
    mysql.query("DROP TABLE IF EXISTS t, onceward_positions")
    mysql.query("CREATE TABLE t (nr int, a longtext, b longblob, c double)")
    async with sink(mysql) as one:
        await one.write(
            *({"nr": nr, "a": a, "b": b, "c": c} for nr, (a, b, c) in enumerate(values))
        )
    assert mysql.query("SELECT a, b, c FROM t ORDER BY nr") == values
