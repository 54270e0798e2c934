"""The app under fire that reads CSV files, at a pace that leaves time to kill it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from onceward.streams import App, Record, Stream
from onceward.streams.sources import CsvFiles, Row, Rows, Split


class Sale(Record):
    id: int
    shop: str
    note: str


class PacedFiles(CsvFiles):
    """A few hundred rows at a time, with a pause between."""

    chunk_bytes = 8 * 1024

    async def read(self, split: Split) -> AsyncIterator[Row | Rows]:
        async for rows in super().read(split):
            yield rows
            await asyncio.sleep(float(os.environ.get("SOURCE_PAUSE_S", "0.05")))


app = App(
    "source-under-fire",
    commit_interval=0.05,
    store="memory://",
    broker_session_timeout=2.0,
)
sales = app.topic("sales", key_type=str, value_type=Sale, partitions=4)
totals = app.topic("sales-per-shop", key_type=str, value_type=int, partitions=4)
counts = app.Table("sales-counted", key_type=str, value_type=int, default=int, partitions=4)
app.source(
    sales,
    PacedFiles(os.environ.get("SOURCE_FILES", "*.csv"), watch=0.5),
    name="files",
    key="shop",
    splits=3,
)


@app.agent(sales)
async def count(stream: Stream[Sale]) -> None:
    async for sale in stream:
        counts[sale.shop] += 1
        await totals.send(key=sale.shop, value=counts[sale.shop])
