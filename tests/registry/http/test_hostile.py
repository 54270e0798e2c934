"""Requests no client sends: always an error object, in bounded time."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.registry.http.application import RegistryApp
from onceward.registry.http.call import Call

from ..direct import memory_service
from .rest import CONTENT_TYPE, Rest


@pytest.mark.parametrize("path", ["/nope", "/subjects/a/b/c/d/e", "/contexts/a", "/schemas/ids"])
async def test_an_unknown_path_is_an_error_object(rest: Rest, path: str) -> None:
    assert await rest("GET", path) == (
        404,
        {"error_code": 404, "message": "HTTP 404 Not Found"},
    )


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_a_wrong_method_is_an_error_object(rest: Rest, method: str) -> None:
    assert await rest.code(method, "/subjects") == 405


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"schema":NaN}', b"[" * 100_000,
     b'{"a":' * 1000, b'{"schema":"\\ud800"}'],
)  # fmt: skip
async def test_a_body_that_is_no_json_object_is_refused(rest: Rest, body: bytes) -> None:
    response = await rest.client.post(
        "/subjects/s/versions", content=body, headers={"content-type": CONTENT_TYPE}
    )
    assert response.status_code in (400, 422)
    assert response.json().keys() == {"error_code", "message"}


async def test_a_body_that_is_too_large_is_refused(rest: Rest) -> None:
    body = {"schema": "x" * 300_000}
    assert await rest.code("POST", "/subjects/s/versions", body) == 413


@pytest.mark.parametrize("text", ["x" * 3_900_000, '\\"' * 1_000_000], ids=["plain", "escapes"])
async def test_a_body_of_megabytes_does_not_stop_the_others(text: str) -> None:
    """It is read on the loop that answers everybody."""
    call = Call("POST", body=json.dumps({"schema": text}).encode())
    start = time.perf_counter()
    assert call.json_object() == {"schema": text}
    assert time.perf_counter() - start < 0.4


async def test_another_content_type_is_refused(rest: Rest) -> None:
    response = await rest.client.put(
        "/config", content=b'{"compatibility":"NONE"}', headers={"content-type": "text/html"}
    )
    assert (response.status_code, response.json()["error_code"]) == (415, 415)
    response = await rest.client.put(
        "/config", content=b'{"compatibility":"NONE"}',
        headers={"content-type": "application/json; charset=utf-8"},
    )  # fmt: skip
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("application/json", "application/json"),
        ("text/html,*/*;q=0.1", CONTENT_TYPE),
        ("text/html", CONTENT_TYPE),
        (
            "a/b;q=1, application/vnd.schemaregistry+json;q=0.5",
            "application/vnd.schemaregistry+json",
        ),
        ("", CONTENT_TYPE),
    ],
)
async def test_the_content_type_is_the_one_the_client_likes(
    rest: Rest, accept: str, answered: str
) -> None:
    response = await rest.client.get("/subjects", headers={"accept": accept})
    assert (response.status_code, response.headers["content-type"]) == (200, answered)


async def test_a_client_that_takes_nothing_we_have_is_told(rest: Rest) -> None:
    assert (await rest("GET", "/subjects", accept="image/png"))[0] == 406


DEEP = '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000
WIDE = json.dumps({"oneOf": [{"const": number} for number in range(3_000)]})
REFERENCE_LOOP = '{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}'
TREE = (
    '{"type":"object","additionalProperties":false,'
    '"properties":{"next":{"$ref":"#"},"both":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}'
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "schema", "codes"),
    [
        ("AVRO", DEEP, {42201, 42209}),
        ("JSON", DEEP, {42201, 42209}),
        ("JSON", REFERENCE_LOOP, {None, 42201}),
        ("JSON", TREE, {None}),
        ("JSON", WIDE, {None}),
        ("PROTOBUF", 'syntax = "proto3"; ' + "message M { " * 3_000, {42201, 42209}),
        ("PROTOBUF", "\x00" * 1_000, {42201}),
        ("AVRO", '"' + "n." * 50_000 + 'x"', {42201}),
        ("AVRO", '{"type":"enum","name":"E","symbols":[' + '"A",' * 20_000 + '"B"]}', {42201}),
    ],
)  # fmt: skip
async def test_a_hostile_schema_is_answered_soon(
    rest: Rest, kind: str, schema: str, codes: set[int | None]
) -> None:
    await rest.ok("PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})
    for _ in range(2):
        body = {"schema": schema, "schemaType": kind}
        _, answer = await rest("POST", "/subjects/s/versions", body)
        assert answer.get("error_code") in codes


async def test_a_recursive_schema_is_compared_with_itself(rest: Rest) -> None:
    """https://github.com/Aiven-Open/karapace/issues/1329"""
    await rest.register("s", TREE, schemaType="JSON")
    more = TREE.replace('"properties":{', '"properties":{"size":{"type":"integer"},')
    body = {"schema": more, "schemaType": "JSON"}
    answer = await rest.ok("POST", "/compatibility/subjects/s/versions/latest", body)
    assert answer == {"is_compatible": True}


PIECES = st.sampled_from(
    ["subjects", "versions", "schemas", "ids", "config", "mode", "contexts", "latest", "1", "..",
     "%2F", "%00", "%", "%zz", "%FF", "%ED%A0%80", ":.a:", ":*:", "", "compatibility", "guids"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD"]),
    pieces=st.lists(PIECES, max_size=7),
    query=st.text("abdelormatsi=&%+;:.-0123456789", max_size=30),
    body=st.sampled_from([b"", b"{}", b'{"schema":"\\"int\\""}', b'{"mode":"IMPORT"}', b"\x00"]),
)
async def test_no_path_breaks_the_registry(
    method: str, pieces: list[str], query: str, body: bytes
) -> None:
    app = RegistryApp(memory_service())
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    path = "/" + "/".join(pieces)
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": [], "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    status = sent[0]["status"]
    assert isinstance(status, int) and status < 500
    body_sent = b"".join(part for one in sent[1:] if isinstance(part := one["body"], bytes))
    if status >= 400 and method != "HEAD":
        assert json.loads(body_sent).keys() == {"error_code", "message"}


async def test_a_body_that_never_ends_is_cut_off_in_time() -> None:
    import asyncio

    app = RegistryApp(memory_service(), body_timeout_s=0.05)

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/subjects/s", "raw_path": b"/subjects/s",
        "query_string": b"", "headers": [], "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["status"] == 408


async def test_a_mounted_registry_answers_below_its_place() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = Starlette(routes=[Mount("/registry", app=RegistryApp(memory_service()))])
    transport = httpx.ASGITransport(outer)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        response = await client.post("/registry/subjects/a%2Fb/versions", json={"schema": '"int"'})
        assert response.json()["id"] == 1
        assert (await client.get("/registry/subjects")).json() == ["a/b"]
