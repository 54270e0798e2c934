"""Rows a database does not take: dead-lettered exactly once, or the worker stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import (
    App,
    Stream,
)
from onceward.streams.sinks import (
    MemoryDatabase,
    MemorySink,
    SinkError,
)

from ..fakes import FakeCluster
from ..workers import make_app, until, worker
from .etl import (
    Order,
    fail_once,
    ids,
    is_done,
    kill,
    make_cluster,
)


def letters(cluster: FakeCluster) -> list[tuple[bytes | None, dict[str, bytes | None]]]:
    return [(entry.value, dict(entry.headers)) for entry in cluster.read("app-dead-letter")]


def picky_app(
    tmp_path: Path, database: MemoryDatabase, on_error: str | None, **options: Any
) -> App:
    app = make_app(tmp_path, **options)

    def check(row: dict[str, Any]) -> str | None:
        return "sevens are not taken" if row["id"] % 10 == 7 else None

    rows = MemorySink("rows", database=database, on_error=on_error, check=check)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


@pytest.mark.parametrize("when", [None, "before", "after"])
async def test_a_refused_row_is_dead_lettered_once_and_the_rest_lands(
    tmp_path: Path, when: str | None
) -> None:
    cluster, database = make_cluster(30), MemoryDatabase()
    if when is not None:
        cluster.injector = fail_once("commit", when)
    async with worker(picky_app(tmp_path, database, "dead_letter"), cluster) as running:
        await until(is_done(cluster), running)
    assert ids(database) == [n for n in range(30) if n % 10 != 7]
    found = letters(cluster)
    assert sorted(value or b"" for value, _ in found) == [
        b'{"id":%d,"amount":%d}' % (n, n) for n in (17, 27, 7)
    ]
    headers = next(headers for value, headers in found if value == b'{"id":7,"amount":7}')
    assert headers["onceward-error"] == b"sevens are not taken"
    assert headers["onceward-sink"] == b"rows"
    assert headers["onceward-row"] == b'{"id":7,"amount":7}'
    assert (headers["onceward-topic"], headers["onceward-offset"]) == (b"orders", b"3")
    assert not database.refused["app", "rows"] or when is None or len(database.refused) == 1


async def test_a_refused_row_survives_a_kill_between_database_and_kafka(tmp_path: Path) -> None:
    cluster, database = make_cluster(30), MemoryDatabase()
    stuck = asyncio.Event()

    def inject(name: str, number: int) -> str | None:
        if name == "commit":
            stuck.set()
            return "before"
        return None

    cluster.injector = inject
    async with worker(picky_app(tmp_path, database, "dead_letter"), cluster) as first:
        await until(stuck.is_set, first)
        await kill(first)
    cluster.injector = None
    assert not letters(cluster)
    async with worker(picky_app(tmp_path, database, "dead_letter"), cluster) as second:
        await until(is_done(cluster), second)
    assert len(letters(cluster)) == 3
    assert ids(database) == [n for n in range(30) if n % 10 != 7]


async def test_a_refused_row_stops_the_worker_by_default_and_nothing_lands(tmp_path: Path) -> None:
    cluster, database = make_cluster(30), MemoryDatabase()
    with pytest.raises(SinkError, match=r"sink 'rows' .* for orders-1 at offset 3: sevens are not"):
        async with worker(picky_app(tmp_path, database, None), cluster) as running:
            await until(lambda: False, running)
    assert database.rows("rows") == []
    assert not cluster.offsets


async def test_what_a_failed_record_wrote_is_undone_with_it(tmp_path: Path) -> None:
    cluster, database = make_cluster(10), MemoryDatabase()
    app = make_app(tmp_path, on_agent_error="dead_letter")
    rows = MemorySink("rows", database=database)

    @app.agent(app.topic("orders", value_type=Order), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order
            if order.id == 4:
                raise ValueError("four")

    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert ids(database) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert len(letters(cluster)) == 1
