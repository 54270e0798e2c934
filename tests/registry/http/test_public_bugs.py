"""Bugs people reported of other registries, as scenarios here; the table is in ../README.md.

Scenarios that other tests hold already are named there and not repeated.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from onceward.broker import Broker
from onceward.registry import JsonSchema, MemoryRegistry, RegistryClient
from onceward.registry.client import SchemaText
from onceward.registry.http import application
from onceward.registry.http.routes import ROUTES
from onceward.registry.schemas import SchemaType
from onceward.registry.serializers.json_schema import serializer as json_serializer
from onceward.registry.serializers.json_schema.validate import Validator
from onceward.streams import Record

from ..test_server import registry_on
from .rest import Rest

INT, LONG, STRING = '"int"', '"long"', '"string"'
OPEN = '{"type":"object","properties":{"a":{"type":"integer"}}}'
OPEN_MORE = '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}'


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(str(tmp_path / "data")) as running:
        yield running


@pytest.mark.parametrize("answers", [True, False], ids=["with", "without"])
async def test_default_serializers_work_with_and_without_the_answer_about_associations(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """https://github.com/Aiven-Open/karapace/issues/1273"""
    import asyncio

    pytest.importorskip("confluent_kafka.schema_registry")
    from ..confluent_use import use_everything

    if not answers:
        left = tuple(route for route in ROUTES if "/associations" not in route.path)
        monkeypatch.setattr(application, "ROUTES", left)
    async with registry_on(broker) as registry:
        await asyncio.to_thread(use_everything, registry.url)


MUTUAL = """{"$ref":"#/$defs/a","$defs":{
    "a":{"type":"object","properties":{"b":{"$ref":"#/$defs/b"}},"additionalProperties":false},
    "b":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"additionalProperties":false}}}"""
ANY_OF = """{"$defs":{"v":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/v"}},
    {"anyOf":[{"$ref":"#/$defs/v"},{"type":"string"}]}]}},"$ref":"#/$defs/v"}"""
TREE = """{"type":"object","additionalProperties":false,
    "properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}"""


