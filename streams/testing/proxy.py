"""A TCP proxy in front of a broker that does to connections what bad networks do.

It knows Kafka's frames: every listener answers for the broker in its own name, so that clients stay
behind it when they are told where partitions and coordinators are, and a fault can be aimed at one
request. One broker, no TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from onceward.broker.errors import ProtocolError, UnsupportedVersionError
from onceward.broker.protocol.api import APIS, ApiKey
from onceward.broker.protocol.codec import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_response,
)
from onceward.broker.protocol.frame import FrameDecoder

logger = logging.getLogger(__name__)

_MAX_FRAME = 512 * 1024 * 1024
_READ = 256 * 1024
_WAITING_FRAMES = 64
"""Held back per direction before the sender feels it: a window, as the kernel has one."""
_SIZE = struct.Struct(">i")
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes ``close`` send RST."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A request on its way to the broker, or an answer on its way back.

    ``header`` is the request's, None for what nobody asked; ``data`` is without the size prefix.
    """

    connection: Connection
    is_request: bool
    header: RequestHeader | None
    data: bytes

    @property
    def api(self) -> str:
        """The name of the API (``END_TXN``), of requests and answers alike; "" when unknown."""
        if self.header is None or self.header.api_key not in APIS:
            return ""
        return ApiKey(self.header.api_key).name


@dataclass(slots=True)
class Link:
    """All connections that came in through one listener, and what the network does to them."""

    name: str
    address: str = ""
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    requests_pass: asyncio.Event = field(default_factory=asyncio.Event)
    answers_pass: asyncio.Event = field(default_factory=asyncio.Event)

    def heal(self) -> None:
        """No partition, no slowness."""
        self.requests_pass.set()
        self.answers_pass.set()
        self.delay_s, self.bytes_per_s = 0.0, None


async def _let_pass(_: Frame) -> bool:
    return True


