"""Requests made of pieces of good ones: every answer is a JSON body of a known shape, and soon."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.registry.http.application import RegistryApp
from onceward.registry.http.routes import ROUTES

from ..direct import memory_service

LONGEST_S = 5.0
"""Far more than any of these may take, and far less than a walk without end."""

AVRO = [
    '"int"', '["null","string"]', '{"type":"array","items":"R"}',
    '{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"],"default":null}]}',
    '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}',
    '{"type":"fixed","name":"F","size":16,"logicalType":"decimal","precision":4,"scale":2}',
    '{"type":"map","values":{"type":"bytes","logicalType":"decimal"}}',
]  # fmt: skip
JSON = [
    "true", "{}", '{"$ref":"#"}', '{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},'
    '"$defs":{"b":{"anyOf":[{"$ref":"#"},{"const":1}]}},"additionalProperties":false}',
    '{"type":["string","null"],"pattern":"(a+)+$","enum":["x"]}', '{"$ref":"other.json#/a"}',
    '{"allOf":[{"not":{}},{"items":[{"type":"integer"}]}],"dependencies":{"a":["b"]}}',
    '{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[true,false]}',
]  # fmt: skip
PROTO = [
    'syntax = "proto3"; message A { int32 a = 1; map<string, A> m = 2; oneof o { A b = 3; } }',
    'syntax = "proto2"; message A { required group G = 1 { optional bytes b = 2; } extensions 9; }',
    'syntax = "proto3"; import "other.json"; message A { google.type.Date d = 1; }',
    'syntax = "proto3"; import "google/type/date.proto"; option (x).y = { a: 1 [b] { } };',
    'edition = "2023"; enum E { Z = 0; reserved 1 to max; } service S { rpc M(E) returns (E); }',
    "CgRhLnByb3Rv",
]
PIECES = [
    "", "{", "}", "[", "]", '"', ",", ":", "null", "1e999", "-0", "\\u0000", "\x00", "\ud800", "é",
    '"$ref":"#/x"', '"type":"R"', "message A {", "= 1;", "9" * 400, " " * 50, "[" * 60, "(" * 60,
]  # fmt: skip
SUBJECTS = [
    "s", "t", "a/b", ":.lab:s", ":.lab:", ":.:", ":*:", "..", "", "é", "\x01", "__GLOBAL",
    "x" * 1200,
]  # fmt: skip

anything = st.recursive(
    st.sampled_from([None, True, 0, -1, 2**31, 2**70, 1.5, "", "a", "s", "latest", "IMPORT"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "subject", "version", "a", "tags"]), inner)
    ),
    max_leaves=8,
)


@st.composite
def schema_text(draw: st.DrawFn) -> str:
    """A good one, or two of any kind cut and joined with a piece between."""
    texts = st.sampled_from(AVRO + JSON + PROTO)
    first = draw(texts)
    if draw(st.booleans()):
        return first
    cut, piece, second = draw(st.integers(0, 60)), draw(st.sampled_from(PIECES)), draw(texts)
    return first[:cut] + piece + second[draw(st.integers(0, 60)) :]


reference = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["other.json", "R", "", "#"]) | anything,
        "subject": st.sampled_from(SUBJECTS) | anything,
        "version": st.sampled_from([1, 2, -1, 0]) | anything,
    },
)
schema_body = st.fixed_dictionaries(
    {"schema": schema_text() | anything},
    optional={
        "schemaType": st.sampled_from(["AVRO", "JSON", "PROTOBUF", "XML"]) | anything,
        "references": st.lists(reference, max_size=3) | anything,
        "metadata": st.fixed_dictionaries({"properties": anything}, optional={"tags": anything})
        | anything,
        "ruleSet": st.fixed_dictionaries({"domainRules": st.lists(anything, max_size=2)})
        | anything,
        "id": st.sampled_from([1, 0, -1, 2**31]) | anything,
        "version": st.sampled_from([1, 3, 0, 2**31]) | anything,
    },
)
setting_body = st.fixed_dictionaries(
    {},
    optional={
        "compatibility": st.sampled_from(["NONE", "full_transitive", "?"]) | anything,
        "alias": st.sampled_from(SUBJECTS) | anything,
        "normalize": st.booleans() | anything,
        "compatibilityGroup": anything,
        "defaultMetadata": anything,
        "overrideRuleSet": anything,
        "mode": st.sampled_from(["READONLY", "READWRITE", "IMPORT"]) | anything,
    },
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes]:
    route = draw(st.sampled_from(ROUTES))
    path = route.path
    for name, values in {
        "subject": st.sampled_from(SUBJECTS),
        "version": st.sampled_from(["1", "2", "latest", "-1", "0", "x", "99999999999"]),
        "id": st.sampled_from(["1", "2", "0", "x", "-1", "9" * 30]),
        "guid": st.sampled_from(["x", "0" * 8]),
        "namespace": st.just("-"),
        "name": st.just("n"),
    }.items():
        path = path.replace(f"{{{name}}}", quote(draw(values), safe="", errors="replace"))
    if draw(st.integers(0, 5)) == 0:
        path = f"/contexts/{draw(st.sampled_from(['lab', ':.:', ':.lab:', '%00']))}{path}"
    pairs = draw(st.lists(st.tuples(
        st.sampled_from([*route.query, "deleted", "permanent", "force", "verbose"]),
        st.sampled_from(["true", "false", "", "1", "-1", "serialized", "s", "é", "9" * 20]),
    ), max_size=3))  # fmt: skip
    query = "&".join(f"{name}={quote(value)}" for name, value in pairs)
    wanted = schema_body if route.body == "Schema" else setting_body
    value = draw(wanted | anything) if route.body else None
    body = b"" if value is None else json.dumps(value).encode(errors="replace")
    return route.method, f"{path}?{query}" if query else path, body


def check(response: httpx.Response) -> None:
    is_text = response.request.url.path.endswith("/schema") and response.status_code == 200
    value: Any = None if is_text else response.json()
    if response.status_code != 200:
        assert 400 <= response.status_code < 500
        assert value.keys() == {"error_code", "message"}
        assert isinstance(value["message"], str) and len(value["message"]) < 40_000
        assert str(value["error_code"]).startswith(str(response.status_code))


async def send(sent: list[tuple[str, str, bytes]]) -> None:
    transport = httpx.ASGITransport(RegistryApp(memory_service()))
    async with httpx.AsyncClient(transport=transport, base_url="http://registry.test") as client:
        for method, path, body in sent:
            start = time.perf_counter()
            check(await client.request(method, path, content=body))
            assert time.perf_counter() - start < LONGEST_S, (method, path, body[:1000])


UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=60, deadline=None, suppress_health_check=UNHURRIED)
@given(st.lists(requests(), min_size=1, max_size=12))
async def test_any_request_is_answered_with_a_body_of_a_known_shape(
    sent: list[tuple[str, str, bytes]],
) -> None:
    await send(sent)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=1500, deadline=None, suppress_health_check=UNHURRIED)
@given(st.lists(requests(), min_size=4, max_size=20))
async def test_thousands_of_requests_are_answered_so(sent: list[tuple[str, str, bytes]]) -> None:
    await send(sent)
