"""Bytes of confluent-kafka's serializers are read by ours, and the reverse, over our registry."""

from __future__ import annotations

import asyncio
import datetime
import json
from typing import Any

import pytest

from onceward.registry import Avro, JsonSchema, Protobuf, RegistryClient
from onceward.registry.serializers.codec import RegistryCodec
from onceward.streams import Record

from .conftest import Running
from .messages import FILES, message_classes

confluent = pytest.importorskip(
    "confluent_kafka.schema_registry",
    reason="pip install 'confluent-kafka[avro,json,protobuf,schemaregistry]'",
)


class Line(Record):
    sku: str
    price: float


class Order(Record):
    id: str
    amount: int
    lines: list[Line]
    note: str | None = None
    when: datetime.datetime | None = None


WHEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000, datetime.UTC)
ORDERS = [
    Order("1", -5, [Line("a", 1.5), Line("b", 2.25)], "note", WHEN),
    Order("2", 2**60, []),
]


def plain(order: Order) -> dict[str, Any]:
    fields = order.asdict()
    return {**fields, "lines": [line.asdict() for line in order.lines]}


class Theirs:
    """confluent-kafka's side; its calls block, so they run in a thread."""

    def __init__(self, url: str) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self.client = confluent.SchemaRegistryClient({"url": url})
        self.headers: list[Any] = []
        self.context = SerializationContext("orders", MessageField.VALUE, self.headers)

    async def call(self, function: Any, value: Any) -> Any:
        return await asyncio.to_thread(function, value, self.context)


async def prepared(serializer: Any) -> RegistryCodec:
    codec: RegistryCodec = serializer.bind(None, "orders", is_key=False)
    await codec.prepare()
    return codec


async def learned(codec: RegistryCodec, data: list[Any]) -> list[Any]:
    await codec.learn(codec.unknown(data))
    return codec.decode_many(data)


async def test_avro_both_ways(running: Running) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    ours = await prepared(Avro(Order, registry=running.url))
    found = await ours.registry.latest("orders-value")
    theirs = Theirs(running.url)
    write = AvroSerializer(theirs.client, found.schema.text)
    read = AvroDeserializer(theirs.client)
    for order in ORDERS:
        data = await theirs.call(write, plain(order))
        assert data == ours.encode(order)
        assert await learned(ours, [data]) == [order]
        assert await theirs.call(read, data) == plain(order)


async def test_json_both_ways(running: Running) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    ours = await prepared(JsonSchema(Order, registry=running.url))
    text = (await ours.registry.latest("orders-value")).schema.text
    theirs = Theirs(running.url)
    write = JSONSerializer(text, theirs.client)
    read = JSONDeserializer(text, schema_registry_client=theirs.client)
    for order in ORDERS:
        body = json.loads(ours.encode(order)[5:])
        data = await theirs.call(write, body)
        assert data[:5] == ours.encode(order)[:5]
        assert await learned(ours, [data]) == [order]
        assert await theirs.call(read, ours.encode(order)) == body


async def test_protobuf_both_ways(running: Running) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    theirs = Theirs(running.url)
    conf = {"use.deprecated.format": False}
    for name in ("shop.Order", "shop.Cancel.Reason"):
        (cls,) = message_classes(FILES, name)
        value = cls(text="x") if name.endswith("Reason") else cls(id="1", total={"units": 5})
        write = ProtobufSerializer(cls, theirs.client, conf)
        read = ProtobufDeserializer(cls, conf, schema_registry_client=theirs.client)
        ours = await prepared(Protobuf(cls, registry=running.url))
        data = await theirs.call(write, value)
        assert data == ours.encode(value)
        assert await learned(ours, [data]) == [value]
        assert await theirs.call(read, ours.encode(value)) == value
        generic = Protobuf(registry=running.url).bind(None, "orders", is_key=False)
        (message,) = await learned(generic, [data])
        assert message.DESCRIPTOR.full_name == name


async def test_ids_in_headers_both_ways(running: Running) -> None:
    from confluent_kafka.schema_registry import header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    ours = await prepared(Avro(Order, registry=running.url, header_ids=True))
    text = (await ours.registry.latest("orders-value")).schema.text
    theirs = Theirs(running.url)
    conf = {"schema.id.serializer": header_schema_id_serializer}
    data = await theirs.call(AvroSerializer(theirs.client, text, conf=conf), plain(ORDERS[0]))
    header, payload = ours.split(ours.encode(ORDERS[0]))
    assert theirs.headers == [("__value_schema_id", header)]
    assert data == payload
    joined = ours.joined([data], [theirs.headers])
    assert await learned(ours, joined) == [ORDERS[0]]
    read = AvroDeserializer(theirs.client)
    assert await theirs.call(read, payload) == plain(ORDERS[0])


async def test_confluents_client_and_ours_see_the_same_versions(running: Running) -> None:
    await prepared(Avro(Order, registry=running.url))
    theirs = Theirs(running.url)
    ours = RegistryClient(running.url)
    latest = await asyncio.to_thread(theirs.client.get_latest_version, "orders-value")
    found = await ours.latest("orders-value")
    assert (latest.schema_id, latest.version) == (found.id, found.version)
    assert latest.schema.schema_str == found.schema.text
