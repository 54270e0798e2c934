"""The transform and the keyed count as onceward agents, exactly-once (the default)."""

from __future__ import annotations

import os

from onceward.streams import App, Record, Stream


class Event(Record):
    id: int
    user: str
    amount: float
    ts: int
    page: str
    country: str


class Priced(Record):
    id: int
    user: str
    total: float
    ts: int
    country: str


workload = os.environ["BENCH_WORKLOAD"]
app = App(
    f"bench-onceward-{workload}",
    processing_guarantee=os.environ.get("BENCH_GUARANTEE", "exactly_once"),
    store=os.environ.get("BENCH_STORE", "memory://"),
)
source = app.topic("bench-in", value_type=Event, partitions=4)
target = app.topic(os.environ["BENCH_TARGET"], value_type=Priced, partitions=4)

if workload == "transform":

    @app.agent(source)
    async def transform(stream: Stream[Event]) -> None:
        async for event in stream:
            await target.send(
                key=event.user,
                value=Priced(event.id, event.user, event.amount * 1.19, event.ts, event.country),
            )

else:
    sums = app.Table("sums", key_type=str, value_type=float, default=float, partitions=4)

    @app.agent(source)
    async def count(stream: Stream[Event]) -> None:
        async for event in stream:
            sums[event.user] = total = sums[event.user] + event.amount
            await target.send(
                key=event.user,
                value=Priced(event.id, event.user, total, event.ts, event.country),
            )
