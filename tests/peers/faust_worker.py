"""A ``faust worker`` process, started as a user starts it; only the broker comes from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

PROGRAMS = Path(__file__).parent / "faust_programs"
STOP_S = 30.0
WAIT_S = 60.0


class FaustWorker:
    """One worker of ``program``; a context manager, so that no process is left behind."""

    def __init__(self, program: str, broker: str, directory: Path, name: str = "worker") -> None:
        self._log = directory / f"{program}-{name}.log"
        command = [sys.executable, "-m", "faust", "-A", program]
        command += ["--workdir", str(PROGRAMS), "--datadir", str(directory / f"{program}-{name}")]
        command += ["worker", "--loglevel", "info", "--without-web"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "BROKER_URL": f"kafka://{broker}", "PYTHONUNBUFFERED": "1"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self, text: str) -> list[str]:
        """The lines of the log that hold ``text``."""
        return [line for line in self.log().splitlines() if text in line]

    def wait_for(self, text: str, count: int = 1) -> None:
        """Until ``count`` lines of the log hold ``text``. Raises AssertionError."""
        deadline = time.monotonic() + WAIT_S
        while len(self.lines(text)) < count:
            assert self._process.poll() is None, f"the worker ended: {self.log()[-3000:]}"
            assert time.monotonic() < deadline, f"no {text!r} in: {self.log()[-3000:]}"
            time.sleep(0.1)

    def stop(self) -> None:
        """SIGTERM, as a service manager does. Raises AssertionError when it does not end well."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(STOP_S) == 0, self.log()[-3000:]

    def kill(self) -> None:
        """SIGKILL: nothing is committed, the group is not left."""
        self._process.kill()
        self._process.wait(STOP_S)
