"""Systems that workers under fire write to: how to start, kill and read each."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from onceward.broker.client import Admin

from .broker_process import BrokerUnderFire
from .pipeline import new_client
from .serving import ServiceProcess

Row = tuple[int, str, int]
"""number, key, count"""

ROWS = "SELECT number, key, count FROM rows"
TOTALS = "SELECT key, total FROM totals"


class Target:
    """What a run needs to know of a system. ``at`` goes to ``sink_app``."""

    workers: ClassVar[int] = 2
    has_server: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = True
    """Whether ``rows`` of a key come as they were written."""
    can_be_caught: ClassVar[bool] = False
    """Whether ``open_transactions`` tells."""
    away_s: ClassVar[float] = 1.0
    """How long a killed server stays away at most."""
    commit_interval: ClassVar[float] = 0.05
    waits_for_stopped: ClassVar[bool] = False
    """Whether a worker stopped within a transaction holds up the others until it goes on."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.at = str(folder / "under-fire")

    def start(self) -> None:
        """The server, if there is one, also after ``kill``. Skips the test when it cannot."""

    def kill(self) -> None:
        """SIGKILL to the server."""

    def remove(self) -> None:
        """The server is of no more use."""

    async def open_transactions(self) -> set[Any]:
        """Something that is equal as long as it is the same transaction."""
        return set()

    async def rows(self) -> list[Row]:
        raise NotImplementedError

    async def totals(self) -> dict[str, int]:
        raise NotImplementedError


