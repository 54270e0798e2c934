"""Files read from S3, as moto's server plays it."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, ConfigurationError, Record
from onceward.streams.sources import CsvFiles, JsonLines, ParquetFiles, SourceError
from onceward.streams.sources.objects import Objects

from ..fakes import FakeCluster
from ..sinks.s3_server import S3Bucket
from ..sinks.s3_server import bucket as bucket
from ..sinks.s3_server import s3_server as s3_server
from ..workers import make_app, until, worker


class Order(Record):
    id: int


def orders_app(tmp_path: Path, reader: Any) -> App:
    app = make_app(tmp_path)
    app.source(app.topic("orders", key_type=str, value_type=Order), reader)
    return app


def put(bucket: S3Bucket, key: str, data: bytes) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data)


def has(cluster: FakeCluster, count: int) -> Callable[[], bool]:
    return lambda: "orders" in cluster.logs and len(cluster.values("orders")) >= count


def numbered(*numbers: int) -> list[bytes]:
    return [b'{"id":%d}' % number for number in numbers]


async def test_objects_are_read_in_the_order_of_names_and_looked_for_again(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    put(bucket, "in/b.csv.gz", gzip.compress(b"id\n3\n"))
    put(bucket, "in/a.csv", b"id\n1\n2\n")
    put(bucket, "in/other.txt", b"id\n9\n")
    put(bucket, "in/below/c.csv", b"id\n9\n")
    reader = CsvFiles(
        f"s3://{bucket.name}/in/*.csv*", watch=0.05, storage_options=bucket.server.options()
    )
    cluster = FakeCluster()
    async with worker(orders_app(tmp_path, reader), cluster) as running:
        await until(has(cluster, 3), running, timeout=10)
        put(bucket, "in/d.csv", b"id\n4\n")
        await until(has(cluster, 4), running, timeout=10)
    assert cluster.values("orders") == numbered(1, 2, 3, 4)


async def test_a_worker_goes_on_where_the_last_one_was(tmp_path: Path, bucket: S3Bucket) -> None:
    put(bucket, "in/a.jsonl", b'{"id":1}\n')

    def app() -> App:
        url = f"s3://{bucket.name}/in"
        reader = JsonLines(url, watch=0.05, storage_options=bucket.server.options())
        return orders_app(tmp_path, reader)

    cluster = FakeCluster()
    async with worker(app(), cluster) as first:
        await until(has(cluster, 1), first, timeout=10)
    put(bucket, "in/b.jsonl", b'{"id":2}\n')
    async with worker(app(), cluster) as second:
        await until(has(cluster, 2), second, timeout=10)
    assert cluster.values("orders") == numbered(1, 2)


async def test_parquet_is_read_from_objects(tmp_path: Path, bucket: S3Bucket) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(arrow.table({"id": [1, 2]}), buffer)
    put(bucket, "in/day=1/a.parquet", buffer.getvalue())
    url = f"s3://{bucket.name}/in/**/*.parquet"
    reader = ParquetFiles(url, watch=None, storage_options=bucket.server.options())
    cluster = FakeCluster()
    async with worker(orders_app(tmp_path, reader), cluster) as running:
        await until(has(cluster, 2), running, timeout=10)
    assert cluster.values("orders") == numbered(1, 2)


async def test_an_object_that_was_replaced_by_a_longer_one_is_refused(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    put(bucket, "in/a.csv", b"id\n1\n")
    reader = CsvFiles(
        f"s3://{bucket.name}/in/a.csv", watch=0.05, storage_options=bucket.server.options()
    )
    cluster = FakeCluster()
    with pytest.raises(SourceError, match=r"s3://bucket-\d+/in/a.csv has 7 bytes, but had 5"):
        async with worker(orders_app(tmp_path, reader), cluster) as running:
            await until(has(cluster, 1), running, timeout=10)
            put(bucket, "in/a.csv", b"id\n1\n2\n")
            await until(lambda: False, running, timeout=10)
    assert cluster.values("orders") == numbered(1)


async def test_a_row_is_named_by_its_url_and_line(tmp_path: Path, bucket: S3Bucket) -> None:
    put(bucket, "in/a.csv", b"id\n1\nx\n")
    reader = CsvFiles(
        f"s3://{bucket.name}/in/a.csv", watch=None, storage_options=bucket.server.options()
    )
    cluster = FakeCluster()
    with pytest.raises(SourceError, match=r"s3://bucket-\d+/in/a.csv line 3"):
        async with worker(orders_app(tmp_path, reader), cluster) as running:
            await until(lambda: False, running, timeout=10)


async def test_an_object_that_is_not_there_is_said(tmp_path: Path, bucket: S3Bucket) -> None:
    url = f"s3://{bucket.name}/in/a.csv"
    reader = CsvFiles(url, watch=None, storage_options=bucket.server.options())
    with pytest.raises(SourceError, match=f"CsvFiles {url}: there is no such file"):
        async with worker(orders_app(tmp_path, reader), FakeCluster()) as running:
            await until(lambda: False, running, timeout=10)


async def test_keys_that_are_not_known_there_are_said_to_be_wrong(bucket: S3Bucket) -> None:
    url = f"s3://{bucket.name}/in/*.csv"
    bucket.server.check_credentials(True)
    try:
        with pytest.raises(SourceError, match=rf"s3://{bucket.name}/in/\*.csv may not be read"):
            await Objects(url, bucket.server.options(key="unknown")).listing()
    finally:
        bucket.server.check_credentials(False)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ConfigurationError, match="cannot grow: its objects are replaced"):
        CsvFiles("s3://bucket/in", grows=True)
    with pytest.raises(ConfigurationError, match="storage_options= is for URLs"):
        CsvFiles("in/*.csv", storage_options={})
