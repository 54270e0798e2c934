"""``RegistryClient`` against servers that answer, refuse, hang and vanish."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward.registry import RegistryClient, RegistryError, RegistryUnavailable, SchemaText
from onceward.registry.exchange import Address
from onceward.registry.schemas import Reference, SchemaType

from .conftest import Running

SCHEMA = SchemaText(SchemaType.AVRO, '"string"')
Reply = tuple[int, Any] | bytes | None
"""Status and JSON, bytes as they are, or None: no answer, the connection stays open."""


class Server:
    """Answers with ``reply``; ``seen`` are the requests."""

    def __init__(self, reply: Callable[[str], Reply]) -> None:
        self.reply = reply
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ")
        self.seen.append((method, path, headers, body))
        reply = self.reply(path)
        if reply is None:
            await reader.read()
        elif isinstance(reply, bytes):
            writer.write(reply)
        else:
            data = json.dumps(reply[1]).encode()
            writer.write(
                f"HTTP/1.1 {reply[0]} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
            )
        writer.close()


@asynccontextmanager
async def serving(reply: Callable[[str], Reply]) -> AsyncIterator[Server]:
    server = Server(reply)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def client(*urls: str, **options: Any) -> RegistryClient:
    return RegistryClient(list(urls), **{"request_timeout": 0.2, "timeout": 0.5, **options})


async def test_what_never_changes_is_asked_for_once_however_many_want_it() -> None:
    async with serving(lambda _: (200, {"id": 7, "version": 2, "schema": '"string"'})) as server:
        one = client(server.url)
        found = await asyncio.gather(*(one.register("a/b", SCHEMA) for _ in range(20)))
        await asyncio.gather(*(one.by_id(7) for _ in range(20)))
        assert {(each.id, each.version) for each in found} == {(7, 2)}
    assert [(method, path) for method, path, _, _ in server.seen] == [
        ("POST", "/subjects/a%2Fb/versions"),
        ("GET", "/schemas/ids/7"),
    ]


async def test_schemas_are_sent_with_their_type_and_references() -> None:
    async with serving(lambda _: (200, {"id": 7})) as server:
        schema = SchemaText(SchemaType.JSON, "{}", (Reference("n", "s", 3),))
        found = await client(server.url).register("x", schema, normalize=True)
        assert (found.version, found.guid, found.schema) == (None, None, schema)
    assert server.seen[0][1] == "/subjects/x/versions?normalize=true"
    assert json.loads(server.seen[0][3]) == {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "n", "subject": "s", "version": 3}],
    }


async def test_the_next_address_is_tried_when_one_cannot_answer() -> None:
    async with (
        serving(lambda _: (503, {"error_code": 50004, "message": "no leader"})) as busy,
        serving(lambda _: None) as silent,
        serving(lambda _: (200, ["s"])) as good,
    ):
        one = client("http://127.0.0.1:1", busy.url, silent.url, good.url)
        assert await one.subjects() == ["s"]
        assert await one.subjects() == ["s"]
        assert (len(busy.seen), len(silent.seen), len(good.seen)) == (1, 1, 2)


async def test_a_registry_that_is_away_is_given_up_on_in_one_sentence() -> None:
    async with serving(lambda _: None) as silent, asyncio.timeout(5):
        with pytest.raises(RegistryUnavailable) as caught:
            await client("http://127.0.0.1:1", silent.url).subjects()
    assert "gave no answer for 0.5 s" in str(caught.value)
    assert "no answer within 0.2 s" in str(caught.value)


async def test_a_registry_that_comes_back_is_noticed() -> None:
    replies: list[Reply] = [(500, {}), (200, [])]
    async with serving(lambda _: replies.pop(0)) as server:
        assert await client(server.url).subjects() == []


async def test_errors_keep_the_code_and_are_not_remembered() -> None:
    replies: list[Reply] = [
        (404, {"error_code": 40403, "message": "Schema not found"}),
        (200, {"schema": '"int"'}),
    ]
    async with serving(lambda _: replies.pop(0)) as server:
        one = client(server.url)
        with pytest.raises(RegistryError, match="Schema not found") as caught:
            await one.by_id(5)
        assert (caught.value.code, caught.value.status) == (40403, 404)
        assert await one.by_id(5) == SchemaText(SchemaType.AVRO, '"int"')


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ((404, "not an object"), 404),
        ((200, {"no": "schema"}), 50005),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>", 50005),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<p>", 50003),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 50003),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 50003),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 50003),
        (b"", 50003),
    ],
    ids=repr,
)
async def test_odd_answers_are_errors(reply: Reply, code: int) -> None:
    async with serving(lambda _: reply) as server, asyncio.timeout(5):
        with pytest.raises(RegistryError) as caught:
            await client(server.url).by_id(1)
    assert caught.value.code == code


async def test_bodies_come_in_chunks_or_until_the_end() -> None:
    chunked = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'3;x=y\r\n["a\r\n2\r\n"]\r\n0\r\n\r\n'
    )
    replies: list[Reply] = [chunked, b'HTTP/1.1 200 OK\r\n\r\n["b"]']
    async with serving(lambda _: replies.pop(0)) as server:
        one = client(server.url)
        assert [await one.subjects(), await one.subjects()] == [["a"], ["b"]]


async def test_credentials_are_sent_and_not_shown() -> None:
    async with serving(lambda _: (200, [])) as server:
        address = server.url.replace("//", "//me:p%40ss@")
        for one in (client(address + "/prefix/"), client(server.url, auth=("me", "p@ss"))):
            await one.subjects()
            assert "p@ss" not in repr(one) and "p%40" not in repr(one)
    expected = f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    assert [headers["authorization"] for _, _, headers, _ in server.seen] == [expected] * 2
    assert [path for _, path, _, _ in server.seen] == ["/prefix/subjects", "/subjects"]


async def test_the_newest_version_is_believed_for_a_while() -> None:
    async with serving(lambda _: (200, {"id": 1, "version": 1, "schema": "{}"})) as server:
        one = client(server.url, latest_ttl=0.05)
        await one.latest("s")
        await one.latest("s")
        assert len(server.seen) == 1
        await asyncio.sleep(0.06)
        await one.latest("s")
        assert len(server.seen) == 2


def test_without_a_loop_requests_can_be_made_at_once() -> None:
    with pytest.raises(RegistryUnavailable):
        one = client("http://127.0.0.1:1")
        one.now(one.subjects())


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://me:secret@"])
def test_bad_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        RegistryClient(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("localhost", "http://localhost:80"),
        ("https://h/x/", "https://h:443/x"),
        ("http://[::1]:8081", "http://[::1]:8081"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert str(Address.parse(url)) == shown


async def test_the_real_registry_answers_everything_the_client_asks(running: Running) -> None:
    one = RegistryClient(running.url)
    record = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    schema = SchemaText(SchemaType.AVRO, record)
    found = await one.register("a/b c", schema)
    assert (found.version, await one.lookup("a/b c", schema)) == (1, found)
    assert await one.by_id(found.id) == schema
    assert found.guid is not None and await one.by_guid(found.guid) == schema
    assert await one.versions("a/b c") == [1]
    assert await one.versions("nobody") == []
    assert (await one.latest("a/b c")).id == found.id
    assert (await one.version("a/b c", 1)).schema == schema
    worse = SchemaText(SchemaType.AVRO, record.replace("int", "string"))
    is_compatible, reasons = await one.is_compatible("a/b c", worse)
    assert not is_compatible and "cannot read the old data" in reasons[0]
    with pytest.raises(RegistryError) as caught:
        await one.register("a/b c", worse)
    assert caught.value.status == 409
    await one.set_compatibility("NONE", "a/b c")
    assert (await one.register("a/b c", worse)).version == 2
    assert await one.subjects() == ["a/b c"]
    assert await one.delete("a/b c") == [1, 2]
    assert await one.subjects() == []