def needs(module: str) -> None:
    """Skips the test without it."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not there: pip install 'onceward[test]'")


class Sqlite(Target):
    can_be_caught = True
    waits_for_stopped = True

    async def open_transactions(self) -> set[Any]:
        return write_lock(Path(self.at))

    async def rows(self) -> list[Row]:
        return self._query(f"{ROWS} ORDER BY rowid")

    async def totals(self) -> dict[str, int]:
        return dict(self._query(TOTALS))

    def _query(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.at)) as connection:
            return connection.execute(statement).fetchall()


def write_lock(database: Path) -> set[Any]:
    """The lock that somebody has on it."""
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return {database}
        connection.execute("ROLLBACK")
        return set()


class DuckDb(Target):
    """One process at a time has the file open, so there is one worker."""

    workers = 1
    waits_for_stopped = True

    def start(self) -> None:
        needs("duckdb")

    async def rows(self) -> list[Row]:
        return self._query(f"{ROWS} ORDER BY rowid")

    async def totals(self) -> dict[str, int]:
        return dict(self._query(TOTALS))

    def _query(self, statement: str) -> list[Any]:
        import duckdb

        with duckdb.connect(self.at, read_only=True) as connection:
            return connection.execute(statement).fetchall()


class Files(Target):
    """The names of the files say the order. The last total of a key counts."""

    can_be_caught = True
    waits_for_stopped = True

    def start(self) -> None:
        if self.kind == "parquet":
            needs("pyarrow")

    async def open_transactions(self) -> set[Any]:
        databases = Path(self.at).glob("*/_onceward/positions.db")
        return set().union(*map(write_lock, databases))

    async def rows(self) -> list[Row]:
        return [(row["number"], row["key"], row["count"]) for row in self._read("rows")]

    async def totals(self) -> dict[str, int]:
        return {row["key"]: row["total"] for row in self._read("totals")}

    def _read(self, name: str) -> Iterable[dict[str, Any]]:
        for path in sorted(Path(self.at, name).glob(f"*.{self.kind}")):
            if self.kind == "jsonl":
                yield from map(json.loads, path.read_text().splitlines())
            else:
                from pyarrow import parquet  # type: ignore[import-untyped]

                yield from parquet.read_table(path).to_pylist()


class Http(Target):
    """A service that knows keys again after SIGKILL."""

    has_server = True

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        self._database = folder / "service.db"
        self._service = ServiceProcess("http_process", folder / "service.log", str(self._database))

    def start(self) -> None:
        needs("httpx")
        self._service.start()
        self.at = self._service.url

    def kill(self) -> None:
        self._service.kill()

    def remove(self) -> None:
        self._service.kill()

    async def rows(self) -> list[Row]:
        return [(row["number"], row["key"], row["count"]) for row in self._kept("/rows")]

    async def totals(self) -> dict[str, int]:
        return {row["key"]: row["total"] for row in self._kept("/totals")}

    def _kept(self, path: str) -> list[Any]:
        """In the order of arrival."""
        log = self._service.log.read_text()
        assert "comes again" not in log, log[-2000:]
        with closing(sqlite3.connect(self._database)) as connection:
            found = connection.execute("SELECT row FROM kept WHERE path = ? ORDER BY at", (path,))
            return [json.loads(row) for (row,) in found]


class S3(Target):
    """What it keeps is in its memory, so it is stopped for a while instead of being killed."""

    has_server = True
    away_s = 4.0
    commit_interval = 0.5

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        self._service = ServiceProcess("s3_process", folder / "service.log")

    def start(self) -> None:
        if self._service.process is not None:
            self._service.process.send_signal(signal.SIGCONT)
            return
        for module in ("s3fs", "moto", "boto3"):
            needs(module)
        self._service.start()
        self.at = self._service.url
        self._client.create_bucket(Bucket="fire")

    def kill(self) -> None:
        """SIGSTOP, until ``start``."""
        assert self._service.process is not None
        self._service.process.send_signal(signal.SIGSTOP)

    def remove(self) -> None:
        self._service.kill()

    async def rows(self) -> list[Row]:
        return [(row["number"], row["key"], row["count"]) for row in self._read("rows")]

    async def totals(self) -> dict[str, int]:
        return {row["key"]: row["total"] for row in self._read("totals")}

    @property
    def _client(self) -> Any:
        import boto3  # type: ignore[import-untyped,import-not-found,unused-ignore]

        names = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        return boto3.client("s3", endpoint_url=self.at, region_name="us-east-1", **names)

    def _read(self, name: str) -> Iterable[dict[str, Any]]:
        client = self._client
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="fire", Prefix=f"{name}/")
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        for key in sorted(key for key in keys if "/_" not in key):
            data = client.get_object(Bucket="fire", Key=key)["Body"].read()
            yield from map(json.loads, data.splitlines())


class Postgres(Target):
    has_server = True
    keeps_order = False
    can_be_caught = True

    OPEN = """
        SELECT pid, xact_start FROM pg_stat_activity
        WHERE application_name ~ '^onceward' AND xact_start IS NOT NULL"""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        needs("psycopg")
        from ..streams.sinks.postgres_server import PostgresServer

        self._server = PostgresServer()
        self.at = self._server.dsn()

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def remove(self) -> None:
        self._server.remove()

    async def open_transactions(self) -> set[Any]:
        return set(self._query(self.OPEN))

    async def rows(self) -> list[Row]:
        return self._query(ROWS)

    async def totals(self) -> dict[str, int]:
        return dict(self._query(TOTALS))

    def _query(self, statement: str) -> list[Any]:
        import psycopg

        with psycopg.connect(self.at) as connection:
            return connection.execute(statement.encode()).fetchall()


class MySql(Target):
    has_server = True
    keeps_order = False
    can_be_caught = True

    OPEN = """
        SELECT trx_id, trx_mysql_thread_id, trx_started FROM information_schema.innodb_trx
        WHERE trx_mysql_thread_id <> CONNECTION_ID()"""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        needs("pymysql")
        from ..streams.sinks.mysql_server import MySqlServer

        self._server = MySqlServer()

    def start(self) -> None:
        self._server.start()
        self._query("CREATE DATABASE IF NOT EXISTS fire CHARACTER SET utf8mb4", None)
        self.at = self._server.dsn(database="fire")

    def kill(self) -> None:
        self._server.kill()

    def remove(self) -> None:
        self._server.remove()

    async def open_transactions(self) -> set[Any]:
        await asyncio.sleep(0.12)  # whoever asks twice within 0.1 s is told the same
        return set(self._query(self.OPEN))

    async def rows(self) -> list[Row]:
        return self._query("SELECT number, `key`, count FROM `rows`")

    async def totals(self) -> dict[str, int]:
        return dict(self._query("SELECT `key`, total FROM totals"))

    def _query(self, statement: str, database: str | None = "fire") -> list[Any]:
        with closing(self._server.connect(database)) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall())


class Redis(Target):
    """A list of rows, and a hash per total."""

    has_server = True

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        needs("redis")
        from ..streams.sinks.redis_server import RedisServer

        self._server = RedisServer()
        self.at = self._server.url()

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def remove(self) -> None:
        self._server.remove()

    async def rows(self) -> list[Row]:
        found = map(json.loads, self._server.client.lrange("rows", 0, -1))
        return [(row["number"], row["key"], row["count"]) for row in found]

    async def totals(self) -> dict[str, int]:
        client = self._server.client
        found = [client.hgetall(key) for key in client.keys("total:*")]
        return {row["key"]: int(row["total"]) for row in found}


class Kafka(Target):
    """Another cluster: a broker of its own."""

    has_server = True
    can_be_caught = True

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        self._broker = BrokerUnderFire(folder / "other", folder / "other.log")

    def start(self) -> None:
        self._broker.start()
        self.at = self._broker.address

    def kill(self) -> None:
        self._broker.kill()

    def remove(self) -> None:
        self._broker.stop()

    async def open_transactions(self) -> set[Any]:
        async with new_client(self.at) as client:
            admin = Admin(client)
            ids = [each.transactional_id for each in await admin.list_transactions()]
            described = (await admin.describe_transactions(ids)).values()
            return {
                (each.transactional_id, each.start_time_ms)
                for each in described
                if each is not None and each.state == "Ongoing"
            }

    async def rows(self) -> list[Row]:
        return [(row["number"], row["key"], row["count"]) for row in await self._read("rows")]

    async def totals(self) -> dict[str, int]:
        return {row["key"]: row["total"] for row in await self._read("totals")}

    async def _read(self, topic: str) -> list[Any]:
        from ..streams.sinks.kafka_driven import seen

        return [json.loads(each.value or b"null") for each in await seen(self.at, topic)]


TARGETS: dict[str, Callable[[str, Path], Target]] = {
    "sqlite": Sqlite,
    "duckdb": DuckDb,
    "jsonl": Files,
    "parquet": Files,
    "http": Http,
    "postgres": Postgres,
    "mysql": MySql,
    "redis": Redis,
    "kafka": Kafka,
    "s3": S3,
}
