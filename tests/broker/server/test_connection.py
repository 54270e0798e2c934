"""The connection against a scripted handler, over a real loopback socket."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from onceward.broker.errors import ProtocolError
from onceward.broker.server.connection import Address, Answer, Limits, Peer
from onceward.broker.server.deferred import Deferred
from onceward.broker.server.listener import Listener, format_address, parse_address

Script = Callable[[bytes], Awaitable[Answer | Deferred[Answer]]]


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


class Served:
    """A listener whose every frame goes to ``script``, and a stream connected to it."""

    def __init__(self, script: Script, limits: Limits | None = None, **options: float) -> None:
        self.script = script
        self.closed: list[int] = []
        self.listener = Listener(
            serve=self._serve,
            limits=limits or Limits(request_bytes=1 << 20),
            max_connections=int(options.get("max_connections", 100)),
            max_idle_s=options.get("max_idle_s", 60.0),
            on_close=self.closed.append,
        )

    async def _serve(self, peer: Peer, content: bytes) -> Answer | Deferred[Answer]:
        return await self.script(content)

    @contextlib.asynccontextmanager
    async def connected(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        await self.listener.start(Address("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(*self.listener.address)
        try:
            yield reader, writer
        finally:
            writer.close()
            self.listener.stop_accepting()
            await self.listener.close(1.0)


async def echo(content: bytes) -> Answer:
    return [content]


async def test_frames_are_answered_in_whatever_pieces_they_arrive() -> None:
    async with Served(echo).connected() as (reader, writer):
        for byte in frame(b"one") + frame(b"two"):
            writer.write(bytes([byte]))
            await writer.drain()
        assert await reader.readexactly(6) == b"onetwo"


async def test_answers_leave_in_request_order_while_later_requests_are_handled() -> None:
    release = {name: asyncio.get_running_loop().create_future() for name in (b"a", b"b")}
    handled: list[bytes] = []

    async def script(content: bytes) -> Answer | Deferred[Answer]:
        handled.append(content)
        if content not in release:
            return [content]

        async def later() -> Answer:
            await release[content]
            return [content]

        return Deferred(later())

    async with Served(script).connected() as (reader, writer):
        writer.write(frame(b"a") + frame(b"b") + frame(b"c"))
        while len(handled) < 3:
            await asyncio.sleep(0.001)
        release[b"b"].set_result(None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.02)
        release[b"a"].set_result(None)
        assert await reader.readexactly(3) == b"abc"


async def test_an_unanswered_request_keeps_its_place_without_sending_anything() -> None:
    async def script(content: bytes) -> Answer:
        return None if content == b"silent" else [content]

    async with Served(script).connected() as (reader, writer):
        writer.write(frame(b"silent") + frame(b"loud"))
        assert await reader.readexactly(4) == b"loud"


async def test_too_many_unanswered_requests_stop_the_reading() -> None:
    release = asyncio.Event()
    handled: list[bytes] = []

    async def script(content: bytes) -> Answer | Deferred[Answer]:
        handled.append(content)

        async def later() -> Answer:
            await release.wait()
            return [b"."]

        return Deferred(later())

    limits = Limits(request_bytes=1000, in_flight_requests=10, in_flight_bytes=1 << 20)
    async with Served(script, limits).connected() as (reader, writer):
        for _ in range(50):
            writer.write(frame(b"x"))
            await writer.drain()
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert len(handled) == 10
        release.set()
        assert await asyncio.wait_for(reader.readexactly(50), 5) == b"." * 50


async def test_a_peer_that_does_not_read_stops_the_processing() -> None:
    handled = 0

    async def script(content: bytes) -> Answer:
        nonlocal handled
        handled += 1
        return [bytes(100_000)]

    limits = Limits(request_bytes=1000, write_buffer_bytes=200_000)
    async with Served(script, limits).connected() as (reader, writer):
        writer.write(frame(b"x") * 1000)
        previous = -1
        while handled != previous:
            previous = handled
            await asyncio.sleep(0.05)
        assert handled < 500  # the kernel's buffers and ours are full
        for _ in range(1000):
            await reader.readexactly(100_000)
        assert handled == 1000


async def test_a_closed_connection_abandons_only_what_may_be_abandoned() -> None:
    release = asyncio.Event()
    events: list[str] = []

    async def script(content: bytes) -> Answer | Deferred[Answer]:
        async def later() -> Answer:
            try:
                await release.wait()
            except asyncio.CancelledError:
                events.append(f"{content.decode()} cancelled")
                raise
            events.append(f"{content.decode()} done")
            return [content]

        return Deferred(later(), abandonable=content == b"poll")

    served = Served(script)
    async with served.connected() as (_, writer):
        writer.write(frame(b"join") + frame(b"poll"))
        await asyncio.sleep(0.02)
        writer.close()
        while not served.closed:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert events == ["poll cancelled"]
        release.set()
        await asyncio.sleep(0.01)
        assert events == ["poll cancelled", "join done"]


@pytest.mark.parametrize("stage", [1, 2])
async def test_a_bug_ends_only_its_own_connection(
    stage: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(content: bytes) -> Answer | Deferred[Answer]:
        async def broken() -> Answer:
            raise RuntimeError("a bug of ours")

        if content != b"boom":
            return [content]
        return await broken() if stage == 1 else Deferred(broken())

    served = Served(script)
    async with served.connected() as (reader, writer):
        other_reader, other_writer = await asyncio.open_connection(*served.listener.address)
        writer.write(frame(b"boom") + frame(b"after"))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert "a bug of ours" in caplog.text
        other_writer.write(frame(b"fine"))
        assert await other_reader.readexactly(4) == b"fine"
        other_writer.close()


async def test_a_protocol_error_closes_after_the_answers_before_it() -> None:
    async def script(content: bytes) -> Answer:
        if content == b"garbage":
            raise ProtocolError("not parseable")
        return [content]

    async with Served(script).connected() as (reader, writer):
        writer.write(frame(b"good") + frame(b"garbage") + frame(b"never"))
        assert await asyncio.wait_for(reader.read(), 5) == b"good"


async def test_a_peer_that_never_completes_its_frame_is_closed_as_idle() -> None:
    async with Served(echo, max_idle_s=0.1).connected() as (reader, writer):
        writer.write(b"\x00\x00")
        assert await asyncio.wait_for(reader.read(), 5) == b""


async def test_connections_beyond_the_limit_are_refused() -> None:
    served = Served(echo, max_connections=1)
    async with served.connected() as (reader, writer):
        writer.write(frame(b"x"))
        assert await reader.readexactly(1) == b"x"
        second, second_writer = await asyncio.open_connection(*served.listener.address)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(second.read(), 5) == b""
        second_writer.close()
        assert served.closed == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("[::1]:0", Address("::1", 0)),
        ("PLAINTEXT://localhost:9092", Address("localhost", 9092)),
        (":9092", Address("", 9092)),
    ],
)
def test_addresses_are_parsed(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["localhost", "localhost:", "localhost:http", "h:70000"])
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


def test_a_v6_address_is_written_in_brackets() -> None:
    assert format_address(Address("::1", 9092)) == "[::1]:9092"
