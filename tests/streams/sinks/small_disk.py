"""A file system of its own that is really full: a tmpfs, mounted within a test's directory."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_BLOCK = 4096


class SmallDisk:
    """Mounted at ``path``. ``fill`` takes all room that is left, ``make_room`` gives it back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(_BLOCK))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    return

    def make_room(self) -> None:
        self._ballast.unlink()


@contextmanager
def small_disk(path: Path, size_kib: int) -> Iterator[SmallDisk]:
    """At ``path``, which is made; gone again at the end. Skips the test where it may not be."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system to fill: run this test as root")
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        path.rmdir()
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        # lazily: a server that a failed test left running may still have files open in it
        subprocess.run(["umount", "--lazy", str(path)], check=True)
