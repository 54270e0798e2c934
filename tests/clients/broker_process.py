"""A broker as users run it: a process of its own, which tests stop, kill and start again."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from pathlib import Path

READY_S = 20
STOP_S = 10


class BrokerProcess:
    """``python -m onceward.broker`` on a free port, which it keeps over restarts."""

    def __init__(self, directory: Path, **config: str | int) -> None:
        self.directory = directory
        self.config = {"group.min.session.timeout.ms": 1000, **config}
        self.address = "127.0.0.1:0"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "onceward.broker", "--listen", self.address]
        command += ["--data", str(self.directory / "data")]
        for key, value in self.config.items():
            command += ["--config", f"{key}={value}"]
        with (self.directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], READY_S)
        line = self._process.stdout.readline().decode() if ready else ""
        assert line.startswith("onceward broker ready on "), self.log()
        self.address = line.split()[-1]

    def log(self) -> str:
        return (self.directory / "broker.log").read_text()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no handler runs."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
