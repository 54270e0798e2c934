"""The broker embedded in a data directory: found when it runs, started when it does not.

It is a process of its own, so that killing a worker never takes the broker along. Its address is
kept in ``{datadir}/broker.address``; who starts it holds ``{datadir}/broker.start`` locked
meanwhile, so of several workers started at once exactly one does. It keeps its port over restarts,
so clients find it again, and stops by itself when no client has been connected for a while.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onceward.broker.client import ErrorCode, KafkaError

READY = "onceward broker ready on "
START_TIMEOUT_S = 20.0
IDLE_S = 30.0


def embedded_address(datadir: Path) -> str | None:
    """Address of the running broker of this data directory; None when none answers."""
    address = last_address(datadir)
    return address if address is not None and answers(address) else None


def ensure_embedded(datadir: Path) -> str:
    """Address of this data directory's broker, started if need be. Raises KafkaError."""
    datadir.mkdir(parents=True, exist_ok=True)
    with _start_lock(datadir):
        running = embedded_address(datadir)
        if running is not None:
            return running
        last = last_address(datadir)
        log = datadir / "broker.log"
        listens = [last, "127.0.0.1:0"] if last is not None else ["127.0.0.1:0"]
        for listen in listens:
            address = _start(datadir, listen, log)
            if address is not None:
                (datadir / "broker.address").write_text(address, encoding="utf-8")
                return address
    raise KafkaError(
        ErrorCode.BROKER_NOT_AVAILABLE,
        f"the embedded broker did not start; its last words are in {log}",
    )


def last_address(datadir: Path) -> str | None:
    """Where this data directory's broker listened last; None before its first start."""
    try:
        return (datadir / "broker.address").read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def answers(address: str) -> bool:
    """Whether somebody accepts connections there (loopback: at once or never)."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False


@contextmanager
def _start_lock(datadir: Path) -> Iterator[None]:
    with (datadir / "broker.start").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the holder is bounded by START_TIMEOUT_S
        yield


def _start(datadir: Path, listen: str, log: Path) -> str | None:
    """Start a broker there in a session of its own; None when it ended instead of serving."""
    command = [sys.executable, "-m", "onceward.streams.cli", "broker", "--listen", listen]
    command += ["--data", str(datadir / "broker"), "--exit-when-idle", str(IDLE_S)]
    with log.open("ab") as output:
        begin = output.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with log.open("rb") as lines:
            lines.seek(begin)
            for line in lines.read().decode("utf-8", "replace").splitlines():
                if line.startswith(READY):
                    return line.removeprefix(READY).strip()
        time.sleep(0.01)  # polls a file of another process: there is nothing to wait on
    if process.poll() is None:
        process.kill()
        process.wait()
    return None
