"""PostgreSQL on disks that are full for real: of a tablespace, and of its write-ahead log."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ..workers import until, worker
from .etl import is_done, make_cluster, put_orders
from .postgres_server import PostgresServer, Schema
from .small_disk import SmallDisk, small_disk
from .test_postgres_failures import assert_exact, numbers, rows_app
from .test_refused import letters


@pytest.fixture
def tablespace(postgres: Schema) -> Iterator[SmallDisk]:
    """Where all tables of the schema are made."""
    server, name = postgres.server, f"small_{postgres.name}"
    with small_disk(server.folder / name, 1024) as disk:
        (disk.path / "tables").mkdir()
        shutil.chown(disk.path / "tables", "nobody")
        postgres.query(f"CREATE TABLESPACE {name} LOCATION '{disk.path}/tables'")
        try:
            yield disk
        finally:
            postgres.query(f"DROP SCHEMA {postgres.name} CASCADE")
            postgres.query(f"DROP TABLESPACE {name}")


async def test_a_full_tablespace_holds_the_worker_up_and_loses_nothing(
    tmp_path: Path, postgres: Schema, tablespace: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "onceward")
    dsn = f"{postgres.dsn()}%20-cdefault_tablespace%3D{tablespace.path.name}"
    cluster = make_cluster(20)
    app = rows_app(tmp_path, dsn, on_agent_error="dead_letter")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=10)
        tablespace.fill()
        put_orders(cluster, 2000, start=20)
        await until(lambda: "DiskFull" in caplog.text, running, timeout=10)
        await asyncio.sleep(0.2)  # it tries again meanwhile
        assert not is_done(cluster)()
        found = numbers(postgres, "id")
        assert found == list(range(len(found))), "whole commits only"
        tablespace.make_room()
        await until(is_done(cluster), running, timeout=20)
    assert_exact(postgres, cluster, 2020)
    assert not letters(cluster)
    assert re.search(
        r"committing: sink 't' \(table t of postgresql://[^)]*\): DiskFull: could not extend file "
        r'"[^"]*": No space left on device',
        caplog.text,
    )


@pytest.fixture
def cramped() -> Iterator[tuple[PostgresServer, SmallDisk]]:
    """A server whose write-ahead log is on a small disk."""
    # a postmaster that starts again by itself would do so at any time from the first PANIC on
    settings = {"max_wal_size": "32MB", "min_wal_size": "32MB", "restart_after_crash": "off"}
    server = PostgresServer(settings)
    try:
        with small_disk(server.folder / "wal", 96 * 1024) as disk:
            log = server.folder / "data" / "pg_wal"
            shutil.move(log, disk.path / "pg_wal")
            log.symlink_to(disk.path / "pg_wal")
            for path in (disk.path, *(disk.path / "pg_wal").rglob("*"), disk.path / "pg_wal"):
                shutil.chown(path, "nobody")
            server.start()
            try:
                yield server, disk
            finally:
                server.remove()
    finally:
        server.remove()


async def test_a_full_write_ahead_log_ends_the_server_and_the_worker_waits_for_the_next_one(
    tmp_path: Path,
    cramped: tuple[PostgresServer, SmallDisk],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "onceward")
    server, disk = cramped
    schema = Schema(server, "cramped")
    cluster = make_cluster(20)
    async with worker(rows_app(tmp_path, schema.dsn()), cluster) as running:
        await until(is_done(cluster), running, timeout=10)
        disk.fill()
        with pytest.raises(psycopg.Error):
            for _ in range(20):  # segments that were there before are used up
                schema.query("SELECT pg_switch_wal(), pg_logical_emit_message(false, 'x', 'x')")
        schema.close()
        put_orders(cluster, 100, start=20)
        await until(lambda: "running again from the last commit" in caplog.text, running)
        await until(lambda: "bringing up tasks" in caplog.text, running)
        assert not is_done(cluster)()
        server.wait_ended()
        assert "PANIC" in server.log()
        disk.make_room()
        server.start()
        await until(is_done(cluster), running, timeout=30)
    assert "tasks are up again after" in caplog.text
    assert re.search(r"sink 't' \(table t of postgresql://[^)]*\): \w", caplog.text)
    assert_exact(schema, cluster, 120)
    schema.close()
