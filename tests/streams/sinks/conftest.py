from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .mysql_server import Database, MySqlServer
    from .postgres_server import PostgresServer, Schema
    from .redis_server import RedisServer

DRIVERS = {
    "test_postgres": "psycopg",
    "test_mysql": "pymysql",
    "test_duckdb": "duckdb",
    "test_http": "httpx",
    "test_redis": "redis",
}


class WithoutDriver(pytest.Module):
    """A module of tests that cannot be imported here."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        driver = next(name for prefix, name in DRIVERS.items() if self.name.startswith(prefix))
        raise pytest.skip.Exception(
            f"{driver} is not there: pip install 'onceward[test]'", allow_module_level=True
        )


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    for prefix, driver in DRIVERS.items():
        if module_path.name.startswith(prefix) and importlib.util.find_spec(driver) is None:
            made: pytest.Module = WithoutDriver.from_parent(parent, path=module_path)
            return made
    return None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the session (of each pytest-xdist worker), started when first asked for."""
    from .postgres_server import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def schema_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def postgres(postgres_server: PostgresServer, schema_numbers: Iterator[int]) -> Iterator[Schema]:
    """An empty schema."""
    from .postgres_server import Schema

    schema = Schema(postgres_server, f"test{next(schema_numbers)}")
    yield schema
    schema.close()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySqlServer]:
    """One server for the session (of each pytest-xdist worker), started when first asked for."""
    from .mysql_server import MySqlServer

    server = MySqlServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def mysql(mysql_server: MySqlServer, schema_numbers: Iterator[int]) -> Iterator[Database]:
    """An empty database."""
    from .mysql_server import Database

    database = Database(mysql_server, f"test{next(schema_numbers)}")
    yield database
    database.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for the session (of each pytest-xdist worker), started when first asked for."""
    from .redis_server import RedisServer

    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """An empty server."""
    redis_server.client.flushall()
    return redis_server
