"""The file sink in S3, as moto's server plays it."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import TopicPartition
from onceward.streams import App, Stream
from onceward.streams.cli.main import main
from onceward.streams.sinks import FilesSink, SinkError, SinkFenced, SinkUnavailable
from onceward.streams.sinks.errors import SinkTimeout
from onceward.streams.sinks.files_store import S3Store

from ..workers import make_app, until, worker
from .driven import Driven, driven
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders
from .s3_server import S3Bucket, S3Server
from .s3_server import bucket as bucket
from .s3_server import s3_server as s3_server
from .test_refused import letters
from .test_status import put, run_until_rows


def new_sink(bucket: S3Bucket, **options: Any) -> FilesSink:
    storage = bucket.server.options(**options.pop("storage", {}))
    return FilesSink(bucket.url, storage_options=storage, **options)


async def test_rows_are_in_objects_with_names_as_in_a_directory(bucket: S3Bucket) -> None:
    one = await driven(new_sink(bucket, partition_by="day"))
    await one.write({"id": 1, "day": "a/b"}, {"id": 2, "day": None}, {"id": 3, "day": "a/b"})
    await one.write({"id": 4, "day": "c d+é"})
    await one.sink.close()
    assert bucket.files() == {
        "out/rows/day=__HIVE_DEFAULT_PARTITION__/app.rows.orders-0-00000000000000000001.jsonl": (
            b'{"id":2}\n'
        ),
        "out/rows/day=a%2Fb/app.rows.orders-0-00000000000000000000.jsonl": b'{"id":1}\n{"id":3}\n',
        "out/rows/day=c%20d%2B%C3%A9/app.rows.orders-0-00000000000000000003.jsonl": b'{"id":4}\n',
    }
    hidden = [key for key in bucket.listed() if key not in bucket.files()]
    assert hidden == ["out/rows/_onceward/app/rows/positions", "out/rows/_onceward/probe"]


async def test_parquet_in_s3_is_read_by_pyarrow(bucket: S3Bucket) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sink = new_sink(bucket, format="parquet", value_type=Order)
    one = await driven(sink)
    batch = await one.write(Order(1, 2), {"id": "x"}, Order(3, 4), dead_letters=True)
    await sink.close()
    assert [refusal.at for refusal in batch.refused] == [1]
    (data,) = bucket.files().values()
    assert parquet.read_table(io.BytesIO(data)).to_pylist() == [
        {"id": 1, "amount": 2},
        {"id": 3, "amount": 4},
    ]


async def test_the_bucket_itself_may_be_the_path(bucket: S3Bucket) -> None:
    sink = FilesSink(f"s3://{bucket.name}", storage_options=bucket.server.options())
    assert sink.name == bucket.name
    one = await driven(sink)
    await one.write({"id": 1})
    await sink.close()
    assert list(bucket.files()) == [f"app.{bucket.name}.orders-0-{0:020}.jsonl"]


async def test_the_former_owner_is_fenced_and_an_heir_finishes_what_it_committed(
    bucket: S3Bucket,
) -> None:
    first = await driven(new_sink(bucket))
    await first.write({"id": 0})
    second = await driven(new_sink(bucket))
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"id": 1})
    await second.write({"id": 1})
    assert bucket.ids() == [0, 1]
    third = await driven(new_sink(bucket))
    assert (third.claim.next_offset, third.claim.epoch) == (2, 3)
    for one in (first, second, third):
        await one.sink.close()
    assert not [key for key in bucket.listed() if key.endswith(".data")]


async def test_workers_that_commit_at_once_wait_for_one_another(bucket: S3Bucket) -> None:
    workers = [await driven(new_sink(bucket), TopicPartition("orders", n)) for n in range(4)]

    async def work(one: Driven[FilesSink]) -> None:
        for n in range(5):
            await one.write({"id": n * 4 + one.tp.partition})

    await asyncio.gather(*map(work, workers))
    positions = await workers[0].sink.positions("app")
    for one in workers:
        await one.sink.close()
    assert bucket.ids() == list(range(20))
    assert {tp: found.next_offset for tp, found in positions.items()} == {
        one.tp: 5 for one in workers
    }


async def test_a_sink_is_used_in_one_loop_after_another(bucket: S3Bucket) -> None:
    sink = new_sink(bucket)

    async def write(number: int) -> None:
        one = await driven(sink)
        await one.write({"id": number})
        await sink.close()

    for number in range(2):
        await asyncio.to_thread(asyncio.run, write(number))
    assert bucket.ids() == [0, 1]


# requests


NEVER = 1_000_000


class Crossing(S3Store):
    """After ``left`` requests that change something the next one fails, ``when`` it is done or
    before."""

    def __init__(self, bucket: S3Bucket, when: str) -> None:
        super().__init__(bucket.name, bucket.server.options(), 10.0)
        self.left, self.when = NEVER, when

    async def _call(self, method: str, **arguments: Any) -> Any:
        if method in ("get_object", "head_object", "list_objects_v2"):
            return await super()._call(method, **arguments)
        self.left -= 1
        if self.left == -1 and self.when == "before":
            raise SinkUnavailable("no route")
        done = await super()._call(method, **arguments)
        if self.left == -1:
            raise SinkUnavailable("no answer")
        return done


@pytest.mark.parametrize("when", ["before", "after"])
async def test_any_writing_request_of_a_commit_may_be_the_last_one(
    bucket: S3Bucket, when: str
) -> None:
    store = Crossing(bucket, when)
    for at in range(100):
        url = f"{bucket.url}/{when}{at}"
        first = await driven(FilesSink(url, store=store, partition_by="digit"))
        store.left = at
        with suppress(SinkUnavailable):
            await first.write(*({"id": n, "digit": n % 2} for n in range(4)))
        is_whole, store.left = store.left >= 0, NEVER
        heir = await driven(FilesSink(url, store=store, partition_by="digit"))
        assert bucket.ids(url) == list(range(heir.claim.next_offset))
        rest = range(heir.claim.next_offset, 6)
        await heir.write(*({"id": n, "digit": n % 2} for n in rest))
        assert bucket.ids(url) == list(range(6))
        assert not [key for key in bucket.listed(url) if key.endswith(".data")]
        if is_whole:
            assert at == 7, "two files and the positions are put, two copied and deleted"
            break
    await store.close()


# what is wrong is said


async def said_by(sink: FilesSink, kind: type[Exception]) -> str:
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        await sink.start()
    await sink.close()
    assert time.monotonic() - began < 5
    text = str(caught.value)
    assert text.startswith(f"{sink.describe()}"), text
    assert "\n" not in text and "s3cr3t" not in text
    return text


async def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    sink = FilesSink("s3://nowhere/rows", storage_options=s3_server.options())
    assert "there is no bucket 'nowhere'" in await said_by(sink, SinkError)


async def test_wrong_credentials_are_named_and_not_shown(bucket: S3Bucket) -> None:
    bucket.server.check_credentials(True)
    try:
        text = await said_by(new_sink(bucket, storage={"key": "unknown"}), SinkError)
    finally:
        bucket.server.check_credentials(False)
    assert "InvalidAccessKeyId" in text


async def test_missing_credentials_are_named(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    sink = new_sink(bucket, storage={"key": None, "secret": None})
    assert "Unable to locate credentials" in await said_by(sink, SinkError)


async def test_an_endpoint_where_nothing_listens_is_unavailable(bucket: S3Bucket) -> None:
    sink = new_sink(bucket, storage={"endpoint_url": "http://127.0.0.1:1"})
    assert "http://127.0.0.1:1/" in await said_by(sink, SinkUnavailable)


async def test_an_endpoint_that_is_none_is_named(bucket: S3Bucket) -> None:
    sink = new_sink(bucket, storage={"endpoint_url": "nonsense"})
    assert "nonsense" in await said_by(sink, SinkError)


async def test_an_endpoint_that_does_not_answer_is_given_up(bucket: S3Bucket) -> None:
    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        sink = new_sink(bucket, storage={"endpoint_url": f"http://127.0.0.1:{port}"}, timeout=0.3)
        assert "did not answer within 0.3 s" in await said_by(sink, SinkTimeout)


async def test_a_server_in_trouble_is_unavailable(bucket: S3Bucket) -> None:
    async def be_busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"
        head = f"HTTP/1.1 503 Slow Down\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(be_busy, "127.0.0.1", 0) as busy:
        port = busy.sockets[0].getsockname()[1]
        sink = new_sink(bucket, storage={"endpoint_url": f"http://127.0.0.1:{port}"})
        text = await said_by(sink, SinkUnavailable)
    assert "Please reduce your rate. (SlowDown)" in text


# whole workers


def rows_app(tmp_path: Path, bucket: S3Bucket, **options: Any) -> App:
    app = make_app(tmp_path, **options)
    rows = new_sink(bucket, partition_by=lambda row: f"{row['amount'] % 2}")

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[dict[str, Any]]:
        async for order in stream:
            yield {"id": order.id, "amount": "none" if order.id == 13 else order.id}

    return app


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_objects(
    tmp_path: Path, bucket: S3Bucket, when: str
) -> None:
    cluster = make_cluster(13)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path, bucket), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(rows_app(tmp_path, bucket), cluster) as second:
        await until(is_done(cluster), second, timeout=20)
    assert bucket.ids() == list(range(13))


async def test_dead_letters_of_objects_survive_a_failed_kafka_commit(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", "before")
    app = rows_app(tmp_path, bucket, on_agent_error="dead_letter")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=20)
    assert bucket.ids() == [n for n in range(30) if n != 13]
    ((value, headers),) = letters(cluster)
    assert value == b'{"id":13,"amount":13}'
    assert (headers["onceward-error"] or b"").startswith(b"partition_by: TypeError")


async def test_two_workers_share_a_bucket(tmp_path: Path, bucket: S3Bucket) -> None:
    cluster = make_cluster(12)
    async with (
        worker(rows_app(tmp_path, bucket), cluster) as first,
        worker(rows_app(tmp_path, bucket), cluster) as second,
    ):
        await until(is_done(cluster), first, second, timeout=20)
    put_orders(cluster, 1, start=12)
    async with worker(rows_app(tmp_path, bucket), cluster) as third:
        await until(is_done(cluster), third, timeout=20)
    assert bucket.ids() == list(range(13))


STATUS_APP = """
from onceward.streams import App, Record
from onceward.streams.sinks import FilesSink

