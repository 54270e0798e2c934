"""The same two workloads in faust-streaming, at least once (its exactly_once duplicates)."""

from __future__ import annotations

import os

import faust


class Event(faust.Record, include_metadata=False):
    id: int
    user: str
    amount: float
    ts: int
    page: str
    country: str


class Priced(faust.Record, include_metadata=False):
    id: int
    user: str
    total: float
    ts: int
    country: str


workload = os.environ["BENCH_WORKLOAD"]
app = faust.App(
    f"bench-faust-{workload}",
    broker=f"kafka://{os.environ['ONCEWARD_BROKER']}",
    store="memory://",
    topic_partitions=4,
    topic_disable_leader=True,
    web_enabled=False,
    broker_session_timeout=10,
    broker_heartbeat_interval=1,
    stream_wait_empty=False,
)
source = app.topic("bench-in", key_type=bytes, value_type=Event)
target = app.topic(os.environ["BENCH_TARGET"], key_type=str, value_type=Priced)

if workload == "transform":

    @app.agent(source)
    async def transform(stream):
        async for event in stream:
            await target.send(
                key=event.user,
                value=Priced(event.id, event.user, event.amount * 1.19, event.ts, event.country),
            )

else:
    sums = app.Table("sums", default=float, partitions=4)

    @app.agent(source)
    async def count(stream):
        async for event in stream:
            sums[event.user] = total = sums[event.user] + event.amount
            await target.send(
                key=event.user,
                value=Priced(event.id, event.user, total, event.ts, event.country),
            )


@app.task
async def tell_when_restored():
    """Records that come before the tables are restored are lost: the benchmark waits for this."""
    await app.tables.recovery.completed.wait()
    print("bench: ready", flush=True)


if __name__ == "__main__":
    app.main()
