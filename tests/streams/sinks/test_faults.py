"""Every fault of every system: one sentence that says where it is, and nothing is lost."""

from __future__ import annotations

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onceward.streams.sinks import FilesSink, SinkError, SinkUnavailable, SqliteSink
from onceward.streams.sinks.files_objects import ObjectFiles
from onceward.streams.sinks.sink import TransactionalSink

from .driven import Driven, driven
from .object_store import Bucket, MemoryStore

TABLE = """
    CREATE TABLE t (
        x integer UNIQUE, y text, z {z}, must integer NOT NULL DEFAULT 0, small {small},
        plus integer CHECK (plus > 0)
    )"""


class System(ABC):
    """A new sink's system. ``table``: what a sentence calls the place of the rows."""

    table = "table t of "

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        self.path = tmp_path

    @abstractmethod
    def create(self) -> None:
        """The table."""

    @abstractmethod
    def sink(self, **options: Any) -> TransactionalSink: ...

    @abstractmethod
    def elsewhere(self) -> TransactionalSink:
        """Where nothing can be."""

    @abstractmethod
    def rows(self) -> list[int]:
        """Values of x, in order."""


class Postgres(System):
    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        pytest.importorskip("psycopg", reason="pip install 'onceward[test]' brings psycopg")
        self.schema = request.getfixturevalue("postgres")

    def create(self) -> None:
        self.schema.query(TABLE.format(z="varchar(3)", small="smallint"))

    def sink(self, **options: Any) -> TransactionalSink:
        from onceward.streams.sinks import PostgresSink

        return PostgresSink(self.schema.dsn(), table="t", **options)

    def elsewhere(self) -> TransactionalSink:
        from onceward.streams.sinks import PostgresSink

        return PostgresSink("postgresql://127.0.0.1:1/nowhere", table="t")

    def rows(self) -> list[int]:
        return [row[0] for row in self.schema.query("SELECT x FROM t ORDER BY x")]


class Sqlite(System):
    def create(self) -> None:
        with closing(sqlite3.connect(self.path / "t.db")) as connection:
            statement = TABLE.format(
                z="text CHECK (length(z) <= 3)",
                small="integer CHECK (small BETWEEN -32768 AND 32767)",
            )
            connection.execute(f"{statement} STRICT")

    def sink(self, **options: Any) -> TransactionalSink:
        return SqliteSink(self.path / "t.db", table="t", **options)

    def elsewhere(self) -> TransactionalSink:
        return SqliteSink(self.path / "nowhere" / "t.db", table="t")

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.path / "t.db")) as connection:
            return [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]


class DuckDb(System):
    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        self.duckdb = pytest.importorskip("duckdb", reason="'onceward[test]' brings duckdb")

    def create(self) -> None:
        with self.duckdb.connect(str(self.path / "t.duckdb")) as connection:
            connection.execute(TABLE.format(z="text CHECK (length(z) <= 3)", small="smallint"))

    def sink(self, **options: Any) -> TransactionalSink:
        from onceward.streams.sinks import DuckDbSink

        return DuckDbSink(self.path / "t.duckdb", table="t", **options)

    def elsewhere(self) -> TransactionalSink:
        from onceward.streams.sinks import DuckDbSink

        return DuckDbSink(self.path / "nowhere" / "t.duckdb", table="t")

    def rows(self) -> list[int]:
        with self.duckdb.connect(str(self.path / "t.duckdb")) as connection:
            found = connection.execute("SELECT x FROM t ORDER BY x").fetchall()
        return [row[0] for row in found]


class JsonLines(System):
    table = "jsonl files in "

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        self.options: dict[str, Any] = {}

    def create(self) -> None:
        return

    def sink(self, **options: Any) -> TransactionalSink:
        return FilesSink(self.path / "t", **self.options, **options)

    def elsewhere(self) -> TransactionalSink:
        (self.path / "file").touch()
        return FilesSink(self.path / "file" / "t", **self.options)

    def rows(self) -> list[int]:
        lines = [line for text in self.texts() for line in text.splitlines()]
        return sorted(json.loads(line)["x"] for line in lines)

    def texts(self) -> list[str]:
        return [file.read_text() for file in (self.path / "t").glob("*.*")]


