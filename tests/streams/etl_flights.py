"""Runs ``examples/etl_flights``, and gives its modules to look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "etl_flights"


def run_example(*options: str, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
    """``run.py`` in a process of its own; its workers end with it."""
    return subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), *options],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
