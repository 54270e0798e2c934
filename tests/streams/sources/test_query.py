"""A query by a growing key, against SQLite."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, ConfigurationError, Record
from onceward.streams.sources import Query, SourceError
from onceward.streams.sources.query import as_key, as_position
from onceward.streams.testing import AppDriver


class Order(Record):
    id: int
    amount: float


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, amount REAL)")
        yield connection


def insert(database: sqlite3.Connection, *numbers: int) -> None:
    database.executemany("INSERT INTO orders VALUES (?, ?)", [(n, n / 2) for n in numbers])


def make_app(
    tmp_path: Path, select: str = "SELECT * FROM orders", *, value_type: Any = None,
    source: Any = None, **options: Any,
) -> App:  # fmt: skip
    app = App("shop", topic_partitions=2)
    topic = app.topic("orders", value_type=value_type)
    query = Query(
        lambda: sqlite3.connect(tmp_path / "shop.db"),
        select,
        **{"key": "id", "settle": 0, **options},
    )
    app.source(topic, query, **{"key": "id", **(source or {})})
    return app


def ids(driver: AppDriver) -> list[Any]:
    return sorted(record.value["id"] for record in driver.output("orders"))


def test_rows_are_read_in_pages_and_new_ones_as_they_come(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    insert(database, *range(25))
    with AppDriver(make_app(tmp_path, limit=10, every=5.0)) as driver:
        driver.run_source("orders")
        assert ids(driver) == list(range(25))
        assert driver.output("orders")[0].key is not None
        insert(database, 25, 30)
        driver.advance(4)
        assert len(ids(driver)) == 25
        driver.advance(2)
        assert ids(driver) == [*range(26), 30]
        driver.crash()
        insert(database, 31)
        driver.run_source("orders")
        assert ids(driver) == [*range(26), 30, 31]


def test_a_page_that_is_not_committed_is_read_again(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    insert(database, *range(25))
    with AppDriver(make_app(tmp_path, limit=10)) as driver:
        driver.run_source("orders", rows=10)
        driver.run_source("orders", rows=10, commit=False)
        driver.crash()
        driver.run_source("orders")
        assert ids(driver) == list(range(25))


def test_rows_become_values_of_the_topics_type(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    insert(database, 3)
    with AppDriver(make_app(tmp_path, value_type=Order)) as driver:
        driver.run_source("orders")
        assert [record.value for record in driver.output("orders")] == [Order(3, 1.5)]
        database.execute("INSERT INTO orders VALUES (4, 'much')")
        with pytest.raises(SourceError, match=r"the row with id 4: .*`float`"):
            driver.advance(2)


def test_without_looking_again_the_query_ends(tmp_path: Path, database: sqlite3.Connection) -> None:
    insert(database, 1, 2, 3)
    with AppDriver(make_app(tmp_path, limit=2, every=None)) as driver:
        driver.run_source("orders", rows=100)  # would wait for ever if it went on
        assert ids(driver) == [1, 2, 3]


@pytest.mark.parametrize("count", [0, 3])
def test_it_also_ends_when_keys_must_settle(
    tmp_path: Path, database: sqlite3.Connection, count: int
) -> None:
    insert(database, *range(count))
    with AppDriver(make_app(tmp_path, every=None, settle=3.0)) as driver:
        driver.run_source("orders", rows=100)
        assert ids(driver) == list(range(count))


def test_a_row_that_shows_behind_larger_keys_is_not_missed(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    """Its key was given before, its transaction committed later."""
    insert(database, 1, 3)
    with AppDriver(make_app(tmp_path, settle=10.0, every=1.0)) as driver:
        driver.run_source("orders")
        driver.advance(5)
        assert ids(driver) == []
        insert(database, 2)
        driver.advance(6)
        assert ids(driver) == [1, 2, 3]


@pytest.mark.parametrize(
    "keys",
    [
        ["2024-01-02", "2024-01-03"],
        [1.5, 2.5],
    ],
)
def test_keys_may_be_text_and_fractions(
    tmp_path: Path, database: sqlite3.Connection, keys: list[Any]
) -> None:
    database.execute("CREATE TABLE days (id)")
    database.executemany("INSERT INTO days VALUES (?)", [(key,) for key in keys])
    with AppDriver(make_app(tmp_path, "SELECT id FROM days;", limit=1)) as driver:
        driver.run_source("orders")
        driver.crash()
        driver.run_source("orders")
        assert ids(driver) == keys


@pytest.mark.parametrize(
    "key",
    [
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC),
        datetime.date(2024, 1, 2),
        decimal.Decimal("1.50"),
    ],
)
def test_a_position_of_a_type_json_has_not_comes_back_as_it_was(key: Any) -> None:
    assert as_key(as_position(key, "id")) == key


@pytest.mark.parametrize(
    ("select", "complaint"),
    [
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT amount AS id FROM orders UNION ALL SELECT 1.0", r"id 1\.0 is there twice"),
        ("SELEC 1", "syntax error"),
        ("SELECT x'00' AS id", "id is a bytes"),
    ],
)
def test_a_query_that_cannot_work_stops_the_worker_in_one_sentence(
    tmp_path: Path, database: sqlite3.Connection, select: str, complaint: str
) -> None:
    insert(database, 2)
    with (
        AppDriver(make_app(tmp_path, select)) as driver,
        pytest.raises(SourceError, match=complaint),
    ):
        driver.run_source("orders")


def test_a_database_that_is_away_is_tried_again(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    insert(database, 1)
    app = App("shop")
    is_away = [True, True]

    def connect() -> sqlite3.Connection:
        if is_away:
            is_away.pop()
            raise sqlite3.OperationalError("unable to open database file")
        return sqlite3.connect(tmp_path / "shop.db")

    app.source(app.topic("orders"), Query(connect, "SELECT * FROM orders", key="id", settle=0))
    with AppDriver(app) as driver:
        driver.run_source("orders")
        driver.advance(1)
        assert ids(driver) == [1]


def test_what_cannot_be_a_query_is_refused_when_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match="callable"):
        Query("shop.db", "SELECT 1", key="id")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="limit"):
        Query(lambda: None, "SELECT 1", key="id", limit=0)
    app = App("shop")
    with pytest.raises(ConfigurationError, match="has one split"):
        app.source("orders", Query(lambda: None, "SELECT 1", key="id"), splits=2)
