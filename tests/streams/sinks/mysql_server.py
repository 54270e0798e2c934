"""A real MariaDB or MySQL server for tests: its own process, socket and data in a directory.

``mariadbd`` is enough (Debian: ``mariadb-server-core``); ``ONCEWARD_MYSQL_SERVER`` may name another
program, a ``mysqld`` of MySQL too. Run by root, the server runs as ``nobody``.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import pytest

INSTALL = (
    "apt-get install mariadb-server-core brings one, or ONCEWARD_MYSQL_SERVER names its program"
)
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"])
SETTINGS = {
    "innodb-flush-log-at-trx-commit": "2",  # the system does not fail, only the server
    "innodb-flush-method": "nosync",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "max-connections": "60",
    "skip-name-resolve": "ON",
}
OF_MYSQL = {
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "64M",
    "innodb-redo-log-capacity": "64M",
    "max-connections": "60",
    "skip-name-resolve": "ON",
    "mysqlx": "OFF",
    "skip-log-bin": "ON",
    "performance-schema": "OFF",
    "secure-file-priv": "",
}


class Program:
    """The server's program. Skips the test when there is none to run."""

    def __init__(self) -> None:
        named = os.environ.get("ONCEWARD_MYSQL_SERVER")
        found = named or shutil.which("mariadbd", path=PATH) or shutil.which("mysqld", path=PATH)
        if found is None:
            pytest.skip(f"no MariaDB or MySQL server to test against: {INSTALL}")
        self.path = found
        try:
            done = subprocess.run(
                [found, "--no-defaults", "--version"], check=True, capture_output=True, cwd="/",
                **somebody(),
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as error:
            who = "the user nobody" if os.geteuid() == 0 else "this user"
            pytest.skip(f"{found} cannot be run by {who} ({error}): {INSTALL}")
        self.version = done.stdout.decode()
        self.is_mariadb = "MariaDB" in self.version

    def initialize(self, folder: Path) -> None:
        """Make ``folder/data``: root has no password."""
        start = [self.path, "--no-defaults", f"--datadir={folder / 'data'}"]
        if not self.is_mariadb:
            run([*start, "--initialize-insecure", "--innodb-redo-log-capacity=8M"], folder)
            return
        (folder / "data").mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder / "data", "nobody")
        start += ["--innodb-flush-method=nosync", "--innodb-log-file-size=8M", "--bootstrap"]
        # mariadb-install-db does the same, and needs more than the package of the server
        run(start, folder, "\n".join(["CREATE DATABASE mysql;", "USE mysql;", self._tables()]))

    def _tables(self) -> str:
        places = [Path(self.path).resolve().parents[1] / "share" / n for n in ("mysql", "mariadb")]
        for place in places:
            for prefix in ("mysql", "mariadb"):
                files = [place / f"{prefix}_system_tables{end}.sql" for end in ("", "_data")]
                if all(file.exists() for file in files):
                    return "\n".join(file.read_text() for file in files)
        pytest.skip(f"{self.path} comes without its system tables: {INSTALL}")


def somebody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": "nobody", "group": 65534, "extra_groups": []}


def run(command: list[str], folder: Path, text: str = "") -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, input=text.encode(), timeout=120, **somebody()
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]


def die_with_parent() -> None:
    """The server ends with the tests, even if those are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))


class MySqlServer:
    """``start``, ``kill`` and ``start`` again, or ``restart``; ``remove`` at the end.

    ``settings`` are options of the server, without the dashes. ``port`` is for TCP on 127.0.0.1. No
    file can grow beyond ``largest_file`` bytes, as if the disk was full.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, largest_file: int | None = None
    ) -> None:
        self._largest_file = largest_file
        self.program = Program()
        ours = SETTINGS if self.program.is_mariadb else OF_MYSQL
        self._settings = {**ours, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-my-"))
        self.socket = self.folder / "mysql.sock"
        self.port = 0
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
        try:
            self.program.initialize(self.folder)
        except BaseException:
            self.remove()
            raise

    @property
    def is_mariadb(self) -> bool:
        return self.program.is_mariadb

    def dsn(self, *, user: str = "root", database: str = "mysql", host: Path | None = None) -> str:
        """``user`` may be ``name:password``; ``host`` another directory with a socket."""
        path = (host or self.folder) / self.socket.name
        return f"mysql://{user}@/{database}?unix_socket={quote(str(path), safe='')}"

    def start(self) -> None:
        """Returns when it takes connections; the server ends with the calling thread."""
        deadline, tries = time.monotonic() + 60, 0
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process, tries = self._popen(), tries + 1
            try:
                self.connect().close()
            except pymysql.err.OperationalError as error:
                text = self._log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < deadline and tries <= 3, f"{error}\n{text}"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """SIGKILL: what was not committed is gone, what was is there."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def restart(self) -> None:
        """``kill`` and ``start``."""
        self.kill()
        self.start()

    def remove(self) -> None:
        """Stop at once, and delete everything."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """A connection of the driver, as root, without transactions of its own."""
        return pymysql.connect(
            **{
                "unix_socket": str(self.socket),
                "user": "root",
                "database": database,
                "autocommit": True,
                "connect_timeout": 10,
                "init_command": "SET time_zone = '+00:00'",
                **options,
            }
        )

    def _popen(self) -> subprocess.Popen[bytes]:
        """The port is free now; should another process take it first, the next try has another."""
        self.socket.unlink(missing_ok=True)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        command = [self.program.path, "--no-defaults", f"--datadir={self.folder / 'data'}"]
        command += [f"--socket={self.socket}", "--bind-address=127.0.0.1", f"--port={self.port}"]
        command += [f"--pid-file={self.folder / 'pid'}", f"--tmpdir={self.folder}"]
        command += [f"--{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, preexec_fn=self._in_child,
                **somebody(),
            )  # fmt: skip

    def _in_child(self) -> None:
        die_with_parent()
        if self._largest_file is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._largest_file, resource.RLIM_INFINITY))


class Database:
    """A database of its own in a running server."""

    def __init__(self, server: MySqlServer, name: str) -> None:
        self.server, self.name = server, name
        self._connection: Any = None
        with server.connect() as connection:
            connection.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")

    def dsn(self, **options: Any) -> str:
        return self.server.dsn(**{"database": self.name, **options})

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement, or several with semicolons at the ends of lines."""
        if self._connection is None:
            self._connection = self.server.connect(self.name)
        cursor = self._connection.cursor()
        for each in re.split(r";\s*\n", statement):
            if each.strip():
                cursor.execute(each, parameters or None)
        return list(cursor.fetchall()) if cursor.description else []

    def connect(self, **options: Any) -> Any:
        """Another session."""
        return self.server.connect(self.name, **options)

    def close(self) -> None:
        """After which it may be used again, as when the server was started anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
