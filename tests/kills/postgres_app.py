"""The app under fire that writes to PostgreSQL: every number into a row without any unique index,
and a total per key as an upsert. Nothing but the source says what must be there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from onceward.streams import App, Record, Stream
from onceward.streams.sinks import PostgresSink


class Number(Record):
    number: int


class Row(Record):
    """``count`` is how many of its key came up to it."""

    number: int
    key: str
    count: int


app = App(
    "postgres-under-fire",
    commit_interval=0.05,
    store="memory://",
    broker_session_timeout=2.0,
)
source = app.topic("rows-in", key_type=str, value_type=Number, partitions=6)
counts = app.Table("row-counts", key_type=str, value_type=int, default=int, partitions=6)
dsn = os.environ.get("POSTGRES_UNDER_FIRE", "postgresql:///postgres")
rows = PostgresSink(dsn, table="rows", mode="insert", value_type=Row, create=True)
totals = PostgresSink(
    dsn, table="totals", key="key", value_type={"key": str, "total": int}, create=True
)


@app.agent(source, sink=[rows])
async def etl(stream: Stream[Number]) -> AsyncIterator[Row]:
    async for key, value in stream.items():
        counts[key] += 1
        await totals.write({"key": key, "total": counts[key]})
        yield Row(value.number, key, counts[key])
