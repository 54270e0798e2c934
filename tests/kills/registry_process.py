"""A registry as a process that tests kill and restart on the same port."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path


class RegistryUnderFire:
    def __init__(self, broker: str, log: Path) -> None:
        self.broker, self.log = broker, log
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it serves."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        command = [sys.executable, "-m", "onceward.streams.cli", "registry"]
        command += ["--listen", self.address, "--broker", self.broker]
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    def await_ready(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        line = self.process.stdout.readline().decode() if ready else ""
        assert "ready on" in line, f"no registry: {self.log.read_text()[-2000:]}"
        self.address = line.split()[-1]

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
