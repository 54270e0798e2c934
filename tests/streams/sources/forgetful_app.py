"""A source that breaks its promise: it does not go on from the position it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from onceward.streams import App
from onceward.streams.sources import Row

app = App("forgetful-ticking", topic_partitions=2)
ticks = app.topic("ticks", key_type=str, value_type=str, partitions=2)


@app.source(ticks)
async def clock(position: int | None) -> AsyncIterator[Row]:
    for number in range(12):
        if number != position:
            await asyncio.sleep(0.07)
            yield Row(number, f"tick {number}", key=str(number % 3))
