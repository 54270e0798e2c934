"""A real Redis server for tests: its own process, on a unix socket in a directory of its own.

``redis-server`` is found on the path, or named by ``ONCEWARD_REDIS_SERVER``.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
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


REDIS_COMMIT = b"#!lua\n-- commit\n"
"""How the script of a commit begins, for a proxy."""
