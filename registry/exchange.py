"""One HTTP/1.1 request over asyncio: enough for a registry's JSON answers, and cancellable."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

_MAX_BODY: Final = 32 << 20
_MAX_HEAD: Final = 64 << 10
_CLOSE_PATIENCE_S: Final = 1.0


class BadAnswer(Exception):
    """What came back is no HTTP answer, or too long."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. ``path`` is put before that of every request; ``user_info`` is
    ``user:password`` or empty."""

    host: str
    port: int
    is_secure: bool
    path: str
    user_info: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises ValueError."""
        if "://" not in url:
            url = f"http://{url}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{_hidden(url)!r} is no address: use http://host:port")
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        user_info = ""
        if parts.username:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(parts.hostname, port, is_secure, parts.path.rstrip("/"), user_info)

    def __str__(self) -> str:
        """Without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}{self.path}"


def _hidden(url: str) -> str:
    return url.rpartition("@")[2]


class Connection(NamedTuple):
    """To a server, for one request."""

    address: Address
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def exchange(
    address: Address,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send a request, read the answer, close. ``path`` is quoted already.

    Raises OSError (TLS included), EOFError, BadAnswer. Bound it with ``asyncio.timeout``.
    """
    return await ask(await connect(address, tls), method, path, headers, body)


async def connect(address: Address, tls: ssl.SSLContext | None = None) -> Connection:
    """``tls`` None: certificates are checked as the system does. Raises OSError."""
    context = (tls or ssl.create_default_context()) if address.is_secure else None
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, limit=_MAX_HEAD
    )
    return Connection(address, reader, writer)


async def ask(
    connection: Connection,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> Answer:
    """The rest of ``exchange``: whatever it raises, the server may have got the request."""
    address, reader, writer = connection
    try:
        writer.write(_request(address, method, path, headers, body))
        await writer.drain()
        return await _answer(reader, has_body=method != "HEAD")
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_PATIENCE_S):
                await writer.wait_closed()


def _request(
    address: Address, method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [f"{method} {address.path}{path} HTTP/1.1", f"Host: {host}:{address.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    head = "\r\n".join(lines)
    return f"{head}\r\n\r\n".encode() + (body or b"")


async def _answer(reader: asyncio.StreamReader, *, has_body: bool) -> Answer:
    try:
        status = 100
        while status < 200:  # 100 Continue and the like come before the answer
            head = await reader.readuntil(b"\r\n\r\n")
            status, headers = _head(head)
        if not has_body or status in (204, 304):
            return Answer(status, headers, b"")
        return Answer(status, headers, await _body(reader, headers))
    except asyncio.LimitOverrunError:
        raise BadAnswer("its head is too long") from None


def _head(data: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = data.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise BadAnswer(f"it begins with {first[:60]!r}, which is not HTTP")
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _chunks(reader)
    length = headers.get("content-length")
    if length is None:
        body = await reader.read(_MAX_BODY + 1)
        while chunk := await reader.read(_MAX_BODY):
            body += chunk
            if len(body) > _MAX_BODY:
                break
    elif not length.isdigit():
        raise BadAnswer(f"its length is {length[:20]!r}")
    elif int(length) > _MAX_BODY:
        raise BadAnswer(f"it has {length} bytes")
    else:
        return await reader.readexactly(int(length))
    if len(body) > _MAX_BODY:
        raise BadAnswer(f"it has over {_MAX_BODY} bytes")
    return body


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    total = 0
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise BadAnswer("a chunk has no size") from None
        total += size
        if size < 0 or total > _MAX_BODY:
            raise BadAnswer(f"it has over {_MAX_BODY} bytes")
        if size == 0:
            return b"".join(parts)
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
