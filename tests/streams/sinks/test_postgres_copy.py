"""Rows in COPY's binary format: what the extension makes is what psycopg makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.streams.sinks import PostgresSink, rows_kernel
from onceward.streams.sinks.postgres_copy import BLOCK_BYTES, Misfit
from onceward.streams.sinks.postgres_copy import blocks as some_blocks
from onceward.streams.sinks.postgres_types import COLUMNS, SMALL, Column, JsonText, transfer
from onceward.streams.sinks.rows_kernel import encode

from .driven import driven
from .postgres_server import Schema

pytestmark = pytest.mark.skipif(
    not rows_kernel.COMPILED, reason="the extension is not built: psycopg makes all rows"
)
TYPES = {
    "h": "int2", "i": "int4", "q": "int8", "d": "float8", "n": "numeric", "o": "bool", "y": "date",
    "z": "timestamptz", "w": "timestamp", "u": "uuid", "b": "bytea", "s": "text", "v": "varchar(9)",
    "c": "char(4)", "m": "mood", "j": "jsonb", "k": "json",
}  # fmt: skip
ALL = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.text(max_size=3), st.floats(), st.decimals(),
    st.dates(), st.datetimes(), st.binary(max_size=3), st.uuids(),
)  # fmt: skip


class Broken(tzinfo):
    """A zone that does not say."""

    def __init__(self, says: Any) -> None:
        self.says = says

    def utcoffset(self, at: datetime | None) -> Any:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def tzname(self, at: datetime | None) -> str:
        return "broken"

    def dst(self, at: datetime | None) -> None:
        return None


zones = st.sampled_from(
    [UTC, ZoneInfo("UTC"), timezone(timedelta(hours=-5, seconds=1)), ZoneInfo("Europe/Oslo")]
)  # fmt: skip
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9)
documents = st.sampled_from(['{"a": [1, "é"]}', "1", "null", '"x"']).map(JsonText)
integers = st.one_of(
    st.integers(), *(st.sampled_from([-(1 << b), (1 << b) - 1, 1 << b]) for b in (15, 31, 63))
)
decimals = st.one_of(
    st.decimals(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    st.builds(
        lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
        st.integers(0, 1),
        st.lists(st.integers(0, 9), max_size=20).map(tuple),
        st.integers(-40, 40),
    ),
)
numbers = st.one_of(decimals, integers, st.floats())
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "h": st.integers(-(1 << 15), (1 << 15) - 1), "i": st.integers(-(1 << 31), (1 << 31) - 1),
    "q": st.integers(-(1 << 63), (1 << 63) - 1), "d": st.one_of(st.floats(), integers),
    "n": numbers, "o": st.booleans(), "y": st.dates(), "z": st.datetimes(timezones=zones),
    "w": st.datetimes(), "u": st.uuids(), "b": st.binary(max_size=9), "s": texts, "v": texts,
    "c": st.text("abé", max_size=4), "m": st.sampled_from(["sad", "ok"]), "j": documents,
    "k": documents,
}  # fmt: skip
Rows = list[dict[str, Any]]
rows_of_fitting = st.tuples(
    *(st.lists(st.none() | field, min_size=1, max_size=3) for field in FIELDS.values())
).map(
    lambda drawn: [
        {name: some[row % len(some)] for name, some in zip(FIELDS, drawn, strict=True)}
        for row in range(SMALL)
    ]
)


def blocks(columns: list[Column], rows: Rows) -> list[bytes] | None:
    """All of them; None when psycopg has to make them."""
    try:
        made = some_blocks(columns, rows)
        return None if made is None else list(made)
    except Misfit:
        return None


class Table:
    """Rows copied into ``t`` one way or the other, and what is there then."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        schema.query("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        kinds = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        schema.query(f"CREATE TABLE t ({kinds})")
        found = schema.query(COLUMNS.replace("%s", "'t'"))
        self.columns = {row[0]: Column(*row) for row in found}
        self.connection = psycopg.connect(schema.dsn(), autocommit=True)

    def copied(self, names: list[str], form: str, write: Callable[[Any], None]) -> Any:
        """The rows as text, or the server's code for what it refused."""
        self.schema.query("TRUNCATE t")
        statement = f"COPY t ({', '.join(names)}) FROM STDIN{form}".encode()
        try:
            with self.connection.cursor().copy(statement) as copy:
                write(copy)
        except psycopg.Error as error:
            return error.sqlstate or type(error)
        return self.connection.execute("SELECT t::text FROM t ORDER BY ctid").fetchall()

    def both(self, rows: Rows) -> tuple[Any, Any]:
        """By psycopg and by the extension; None where that leaves it to psycopg."""
        names = list(rows[0])
        columns = [self.columns[name] for name in names]
        types, tuples = transfer(columns, rows)
        form = "" if types is None else " (FORMAT BINARY)"
        made = blocks(columns, rows)
        assert made is None or types is not None, "in binary only what is in binary otherwise"

        def by_psycopg(copy: Any) -> None:
            if types is not None:
                copy.set_types(types)
            for row in tuples:
                copy.write_row(row)

        def by_extension(copy: Any) -> None:
            for block in made or ():
                copy.write(block)

        there = self.copied(names, form, by_psycopg)
        return there, None if made is None else self.copied(names, form, by_extension)


