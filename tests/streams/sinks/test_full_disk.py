"""A disk that is full for real: the worker says so, waits, and everything is there exactly once."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, Stream, WorkerError
from onceward.streams.sinks import FilesSink, MemoryDatabase, MemorySink, Sink, SqliteSink

from ..workers import make_app, until, worker
from .etl import Order, is_done, make_cluster, put_orders
from .small_disk import SmallDisk, small_disk
from .test_refused import letters

FULL = re.compile("No space left on device|disk is full")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "small", 2048) as made:
        yield made


def rows_app(tmp_path: Path, sink: Sink) -> App:
    app = make_app(tmp_path / "worker", on_agent_error="dead_letter")

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[sink])
    async def etl(stream: Stream[Order]) -> AsyncIterator[dict[str, Any]]:
        async for order in stream:
            yield {"id": order.id, "text": "x" * 200}

    return app


async def fill_and_make_room(
    app: App, disk: SmallDisk, read: Callable[[], list[int]], caplog: pytest.LogCaptureFixture
) -> set[str]:
    """Run a worker whose disk is full for a while; returns what it said of that."""
    caplog.set_level(logging.WARNING, "onceward")
    cluster = make_cluster(20)

    def complaints() -> list[str]:
        return [text for record in caplog.records if FULL.search(text := record.getMessage())]

    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
        assert not complaints()
        disk.fill()
        put_orders(cluster, 500, start=20)
        await until(lambda: bool(complaints()), running, timeout=10)
        await asyncio.sleep(0.2)  # it tries again meanwhile
        assert read() == list(range(len(read()))), "whole commits only"
        assert not is_done(cluster)()
        disk.make_room()
        await until(is_done(cluster), running, timeout=20)
    assert read() == list(range(520))
    assert not letters(cluster)
    return set(complaints())


async def test_a_sqlite_database_on_a_full_disk_holds_the_worker_up_and_loses_nothing(
    tmp_path: Path, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    path = disk.path / "rows.db"
    types = {"id": int, "text": str}
    sink = SqliteSink(path, table="rows", value_type=types, create=True)

    def read() -> list[int]:
        with closing(sqlite3.connect(path)) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM rows ORDER BY id")]

    said = await fill_and_make_room(rows_app(tmp_path, sink), disk, read, caplog)
    assert any(f"sink 'rows' (table rows of {path}): database or disk is" in text for text in said)


async def test_files_on_a_full_disk_hold_the_worker_up_and_lose_nothing(
    tmp_path: Path, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    path = disk.path / "rows"
    sink = FilesSink(path)

    def read() -> list[int]:
        found = [file.read_text() for file in path.glob("*.jsonl")]
        return sorted(json.loads(line)["id"] for text in found for line in text.splitlines())

    said = await fill_and_make_room(rows_app(tmp_path, sink), disk, read, caplog)
    assert all(f"sink 'rows' (jsonl files in {path}): " in text for text in said)


async def test_a_duckdb_database_on_a_full_disk_holds_the_worker_up_and_loses_nothing(
    tmp_path: Path, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    duckdb = pytest.importorskip("duckdb", reason="pip install 'onceward[test]' brings duckdb")
    from onceward.streams.sinks import DuckDbSink

    path = disk.path / "rows.duckdb"
    types = {"id": int, "text": str}
    sink = DuckDbSink(path, table="rows", value_type=types, create=True)

    def read() -> list[int]:
        with duckdb.connect(str(path)) as connection:
            found = connection.execute("SELECT id FROM rows ORDER BY id").fetchall()
        return [row[0] for row in found]

    said = await fill_and_make_room(rows_app(tmp_path, sink), disk, read, caplog)
    assert all(f"sink 'rows' (table rows of {path}): " in text for text in said)


def counting_app(disk: SmallDisk, database: MemoryDatabase) -> App:
    app = make_app(disk.path, store="rocksdb://")
    counts = app.Table("counts", key_type=int, default=int)
    texts = app.Table("texts", key_type=int, default=str)

    @app.agent(
        app.topic("orders", value_type=Order, partitions=2),
        sink=[MemorySink("rows", database=database)],
    )
    async def count(stream: Stream[Order]) -> AsyncIterator[dict[str, int]]:
        async for order in stream:
            counts[0] += 1
            texts[order.id] = "x" * 500
            yield {"id": order.id, "count": counts[0]}

    return app


async def test_a_full_disk_under_the_state_stops_the_worker_and_the_next_one_counts_on(
    tmp_path: Path,
) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    with small_disk(tmp_path / "small", 8192) as disk:
        with pytest.raises(WorkerError, match=rf"state store in {disk.path}/.* No space left"):
            async with worker(counting_app(disk, database), cluster) as first:
                await until(is_done(cluster), first)
                disk.fill()
                put_orders(cluster, 2000, start=20)
                await until(lambda: False, first, timeout=20)
        first.consumer.expel()
        disk.make_room()
        async with worker(counting_app(disk, database), cluster) as second:
            await until(is_done(cluster), second, timeout=20)
    counted = [row["count"] for row in sorted(database.rows("rows"), key=lambda row: row["id"])]
    assert counted == [n // 2 + 1 for n in range(2020)], "each partition counts for itself"
