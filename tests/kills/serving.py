"""A service as a process that tests kill and start again on the same port."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY = "ready on"


class ServiceProcess:
    """``python -m tests.kills.MODULE ARGUMENTS HOST:PORT``; it prints ``READY`` and where it is."""

    def __init__(self, module: str, log: Path, *arguments: str) -> None:
        self.log = log
        self.address = "127.0.0.1:0"
        self._command = [sys.executable, "-m", f"tests.kills.{module}", *arguments]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        """Returns when it serves."""
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*self._command, self.address], cwd=ROOT, stdout=subprocess.PIPE, stderr=errors
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        line = self.process.stdout.readline().decode() if ready else ""
        assert line.startswith(READY), f"no service: {self.log.read_text()[-2000:]}"
        self.address = line.split()[-1]

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
