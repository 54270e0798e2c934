"""One suite for loopback sockets and the simulated network: what holds on one holds on the other.

Of two outcomes that a real kernel leaves to timing, none is asserted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .arenas import Announce, Arena, RealArena, SimulatedArena


@pytest.fixture(params=["real", "simulated"])
def arena(request: pytest.FixtureRequest) -> Arena:
    return RealArena() if request.param == "real" else SimulatedArena()


class Recorder(asyncio.Protocol):
    """Notes what the transport tells it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None
        self.made = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")
        self.transport = transport
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)


class Accepting:
    """A server that hands out the recorder of its first connection."""

    def __init__(self, announce: Announce, protocol: Any = Recorder) -> None:
        self._announce = announce
        self._protocol = protocol
        self.first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Accepting:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self._make, "127.0.0.1", 0)
        self._announce(self.server.sockets[0].getsockname()[1])
        return self

    def _make(self) -> Any:
        made = self._protocol()
        if not self.first.done():
            self.first.set_result(made)
        return made

    async def connection(self) -> Any:
        """The first connection's protocol, once it is connected."""
        protocol = await self.first
        await protocol.made.wait()
        return protocol

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


async def connected(host: str, port: int) -> Recorder:
    return (await asyncio.get_running_loop().create_connection(Recorder, host, port))[1]


async def test_bytes_arrive_complete_and_in_order_under_backpressure(arena: Arena) -> None:
    sent = bytes(range(256)) * 80_000  # more than kernels buffer

    async def server(announce: Announce) -> bytes:
        async with Accepting(announce) as accepting:
            recorder = await accepting.connection()
            recorder.transport.pause_reading()
            await asyncio.sleep(0.05)
            assert not recorder.data
            recorder.transport.resume_reading()
            await recorder.lost
            return bytes(recorder.data)

    async def client(host: str, port: int) -> list[str]:
        recorder = await connected(host, port)
        recorder.transport.set_write_buffer_limits(high=10_000)
        for start in range(0, len(sent), 1_000_000):
            recorder.transport.write(sent[start : start + 1_000_000])
        recorder.transport.close()
        assert await recorder.lost is None
        return recorder.events

    received, events = await arena.both(server, client)
    assert received == sent
    assert events == ["made", "pause", "resume", "lost"]