class FaultProxy:
    """Between clients and the broker at ``target`` ("host:port", which may change its process).

    ``listen`` once per client, or group of clients, that faults should tell apart. ``intercept`` is
    awaited before a frame is passed on, and may take its time: what follows on the connection waits
    as well; when it returns False the connection is reset instead. ``watch`` is called when the
    broker is about to get a request, and when its answer has come. Use as ``async with``.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.intercept: Callable[[Frame], Awaitable[bool]] = _let_pass
        self.watch: Callable[[Frame], None] | None = None
        self._links: dict[str, Link] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    async def __aenter__(self) -> FaultProxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self, name: str) -> str:
        """A new listener on a free port of the loopback interface; returns its address."""
        link = self._links[name] = Link(name)
        link.heal()
        server = await asyncio.start_server(
            lambda reader, writer: self._accept(link, reader, writer), "127.0.0.1", 0
        )
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        link.address = f"{host}:{port}"
        return link.address

    async def close(self) -> None:
        """Close listeners and connections. Idempotent."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # faults

    def partition(self, name: str, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through in these directions, not even the end of a connection; nothing is
        lost: TCP delivers it after ``heal``. New connections find nobody."""
        link = self._links[name]
        if requests:
            link.requests_pass.clear()
        if answers:
            link.answers_pass.clear()

    def slow(self, name: str, delay_s: float, *, bytes_per_s: float | None = None) -> None:
        """Delay every frame in both directions, and bound the rate."""
        link = self._links[name]
        link.delay_s, link.bytes_per_s = delay_s, bytes_per_s

    def heal(self, name: str | None = None) -> None:
        """End partitions and slowness, of one listener or of all. Broken connections stay so."""
        for link in self._links.values():
            if name in (None, link.name):
                link.heal()

    def connections(self, name: str | None = None) -> list[Connection]:
        """Those that are open, of one listener or of all, oldest first."""
        return [each for each in self._connections.values() if name in (None, each.link.name)]

    def reset(self, connection: Connection) -> None:
        """RST to both ends: what is under way is lost."""
        connection.end()

    def half_open(self, connection: Connection, *, forgets: Literal["client", "broker"]) -> None:
        """One end's connection is reset; the other keeps its own and hears nothing any more."""
        connection.forget(forgets)

    # connections

    async def _accept(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._count += 1
        connection = Connection(self._count, link, self, reader, writer)
        self._connections[connection.number] = connection
        self._tasks.add(task)
        try:
            await connection.run()
        except asyncio.CancelledError:
            pass  # by ``close``, the only one who knows this task
        finally:
            self._connections.pop(connection.number, None)
            self._tasks.discard(task)


class Connection:
    """One client's connection, and the one to the broker behind it."""

    def __init__(
        self,
        number: int,
        link: Link,
        proxy: FaultProxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.number = number
        self.link = link
        self.broker_outlives_client = False
        """Whether the broker's end stays when the client closes its own."""
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._upstream: asyncio.StreamWriter | None = None
        self._asked: dict[int, RequestHeader] = {}
        self._over = asyncio.Event()
        self._forgotten = ""

    async def run(self) -> None:
        """Pass frames on until it is over; then both ends are closed."""
        await self.link.requests_pass.wait()
        await self.link.answers_pass.wait()
        host, _, port = self._proxy.target.rpartition(":")
        ways: list[asyncio.Task[None]] = []
        try:
            with contextlib.suppress(OSError):  # the broker is not there
                answers, self._upstream = await asyncio.open_connection(host, int(port))
                ways = [
                    asyncio.create_task(self._way(self._reader, self._upstream, True)),
                    asyncio.create_task(self._way(answers, self._writer, False)),
                ]
                await self._over.wait()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (self._writer, self._upstream):
                if end is not None:
                    end.close()

    def end(self) -> None:
        """RST to both ends."""
        for end in (self._writer, self._upstream):
            if end is not None:
                _reset(end)
        self._over.set()

    def forget(self, whose: Literal["client", "broker"]) -> None:
        """RST to one end; the other stays open, and silent, until it gives up."""
        self._forgotten = whose
        end = self._writer if whose == "client" else self._upstream
        if end is not None:
            _reset(end)

    async def _way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_requests: bool
    ) -> None:
        """One direction: frames are cut and dated here, and passed on when they are due."""
        waiting: asyncio.Queue[tuple[float, Frame | None]] = asyncio.Queue(_WAITING_FRAMES)
        passing = asyncio.create_task(self._pass(waiting, writer, is_requests))
        decoder = FrameDecoder(_MAX_FRAME)
        loop = asyncio.get_running_loop()
        due = 0.0
        try:
            while data := await self._read(reader):
                for raw in decoder.feed(data):
                    frame = self._frame(raw, is_requests)
                    link = self.link
                    due = max(due, loop.time() + link.delay_s)
                    due += len(raw) / link.bytes_per_s if link.bytes_per_s else 0.0
                    await waiting.put((due, frame))
            await waiting.put((due + self.link.delay_s, None))
            await passing
        except ProtocolError as error:
            logger.warning("connection %d of %s: %s", self.number, self.link.name, error)
            self.end()
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(_READ)
        except OSError:  # it was reset, which ends it as well
            return b""

    def _frame(self, raw: bytes, is_request: bool) -> Frame:
        if is_request:
            try:
                header, _ = decode_request_header(raw)
            except UnsupportedVersionError:  # the broker's answer will say so
                return Frame(self, True, None, raw)
            self._asked[header.correlation_id] = header
            return Frame(self, True, header, raw)
        asked = self._asked.pop(int.from_bytes(raw[:4], "big", signed=True), None)
        frame = Frame(self, False, asked, raw)
        if self._proxy.watch is not None:
            self._proxy.watch(frame)
        return Frame(self, False, asked, _readdressed(frame, self.link.address))

    async def _pass(
        self,
        waiting: asyncio.Queue[tuple[float, Frame | None]],
        writer: asyncio.StreamWriter,
        is_requests: bool,
    ) -> None:
        gate = self.link.requests_pass if is_requests else self.link.answers_pass
        loop = asyncio.get_running_loop()
        while True:
            due, frame = await waiting.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await gate.wait()
            if frame is None:
                self._ended(is_requests)
                return
            if not await self._proxy.intercept(frame):
                self.end()
                return
            if self._forgotten:
                continue
            if is_requests and self._proxy.watch is not None:
                self._proxy.watch(frame)
            with contextlib.suppress(OSError):  # whoever reads this end notices, too
                writer.write(_SIZE.pack(len(frame.data)) + frame.data)
                await writer.drain()

    def _ended(self, by_client: bool) -> None:
        """One end is gone, and the other has learnt of it, unless it is not to."""
        who = "client" if by_client else "broker"
        if who == self._forgotten or (by_client and self.broker_outlives_client):
            return
        self._over.set()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and not writer.transport.is_closing():
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def _readdressed(frame: Frame, address: str) -> bytes:
    """The answer, with ``address`` wherever it says where the broker is."""
    header = frame.header
    if header is None or header.api_key not in _PLACES:
        return frame.data
    api = APIS[header.api_key]
    if not api.supports(header.api_version):
        return frame.data
    correlation_id, message = decode_response(header.api_key, header.api_version, frame.data)
    host, _, port = address.rpartition(":")
    for place in _PLACES[ApiKey(header.api_key)](message):
        if place.host:
            place.host, place.port = host, int(port)
    encoded = encode_response(header.api_key, header.api_version, correlation_id, message)
    return b"".join(encoded)[_SIZE.size :]


def _coordinators(message: Any) -> Iterator[Any]:
    yield message  # up to v3
    yield from message.coordinators


_PLACES: dict[ApiKey, Callable[[Any], Any]] = {
    ApiKey.METADATA: lambda message: message.brokers,
    ApiKey.DESCRIBE_CLUSTER: lambda message: message.brokers,
    ApiKey.FIND_COORDINATOR: _coordinators,
}
"""Answers that say where a broker is. Those of Produce v10 and Fetch v16 say where the leader has
moved to, which one broker's never has."""