class Csv(JsonLines):
    table = "csv files in "

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        self.options = {"format": "csv", "columns": ["x", "y", "z", "must", "small", "plus"]}

    def rows(self) -> list[int]:
        lines = [line for text in self.texts() for line in text.splitlines()[1:]]
        return sorted(int(line.split(",")[0]) for line in lines)


class Parquet(JsonLines):
    table = "parquet files in "

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        reason = "'onceward[test]' brings pyarrow"
        arrow = pytest.importorskip("pyarrow", reason=reason)
        self.parquet = pytest.importorskip("pyarrow.parquet", reason=reason)
        kinds = [("x", arrow.int32()), ("y", arrow.string()), ("z", arrow.string())]
        kinds += [("small", arrow.int16()), ("plus", arrow.uint8())]
        fields = [arrow.field(*kind) for kind in kinds]
        fields.append(arrow.field("must", arrow.int32(), nullable=False))
        self.options = {"format": "parquet", "schema": arrow.schema(fields)}

    def rows(self) -> list[int]:
        tables = [self.parquet.read_table(file) for file in (self.path / "t").glob("*.*")]
        return sorted(row["x"] for table in tables for row in table.to_pylist())


class ParquetObjects(Parquet):
    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        self.bucket = Bucket()
        (tmp_path / "t").mkdir()

    def sink(self, **options: Any) -> TransactionalSink:
        store = MemoryStore(self.bucket)
        return FilesSink("s3://bucket/t", store=store, **self.options, **options)

    def elsewhere(self) -> TransactionalSink:
        return FilesSink("s3://bucket/t", store=MemoryStore(self.bucket, 0), **self.options)

    def rows(self) -> list[int]:
        for key, stored in self.bucket.objects.items():
            if key.endswith(".parquet"):
                (self.path / key).write_bytes(stored.data)
        return super().rows()


SYSTEMS: dict[str, Callable[[Path, pytest.FixtureRequest], System]] = {
    "postgres": Postgres,
    "sqlite": Sqlite,
    "duckdb": DuckDb,
    "jsonl": JsonLines,
    "csv": Csv,
    "parquet": Parquet,
    "parquet objects": ParquetObjects,
}


class Fault(NamedTuple):
    row: dict[str, Any]
    column: str
    systems: tuple[str, ...]
    """That refuse it; the others take it."""


DATABASES = ("postgres", "sqlite", "duckdb")
TYPED = (*DATABASES, "parquet", "parquet objects")
FAULTS = {
    "unknown column": Fault({"x": 2, "no": 1}, "no", (*TYPED, "csv")),
    "type": Fault({"x": "two"}, "x", TYPED),
    "type of a later column": Fault({"x": 2, "small": "two"}, "small", TYPED),
    "number too big": Fault({"x": 2**90}, "x", TYPED),
    "small number too big": Fault({"x": 2, "small": 40000}, "small", TYPED),
    "duplicate": Fault({"x": 1}, "x", DATABASES),
    "nothing": Fault({"x": 2, "must": None}, "must", TYPED),
    "condition": Fault({"x": 2, "plus": -1}, "plus", TYPED),
    "text too long": Fault({"x": 2, "z": "long"}, "z", DATABASES),
    "no text": Fault({"x": 2, "y": "\ud800"}, "y", (*TYPED, "csv", "jsonl")),
}
CASES = [(system, fault) for fault, known in FAULTS.items() for system in known.systems]


def row(x: int) -> dict[str, Any]:
    return {"x": x, "must": 0}


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Path) -> System:
    return SYSTEMS[request.param](tmp_path, request)


@pytest.mark.parametrize(("system", "fault"), CASES, indirect=["system"])
async def test_a_refused_row_is_named_with_sink_table_column_and_record(
    system: System, fault: str
) -> None:
    bad, column, _ = FAULTS[fault]
    system.create()
    one = await driven(system.sink())
    await one.write(row(1))
    with pytest.raises(SinkError) as caught:
        await one.write(row(10), row(11), {"must": 0, **bad}, row(12))
    said = str(caught.value)
    assert said.startswith(f"sink 't' ({system.table}"), said
    assert "refuses what was written for orders-0 at offset 3: " in said
    reason = said.partition("at offset 3: ")[2].partition(". Nothing since")[0]
    assert re.search(rf"\b(t_)?{column}(_check|_key)?\b", reason), reason
    assert "\n" not in said
    await one.take_over()
    assert one.claim.next_offset == 1
    await one.write(row(10), row(11), row(12))
    await one.sink.close()
    assert system.rows() == [1, 10, 11, 12]


