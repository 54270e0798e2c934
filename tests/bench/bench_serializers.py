"""CPU per record of the registry serializers beside those of confluent-kafka, on the same data.

    python tests/bench/bench_serializers.py [--records 20000] [--rounds 5]

Both sides keep their schemas in a registry inside the process, so that no request is part of what
is measured. Per format: dicts with a schema given as text, and typed values, which the other side's
serializers take with functions to and from dicts (msgspec's, in C, the fastest there are). JSON is
validated on both sides, as is the default of both. Taken is the process's CPU time; printed is the
lowest round in microseconds per record, and how many times as long the other side takes.

The last lines are the time of a compatibility check of a record with 60 nullable fields.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import msgspec

from onceward.registry import Avro, JsonSchema, MemoryRegistry, Protobuf
from onceward.registry.compatibility import can_read
from onceward.registry.schemas import SchemaType, parse_schema
from onceward.registry.serializers.avro.derive import schema_of as avro_schema_of
from onceward.registry.serializers.json_schema.derive import schema_of as json_schema_of
from onceward.registry.serializers.models import model_of

PROTO = """syntax = "proto3";
message Line { string sku = 1; int32 count = 2; double price = 3; }
message Order {
  string id = 1; string account = 2; int64 amount = 3; double price = 4; optional string note = 5;
  repeated string tags = 6; repeated Line lines = 7; int64 at = 8;
}
"""


class Line(msgspec.Struct):
    sku: str
    count: int
    price: float


class Order(msgspec.Struct):
    id: str
    account: str
    amount: int
    price: float
    note: str | None
    tags: list[str]
    lines: list[Line]
    at: int


def orders(count: int) -> list[Order]:
    return [
        Order(
            f"o-{number:08}",
            f"account-{number % 1000}",
            number * 37 % 100_000,
            number / 8,
            None if number % 3 else "left at the door",
            ["new", "web"],
            [Line(f"sku-{number % 97}", number % 9 + 1, 1.5), Line("sku-x", 1, 20.25)],
            1_700_000_000_000_000 + number,
        )
        for number in range(count)
    ]


Encode = Callable[[Any], Any]
Pair = tuple[Encode, Encode]


class Confluent:
    """The other side."""

    def __init__(self) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.serialization import MessageField, SerializationContext

        self.client = SchemaRegistryClient.new_client({"url": "mock://bench"})
        self.context = SerializationContext("orders", MessageField.VALUE, {})

    def bound(self, serializer: Any, deserializer: Any) -> Pair:
        context = self.context
        return lambda value: serializer(value, context), lambda data: deserializer(data, context)

    def avro(self, schema: str, to_dict: Any = None, from_dict: Any = None) -> Pair:
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        return self.bound(
            AvroSerializer(self.client, schema, to_dict),
            AvroDeserializer(self.client, schema, from_dict),
        )

    def json(self, schema: str, to_dict: Any = None, from_dict: Any = None) -> Pair:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        return self.bound(
            JSONSerializer(schema, self.client, to_dict), JSONDeserializer(schema, from_dict)
        )

    def protobuf(self, cls: Any) -> Pair:
        from confluent_kafka.schema_registry.protobuf import (
            ProtobufDeserializer,
            ProtobufSerializer,
        )

        conf = {"use.deprecated.format": False}
        return self.bound(
            ProtobufSerializer(cls, self.client, conf), ProtobufDeserializer(cls, conf)
        )


def ours(serializer: Any) -> tuple[Any, Pair]:
    codec = serializer.bind(None, "orders", is_key=False)
    return codec, (codec.encode, codec.decode)


def microseconds(run: Callable[[], Any], records: int, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best / records * 1e6


def compare(label: str, values: list[Any], mine: Any, theirs: Pair, rounds: int) -> None:
    """One line: both directions, one record at a time, and our batch interface."""
    codec, (encode, decode) = mine
    count = len(values)
    data = [encode(value) for value in values]
    few = max(1, rounds - 2)
    their_data = [theirs[0](value) for value in values]
    assert decode(data[1]) == values[1]
    figures = {
        "encode": (
            microseconds(lambda: [encode(value) for value in values], count, rounds),
            microseconds(lambda: codec.encode_many(values), count, rounds),
            microseconds(lambda: [theirs[0](value) for value in values], count, few),
        ),
        "decode": (
            microseconds(lambda: [decode(one) for one in data], count, rounds),
            microseconds(lambda: codec.decode_many(data), count, rounds),
            microseconds(lambda: [theirs[1](one) for one in their_data], count, few),
        ),
    }
    for direction, (single, batch, other) in figures.items():
        print(
            f"{label:18} {direction}  onceward {single:6.2f}  in batches {batch:6.2f}  "
            f"confluent {other:7.2f}  {other / single:5.1f}x"
        )


def proto_class() -> Any:
    """A class as protoc generates it."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message_factory import GetMessageClass
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/orders.proto", "w") as file:
            file.write(PROTO)
        out = f"{work}/set"
        protoc.main(["protoc", f"-I{work}", f"--descriptor_set_out={out}", f"{work}/orders.proto"])
        with open(out, "rb") as packed:
            found = descriptor_pb2.FileDescriptorSet.FromString(packed.read())
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(found.file[0].SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("Order"))


