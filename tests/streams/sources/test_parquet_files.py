"""Parquet files, read in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, Record
from onceward.streams.sources import ParquetFiles, SourceError
from onceward.streams.testing import AppDriver

pyarrow: Any = pytest.importorskip("pyarrow", reason="pip install 'onceward[parquet]' brings it")
parquet: Any = pytest.importorskip("pyarrow.parquet")


class Order(Record):
    id: str
    amount: int


def write(path: Path, count: int, **options: Any) -> None:
    table = pyarrow.table(
        {"id": [f"o{n}" for n in range(count)], "amount": list(range(count)), "x": [None] * count}
    )
    parquet.write_table(table, path, row_group_size=7, **options)


def make_app(folder: Path, *, value_type: Any = None, **options: Any) -> App:
    app = App("shop", topic_partitions=2)
    topic = app.topic("orders", key_type=str, value_type=value_type)
    app.source(topic, ParquetFiles(folder / "*.parquet", **options), key="id")
    return app


def ids(driver: AppDriver) -> list[int]:
    return sorted(int(record.key[1:]) for record in driver.output("orders"))


@pytest.mark.parametrize("batch", [1, 3, 7, 100])
def test_rows_are_read_by_row_group_and_gone_on_with_behind_the_last_committed(
    tmp_path: Path, batch: int
) -> None:
    write(tmp_path / "a.parquet", 30)
    with AppDriver(make_app(tmp_path, batch=batch)) as driver:
        driver.run_source("orders", rows=10)
        assert 10 <= len(ids(driver)) < 30
        driver.run_source("orders", rows=5, commit=False)
        driver.crash()
        driver.run_source("orders")
        assert ids(driver) == list(range(30))
        driver.crash()
        driver.run_source("orders")
        assert len(ids(driver)) == 30


def test_rows_become_values_of_the_topics_type(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 2)
    app = make_app(tmp_path, value_type=Order, columns=["id", "amount"])
    with AppDriver(app) as driver:
        driver.run_source("orders")
        found = sorted((record.value for record in driver.output("orders")), key=lambda o: o.id)
        assert found == [Order("o0", 0), Order("o1", 1)]


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet at all")
    with (
        AppDriver(make_app(tmp_path)) as driver,
        pytest.raises(SourceError, match=r"a\.parquet cannot be read as Parquet"),
    ):
        driver.run_source("orders")
    write(tmp_path / "a.parquet", 2)
    with (
        AppDriver(make_app(tmp_path, columns=["nothing"])) as driver,
        pytest.raises(SourceError, match="has no column nothing"),
    ):
        driver.run_source("orders")


def test_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 20)
    with AppDriver(make_app(tmp_path, batch=5)) as driver:
        driver.run_source("orders", rows=5)
        write(tmp_path / "a.parquet", 21)
        driver.crash()
        with pytest.raises(SourceError, match="not the file that was read before"):
            driver.run_source("orders")
