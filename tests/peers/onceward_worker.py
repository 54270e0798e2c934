"""An ``onceward worker`` process, started as a user starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

STOP_S = 30.0


class OncewardWorker:
    """One worker of the app in the file ``program``; a context manager."""

    def __init__(self, program: Path, broker: str, directory: Path) -> None:
        self._log = directory / f"onceward-{program.stem}.log"
        command = [sys.executable, "-m", "onceward.streams.cli", "worker", f"{program}:app"]
        command += ["--broker", broker, "--datadir", str(directory / "onceward")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> None:
        """SIGTERM. Raises AssertionError when it does not end well."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(STOP_S) == 0, self._log.read_text()[-3000:]
