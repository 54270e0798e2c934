"""A proxy in front of a database that loses connections at chosen moments, or lets them hang."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol


class Server(Protocol):
    """What is listened to: a Unix socket."""

    socket: Path


class DatabaseProxy:
    """``cut = (n, when)``: the connection that sends the n-th COMMIT from now (counted from 1) is
    lost ``before`` the server has it, or ``after`` the server did it, with the answer.

    ``hangs``: bytes go in, none come out, and nothing says so. Unless ``holds`` is set what a
    client sends waits here, and ``held`` says that it does. ``commit``: how one is sent.
    """

    def __init__(self, server: Server, folder: Path, commit: bytes) -> None:
        self.folder = folder
        self.cut: tuple[int, str] | None = None
        self.cuts = 0
        self.hangs = False
        self.holds = asyncio.Event()
        self.holds.set()
        self.held = asyncio.Event()
        self._commit = commit
        self._server = server
        self._open: set[StreamWriter] = set()
        self._serving: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection."""
        self._serving.add(asyncio.current_task())
        self._open.add(writer)
        try:
            answers, requests = await asyncio.open_unix_connection(self._server.socket)
        except OSError:
            writer.close()
            return
        is_lost = asyncio.Event()
        pumps = [
            asyncio.create_task(self._forward(reader, requests, is_lost)),
            asyncio.create_task(self._answer(answers, writer, is_lost)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            requests.close()
            writer.close()

    async def close(self) -> None:
        """Lose every connection."""
        for writer in self._open:
            writer.close()
        await asyncio.gather(*(task for task in self._serving if task), return_exceptions=True)

    async def _forward(
        self, reader: StreamReader, requests: StreamWriter, is_lost: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            if self._commit in data and self.cut is not None:
                left, when = self.cut
                self.cut = (left - 1, when) if left > 1 else None
                if self.cut is None:
                    self.cuts += 1
                    if when == "before":
                        return
                    is_lost.set()
            if not self.holds.is_set():
                self.held.set()
                await self.holds.wait()
            if not self.hangs:
                requests.write(data)
                await requests.drain()

    async def _answer(
        self, answers: StreamReader, writer: StreamWriter, is_lost: asyncio.Event
    ) -> None:
        while data := await answers.read(1 << 16):
            if is_lost.is_set():
                return
            if not self.hangs:
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def proxied(server: Server, commit: bytes = b"COMMIT\0") -> AsyncIterator[DatabaseProxy]:
    """A proxy that listens; its folder is the host to connect to."""
    with TemporaryDirectory(prefix="onceward-proxy-") as folder:
        proxy = DatabaseProxy(server, Path(folder), commit)
        path = proxy.folder / server.socket.name
        listener = await asyncio.start_unix_server(proxy.serve, path)
        try:
            yield proxy
        finally:
            listener.close()
            await proxy.close()
