"""Two registry clients from npm, unmodified, against our registry; Python reads what they wrote."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from onceward.broker import Broker
from onceward.broker.client import Client
from onceward.registry import Avro, JsonSchema, Protobuf, Undecodable
from onceward.registry.config import RegistryConfig
from onceward.registry.serializers.codec import RegistryCodec
from onceward.registry.server import Registry
from onceward.streams import Record

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

PACKAGES = ("@kafkajs/confluent-schema-registry@4.1.0", "@confluentinc/schemaregistry@1.10.1")
PROGRAM = Path(__file__).parent / "npm_registry" / "use_registry.cjs"


class Order(Record):
    id: str
    amount: int


ORDER = Order("x", 7)
PLAIN = {"id": "x", "amount": 7}
WITHOUT_PATH = "kafkajs PROTOBUF"
"""That client writes no message path between id and message, so only itself can read it."""


async def run(*command: str, cwd: Path, text: str = "") -> str:
    """What the command wrote; fails with what it complained of."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await process.communicate(text.encode())
    assert process.returncode == 0, complaint.decode()
    return out.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages installed and the program beside them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: apt-get install nodejs npm")
    place = tmp_path_factory.mktemp("npm")
    (place / "package.json").write_text('{"private":true}')
    shutil.copy(PROGRAM, place)
    install = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES)
    try:
        asyncio.run(run(*install, cwd=place))
    except AssertionError as error:
        pytest.skip(f"npm cannot install the clients: {str(error)[-300:]}")
    return place


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with (
        Broker(data_dir=str(tmp_path / "broker")) as broker,
        Client(broker.bootstrap, clock=lambda: 1_700_000_000_000, rng=Random(1)) as client,
        Registry(client, RegistryConfig(port=0)) as registry,
    ):
        yield registry.url


def descriptors() -> tuple[descriptor_pb2.FileDescriptorSet, Any, Any]:
    """A message of one file, another that imports it and a well-known type, and their classes."""
    from google.protobuf import descriptor_pool, message_factory

    part = descriptor_pb2.FileDescriptorProto(name="npm/part.proto", package="npm")
    part.syntax = "proto3"
    order = part.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=9, label=1, json_name="id")
    order.field.add(name="amount", number=2, type=5, label=1, json_name="amount")
    whole = descriptor_pb2.FileDescriptorProto(name="npm/whole.proto", package="npm")
    whole.syntax = "proto3"
    whole.dependency.extend(["npm/part.proto", "google/protobuf/timestamp.proto"])
    message = whole.message_type.add(name="Whole")
    for number, (name, kind) in enumerate(
        (("order", ".npm.Order"), ("at", ".google.protobuf.Timestamp")), 1
    ):
        message.field.add(
            name=name, number=number, type=11, label=1, type_name=kind, json_name=name
        )
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.extend([part, whole])
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    order_class, whole_class = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in ("npm.Order", "npm.Whole")
    )
    return files, order_class, whole_class


async def prepared(serializer: Any, topic: str) -> RegistryCodec:
    codec: RegistryCodec = serializer.bind(None, topic, is_key=False)
    await codec.prepare()
    return codec


async def read_by_us(url: str, name: str, data: bytes) -> Any:
    """As its type, or as the message that the registry has."""
    kind = name.split()[-1]
    serializer: Any = {
        "AVRO": Avro(registry=url),
        "JSON": JsonSchema(registry=url),
        "PROTOBUF": Protobuf(registry=url),
    }[kind]
    codec = serializer.bind(None, f"npm-{kind.lower()}", is_key=False)
    await codec.learn(codec.unknown([data]))
    (value,) = codec.decode_many([data])
    if kind != "PROTOBUF":
        return dict(value)
    message = value.order if value.DESCRIPTOR.name == "Whole" else value
    return {"id": message.id, "amount": message.amount}


def written_by_confluents_python(url: str, order: Any, whole: Any) -> dict[str, Any]:
    """By topic; what the two clients of npm have to read."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": url})
    avro, jsons = (
        client.get_latest_version(f"npm-{kind}-value").schema.schema_str
        for kind in ("avro", "json")
    )
    conf = {"use.deprecated.format": False}
    writers: dict[str, tuple[Any, Any]] = {
        "AVRO": (AvroSerializer(client, avro), PLAIN),
        "JSON": (JSONSerializer(jsons, client), PLAIN),
        "PROTOBUF": (ProtobufSerializer(type(order), client, conf), order),
        "imports PROTOBUF": (ProtobufSerializer(type(whole), client, conf), whole),
    }
    written = {}
    for name, (write, value) in writers.items():
        topic = f"python-{name.replace(' ', '-').lower()}"
        data = write(value, SerializationContext(topic, MessageField.VALUE))
        written[f"confluent {name}"] = {"topic": topic, "hex": data.hex()}
    return written


async def test_clients_of_npm_take_it_for_their_own(folder: Path, url: str) -> None:
    files, order_class, whole_class = descriptors()
    sent = json.dumps({"descriptors": files.SerializeToString().hex()})
    program = ("node", PROGRAM.name, url)
    written = json.loads(await run(*program, "write", cwd=folder, text=sent))
    assert len(written) == 6
    for name, data in written.items():
        if name == WITHOUT_PATH:
            with pytest.raises(Undecodable, match="message path"):
                await read_by_us(url, name, bytes.fromhex(data))
        else:
            assert await read_by_us(url, name, bytes.fromhex(data)) == PLAIN, name

    order = order_class(**PLAIN)
    whole = whole_class(order=order, at={"seconds": 5})
    data = await asyncio.to_thread(written_by_confluents_python, url, order, whole)
    ours: dict[str, tuple[Any, Any]] = {
        "AVRO": (Avro(Order, registry=url), ORDER),
        "JSON": (JsonSchema(Order, registry=url), ORDER),
        "PROTOBUF": (Protobuf(order_class, registry=url), order),
        "imports PROTOBUF": (Protobuf(whole_class, registry=url), whole),
    }
    for name, (serializer, value) in ours.items():
        topic = f"ours-{name.replace(' ', '-').lower()}"
        codec = await prepared(serializer, topic)
        data[f"ours {name}"] = {"topic": topic, "hex": codec.encode(value).hex()}
    found = json.loads(await run(*program, "read", cwd=folder, text=json.dumps({"data": data})))
    assert len(found) == 8
    for name, read in found.items():
        assert read and all(value == PLAIN for value in read.values()), (name, read)
