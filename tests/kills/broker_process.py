"""A broker as a process that tests kill and restart on the same port, without any of our client."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path


class BrokerUnderFire:
    def __init__(self, data: Path, log: Path, *configs: str) -> None:
        self.data, self.log, self.configs = data, log, configs
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts_s: list[float] = []
        """How long each start took until clients may connect."""

    def start(self) -> None:
        began = time.monotonic()
        command = [sys.executable, "-m", "onceward.streams.cli", "broker"]
        command += ["--data", str(self.data), "--listen", self.address]
        for config in self.configs:
            command += ["--config", config]
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        line = self.process.stdout.readline().decode() if ready else ""
        assert "ready on" in line, f"the broker did not start: {self.log.read_text()[-2000:]}"
        self.address = line.split()[-1]
        self.starts_s.append(time.monotonic() - began)

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
