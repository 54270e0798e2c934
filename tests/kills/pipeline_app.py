"""The app under fire: numbers in, the same numbers with a running count per key out."""

from __future__ import annotations

import os

from onceward.streams import App, Record, Stream


class Numbered(Record):
    """``number`` is unique over the run; ``count`` is how many of its key came up to it."""

    number: int
    count: int = 0


app = App(
    "under-fire",
    commit_interval=float(os.environ.get("UNDER_FIRE_COMMIT_INTERVAL", "0.1")),
    store=os.environ.get("UNDER_FIRE_STORE", "memory://"),
)
source = app.topic("fire-in", key_type=str, value_type=Numbered, partitions=6)
target = app.topic("fire-out", key_type=str, value_type=Numbered, partitions=6)
counts = app.Table("counts", key_type=str, value_type=int, default=int, partitions=6)


@app.agent(source)
async def count(stream: Stream[Numbered]) -> None:
    async for key, value in stream.items():
        counts[key] += 1
        await target.send(key=key, value=Numbered(value.number, counts[key]))
