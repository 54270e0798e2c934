"""The file sink over an object store: each row in exactly one object, wherever a request stops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import ConfigurationError
from onceward.streams.sinks import (
    FilesSink,
    SinkError,
    SinkFenced,
    SinkTimeout,
    SinkUnavailable,
    Strength,
)
from onceward.streams.sinks.positions import Start

from .driven import TP, Driven, driven
from .object_store import Bucket, MemoryStore

URL = "s3://bucket/out/rows"


def new_sink(store: MemoryStore, **options: Any) -> FilesSink:
    return FilesSink(URL, store=store, **{"partition_by": "digit", **options})


def numbered(start: int, stop: int) -> list[dict[str, int]]:
    return [{"id": n, "digit": n % 2} for n in range(start, stop)]


async def run(one: Driven[FilesSink]) -> None:
    """Two commits of ten rows each."""
    await one.sink.start()
    await one.take_over()
    for _ in range(2):
        start = one.claim.next_offset
        await one.write(*numbered(start, start + 10))
    await one.sink.close()


async def inherit(bucket: Bucket, stop: int) -> Driven[FilesSink]:
    """Take over, look, and go on to ``stop`` rows."""
    heir = await driven(new_sink(MemoryStore(bucket)))
    start = heir.claim.next_offset
    assert bucket.ids() == list(range(start)), "the position says what is there"
    await heir.write(*numbered(start, stop))
    return heir


async def assert_clean(bucket: Bucket, rows: int) -> None:
    last = await driven(new_sink(MemoryStore(bucket)))
    await last.sink.close()
    assert last.claim.next_offset == rows
    assert bucket.ids() == list(range(rows))
    assert not bucket.unread()


async def test_a_commit_is_a_file_per_directory_named_by_the_offset_it_begins_with() -> None:
    bucket = Bucket()
    sink = new_sink(MemoryStore(bucket))
    assert sink.strength is Strength.TRANSACTIONAL
    assert sink.name == "rows"
    one = await driven(sink)
    await one.write(*numbered(0, 3))
    await one.write(*numbered(3, 4))
    assert bucket.files() == {
        "out/rows/digit=0/app.rows.orders-0-00000000000000000000.jsonl": '{"id":0}\n{"id":2}\n',
        "out/rows/digit=1/app.rows.orders-0-00000000000000000001.jsonl": '{"id":1}\n',
        "out/rows/digit=1/app.rows.orders-0-00000000000000000003.jsonl": '{"id":3}\n',
    }
    found = await sink.positions("app")
    assert found == {TP: (4, 1, 0)}
    await sink.close()


@pytest.mark.parametrize("how", ["before", "after"])
async def test_any_request_may_fail_done_or_not_and_an_heir_goes_on(how: str) -> None:
    failures = 0
    for at in range(1000):
        bucket = Bucket()
        one = Driven(new_sink(MemoryStore(bucket, at, how)))
        try:
            await run(one)
        except SinkUnavailable as error:
            assert str(error).startswith("sink 'rows' (jsonl files in s3://bucket/out/rows): no ")
            task = asyncio.current_task()
            assert task is not None and not task.cancelling()
            failures += 1
        else:
            assert failures == at > 20
            break
        heir = await inherit(bucket, 30)
        await heir.sink.close()
        await assert_clean(bucket, 30)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_any_request_may_fail_and_the_same_worker_takes_over_again(how: str) -> None:
    for at in range(1000):
        bucket = Bucket()
        one = Driven(new_sink(MemoryStore(bucket, at, how)))
        try:
            await run(one)
        except SinkUnavailable:
            await one.take_over()
            start = one.claim.next_offset
            await one.write(*numbered(start, 15), *numbered(max(start, 15), 20))
        else:
            break
        await assert_clean(bucket, 20)


@pytest.mark.parametrize("how", ["late", "stuck"])
async def test_a_worker_that_sleeps_at_any_request_adds_and_takes_nothing_when_it_wakes(
    how: str,
) -> None:
    for at in range(1000):
        bucket = Bucket()
        store = MemoryStore(bucket, at, how)
        zombie = asyncio.create_task(run(Driven(new_sink(store))))
        stopped = asyncio.create_task(store.is_stopped.wait())
        await asyncio.wait([zombie, stopped], return_when=asyncio.FIRST_COMPLETED)
        if zombie.done():
            await zombie
            stopped.cancel()
            assert at > 20
            break
        heir = await inherit(bucket, 25)
        store.resume.set()
        with suppress(SinkUnavailable):
            await zombie
        rows = bucket.ids()
        assert rows == list(range(len(rows)))
        try:
            await heir.write(*numbered(25, 30))
        except SinkFenced:
            assert at < 10, "the zombie took over now, which it had not done before"
            rows = bucket.ids()
        else:
            rows = list(range(30))
        await heir.sink.close()
        await assert_clean(bucket, len(rows))


async def stopped_at(bucket: Bucket, at: int) -> tuple[MemoryStore, asyncio.Task[None]]:
    """A worker whose request number ``at`` is still on its way, or that has ended before."""
    store = MemoryStore(bucket, at, "late")
    running = asyncio.create_task(run(Driven(new_sink(store))))
    stopped = asyncio.create_task(store.is_stopped.wait())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    return store, running


async def test_two_owners_that_sleep_at_any_request_take_nothing_from_each_other() -> None:
    for first_at in range(4, 20):
        for second_at in range(4, 20):
            bucket = Bucket()
            first, one = await stopped_at(bucket, first_at)
            second, two = await stopped_at(bucket, second_at)
            first.resume.set()
            with suppress(SinkFenced):
                await one
            second.resume.set()
            with suppress(SinkFenced):
                await two
            rows = len(bucket.ids())
            assert rows in (20, 30, 40)
            await assert_clean(bucket, rows)


async def test_a_request_that_was_given_up_takes_no_effect_after_the_next_take_over() -> None:
    for at in range(30):
        bucket = Bucket()
        store = MemoryStore(bucket, at, "late")
        one = Driven(new_sink(store, timeout=0.01))
        detached: list[asyncio.Task[Any]] = []
        put_if = store.put_if

        async def send(key: str, data: bytes, tag: str | None, put_if: Any = put_if) -> Any:
            """As a proxy does: what was sent arrives, whether somebody waits for it or not."""
            detached.append(asyncio.create_task(put_if(key, data, tag)))  # noqa: B023
            return await asyncio.shield(detached[-1])  # noqa: B023

        store.put_if = send  # type: ignore[method-assign]
        try:
            await run(one)
        except SinkTimeout as error:
            assert "did not answer within 0.01 s" in str(error)
        heir = await inherit(bucket, 30)
        store.resume.set()
        await asyncio.gather(*detached)
        await heir.write(*numbered(30, 40))
        await heir.sink.close()
        await assert_clean(bucket, 40)


async def test_workers_of_several_partitions_commit_side_by_side() -> None:
    bucket = Bucket()
    workers = [
        await driven(new_sink(MemoryStore(bucket)), TopicPartition("orders", n)) for n in range(4)
    ]

    async def work(number: int, one: Driven[FilesSink]) -> None:
        for n in range(number, 80, 4):
            await one.write({"id": n, "digit": 0})

    await asyncio.gather(*(work(number, one) for number, one in enumerate(workers)))
    positions = await workers[0].sink.positions("app")
    for one in workers:
        await one.sink.close()
    assert bucket.ids() == list(range(80))
    assert {tp: position.next_offset for tp, position in positions.items()} == {
        one.tp: 20 for one in workers
    }


async def test_what_another_partition_has_in_hand_is_left_alone_by_a_take_over() -> None:
    for at in range(4, 40):
        bucket = Bucket()
        store, slow = await stopped_at(bucket, at)
        other = await driven(new_sink(MemoryStore(bucket)), TopicPartition("orders", 7))
        await other.write({"id": 100, "digit": 0})
        store.resume.set()
        await slow
        assert bucket.ids() == [*range(20), 100]
        await other.sink.close()


async def test_refused_rows_are_remembered_until_kafka_has_their_dead_letters() -> None:
    bucket = Bucket()
    one = await driven(new_sink(MemoryStore(bucket)))
    bad = {"id": 1, "digit": "\ud800"}
    with pytest.raises(SinkError, match=r"orders-0 at offset 1: partition_by: UnicodeEncodeError"):
        await one.write({"id": 0, "digit": 0}, bad)
    assert not bucket.files()
    batch = await one.write({"id": 0, "digit": 0}, bad, {"id": 2, "digit": 0}, dead_letters=True)
    assert [refusal.at for refusal in batch.refused] == [1]
    assert bucket.ids() == [0, 2]
    await one.take_over()
    ((effect, reason),) = one.claim.refused.items()
    assert (effect.offset, effect.agent) == (1, "etl")
    assert reason.startswith("partition_by: ")
    claims = await one.sink.take_over("app", {TP: Start(3, 3)})
    assert not claims[TP].refused
    await one.sink.close()


async def test_the_former_owner_is_fenced() -> None:
    bucket = Bucket()
    one = await driven(new_sink(MemoryStore(bucket)))
    heir = await driven(new_sink(MemoryStore(bucket)))
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await one.write(*numbered(0, 1))
    await heir.write(*numbered(0, 1))
    await one.sink.close()
    await heir.sink.close()
    await assert_clean(bucket, 1)


async def test_files_may_be_taken_away_and_do_not_come_back() -> None:
    bucket = Bucket()
    one = await driven(new_sink(MemoryStore(bucket)))
    await one.write(*numbered(0, 2))
    for key in bucket.files():
        del bucket.objects[key]
    await one.write(*numbered(2, 3))
    heir = await driven(new_sink(MemoryStore(bucket)))
    await one.sink.close()
    await heir.sink.close()
    assert bucket.ids() == [2]


async def test_no_file_is_replaced_when_the_positions_were_deleted() -> None:
    bucket = Bucket()
    one = await driven(new_sink(MemoryStore(bucket)))
    await one.write(*numbered(0, 1))
    del bucket.objects["out/rows/_onceward/app/rows/positions"]
    with pytest.raises(SinkFenced):
        await one.write(*numbered(1, 2))
    await one.take_over()
    await one.write(*numbered(4, 6))
    await one.sink.close()
    assert bucket.ids() == [0, 4, 5]
    assert "out/rows/digit=0/app.rows.orders-0-00000000000000000000-2.jsonl" in bucket.files()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"{", "none of this program"), (b'{"version":2}', "a newer program wrote it")],
)
async def test_positions_that_cannot_be_read_are_not_replaced(content: bytes, reason: str) -> None:
    bucket = Bucket()
    key = "out/rows/_onceward/app/rows/positions"
    bucket.write(key, content)
    sink = new_sink(MemoryStore(bucket))
    await sink.start()
    with pytest.raises(SinkError, match=rf"sink 'rows' .*{key} cannot be read: .*{reason}"):
        await Driven(sink).take_over()
    await sink.close()
    assert bucket.objects[key].data == content


async def test_a_store_that_ignores_conditions_is_refused() -> None:
    class Careless(MemoryStore):
        async def put_if(self, key: str, data: bytes, tag: str | None) -> str | None:
            return self.bucket.write(key, data)

    sink = new_sink(Careless(Bucket()))
    with pytest.raises(SinkError, match="the store ignores conditions of writes"):
        await sink.start()
    with pytest.raises(SinkError, match="the store ignores conditions of writes"):
        await Driven(sink).take_over()
    await sink.close()


async def test_positions_of_a_sink_that_never_ran_are_said_to_be_missing() -> None:
    with pytest.raises(SinkError, match="nothing was written there yet"):
        await new_sink(MemoryStore(Bucket())).positions("app")


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("gs://bucket/x", {}, "files go to a local directory or to s3://, not to gs://"),
        ("memory://x", {}, "not to memory://"),
        ("out", {"storage_options": {}}, "storage_options= is for s3://"),
        ("s3:///x", {}, "s3:///x names no bucket"),
    ],
)
def test_other_stores_are_refused(path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FilesSink(path, **options)