@pytest.fixture
def table(postgres: Schema) -> Iterator[Table]:
    made = Table(postgres)
    yield made
    made.connection.close()


LIGHT = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@LIGHT
@given(rows=rows_of_fitting)
def test_rows_that_fit_are_the_same_in_the_table(table: Table, rows: Rows) -> None:
    """One column at a time may hold what binary cannot: integers of any size for a float."""
    there, made = table.both(rows)
    assert made in (None, there)


@LIGHT
@given(name=st.sampled_from(sorted(FIELDS)), data=st.data())
def test_a_column_of_values_that_fit_goes_in_binary(
    table: Table, name: str, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(FIELDS[name], min_size=SMALL, max_size=30))
    types, _ = transfer([table.columns[name]], [{name: value} for value in drawn])
    there, made = table.both([{name: value} for value in drawn])
    specials = [v for v in drawn if isinstance(v, Decimal) and v.is_nan()]
    assert (made is None) == (types is None) or specials
    assert made in (None, there)


@LIGHT
@given(name=st.sampled_from(sorted(FIELDS)), odd=ALL, data=st.data())
def test_a_value_that_may_not_fit_is_what_it_is_otherwise(
    table: Table, name: str, odd: Any, data: st.DataObject
) -> None:
    drawn = [*data.draw(st.lists(FIELDS[name], min_size=SMALL, max_size=SMALL)), odd]
    if isinstance(odd, bytes) and name != "b":
        return  # has no text
    there, made = table.both([{name: value} for value in drawn])
    assert made in (None, there)


@pytest.mark.parametrize(
    "text",
    ["0", "-0", "0.00", "0E+3", "0E-20", "1", "-1", "10000", "9999", "0.0001", "0.00001", "1E-4",
     "12345.6789", "1E+3", "1.5E+3", "1E-16383", "1E-16384", "1E+130000", "1E+131080", "123456E+2",
     "100000000", "1E+59999", "1.23E-7", "NaN", "-NaN", "sNaN", "NaN12", "Infinity", "-Infinity",
     "9" * 5000, "0." + "1" * 5000],
)  # fmt: skip
def test_decimals_of_every_form_are_the_same(table: Table, text: str) -> None:
    there, made = table.both([{"n": Decimal(text)}] * SMALL)
    assert made in (None, there)
    with localcontext() as context:
        context.capitals = 0
        assert table.both([{"n": Decimal(text)}] * SMALL) == (there, made)


def test_numbers_that_python_does_not_write_are_left_to_psycopg(table: Table) -> None:
    there, made = table.both([{"n": 10**5000}] * SMALL)
    assert (len(there), made) == (SMALL, None)


