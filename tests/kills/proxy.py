"""A TCP proxy that knows Kafka's frames: it holds one request back, at exactly the moment meant."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Any

from onceward.broker.protocol.codec import decode_request, decode_response
from onceward.broker.protocol.headers import RequestHeader

Matches = Callable[[RequestHeader, Any], bool]


class FrameProxy:
    """Between clients and one broker, which advertises ``address`` in place of its own.

    ``hold(matches)``: the next request that matches, and what follows it on its connection, stays
    here until ``release``; ``held`` is set meanwhile. ``answer`` is the broker's late answer to it.
    """

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self.held = asyncio.Event()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._matches: Matches | None = None
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def hold(self, matches: Matches) -> None:
        self._matches = matches

    def release(self) -> None:
        self._matches = None
        self._released.set()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, until either side closes it or ``stop``."""
        task = asyncio.current_task()
        assert self.target is not None and task is not None
        self._tasks.add(task)
        ends = [writer]
        ways: list[asyncio.Task[None]] = []
        try:
            with contextlib.suppress(OSError):  # the broker is not there
                answers, upstream = await asyncio.open_connection(*self.target)
                ends.append(upstream)
                asked: list[RequestHeader] = []
                ways.append(asyncio.create_task(self._requests(reader, upstream, asked)))
                ways.append(asyncio.create_task(self._answers(answers, writer, asked)))
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                if asked:  # the client may have given up; the broker's answer still counts
                    await asyncio.wait({ways[1], self.answer}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # by ``stop``, the only one who knows this task
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in ends:
                end.close()
            self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[RequestHeader]
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            if self._matches is not None and not self.held.is_set():
                header, message = decode_request(frame)
                if self._matches(header, message):
                    asked.append(header)
                    self.held.set()
                    await self._released.wait()
            writer.write(struct.pack(">i", len(frame)) + frame)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[RequestHeader]
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            (correlation_id,) = struct.unpack_from(">i", frame)
            for header in asked:
                if header.correlation_id == correlation_id and not self.answer.done():
                    answer = decode_response(header.api_key, header.api_version, frame)[1]
                    self.answer.set_result(answer)
            writer.write(struct.pack(">i", len(frame)) + frame)
            await writer.drain()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)
