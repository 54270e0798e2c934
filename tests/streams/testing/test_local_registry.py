"""A LocalCluster that brings a schema registry along."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from onceward.registry import Avro
from onceward.streams import App, Record, Stream
from onceward.streams.testing import LocalCluster


class Order(Record):
    id: str
    amount: int


NOWHERE = "http://127.0.0.1:1"
"""What the app names; the cluster's registry stands in for it."""


def make_app() -> App:
    app = App("avro-orders")
    orders = app.topic("orders", partitions=1, value_serializer=Avro(Order, registry=NOWHERE))
    doubled = app.topic("doubled", partitions=1, value_serializer=Avro(Order, registry=NOWHERE))

    @app.agent(orders)
    async def double(stream: Stream[Order]) -> None:
        async for order in stream:
            await doubled.send(value=Order(order.id, order.amount * 2))

    return app


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_the_apps_serializers_use_it_and_others_can_ask_it() -> None:
    with LocalCluster(make_app, registry=True) as cluster:
        cluster.send("orders", value=Order("1", 21))
        (record,) = cluster.read("doubled", 1)
        assert (record.value.id, record.value.amount) == ("1", 42)
        assert cluster.registry is not None
        assert fetched(f"{cluster.registry}/subjects") == ["doubled-value", "orders-value"]


def test_without_it_there_is_none() -> None:
    with LocalCluster() as cluster:
        assert cluster.registry is None