def check_time(rounds: int) -> None:
    names = [f"field_{number}" for number in range(60)]
    avro: dict[str, Any] = {
        "type": "record",
        "name": "Wide",
        "fields": [{"name": n, "type": ["null", "string"], "default": None} for n in names],
    }
    closed = {
        "type": "object",
        "properties": {n: {"type": ["string", "null"]} for n in names},
        "additionalProperties": False,
    }
    fields = "".join(f"optional string {n} = {at};" for at, n in enumerate(names, 1))
    texts = {
        SchemaType.AVRO: json.dumps(avro),
        SchemaType.JSON: json.dumps(closed),
        SchemaType.PROTOBUF: f'syntax = "proto3"; message Wide {{ {fields} }}',
    }
    for kind, text in texts.items():
        reader, writer = (parse_schema(kind, text) for _ in range(2))
        assert not can_read(reader, writer)
        parsing = microseconds(lambda: parse_schema(kind, text), 1000, rounds)  # noqa: B023
        checking = microseconds(lambda: can_read(reader, writer), 1000, rounds)  # noqa: B023
        print(f"60 fields, {kind:9} check {checking:6.2f} ms, parse {parsing:6.2f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    try:
        other = Confluent()
    except ImportError as error:
        print(f"{error}: pip install 'confluent-kafka[avro,json,protobuf,schemaregistry]'")
        return 1
    rounds = options.rounds
    typed = orders(options.records)
    plain = [msgspec.to_builtins(order) for order in typed]
    registry = MemoryRegistry()
    avro = json.dumps(avro_schema_of(model_of(Order)))
    text = json.dumps(json_schema_of(model_of(Order)))

    def to_dict(value: Any, _: Any) -> Any:
        return msgspec.to_builtins(value)

    def from_dict(value: Any, _: Any) -> Any:
        return msgspec.convert(value, Order)

    compare("Avro, dicts", plain, ours(Avro(avro, registry=registry)), other.avro(avro), rounds)
    mine = ours(Avro(Order, registry=registry))
    compare("Avro, types", typed, mine, other.avro(avro, to_dict, from_dict), rounds)
    few = options.records // 10  # the other side takes a third of a millisecond a record
    mine = ours(JsonSchema(text, registry=MemoryRegistry()))
    compare("JSON, dicts", plain[:few], mine, other.json(text), rounds)
    mine = ours(JsonSchema(Order, registry=MemoryRegistry()))
    compare("JSON, types", typed[:few], mine, other.json(text, to_dict, from_dict), rounds)
    cls = proto_class()
    messages = [cls(**one) for one in plain]
    mine = ours(Protobuf(cls, registry=MemoryRegistry()))
    compare("Protobuf", messages, mine, other.protobuf(cls), rounds)
    check_time(rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