def test_numbers_at_the_end_of_floats_are_the_same(table: Table) -> None:
    largest = int(float.fromhex("0x1.fffffffffffffp1023"))
    half = 1 << 970  # from there on it is infinite
    for number in (largest, -largest, largest + half - 1, largest + half, 1 << 1024, -(1 << 1023)):
        there, made = table.both([{"d": number}] * SMALL)
        assert made in (None, there)
    assert table.both([{"d": largest + half}] * SMALL) == ("22003", None)


@pytest.mark.parametrize("folded", [0, 1])
def test_an_hour_that_comes_twice_is_the_one_that_is_meant(table: Table, folded: int) -> None:
    at = datetime(2026, 10, 25, 2, 30, 15, 7, ZoneInfo("Europe/Oslo"), fold=folded)
    early = datetime(1890, 1, 1, tzinfo=ZoneInfo("Europe/Oslo"))  # 43 minutes off, in a way
    ends = [
        datetime.fromisoformat(f"{edge}{sign}23:59:59")
        for edge in ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999")
        for sign in "+-"
    ]
    for value in (at, early, *ends):
        there, made = table.both([{"z": value}] * SMALL)
        assert made == there


@pytest.mark.parametrize(
    "zone", [Broken(None), Broken(timedelta(hours=30)), Broken(ValueError("x")), Broken("text")]
)
def test_zones_that_do_not_say_are_left_to_psycopg(table: Table, zone: tzinfo) -> None:
    at = datetime(2026, 1, 1, tzinfo=zone)
    assert blocks([table.columns["z"]], [{"z": at}] * SMALL) is None


def test_times_at_both_ends_of_the_calendar_are_the_same(table: Table) -> None:
    for text in (
        "0001-01-01",
        "9999-12-31T23:59:59.999999",
        "2000-02-29",
        "1900-03-01",
        "1600-12-31",
    ):
        at = datetime.fromisoformat(text)
        there, made = table.both([{"w": at, "z": at.replace(tzinfo=UTC), "y": at.date()}] * SMALL)
        assert made == there


def test_text_that_the_server_refuses_is_refused_for_the_same_reason(table: Table) -> None:
    there, made = table.both([{"s": "a\0"}] * SMALL)
    assert made == there == "22021"
    there, made = table.both([{"v": "ten letters"}] * SMALL)
    assert made == there == "22001"
    assert blocks([table.columns["s"]], [{"s": "\ud800"}] * SMALL) is None


def test_rows_of_other_columns_and_other_things_than_rows_are_left_alone(table: Table) -> None:
    columns = [table.columns["h"], table.columns["i"]]
    rows: Rows = [{"h": 1, "i": 2}] * SMALL
    assert blocks(columns, rows) is not None
    for odd in ({"i": 2, "h": 1}, {"h": 1}, {"h": 1, "i": 2, "q": 3}, {"h": 1, "x": 2}, 5):
        assert blocks(columns, [*rows, odd]) is None  # type: ignore[list-item]
    assert blocks(columns, rows[1:]) is None, "few rows go as text"


def test_many_rows_are_several_blocks_of_whole_rows(table: Table) -> None:
    rows: Rows = [{"q": number, "s": "é" * (number % 700)} for number in range(1500)]
    made = blocks([table.columns["q"], table.columns["s"]], rows)
    assert made is not None
    sizes = [len(block) for block in made[:-1]]
    assert len(sizes) > 5
    assert all(BLOCK_BYTES <= size < BLOCK_BYTES + 2000 for size in sizes[:-1])
    there, copied = table.both(rows)
    assert (len(there), copied) == (1500, there)


def test_a_value_that_changes_its_row_while_it_is_looked_at_does_no_harm(table: Table) -> None:
    rows: Rows = []

    class Changing(Broken):
        def utcoffset(self, at: datetime | None) -> Any:
            rows[0].clear()
            rows.clear()
            return timedelta(0)

    at = datetime(2026, 1, 1, tzinfo=Changing(None))
    rows += [{"z": at, "s": "x" * number} for number in range(SMALL)]
    assert blocks([table.columns["z"], table.columns["s"]], rows) is None


