"""A small app whose records have their schemas in a registry: amounts added up per account."""

from __future__ import annotations

from onceward.registry import Avro
from onceward.streams import App, Record, Stream

REGISTRY = "http://127.0.0.1:1"
"""Nobody is there: a simulation brings a registry of its own."""


class Order(Record):
    account: str
    amount: int


class Total(Record):
    account: str
    sum: int


def totals_kept_in(registry: str) -> App:
    app = App("avro-totals", topic_partitions=2)
    orders = app.topic("orders", key_type=str, value_serializer=Avro(Order, registry=registry))
    totals = app.topic("totals", key_type=str, value_serializer=Avro(Total, registry=registry))
    sums = app.Table("sums", value_serializer=Avro(Total, registry=registry), partitions=2)

    @app.agent(orders)
    async def add(stream: Stream[Order]) -> None:
        async for order in stream:
            before = sums.get(order.account)
            total = Total(order.account, order.amount + (before.sum if before else 0))
            sums[order.account] = total
            await totals.send(key=order.account, value=total)

    return app


def remote() -> App:
    return totals_kept_in(REGISTRY)


def in_memory() -> App:
    return totals_kept_in("memory://avro-app")


ORDERS = {"orders": [(f"a{n % 3}", Order(f"a{n % 3}", n)) for n in range(30)]}
