"""Rows with several causes: lists of records, and records behind a repartition topic."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward.streams import (
    App,
    Stream,
)
from onceward.streams.sinks import (
    MemoryDatabase,
    MemorySink,
    SinkUnavailable,
)

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .etl import (
    Order,
    fail_once,
    ids,
    is_done,
    make_cluster,
)


def batch_app(tmp_path: Path, database: MemoryDatabase, second: MemoryDatabase, size: int) -> App:
    """Sums lists of two topics' records into two sinks: a row has several causes."""
    app = make_app(tmp_path, commit_interval=0.003)
    numbers = app.topic("left", "right", value_type=int)
    lists = MemorySink("lists", database=database)
    others = MemorySink("others", database=second)

    @app.agent(numbers)
    async def collect(stream: Stream[int]) -> None:
        async for values in stream.take(size, within=0.004):
            await lists.write({"values": list(values)})
            await others.write({"values": list(values)})

    return app


async def test_a_list_never_spans_what_the_sink_has_already(tmp_path: Path) -> None:
    cluster, database = FakeCluster(), MemoryDatabase()
    cluster.create("left")
    cluster.create("right")

    def put(*numbers: int) -> None:
        for n in numbers:
            cluster.put("left", b"%d" % n, timestamp=n)

    fails = [True]

    def inject(name: str, number: int) -> str | None:
        if name == "commit" and fails and fails.pop():
            put(3, 4, 5)  # there when the first three are run again
            return "before"
        return None

    cluster.injector = inject
    put(0, 1, 2)
    app = batch_app(tmp_path, database, MemoryDatabase(), 6)
    async with worker(app, cluster) as running:
        await until(is_done(cluster, "left", "right"), running)
    assert [json.loads(row["values"]) for row in database.rows("lists")] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.xfail(
    strict=False,
    reason="one sink is ahead of the other and the topics are merged in another order the second "
    "time: rarely a list that holds records of both topics is cut elsewhere, and rows repeat",
)
async def test_lists_over_two_topics_and_into_two_sinks_have_every_record_once(
    tmp_path: Path,
) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        cluster = FakeCluster(batch_records=rng.randint(2, 9))
        cluster.create("left")
        cluster.create("right")
        numbers = list(range(60))

        def step(what: str, name: str, rng: random.Random = rng) -> None:
            if what != "take_over" and rng.random() < 0.2:
                raise SinkUnavailable(f"{name}: away")

        def inject(
            name: str, number: int, rng: random.Random = rng, cluster: FakeCluster = cluster,
            numbers: list[int] = numbers,
        ) -> str | None:  # fmt: skip
            for _ in range(rng.randint(0, 4)):
                if numbers and name in ("fetch", "commit"):
                    place, at = rng.choice(["left", "right"]), rng.randint(0, 60)
                    cluster.put(place, b"%d" % numbers.pop(), timestamp=at)
            if name in ("commit", "flush", "send_offsets") and rng.random() < 0.2:
                return rng.choice(["before", "after"])
            return None

        cluster.injector = inject
        database, second = MemoryDatabase(on_step=step), MemoryDatabase(on_step=step)
        app = batch_app(tmp_path, database, second, rng.randint(2, 12))
        done = is_done(cluster, "left", "right")
        async with worker(app, cluster) as running:
            await until(lambda n=numbers, d=done: not n and d(), running, timeout=30)  # type: ignore[misc]
        for found in (database.rows("lists"), second.rows("others")):
            seen = Counter(value for row in found for value in json.loads(row["values"]))
            assert seen == Counter(range(60)), seed


async def test_behind_a_repartition_topic_only_its_positions_are_kept(tmp_path: Path) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    cluster.injector = fail_once("commit", "before")
    app = make_app(tmp_path)
    rows = MemorySink("rows", database=database)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream.group_by(Order.amount, partitions=2):
            yield order

    async with worker(app, cluster) as running:
        await until(lambda: len(database.rows("rows")) == 20, running)
        await until(is_done(cluster, "orders", "app-etl-amount-repartition"), running)
    assert ids(database) == list(range(20))
    assert {tp.topic for _, _, tp in database.positions} == {"app-etl-amount-repartition"}
