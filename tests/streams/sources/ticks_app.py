"""A small app with a source that has two splits, and an agent that counts what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from onceward.streams import App, Stream
from onceward.streams.sources import Row

TICKS = 12
app = App("ticking", topic_partitions=2)
ticks = app.topic("ticks", key_type=str, value_type=str, partitions=3)
counted = app.topic("counted", key_type=str, value_type=int, partitions=2)
counts = app.Table("counts", default=int, partitions=3)


@app.source(ticks, splits=["left", "right"])
async def clock(position: int | None, split: str) -> AsyncIterator[Row]:
    for number in range(0 if position is None else position + 1, TICKS):
        await asyncio.sleep(0.07)
        yield Row(number, f"{split} {number}", key=f"{split}-{number % 3}")


@app.agent(ticks)
async def count(stream: Stream[str]) -> None:
    async for key, _ in stream.items():
        counts[key] += 1
        await counted.send(key=key, value=counts[key])