@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_a_row_that_does_not_fit_behind_others_that_were_sent_takes_nothing_with_it(
    postgres: Schema, mode: str
) -> None:
    postgres.query("CREATE TABLE t (k int8 PRIMARY KEY, n numeric, s text)")
    made = PostgresSink(postgres.dsn(), table="t", key="k", mode=mode, on_error="dead_letter")
    one = await driven(made)
    for odd, is_refused in (({"n": Decimal("-NaN")}, False), ({"s": "\ud800"}, True)):
        postgres.query("TRUNCATE t")
        rows: Rows = [{"k": k, "n": Decimal(k), "s": "x" * 99} for k in range(3000)]
        rows[2500] |= odd
        rows[7] = {"k": 7, "other": 1}
        batch = await one.write(*rows, dead_letters=True)
        refused = [7, 2500] if is_refused else [7]
        assert [refusal.at for refusal in batch.refused] == refused
        there = postgres.query("SELECT k, n::text, s FROM t ORDER BY k")
        assert there == [
            (row["k"], str(row["n"]).removeprefix("-"), row["s"])
            for k, row in enumerate(rows)
            if k not in refused
        ]
    await made.close()


async def test_only_the_rows_that_the_server_cannot_hold_are_refused(postgres: Schema) -> None:
    class Text(str):
        """Text of another type."""

    postgres.query("CREATE TABLE t (k int8 PRIMARY KEY, s text, i int4, z timestamptz, d date)")
    made = PostgresSink(postgres.dsn(), table="t", on_error="dead_letter")
    one = await driven(made)
    rows: Rows = [{"k": k, "s": "x", "i": k, "z": None, "d": None} for k in range(300)]
    odd: dict[int, tuple[dict[str, Any], bool]] = {
        50: ({"s": "a\0b"}, True), 60: ({"s": Text("a\0b")}, True), 61: ({"s": Text("y")}, False),
        70: ({"s": "\ud800"}, True), 80: ({"i": 1 << 31}, True), 90: ({"i": True}, False),
        100: ({"i": 1 << 70}, True), 110: ({"i": 2.0}, True), 120: ({"i": "7"}, False),
        130: ({"d": datetime.fromisoformat("2026-01-01T05:00:00")}, False),
        140: ({"z": "no time"}, True), 150: ({"k": 149}, True), 160: ({"s": b"bytes"}, True),
        299: ({"s": "\0"}, True),
    }  # fmt: skip
    for at, (change, _) in odd.items():
        rows[at] |= change
    batch = await one.write(*rows, dead_letters=True)
    await made.close()
    refused = [at for at, (_, is_refused) in odd.items() if is_refused]
    assert [refusal.at for refusal in batch.refused] == refused
    assert postgres.query("SELECT k FROM t ORDER BY k") == [
        (k,) for k in range(300) if k not in refused
    ]
    assert postgres.query("SELECT i FROM t WHERE k IN (90, 120) ORDER BY k") == [(1,), (7,)]


async def test_a_connection_of_another_encoding_gets_text_in_it(postgres: Schema) -> None:
    postgres.query("CREATE TABLE t (s text)")
    made = PostgresSink(f"{postgres.dsn()}&client_encoding=LATIN1", table="t")
    one = await driven(made)
    await one.write(*[{"s": "é"}] * SMALL)
    await made.close()
    assert postgres.query("SELECT DISTINCT s FROM t") == [("é",)]


def test_the_extension_looks_at_what_it_is_given() -> None:
    assert encode is not None
    with pytest.raises(ValueError, match="a kind per column"):
        encode(b"hh", ("a",), [], 0, 1, JsonText)
    for at, size in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="no sizes below 0"):
            encode(b"h", ("a",), [], at, size, JsonText)
    for no_text in (int, "str", object):
        with pytest.raises(TypeError, match="a type of text"):
            encode(b"s", ("a",), [{"a": 1}], 0, 1, no_text)  # type: ignore[arg-type]
    assert encode(b"!", ("a",), [{"a": 1}], 0, 1, JsonText) is None
    huge = bytes(1 << 31)  # no page of it is touched
    assert encode(b"b", ("a",), [{"a": huge}], 0, 1, JsonText) is None
    assert encode(b"h", ("a",), [], 5, 1, JsonText) == (b"", 5)
