"""A small app that reads a CSV file, a few rows at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from onceward.streams import App, Record
from onceward.streams.sources import CsvFiles, Row, Rows, Split


class Order(Record):
    id: str
    shop: str
    note: str


class SlowFiles(CsvFiles):
    chunk_bytes = 100

    async def read(self, split: Split) -> AsyncIterator[Row | Rows]:
        async for rows in super().read(split):
            yield rows
            await asyncio.sleep(0.05)


app = App("csv-reading", topic_partitions=2)
orders = app.topic("orders", key_type=str, value_type=Order, partitions=2)
app.source(orders, SlowFiles(Path(__file__).parent / "orders.csv", watch=None), key="shop")
