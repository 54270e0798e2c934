"""Apps for the scenarios of the mutation proof."""

from __future__ import annotations

import asyncio

from onceward.streams import App, Stream
from onceward.streams.sinks import MemorySink


def payments() -> App:
    """Agents that wait for something in the middle of a record, a table, and a database."""
    app = App("payments")
    orders = app.topic("orders", key_type=str, value_type=int, partitions=2)
    checked = app.topic("checked", key_type=str, value_type=int, partitions=2)
    totals = app.Table("totals", default=int, partitions=2)
    ledger = MemorySink("ledger")

    @app.agent(orders)
    async def check(stream: Stream[int]) -> None:
        async for customer, amount in stream.items():
            await asyncio.sleep(0.01)
            await checked.send(key=customer, value=amount)

    @app.agent(checked, sink=[ledger])
    async def book(stream: Stream[int]) -> object:
        async for customer, amount in stream.items():
            totals[customer] += amount
            await asyncio.sleep(0.005)
            yield {"customer": customer, "amount": amount, "total": totals[customer]}

    return app
