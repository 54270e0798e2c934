"""A small HTTP service on the loopback that keeps what it is sent, by key, and fails as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


class Said(NamedTuple):
    """``is_kept``: the service does what it was asked to. ``status`` None: it hangs up, after the
    first bytes of an answer if ``is_cut``."""

    status: int | None = 200
    headers: Mapping[str, str] = {}
    body: bytes = b"{}"
    is_kept: bool = True
    is_cut: bool = False


OK = Said()
Respond = Callable[[Asked], Said]


class Service:
    """Honours keys: ``kept`` is the first thing it got with each, ``together``
    what it was busy with whenever a request came."""

    def __init__(self) -> None:
        self.respond: Respond = lambda asked: OK
        self.url = ""
        self.asked: list[Asked] = []
        self.kept: dict[str, Any] = {}
        self.repeated = 0
        self.busy: list[Asked] = []
        self.together: list[list[Asked]] = []
        self.connections = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ")
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        self.busy.append(asked)
        self.together.append(list(self.busy))
        await self.may_answer.wait()
        await asyncio.sleep(0)
        said = self.respond(asked)
        self.busy.remove(asked)
        if said.is_kept and (said.status is None or said.status < 300):
            self.keep(asked)
        if said.status is None:
            writer.write(b"HTTP/1.1 200 O" if said.is_cut else b"")
            return False
        extra = "".join(f"{name}: {value}\r\n" for name, value in said.headers.items())
        start = f"HTTP/1.1 {said.status} X\r\n{extra}Content-Length: {len(said.body)}\r\n\r\n"
        writer.write(start.encode() + said.body)
        await writer.drain()
        return True

    def keep(self, asked: Asked) -> None:
        kind = asked.headers["content-type"]
        found: Any
        if kind == "application/x-ndjson":
            found = [json.loads(line) for line in asked.body.splitlines()]
        else:
            found = json.loads(asked.body) if asked.body else None
        if not isinstance(found, list):
            self._keep(asked.key, found)
            return
        for row in found:
            self._keep(row.pop("key"), row)

    def _keep(self, key: str, found: Any) -> None:
        self.repeated += key in self.kept
        assert self.kept.setdefault(key, found) == found


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[None]:
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/orders"
    async with server:
        yield
