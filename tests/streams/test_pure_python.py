"""Everything about streams holds without the compiled extensions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.streams.engine.kernel import COMPILED

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not COMPILED, reason="the extensions are not built: every test is about this")
def test_all_of_this_passes_in_pure_python() -> None:
    environment = {**os.environ, "ONCEWARD_PURE_PYTHON": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