async def test_streams_work_and_a_half_closed_connection_still_answers(arena: Arena) -> None:
    async def server(announce: Announce) -> bytes:
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.read()  # to the end of file
            writer.write(asked[::-1])
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            done.set_result(asked)

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        announce(listening.sockets[0].getsockname()[1])
        asked = await done
        listening.close()
        return asked

    async def client(host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.writelines([b"ab", b"c"])
        writer.write_eof()
        with pytest.raises(RuntimeError):
            writer.write(b"more")
        answer = await reader.read()
        writer.close()
        return answer

    assert await arena.both(server, client) == (b"abc", b"cba")


async def test_nobody_listens_where_a_server_was_closed(arena: Arena) -> None:
    async def server(announce: Announce) -> None:
        listening = await asyncio.get_running_loop().create_server(Recorder, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        assert listening.is_serving()
        listening.close()
        assert not listening.is_serving()
        announce(port)
        await asyncio.sleep(0.1)

    async def client(host: str, port: int) -> str:
        with pytest.raises(ConnectionRefusedError):
            await connected(host, port)
        return "refused"

    assert (await arena.both(server, client))[1] == "refused"


async def test_a_port_is_taken_once_and_free_after_the_close(arena: Arena) -> None:
    async def server(announce: Announce) -> None:
        loop = asyncio.get_running_loop()
        first = await loop.create_server(Recorder, "127.0.0.1", 0)
        port = first.sockets[0].getsockname()[1]
        with pytest.raises(OSError):
            await loop.create_server(Recorder, "127.0.0.1", port)
        first.close()
        (await loop.create_server(Recorder, "127.0.0.1", port)).close()
        announce(port)

    async def client(host: str, port: int) -> None:
        pass

    await arena.both(server, client)


async def test_both_ends_agree_on_their_addresses(arena: Arena) -> None:
    def ends(recorder: Recorder) -> list[Any]:
        names = ("sockname", "peername")
        socket = recorder.transport.get_extra_info("socket")
        told = [recorder.transport.get_extra_info(name) for name in names]
        assert told == [socket.getsockname(), socket.getpeername()]
        return told

    async def server(announce: Announce) -> list[Any]:
        async with Accepting(announce) as accepting:
            recorder = await accepting.connection()
            found = ends(recorder)
            await recorder.lost
            return found

    async def client(host: str, port: int) -> list[Any]:
        recorder = await connected(host, port)
        recorder.transport.write(b"x")
        found = ends(recorder)
        recorder.transport.close()
        return found

    left, right = await arena.both(server, client)
    assert left == right[::-1]


async def test_a_close_flushes_and_the_peer_sees_the_end(arena: Arena) -> None:
    async def server(announce: Announce) -> tuple[bytes, list[str], Exception | None]:
        async with Accepting(announce) as accepting:
            recorder = await accepting.connection()
            error = await recorder.lost
            return bytes(recorder.data), recorder.events, error

    async def client(host: str, port: int) -> None:
        recorder = await connected(host, port)
        recorder.transport.write(b"last words")
        recorder.transport.close()
        assert recorder.transport.is_closing()
        assert "lost" not in recorder.events  # never from within the call
        recorder.transport.write(b"too late")
        await recorder.lost

    (data, events, error), _ = await arena.both(server, client)
    assert data == b"last words"
    assert events == ["made", "eof", "lost"]
    assert error is None


async def test_closing_with_unread_data_resets_the_peer(arena: Arena) -> None:
    async def server(announce: Announce) -> None:
        async with Accepting(announce) as accepting:
            recorder = await accepting.connection()
            recorder.transport.pause_reading()
            await asyncio.sleep(0.2)  # let the data come in
            recorder.transport.abort()
            await recorder.lost

    async def client(host: str, port: int) -> Exception | None:
        recorder = await connected(host, port)
        await asyncio.sleep(0.05)  # let the server stop reading
        recorder.transport.write(b"unread")
        return await recorder.lost

    _, error = await arena.both(server, client)
    assert isinstance(error, ConnectionResetError)


async def test_writing_to_an_end_that_is_gone_fails_in_the_end(arena: Arena) -> None:
    async def server(announce: Announce) -> None:
        async with Accepting(announce) as accepting:
            recorder = await accepting.connection()
            recorder.transport.close()
            await recorder.lost

    class Deaf(Recorder):
        def eof_received(self) -> bool:
            return True  # keep it open for writing

    async def client(host: str, port: int) -> Exception | None:
        loop = asyncio.get_running_loop()
        transport, recorder = await loop.create_connection(Deaf, host, port)
        await asyncio.sleep(0.1)
        for _ in range(50):
            if recorder.lost.done():
                break
            transport.write(b"anybody?")
            await asyncio.sleep(0.02)
        return await recorder.lost

    _, error = await arena.both(server, client)
    assert isinstance(error, ConnectionResetError | BrokenPipeError)


async def test_a_closed_server_keeps_its_connections(arena: Arena) -> None:
    async def server(announce: Announce) -> bytes:
        async with Accepting(announce) as accepting:
            recorder = await accepting.connection()
            accepting.server.close()
            recorder.transport.write(b"closed")
            await recorder.lost
            return bytes(recorder.data)

    async def client(host: str, port: int) -> None:
        recorder = await connected(host, port)
        while recorder.data != b"closed":
            await asyncio.sleep(0.01)
        recorder.transport.write(b"still here")
        recorder.transport.close()

    assert (await arena.both(server, client))[0] == b"still here"


async def test_a_buffered_protocol_gets_its_bytes_in_its_own_buffer(arena: Arena) -> None:
    class Small(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(5)
            self.data = bytearray()
            self.made = asyncio.Event()
            self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.made.set()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.buffer[:nbytes]

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(None)

    async def server(announce: Announce) -> bytes:
        async with Accepting(announce, Small) as accepting:
            small = await accepting.connection()
            await small.lost
            return bytes(small.data)

    async def client(host: str, port: int) -> None:
        recorder = await connected(host, port)
        recorder.transport.write(b"more than five bytes")
        recorder.transport.close()

    assert (await arena.both(server, client))[0] == b"more than five bytes"


async def test_a_cancelled_connect_leaves_no_connection(arena: Arena) -> None:
    async def server(announce: Announce) -> list[str]:
        async with Accepting(announce) as accepting:
            await asyncio.sleep(0.2)
            if not accepting.first.done():
                return ["made", "eof", "lost"]  # it had not even begun
            recorder = await accepting.connection()
            await recorder.lost
            return list(recorder.events)

    async def client(host: str, port: int) -> None:
        connecting = asyncio.ensure_future(connected(host, port))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    assert (await arena.both(server, client))[0][-1] == "lost"
