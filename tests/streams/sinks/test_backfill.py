"""A new table is filled from the topic's records while the live one goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from onceward.streams import App, Stream
from onceward.streams.sinks import MemoryDatabase, MemorySink

from ..workers import make_app, until, worker
from .etl import ORDERS, Order, fail_once, ids, is_done, make_cluster, put_orders


def app_into(tmp_path: Path, database: MemoryDatabase, table: str, version: int) -> App:
    app = make_app(tmp_path, version=version)
    rows = MemorySink(table, database=database)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


async def test_another_version_of_an_app_fills_a_new_table_beside_the_live_one(
    tmp_path: Path,
) -> None:
    cluster, database = make_cluster(40), MemoryDatabase()
    async with worker(app_into(tmp_path, database, "rows", 1), cluster) as live:
        await until(is_done(cluster), live)
        cluster.injector = fail_once("commit", "before")
        async with worker(app_into(tmp_path, database, "rows_v2", 2), cluster) as backfill:
            put_orders(cluster, 20, start=40)
            await until(is_done(cluster), live, backfill)
            await until(is_done(cluster, app="app-v2"), live, backfill)
        put_orders(cluster, 5, start=60)
        await until(is_done(cluster), live)
    assert ids(database, "rows") == list(range(65))
    assert ids(database, "rows_v2") == list(range(60))


async def test_a_backfill_may_begin_within_the_topic(tmp_path: Path) -> None:
    cluster, database = make_cluster(40), MemoryDatabase()
    for tp in ORDERS:
        cluster.offsets["app-v2", tp] = 15
    async with worker(app_into(tmp_path, database, "rows_v2", 2), cluster) as backfill:
        await until(is_done(cluster, app="app-v2"), backfill)
    assert ids(database, "rows_v2") == list(range(30, 40))