@pytest.mark.parametrize("schema", [TREE, MUTUAL, ANY_OF], ids=["tree", "mutual", "anyOf"])
async def test_a_recursive_json_schema_is_registered_and_compared_in_no_time(
    rest: Rest, schema: str
) -> None:
    """https://github.com/Aiven-Open/karapace/issues/1329
    https://github.com/confluentinc/schema-registry/issues/3779 and /issues/1549"""
    start = time.perf_counter()
    await rest.ok("PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})
    assert (await rest.register("s", schema, schemaType="JSON"))["version"] == 1
    titled = json.dumps({**json.loads(schema), "title": "again"})
    assert (await rest.register("s", titled, schemaType="JSON"))["version"] == 2
    path, body = "/compatibility/subjects/s/versions", {"schema": INT, "schemaType": "JSON"}
    assert (await rest("POST", path, body))[0] == 422  # a text is no JSON Schema
    body["schema"] = '{"type":"integer"}'
    assert await rest.ok("POST", path, body) == {"is_compatible": False}
    assert time.perf_counter() - start < 1


VERSION = {"subject", "version", "id", "guid", "schemaType", "schema"}
REPLIES: list[tuple[str, str, Any, set[str]]] = [
    ("GET", "/", None, set()),
    ("POST", "/subjects/s/versions", {"schema": INT}, {"id", "version", "guid"}),
    ("POST", "/subjects/s", {"schema": INT}, VERSION),
    ("GET", "/subjects/s/versions/1", None, VERSION),
    ("GET", "/schemas/ids/1", None, {"guid", "schemaType", "schema"}),
    ("GET", "/schemas/ids/1?subject=s", None, VERSION - {"id"}),
    ("GET", "/schemas/ids/1?fetchMaxId=true", None, {"guid", "schemaType", "schema", "maxId"}),
    ("GET", "/config", None, {"compatibilityLevel"}),
    ("PUT", "/config/s", {"compatibility": "NONE"}, {"compatibility"}),
    ("GET", "/config/s", None, {"compatibilityLevel"}),
    ("DELETE", "/config/s", None, {"compatibilityLevel"}),
    ("GET", "/mode", None, {"mode"}),
    ("PUT", "/mode/s", {"mode": "READWRITE"}, {"mode"}),
    ("DELETE", "/mode/s", None, {"mode"}),
    ("POST", "/compatibility/subjects/s/versions/1", {"schema": INT}, {"is_compatible"}),
    ("POST", "/compatibility/subjects/s/versions?verbose=true", {"schema": INT},
     {"is_compatible", "messages"}),
    ("GET", "/subjects/nobody/versions", None, {"error_code", "message"}),
    ("POST", "/subjects/s/versions", {"schema": STRING}, {"error_code", "message"}),
    ("GET", "/nowhere", None, {"error_code", "message"}),
]  # fmt: skip


async def test_replies_have_exactly_the_members_strict_clients_know(rest: Rest) -> None:
    """https://github.com/Aiven-Open/karapace/issues/435
    https://github.com/Apicurio/apicurio-registry/issues/1081"""
    for method, path, body, members in REPLIES:
        _, answer = await rest(method, path, body)
        assert answer.keys() == members, (method, path)
    [one] = await rest.ok("GET", "/schemas/ids/1/versions")
    assert one.keys() == {"subject", "version"}
    [one] = await rest.ok("GET", "/schemas")
    assert one.keys() == VERSION


async def test_an_optional_property_in_an_open_model_is_refused_with_the_way_out(
    rest: Rest,
) -> None:
    """https://github.com/confluentinc/schema-registry/issues/1458"""
    await rest.register("s", OPEN, schemaType="JSON")
    body = {"schema": OPEN_MORE, "schemaType": "JSON"}
    _, answer = await rest("POST", "/subjects/s/versions", body)
    assert answer["error_code"] == 40901
    assert "open content model" in answer["message"]
    assert "additionalProperties" in answer["message"]
    await rest.ok("PUT", "/config/s", {"compatibilityPolicy": "LENIENT"})
    assert (await rest.register("s", OPEN_MORE, schemaType="JSON"))["version"] == 2


NAMED = ("a%2Fb%2Fc.proto", "a%2fb%2Fc%2eproto", "%61%2Fb%2F%63.proto")


@pytest.mark.parametrize("name", NAMED, ids=["plain", "other case", "more than needed"])
async def test_a_subject_with_slashes_is_found_by_every_route(rest: Rest, name: str) -> None:
    """However a proxy on the way spells the path.

    https://github.com/confluentinc/schema-registry/issues/1874
    https://github.com/tchiotludo/akhq/issues/1353
    https://github.com/redpanda-data/console/issues/311
    """
    subject, body = "a/b/c.proto", {"schema": INT}
    await rest.register(subject, INT, metadata={"properties": {"k": "v"}})
    for route in ROUTES:
        if "{subject}" not in route.path or route.method == "DELETE":
            continue
        path = route.path.replace("{subject}", name).replace("{version}", "1")
        if "/metadata" in path:
            path += "?key=k&value=v"
        sent = {"Schema": body, "Config": {"compatibility": "FULL"}, "Mode": {"mode": "READWRITE"}}
        if route.method == "GET" and path.startswith(("/config", "/mode")):
            path += "?defaultToGlobal=true"
        response = await rest.client.request(route.method, path, json=sent.get(route.body))
        assert response.status_code == 200, (route.method, path, response.text)
    assert await rest.ok("GET", "/schemas/ids/1/subjects") == [subject]
    for path in (f"/config/{name}", f"/mode/{name}", f"/subjects/{name}/versions/1"):
        await rest.ok("DELETE", path)
    assert await rest.ok("DELETE", f"/subjects/{name}?permanent=true") == [1]


async def test_version_minus_one_is_the_newest_everywhere(rest: Rest) -> None:
    """https://github.com/Apicurio/apicurio-registry/issues/2851"""
    await rest.register("s", INT)
    await rest.register("s", LONG)
    assert (await rest.ok("GET", "/subjects/s/versions/-1"))["version"] == 2
    assert (await rest.client.get("/subjects/s/versions/-1/schema")).text == LONG
    path = "/compatibility/subjects/s/versions/-1"
    assert await rest.ok("POST", path, {"schema": INT}) == {"is_compatible": False}
    assert await rest.ok("DELETE", "/subjects/s/versions/-1") == 2
    assert (await rest.ok("GET", "/subjects/s/versions/-1"))["version"] == 1


async def test_one_schema_in_two_subjects_has_one_id_that_outlives_one_of_them(rest: Rest) -> None:
    """https://github.com/Apicurio/apicurio-registry/issues/796"""
    assert (await rest.register("a", INT))["id"] == (await rest.register("b", INT))["id"] == 1
    both = [{"subject": "a", "version": 1}, {"subject": "b", "version": 1}]
    assert await rest.ok("GET", "/schemas/ids/1/versions") == both
    await rest.ok("DELETE", "/subjects/a")
    await rest.ok("DELETE", "/subjects/a?permanent=true")
    assert (await rest.ok("GET", "/schemas/ids/1"))["schema"] == INT
    assert await rest.ok("GET", "/schemas/ids/1/versions") == both[1:]


async def test_our_client_forgets_a_subject_it_deletes(broker: Broker) -> None:
    """https://github.com/confluentinc/confluent-kafka-python/issues/1950 and /issues/1824"""
    schema = SchemaText(SchemaType.AVRO, INT)
    async with registry_on(broker) as registry:
        client = RegistryClient(registry.url)
        assert (await client.register("s", schema)).id == 1
        assert (await client.by_id(1)).text == INT
        assert (await client.latest("s")).id == 1
        await client.delete("s")
        await client.delete("s", permanent=True)
        assert (await client.register("s", schema)).id == 2
        assert (await client.latest("s")).id == 2
        with pytest.raises(Exception, match="not found"):
            await client.by_id(1)
        assert await client.versions("s") == [1]


async def test_a_serialized_descriptor_says_what_kind_each_type_is(rest: Rest) -> None:
    """An enum of the file itself, and full names: what readers of descriptors rely on.

    https://github.com/confluentinc/confluent-kafka-javascript/issues/455 and /issues/466
    """
    text = """syntax = "proto3"; package shop; enum Kind { NEW = 0; }
        message Line { int32 n = 1; } message Order { Kind kind = 1; Line line = 2; Own own = 3;
        enum Own { X = 0; } }"""
    await rest.register("s", text, schemaType="PROTOBUF")
    answer = await rest.ok("GET", "/schemas/ids/1?format=serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(answer["schema"]))
    kind, line, own = file.message_type[1].field
    assert (kind.type, kind.type_name) == (kind.TYPE_ENUM, ".shop.Kind")
    assert (line.type, line.type_name) == (line.TYPE_MESSAGE, ".shop.Line")
    assert (own.type, own.type_name) == (own.TYPE_ENUM, ".shop.Order.Own")


async def test_a_record_nested_in_a_nullable_union_may_not_gain_a_mandatory_field(
    rest: Rest,
) -> None:
    """https://github.com/Aiven-Open/karapace/issues/97"""

    def outer(*fields: str) -> str:
        inner = ",".join(f'{{"name":"{name}","type":"int"}}' for name in fields)
        return (
            '{"type":"record","name":"O","fields":[{"name":"i","default":null,"type":["null",'
            f'{{"type":"record","name":"I","fields":[{inner}]}}]}}]}}'
        )

    await rest.register("s", outer("a"))
    _, answer = await rest("POST", "/subjects/s/versions", {"schema": outer("a", "b")})
    assert answer["error_code"] == 40901
    assert "/fields/0/type/1" in answer["message"]


class Order(Record):
    id: str


def test_the_schema_is_prepared_once_however_many_records_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """https://github.com/confluentinc/confluent-kafka-python/issues/1564"""
    made: list[object] = []
    validator = Validator

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return validator(*arguments)

    monkeypatch.setattr(json_serializer, "Validator", counted)
    codec = JsonSchema(Order, registry=MemoryRegistry()).bind(None, "orders", is_key=False)
    data = [codec.encode(Order(str(number))) for number in range(50)]
    assert len(codec.decode_many(data)) == 50
    assert len(made) == 2  # to write with and to read with


async def test_a_soft_deleted_subject_is_erased_with_permanent_alone(rest: Rest) -> None:
    """https://github.com/confluentinc/confluent-kafka-python/issues/1127"""
    await rest.register("s", INT)
    assert await rest.ok("DELETE", "/subjects/s") == [1]
    assert await rest.code("DELETE", "/subjects/s") == 40404
    assert await rest.ok("DELETE", "/subjects/s?permanent=true") == [1]
    assert await rest.code("DELETE", "/subjects/s?permanent=true") == 40401
