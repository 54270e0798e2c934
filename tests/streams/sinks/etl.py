"""An app from orders to rows, and what the tests of sinks do with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from onceward.broker.client import TopicPartition
from onceward.streams import (
    App,
    Record,
    Stream,
)
from onceward.streams.sinks import (
    MemoryDatabase,
    MemorySink,
)

from ..fakes import FakeCluster
from ..workers import Worker, make_app

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


class Order(Record):
    id: int
    amount: int


class Power:
    """Cuts a worker off at a step of the database: the call never returns."""

    def __init__(self) -> None:
        self.at: tuple[str, int] | None = None
        self.seen: Counter[str] = Counter()
        self.is_out = asyncio.Event()

    def step(self, what: str, name: str) -> None:
        self.seen[what] += 1
        if self.at == (what, self.seen[what]):
            self.at = None
            self.is_out.set()
            raise asyncio.CancelledError


def etl_app(tmp_path: Path, database: MemoryDatabase, **options: Any) -> App:
    """Yields a row per order, sends the order on, and keeps a sum."""
    app = make_app(tmp_path, **options)
    orders = app.topic("orders", value_type=Order, partitions=2)
    copies = app.topic("copies", value_type=Order, partitions=2)
    sums = app.Table("sums", key_type=int, default=int)
    rows = MemorySink("rows", database=database)

    @app.agent(orders, sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[dict[str, int]]:
        async for order in stream:
            sums[order.id % 3] += order.amount
            await copies.send(value=order)
            yield {"id": order.id, "sum": sums[order.id % 3]}

    return app


def put_orders(cluster: FakeCluster, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        cluster.put("orders", b'{"id":%d,"amount":%d}' % (n, n), partition=n % 2, timestamp=n)


def make_cluster(count: int, **options: Any) -> FakeCluster:
    cluster = FakeCluster(**options)
    cluster.create("orders", 2)
    put_orders(cluster, count)
    return cluster


def ids(database: MemoryDatabase, name: str = "rows") -> list[int]:
    return sorted(row["id"] for row in database.rows(name))


async def kill(victim: Worker) -> None:
    """SIGKILL, and its session ends."""
    await victim.kill()
    victim.consumer.expel()


def is_done(cluster: FakeCluster, *topics: str, app: str = "app") -> Callable[[], bool]:
    def done() -> bool:
        return all(
            cluster.offsets.get((app, TopicPartition(topic, number)), 0) >= len(log)
            for topic in topics or ("orders",)
            for number, log in enumerate(cluster.logs[topic])
        )

    return done


def fail_once(name: str, when: str) -> Callable[[str, int], str | None]:
    fails = [True]

    def inject(call: str, number: int) -> str | None:
        return when if call == name and fails and fails.pop() else None

    return inject


def assert_right(cluster: FakeCluster, database: MemoryDatabase, count: int) -> None:
    assert ids(database) == list(range(count))
    assert len(cluster.values("copies")) == count
    sums = {row["id"]: row["sum"] for row in database.rows("rows")}
    running = {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0}
    for n in range(count):
        place = n % 3 + 3 * (n % 2)  # each partition has a table of its own
        running[place] += n
        assert sums[n] == running[place]
    for tp in ORDERS:
        stored = database.positions["app", "rows", tp].next_offset
        assert stored == cluster.offsets["app", tp]
