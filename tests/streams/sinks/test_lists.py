"""Rows with several causes: lists of records, and records behind a repartition topic."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import (
    App,
    Stream,
)
from onceward.streams.sinks import (
    MemoryDatabase,
    MemorySink,
    SinkUnavailable,
)
from onceward.streams.sinks.positions import Claim

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


def values_in(database: MemoryDatabase, name: str) -> Counter[int]:
    return Counter(value for row in database.rows(name) for value in json.loads(row["values"]))


LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 0), (0, 0)),  # one input is where the group is, the other ahead
        ((3, 3), (1, 0)),  # one sink is behind the other in all inputs
        ((3, 1), (1, 3)),  # set by hand: neither is
    ],
)
async def test_no_list_holds_records_a_sink_has_beside_records_it_has_not(
    tmp_path: Path, first: tuple[int, int], second: tuple[int, int]
) -> None:
    cluster, database = FakeCluster(), MemoryDatabase()
    expected: dict[str, list[int]] = {"lists": [], "others": []}
    for number, place in enumerate((LEFT, RIGHT)):
        cluster.create(place.topic)
        for offset in range(4):
            cluster.put(place.topic, b"%d" % (10 * number + offset), timestamp=offset)
        cluster.offsets["app", place] = 0
        for name, position in (("lists", first[number]), ("others", second[number])):
            database.positions["app", name, place] = Claim(position, 1)
            expected[name] += [10 * number + offset for offset in range(position, 4)]
    async with worker(batch_app(tmp_path, database, database, 20), cluster) as running:
        await until(is_done(cluster, "left", "right"), running)
    for name, numbers in expected.items():
        assert values_in(database, name) == Counter(numbers)


async def test_a_list_still_held_when_the_sinks_position_is_reached_is_handed_out_first(
    tmp_path: Path,
) -> None:
    cluster, database = FakeCluster(batch_records=3), MemoryDatabase()
    cluster.create("left")
    for n in range(6):
        cluster.put("left", b"%d" % n)
    cluster.offsets["app", LEFT] = 0
    database.positions["app", "lists", LEFT] = Claim(3, 1)
    app = make_app(tmp_path)
    lists = MemorySink("lists", database=database)

    async def is_wanted(n: int) -> bool:
        """A commit comes while the last record below the position is in hand, if there is one to
        come."""
        until_ = asyncio.get_running_loop().time() + 0.1
        while n == 2 and asyncio.get_running_loop().time() < until_:
            if all(task.is_cutting for task in running.engine.tasks):
                break
            await asyncio.sleep(0)
        return True

    @app.agent(app.topic("left", value_type=int))
    async def collect(stream: Stream[int]) -> None:
        async for values in stream.filter(is_wanted).take(5, within=0.1):
            await lists.write({"values": list(values)})

    async with worker(app, cluster) as running:
        await until(lambda: bool(database.rows("lists")), running)
        await until(is_done(cluster, "left"), running)
    assert values_in(database, "lists") == Counter([3, 4, 5])


async def test_a_record_held_only_after_a_commit_was_asked_for_is_part_of_it(
    tmp_path: Path,
) -> None:
    """Two agents commit one position, so what one of them holds back would be run by both again."""
    fails = [True]

    def step(what: str, name: str) -> None:
        if what == "committed" and fails and fails.pop():
            raise SinkUnavailable("the answer is lost")

    cluster, database = FakeCluster(), MemoryDatabase(on_step=step)
    cluster.create("left")
    for n in range(6):
        cluster.put("left", b"%d" % n)
    app = make_app(tmp_path)
    lists = MemorySink("lists", database=database)
    numbers = app.topic("left", value_type=int)
    waited = []

    async def is_wanted(n: int) -> bool:
        waited.append(n)
        while n == 0 and not all(task.is_cutting for task in running.engine.tasks):
            await asyncio.sleep(0)
        return True

    @app.agent(numbers)
    async def collect(stream: Stream[int]) -> None:
        async for values in stream.filter(is_wanted).take(10, within=0.2):
            await lists.write({"values": list(values)})

    @app.agent(numbers)
    async def each(stream: Stream[int]) -> None:
        async for n in stream:
            await lists.write({"values": [-n]})

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "left"), running)
    assert waited.count(0) > 1, "it was run again"
    assert values_in(database, "lists") == Counter([*range(6), *(-n for n in range(6))])


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
        assert values_in(database, "lists") == Counter(range(60)), seed
        assert values_in(second, "others") == Counter(range(60)), seed


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