class Order(Record):
    id: int

app = App("shop", datadir={folder!r}, store="memory://", commit_interval=0.02, broker={broker!r})
rows = FilesSink({url!r}, storage_options={options!r})

@app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
async def etl(stream):
    async for order in stream:
        yield order
"""


async def test_status_shows_positions_in_a_bucket_and_creates_nothing_there(
    tmp_path: Path, bucket: S3Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(data_dir=str(tmp_path / "broker")) as broker:
        source = tmp_path / "bucket_status_app.py"
        source.write_text(
            STATUS_APP.format(
                folder=str(tmp_path),
                broker=broker.bootstrap,
                url=bucket.url,
                options=bucket.server.options(),
            )
        )
        target = f"{source}:app"
        await put(target, [b'{"id":%d}' % n for n in range(5)], 0)
        assert await asyncio.to_thread(main, ["sinks", "status", target]) == 1
        assert "nothing was written there yet" in capsys.readouterr().err
        assert not bucket.listed()
        await run_until_rows(target, tmp_path)
        assert await asyncio.to_thread(main, ["sinks", "status", target, "--json"]) == 0
        first = json.loads(capsys.readouterr().out)[0]
    assert bucket.ids() == list(range(5))
    assert (first["position"], first["committed"], first["lag"]) == (5, 5, 0)
    assert (first["epoch"], first["effects"], first["strength"]) == (1, 5, "transactional")
