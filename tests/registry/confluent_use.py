"""What a program does with ``confluent_kafka.schema_registry``; nothing here knows of us."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
TITLED = '{"title":"Order","type":"object","properties":{"id":{"type":"string"}}}'


def use_everything(url: str) -> None:
    client = SchemaRegistryClient({"url": url})
    use_avro(client)
    use_json(client)
    use_protobuf(client)
    use_headers(client)
    use_client(client)


def context(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def use_avro(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, ORDER)({"id": "x"}, context("avro"))
    assert data is not None and data[:1] == b"\0"
    fresh = SchemaRegistryClient({"url": client._rest_client.base_urls[0]})
    assert AvroDeserializer(fresh)(data, context("avro")) == {"id": "x"}


def use_json(client: SchemaRegistryClient) -> None:
    data = JSONSerializer(TITLED, client)({"id": "x"}, context("json"))
    assert data is not None
    fresh = SchemaRegistryClient({"url": client._rest_client.base_urls[0]})
    reader = JSONDeserializer(None, schema_registry_client=fresh)
    assert reader(data, context("json")) == {"id": "x"}


def message_classes() -> tuple[Any, Any]:
    """``Part`` of one file, and ``Whole`` of another that imports it and a well-known type."""
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    part = descriptor_pb2.FileDescriptorProto(name="shop/part.proto", package="shop")
    part.syntax = "proto3"
    part.message_type.add(name="Part").field.add(name="n", number=1, type=5, label=1)
    pool.Add(part)
    whole = descriptor_pb2.FileDescriptorProto(name="shop/whole.proto", package="shop")
    whole.syntax = "proto3"
    whole.dependency.extend(["shop/part.proto", "google/protobuf/timestamp.proto"])
    message = whole.message_type.add(name="Whole")
    for number, name in enumerate(("shop.Part", "google.protobuf.Timestamp"), 1):
        message.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=f".{name}")
    message.nested_type.add(name="Inner").field.add(name="s", number=1, type=9, label=1)
    pool.Add(whole)
    classes = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in ("shop.Whole", "shop.Whole.Inner")
    )
    whole_class, inner_class = classes
    return whole_class, inner_class


def use_protobuf(client: SchemaRegistryClient) -> None:
    whole, inner = message_classes()
    message = whole()
    message.f1.n = 7
    message.f2.seconds = 5
    data = ProtobufSerializer(whole, client)(message, context("proto"))
    assert data is not None
    fresh = SchemaRegistryClient({"url": client._rest_client.base_urls[0]})
    reader = ProtobufDeserializer(whole, {"use.deprecated.format": False}, fresh)
    assert reader(data, context("proto")) == message
    assert "shop/part.proto" in client.get_subjects()
    data = ProtobufSerializer(inner, client)(inner(s="x"), context("proto"))
    assert data is not None and data[5:8] == b"\x04\x00\x00"


def use_headers(client: SchemaRegistryClient) -> None:
    headers: list[tuple[str, bytes]] = []
    settings = {"schema.id.serializer": header_schema_id_serializer}
    data = AvroSerializer(client, ORDER, conf=settings)({"id": "x"}, context("headers", headers))
    assert data == b"\x02x"
    [(name, value)] = headers
    assert name == "__value_schema_id" and value[:1] == b"\x01" and len(value) == 17


def use_client(client: SchemaRegistryClient) -> None:
    base = Schema('{"type":"record","name":"B","fields":[]}', "AVRO")
    first = client.register_schema("base", base)
    assert client.get_schema(first).schema_str == base.schema_str
    user = Schema(
        '{"type":"record","name":"U","fields":[{"name":"b","type":"B"}]}',
        "AVRO",
        [SchemaReference("B", "base", 1)],
    )
    second = client.register_schema("user", user)
    assert client.lookup_schema("user", user).schema_id == second
    assert client.get_latest_version("user").schema.references == user.references
    assert client.get_versions("user") == [1]
    assert client.test_compatibility("user", Schema('"int"', "AVRO")) is False
    changed: Any = client.set_compatibility("user", "NONE")
    assert changed["compatibility"] == "NONE"
    assert client.get_compatibility("user") == "NONE"
    assert client.test_compatibility("user", Schema('"int"', "AVRO")) is True
    with pytest.raises(SchemaRegistryError) as caught:
        client.delete_subject("base")
    assert caught.value.error_code == 42206
    assert client.delete_subject("user") == [1]
    assert client.delete_subject("user", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_version("user", 1)
    assert caught.value.error_code == 40401