@pytest.mark.parametrize(("system", "fault"), CASES, indirect=["system"])
async def test_the_good_rows_land_beside_a_dead_letter(system: System, fault: str) -> None:
    bad = {"must": 0, **FAULTS[fault].row}
    system.create()
    one = await driven(system.sink())
    await one.write(row(1))
    batch = await one.write(row(10), row(11), bad, row(12), bad, dead_letters=True)
    await one.take_over()
    assert one.claim.next_offset == 6
    assert sorted(effect.offset for effect in one.claim.refused) == [3, 5]
    await one.sink.close()
    assert [refusal.at for refusal in batch.refused] == [2, 4]
    assert system.rows() == [1, 10, 11, 12]


async def complaint(sink: TransactionalSink) -> str:
    """What the first use says."""
    with pytest.raises((SinkError, SinkUnavailable)) as caught:
        await sink.start()
        await Driven(sink).take_over()
    with suppress(SinkUnavailable):
        await sink.close()
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("system", SYSTEMS, indirect=True)
async def test_a_place_that_is_not_there_is_named(system: System) -> None:
    assert (await complaint(system.elsewhere())).startswith(f"sink 't' ({system.table}")


@pytest.mark.parametrize("system", DATABASES, indirect=True)
async def test_a_missing_table_is_named_and_its_rows_land_when_it_is_there(
    system: System,
) -> None:
    said = await complaint(system.sink())
    assert said.startswith(f"sink 't' ({system.table}")
    assert "there is no such table" in said
    system.create()
    one = await driven(system.sink())
    await one.write(row(1))
    await one.sink.close()
    assert system.rows() == [1]


@pytest.mark.parametrize("system", DATABASES, indirect=True)
async def test_a_missing_column_is_named_before_anything_is_written(system: System) -> None:
    system.create()
    said = await complaint(system.sink(value_type={"x": int, "no": int}))
    assert said.startswith(f"sink 't' ({system.table}")
    assert "has no column 'no'" in said


@pytest.mark.parametrize("system", ["postgres"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_in_mid_commit_is_named_and_loses_nothing(
    system: Postgres, when: str
) -> None:
    from onceward.streams.sinks import PostgresSink

    from .database_proxy import proxied

    system.create()
    async with proxied(system.schema.server) as proxy:
        one = await driven(PostgresSink(system.schema.dsn(host=proxy.folder), table="t"))
        await one.write(row(1))
        proxy.cut = (1, when)
        with pytest.raises(SinkUnavailable) as caught:
            await one.write(row(10), row(11))
        assert str(caught.value).startswith("sink 't' (table t of postgresql://")
        assert "\n" not in str(caught.value)
        await one.take_over()
        if when == "before":
            assert one.claim.next_offset == 1
            await one.write(row(10), row(11))
        await one.write(row(12))
        await one.sink.close()
    assert system.rows() == [1, 10, 11, 12]


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_request_lost_in_mid_commit_is_named_and_loses_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, how: str
) -> None:
    system = ParquetObjects(tmp_path, request)
    one = await driven(system.sink())
    await one.write(row(1))
    assert isinstance(one.sink, FilesSink) and isinstance(one.sink.place, ObjectFiles)
    store = one.sink.place.store
    assert isinstance(store, MemoryStore)
    store.at, store.how = store.requests + 2, how  # a file, its name, and the positions
    with pytest.raises(SinkUnavailable) as caught:
        await one.write(row(10), row(11))
    assert str(caught.value).startswith("sink 't' (parquet files in s3://bucket/t): no ")
    await one.take_over()
    if how == "before":
        assert one.claim.next_offset == 1
        await one.write(row(10), row(11))
    await one.write(row(12))
    await one.sink.close()
    assert system.rows() == [1, 10, 11, 12]
