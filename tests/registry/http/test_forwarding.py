"""Writes that come to an instance that does not lead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from onceward.registry.errors import RegistryError
from onceward.registry.http.application import RegistryApp
from onceward.registry.http.forwarding import ForwardedAnswer, ForwardedRequest, HttpForwarder
from onceward.registry.leadership import Identity
from onceward.registry.records import Record, SchemaKey, encode_json, encode_key
from onceward.registry.schema_registry import SchemaRegistry
from onceward.registry.service import RegistryService

from ..direct import MemoryStore, memory_service

LEADER = Identity("leader.test", 8081)
DONE = ForwardedAnswer(200, "application/json", b'{"id":7}')
NOT_THE_LEADER = ForwardedAnswer(500, "application/json", b'{"error_code":50004,"message":"-"}')
BODY = {"schema": "no schema at all"}


class Following:
    """Told who leads; ``waits`` counts how often somebody waited for news."""

    def __init__(self, leader: Identity | None) -> None:
        self.leader = leader
        self.is_self = False
        self.waits = 0

    async def wait_for_change(self, timeout_s: float) -> None:
        self.waits += 1

    def deposed(self) -> None:
        return


def following(leader: Identity | None) -> tuple[RegistryService, Following]:
    service, leadership = memory_service(), Following(leader)
    service.leadership = leadership
    return service, leadership


class Forwarded:
    """Answers what it is given, in turn, and keeps what was sent."""

    def __init__(self, *answers: ForwardedAnswer | RegistryError | None) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, ForwardedRequest]] = []

    async def __call__(self, leader: str, request: ForwardedRequest) -> ForwardedAnswer | None:
        self.sent.append((leader, request))
        answer = self.answers.pop(0)
        if isinstance(answer, RegistryError):
            raise answer
        return answer


async def post(app: Callable[..., Any], **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        path = "/subjects/a%2Fb/versions?normalize=true"
        return await client.post(path, json=BODY, headers={"authorization": "Basic x", **headers})


async def test_a_write_is_sent_on_as_it_came_without_looking_at_it() -> None:
    service, _ = following(LEADER)
    forward = Forwarded(DONE)
    response = await post(RegistryApp(service, forward=forward))
    assert (response.status_code, response.json()) == (200, {"id": 7})
    [(leader, request)] = forward.sent
    assert leader == "http://leader.test:8081"
    assert (request.method, request.target) == ("POST", "/subjects/a%2Fb/versions?normalize=true")
    assert json.loads(request.body) == BODY
    assert request.headers["authorization"] == "Basic x"


async def test_a_leader_that_is_gone_or_does_not_lead_any_more_is_asked_for_again() -> None:
    service, leadership = following(LEADER)
    forward = Forwarded(None, NOT_THE_LEADER, DONE)
    response = await post(RegistryApp(service, forward=forward))
    assert (response.status_code, len(forward.sent), leadership.waits) == (200, 3, 2)


async def test_a_write_that_may_have_been_made_is_not_repeated() -> None:
    service, _ = following(LEADER)
    forward = Forwarded(RegistryError(50003, "no answer"))
    response = await post(RegistryApp(service, forward=forward))
    assert (response.status_code, response.json()["error_code"]) == (500, 50003)


@pytest.mark.parametrize("headers", [{}, {"x-forward": "true"}])
async def test_without_a_leader_a_write_is_refused(headers: dict[str, str]) -> None:
    service, _ = following(None if not headers else LEADER)
    app = RegistryApp(service, forward=Forwarded(), leader_wait_s=0.0)
    response = await post(app, **headers)
    assert (response.status_code, response.json()["error_code"]) == (500, 50004)


# a leader that does not know that it leads no longer


class LateStore(MemoryStore):
    """What ``others_wrote`` was written by the next leader, and is read when it is asked for."""

    def __init__(self, machine: SchemaRegistry) -> None:
        super().__init__(machine)
        self.others_wrote: list[Record] = []

    async def catch_up(self) -> None:
        await self.write(self.others_wrote)
        self.others_wrote = []


def zombie() -> tuple[RegistryApp, LateStore]:
    service = memory_service()
    store = service.store = LateStore(service.machine)
    return RegistryApp(service), store


async def request(app: RegistryApp, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        response = await client.request(method, path, json=body)
    return response.status_code, response.json()


def schema_record(schema_id: int, name: str, *, deleted: bool = False) -> Record:
    text = json.dumps({"type": "fixed", "name": name, "size": 1}, separators=(",", ":"))
    return encode_key(SchemaKey("s", 1)), encode_json(
        {"subject": "s", "version": 1, "id": schema_id, "schema": text, "deleted": deleted}
    )


async def test_what_its_successor_wrote_is_not_missing() -> None:
    for method, path in (
        ("GET", "/schemas/ids/7"),
        ("GET", "/subjects/s/versions/1"),
        ("DELETE", "/subjects/s"),
    ):
        app, store = zombie()
        store.others_wrote = [schema_record(7, "A")]
        assert (await request(app, method, path))[0] == 200
    status, answer = await request(app, "GET", "/schemas/ids/8")
    assert (status, answer["error_code"]) == (404, 40403)


async def test_what_its_successor_deleted_is_registered_anew() -> None:
    app, store = zombie()
    await store.write([schema_record(1, "A")])
    store.others_wrote = [schema_record(1, "A", deleted=True)]
    body = {"schema": '{"type":"fixed","name":"A","size":1}'}
    status, answer = await request(app, "POST", "/subjects/s/versions", body)
    assert (status, answer["version"]) == (200, 2)


async def test_a_request_that_is_wrong_in_itself_is_refused_at_once() -> None:
    app, store = zombie()
    store.others_wrote = [schema_record(7, "A")]
    assert (await request(app, "GET", "/subjects/s/versions/zero"))[0] == 422
    assert store.others_wrote


# over a real connection

SENT = ForwardedRequest("POST", "/subjects/s/versions", {"accept": "a/b", "cookie": "x"}, b"{}")


async def served(*answers: bytes) -> tuple[asyncio.Server, str, list[bytes]]:
    heard: list[bytes] = []
    waiting = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"{}"))
        writer.write(waiting.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


async def test_a_leader_answers_what_it_is_forwarded() -> None:
    head = b"HTTP/1.1 409 Conflict\r\ncontent-type: a/b\r\ncontent-length: 3\r\n\r\n"
    server, leader, heard = await served(head + b"no!")
    async with server:
        assert await HttpForwarder()(leader, SENT) == ForwardedAnswer(409, "a/b", b"no!")
    assert b"X-Forward: true" in heard[0] and b"accept: a/b" in heard[0]
    assert b"cookie" not in heard[0]


async def test_a_leader_that_hangs_up_may_have_done_it_and_one_that_is_not_there_has_not() -> None:
    server, leader, _ = await served(b"HTTP/1.1 200 OK\r\n")
    async with server:
        with pytest.raises(RegistryError) as caught:
            await HttpForwarder()(leader, SENT)
    assert caught.value.code == 50003
    assert await HttpForwarder()(leader, SENT) is None
