"""A real Redis server for tests: its own process, on a unix socket in a directory of its own.

``redis-server`` is found on the path, or named by ``ONCEWARD_REDIS_SERVER``.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

INSTALL = "apt-get install redis-server brings it, or ONCEWARD_REDIS_SERVER names the program"
SETTINGS = {
    "port": "0",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "databases": "4",
}


def program() -> str:
    """The path of ``redis-server``. Skips the test when there is none to run."""
    found = os.environ.get("ONCEWARD_REDIS_SERVER") or shutil.which("redis-server")
    if found is None:
        pytest.skip(f"no Redis to test against: {INSTALL}")
    try:
        subprocess.run([found, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{found} cannot be run ({error}): {INSTALL}")
    return found


def _die_with_parent() -> None:
    """The server ends with the tests, even if those are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))


class RedisServer:
    """``start``, ``kill`` and ``start`` again; ``remove`` at the end.

    ``settings``: those of redis.conf, over ``SETTINGS``.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = {**SETTINGS, **(settings or {})}
        self._program = program()
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-redis-"))
        self.socket = self.folder / "redis.sock"
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._client: redis.Redis | None = None

    def url(self, *, user: str = "", database: int = 0, host: Path | None = None) -> str:
        """``user`` may be ``name:password``; ``host`` a proxy's folder."""
        path = quote(str((host or self.folder) / self.socket.name))
        return f"unix://{user}{'@' if user else ''}{path}?db={database}"

    @property
    def client(self) -> Any:
        """For what a test looks at: answers are text."""
        if self._client is None:
            self._client = redis.Redis(
                unix_socket_path=str(self.socket), decode_responses=True, socket_timeout=10
            )
        return self._client

    def start(self) -> None:
        """Returns when it has loaded its data; the server ends with the calling thread."""
        deadline = time.monotonic() + 30
        self._process = self._popen()
        while True:
            try:
                self.client.ping()
            except redis.RedisError as error:
                has_ended = self._process.poll() is not None
                assert not has_ended and time.monotonic() < deadline, (
                    f"{error}\n{self._log.read_text()[-2000:]}"
                )
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self.disconnect()

    def disconnect(self) -> None:
        """Close the test's own connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def remove(self) -> None:
        """Stop at once, and delete everything."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self.disconnect()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _popen(self) -> subprocess.Popen[bytes]:
        command = [self._program, "--dir", str(self.folder), "--unixsocket", str(self.socket)]
        for name, value in self.settings.items():
            command += [f"--{name}", *(value.split(" ") if value else [""])]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )


class RedisProxy:
    """In front of a server; loses connections at chosen moments, or lets them hang.

    ``cut = (n, when)``: the connection that sends the n-th commit from now (counted from 1) is lost
    ``before`` the server has it, or ``after`` the server did it, with the answer. ``hangs``: bytes
    go in, none come out, and nothing says so. Unless ``holds`` is set what a client sends waits
    here, and ``held`` says that it does.
    """

    COMMIT = b"#!lua\n-- commit\n"

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.folder = folder
        self.cut: tuple[int, str] | None = None
        self.cuts = 0
        self.hangs = False
        self.holds = asyncio.Event()
        self.holds.set()
        self.held = asyncio.Event()
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
            if self.COMMIT in data and self.cut is not None:
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
async def proxied(server: RedisServer) -> AsyncIterator[RedisProxy]:
    """A proxy that listens; its folder is the host to connect to."""
    with tempfile.TemporaryDirectory(prefix="onceward-redis-") as folder:
        proxy = RedisProxy(server, Path(folder))
        listener = await asyncio.start_unix_server(proxy.serve, proxy.folder / server.socket.name)
        try:
            yield proxy
        finally:
            listener.close()
            await proxy.close()
