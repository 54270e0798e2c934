"""What PostgreSQL does not take: rows, whole tables, passwords. One sentence each, nothing lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from onceward.streams import ConfigurationError
from onceward.streams.sinks import PostgresSink, SinkError, SinkUnavailable
from onceward.streams.sinks.errors import SinkTimeout

from .driven import Driven, driven
from .postgres_server import Schema

TABLE = """
    CREATE TABLE t (
        x integer UNIQUE, y text, z varchar(3), n numeric(4,2), at timestamptz, doc jsonb,
        list integer[], raw bytea, must integer NOT NULL DEFAULT 0, small smallint,
        plus integer CHECK (plus > 0), refused boolean, ref integer REFERENCES t (x)
    );
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.refused THEN RAISE EXCEPTION 'not this one'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse();
    CREATE INDEX ON t (y);
"""
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a column the table has not": ({"x": 2, "no": 1}, "the table has no column 'no'"),
    "a key that is there": (
        {"x": 1}, 'UniqueViolation: duplicate key value violates unique constraint "t_x_key" '
        r"\(Key \(x\)=\(1\) already exists\)",
    ),
    "a type": (
        {"x": "two"}, 'InvalidTextRepresentation: invalid input syntax for type integer: "two" '
        'in column "x"',
    ),
    "a number too big": ({"x": 2**31}, "NumericValueOutOfRange: .*out of range for type integer"),
    "a number far too big": ({"x": 2**90}, "NumericValueOutOfRange: .*out of range .*"),
    "a fraction": ({"x": 1.5}, "InvalidTextRepresentation: .*integer: \"1.5\" in column \"x\""),
    "a small number too big": ({"x": 2, "small": 40000}, '.*out of range for type smallint in col'),
    "digits": ({"x": 2, "n": Decimal("100.5")}, "NumericValueOutOfRange: numeric field overflow"),
    "text that is none": ({"x": 2, "y": "\ud800"}, "UnicodeEncodeError: .*surrogates"),
    "a zero in text": ({"x": 2, "y": "a\0b"}, ".*(0x00|NUL)"),
    "text too long": ({"x": 2, "z": "long"}, "StringDataRightTruncation: value too long .*\"z\""),
    "text too long to index": (
        {"x": 2, "y": "".join(f"{n:x}" for n in range(9000))}, "ProgramLimitExceeded: index row",
    ),
    "a document that is none": ({"x": 2, "doc": "{"}, 'InvalidTextRepresentation: .*column "doc"'),
    "a list of another type": ({"x": 2, "list": ["a"]}, "InvalidTextRepresentation: .*\"list\""),
    "a mixed list": ({"x": 2, "list": [1, "a"]}, "DataError: .*mixed"),
    "bytes for a number": ({"x": 2, "small": b"1"}, "TypeError: bytes do not fit column 'small'"),
    "a time that is none": ({"x": 2, "at": "noon"}, "InvalidDatetimeFormat: .*column \"at\""),
    "nothing where something must be": ({"x": 2, "must": None}, "NotNullViolation: .*\"must\""),
    "a condition": ({"x": 2, "plus": -1}, 'CheckViolation: .*check constraint "t_plus_check"'),
    "a trigger": ({"x": 2, "refused": True}, "RaiseException: not this one"),
    "a reference": ({"x": 2, "ref": 99}, "ForeignKeyViolation: .*is not present in table"),
}  # fmt: skip


@asynccontextmanager
async def sink(postgres: Schema, **options: Any) -> AsyncIterator[Driven[PostgresSink]]:
    made = PostgresSink(postgres.dsn(), **{"table": "t", **options})
    try:
        yield await driven(made)
    finally:
        await made.close()


def good(*numbers: int) -> list[dict[str, Any]]:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    return [{"x": x, "y": f"row {x}", "at": at, "n": Decimal(1)} for x in numbers]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize(("row", "reason"), BAD.values(), ids=BAD.keys())
async def test_a_row_the_database_refuses_is_named_and_nothing_lands(
    postgres: Schema, row: dict[str, Any], reason: str, mode: str
) -> None:
    if mode == "upsert" and row == {"x": 1}:
        return  # that is what it is for
    postgres.query(TABLE)
    async with sink(postgres, mode=mode, key="x") as one:
        await one.write({"x": 1})
        message = rf"sink 't' \(table t of .*\) refuses .* orders-0 at offset 14: {reason}"
        with pytest.raises(SinkError, match=message) as caught:
            await one.write(*good(*range(10, 23)), row, *good(*range(23, 30)))
    assert "\n" not in str(caught.value)
    assert postgres.query("SELECT x FROM t") == [(1,)]
    assert postgres.query("SELECT next_offset FROM onceward_positions") == [(1,)]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize(("row", "reason"), BAD.values(), ids=BAD.keys())
async def test_the_rest_lands_when_refused_rows_are_dead_letters(
    postgres: Schema, row: dict[str, Any], reason: str, mode: str
) -> None:
    if mode == "upsert" and row == {"x": 1}:
        return
    postgres.query(TABLE)
    async with sink(postgres, mode=mode, key="x") as one:
        await one.write({"x": 1})
        rows = good(*range(10, 40))
        batch = await one.write(*rows[:11], row, *rows[11:], row, dead_letters=True)
        assert [refusal.at for refusal in batch.refused] == [11, 31]
        assert postgres.query("SELECT x FROM t ORDER BY x") == [
            (1,),
            *[(x,) for x in range(10, 40)],
        ]
        assert postgres.query('SELECT "offset" FROM onceward_refused') == [(12,), (32,)]
        await one.take_over()
        assert sorted(id_.offset for id_ in one.claim.refused) == [12, 32]


async def test_a_table_or_column_that_goes_while_it_is_used_is_named(postgres: Schema) -> None:
    postgres.query("CREATE TABLE t (x int, y int)")
    async with sink(postgres) as one:
        await one.write({"x": 1, "y": 1})
        postgres.query("ALTER TABLE t DROP COLUMN y")
        batch = await one.write({"x": 2, "y": 2}, {"x": 3}, dead_letters=True)
        assert batch.refused == [(0, "the table has no column 'y'")]
        postgres.query("ALTER TABLE t ADD COLUMN y text")
        await one.write({"x": 4, "y": "was a number"})
        assert postgres.query("SELECT * FROM t") == [(1, None), (3, None), (4, "was a number")]
        postgres.query("DROP TABLE t")
        with pytest.raises(
            SinkError, match=r"sink 't' \(.*\): UndefinedTable: .*\"t\" does not ex"
        ):
            await one.write({"x": 5})


async def test_a_column_whose_type_changes_while_it_is_used_gets_right_values(
    postgres: Schema,
) -> None:
    postgres.query("CREATE TABLE t (x bigint, y bigint)")
    rows = [{"x": x, "y": x} for x in range(20)]
    async with sink(postgres) as one:
        await one.write(*rows)
        postgres.query("ALTER TABLE t ALTER COLUMN x TYPE double precision")
        postgres.query("ALTER TABLE t ALTER COLUMN y TYPE timestamptz USING '2026-01-01'")
        batch = await one.write(*rows, dead_letters=True)
        assert len(batch.refused) == 20
        postgres.query("ALTER TABLE t DROP COLUMN y, ADD COLUMN y numeric")
        await one.write(*rows)
    assert postgres.query("SELECT x, y FROM t OFFSET 20") == [(float(x), x) for x in range(20)]


async def test_privileges_are_said_to_be_missing(postgres: Schema) -> None:
    role = f"reader_{postgres.name}"
    postgres.query(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {postgres.name} TO {role}")
    postgres.query("CREATE TABLE t (x int)")
    one = PostgresSink(postgres.dsn(user=role), table="t")
    with pytest.raises(SinkError, match="InsufficientPrivilege: permission denied for schema"):
        await one.start()
    await one.close()
    async with sink(postgres):
        pass
    postgres.query(f"GRANT ALL ON onceward_positions, onceward_refused TO {role}")
    two = await driven(PostgresSink(postgres.dsn(user=role), table="t"))
    with pytest.raises(SinkError, match="InsufficientPrivilege: permission denied for table t"):
        await two.write({"x": 1})
    await two.sink.close()


PASSWORD = "s3cr%41t"


@pytest.mark.parametrize(
    ("user", "database", "message"),
    [
        ("locked", "postgres", 'password authentication failed for user "locked"|no password'),
        (f"locked:{PASSWORD}", "postgres", 'password authentication failed for user "locked"'),
        (f"nobody_here:{PASSWORD}", "postgres", 'role "nobody_here" does not exist'),
        (f"postgres:{PASSWORD}", "nowhere", 'database "nowhere" does not exist'),
    ],
)
async def test_who_is_not_let_in_is_told_why_and_no_password(
    postgres: Schema, user: str, database: str, message: str
) -> None:
    postgres.query("DROP ROLE IF EXISTS locked; CREATE ROLE locked LOGIN PASSWORD 'another'")
    sink = PostgresSink(postgres.dsn(user=user, database=database), table="t")
    with pytest.raises(
        SinkError, match=rf"sink 't' \(table t of postgresql://.*\): .*({message})"
    ) as caught:
        await sink.start()
    await sink.close()
    assert "s3cr" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgres:{PASSWORD}@host",
        f"postgresql://me:{PASSWORD}%@host/db",
        f"password={PASSWORD} nothing",
        f"postgresql://host/db?passwort={PASSWORD}",
    ],
)
def test_a_connection_string_that_is_none_is_not_shown(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="this is no connection string") as caught:
        PostgresSink(dsn, table="t")
    assert "s3cr" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (
            f"postgresql://me:{PASSWORD}@host:5433/db?sslmode=require",
            "postgresql://me@host:5433/db",
        ),
        (f"host=/run/pg user=me password={PASSWORD}", "postgresql://me@/run/pg/"),
        ("postgresql://a:1,b:2/db?target_session_attrs=read-write", "postgresql://a,b:1,2/db"),
    ],
)
def test_a_sink_describes_where_it_leads_without_the_password(dsn: str, shown: str) -> None:
    sink = PostgresSink(dsn, table="t")
    assert sink.describe() == f"sink 't' (table t of {shown})"
    assert "s3cr" not in repr(sink)


async def test_where_nothing_listens_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = PostgresSink(f"postgresql://me:{PASSWORD}@127.0.0.1:1/db", table="t")
    with pytest.raises(SinkUnavailable, match=r"sink 't' .*OperationalError: .*refused") as caught:
        await sink.start()
    await sink.close()
    assert "s3cr" not in str(caught.value) + caplog.text


# what the server raises for a while

PASSING = {
    "disk full": ("53100", "DiskFull"),
    "out of memory": ("53200", "OutOfMemory"),
    "serialization": ("40001", "SerializationFailure"),
    "deadlock": ("40P01", "DeadlockDetected"),
    "a lock": ("55P03", "LockNotAvailable"),
    "shutdown": ("57P01", "AdminShutdown"),
    "input and output": ("58030", "IoError"),
    "a standby": ("25006", "ReadOnlySqlTransaction"),
}


@pytest.mark.parametrize(("state", "name"), PASSING.values(), ids=PASSING.keys())
async def test_what_passes_is_tried_again_and_dead_letters_nothing(
    postgres: Schema, state: str, name: str
) -> None:
    postgres.query("CREATE TABLE t (x int); CREATE TABLE trouble (n int)")
    postgres.query(
        f"""
        CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM trouble) AND NEW.x > 4 THEN
                RAISE EXCEPTION 'for now' USING ERRCODE = '{state}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER trouble BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION trouble();
        INSERT INTO trouble VALUES (1)"""
    )
    rows = [{"x": x} for x in range(10)]
    async with sink(postgres) as one:
        with pytest.raises(SinkUnavailable, match=rf"sink 't' \(table t of .*\): {name}: for now"):
            await one.write(*rows, dead_letters=True)
        assert postgres.query("SELECT count(*) FROM t") == [(0,)]
        postgres.query("DELETE FROM trouble")
        await one.write(*rows, dead_letters=True)
    assert postgres.query("SELECT count(*) FROM t") == [(10,)]


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(postgres: Schema) -> None:
    postgres.query("CREATE TABLE t (x int)")
    async with sink(postgres, timeout=0.3, lock_timeout=5) as one:
        one.sink.timeout = 5
        with psycopg.connect(postgres.dsn()) as other:
            other.execute("LOCK TABLE t")
            with pytest.raises(SinkTimeout, match=r"QueryCanceled: .*statement timeout"):
                await one.write({"x": 1})
        await one.write({"x": 1})
    assert postgres.query("SELECT x FROM t") == [(1,)]


async def test_a_locked_table_is_unavailable(postgres: Schema) -> None:
    postgres.query("CREATE TABLE t (x int)")
    async with sink(postgres, lock_timeout=0.1) as one:
        with psycopg.connect(postgres.dsn()) as other:
            other.execute("LOCK TABLE t")
            with pytest.raises(SinkUnavailable, match=r"LockNotAvailable: .*lock timeout"):
                await one.write({"x": 1})
        await one.write({"x": 1})
    assert postgres.query("SELECT x FROM t") == [(1,)]
