"""Records of ten fields into a table as they are, exactly-once (the default)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import datetime
from decimal import Decimal

from onceward.streams import App, Record, Stream
from onceward.streams.sinks import PostgresSink, Sink, SqliteSink


class Payment(Record):
    id: int
    account: str
    amount: Decimal
    rate: float
    at: datetime
    late: bool
    country: str
    page: str
    quantity: int
    note: str


kind = os.environ["BENCH_SINK"]
target = os.environ["BENCH_DATABASE"]
app = App(os.environ["BENCH_GROUP"], store="memory://")
sink: Sink
if kind == "sqlite":
    sink = SqliteSink(target, table="payments", value_type=Payment, create=True)
elif kind == "postgres-upsert":
    sink = PostgresSink(target, table="payments", key="account", value_type=Payment, create=True)
else:
    sink = PostgresSink(target, table="payments", value_type=Payment, create=True)


@app.agent(app.topic("bench-in", value_type=Payment, partitions=4), sink=[sink])
async def etl(stream: Stream[Payment]) -> AsyncIterator[Payment]:
    async for payment in stream:
        yield payment
