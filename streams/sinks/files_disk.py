"""The file sink's only use of the disk: whole files, written and renamed so that they stay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path


class Disk:
    """Every call is finished on disk when it returns. Raises OSError."""

    def make_directory(self, path: Path) -> None:
        """With its parents; nothing when it is there."""
        missing = path
        made = []
        while not missing.is_dir():
            made.append(missing)
            missing = missing.parent
        if made:
            path.mkdir(parents=True, exist_ok=True)
            self.sync(directory.parent for directory in made)

    def write(self, path: Path, data: bytes) -> None:
        """Replaces what is there. The name is there for certain only after ``sync``."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def move(self, old: Path, new: Path) -> None:
        """Atomic; the names are there for certain only after ``sync``. Nothing when ``old`` has
        been moved before."""
        try:
            os.rename(old, new)
        except FileNotFoundError:
            if old.exists():
                raise

    def exists(self, path: Path) -> bool:
        return path.exists()

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> Iterator[str]:
        """Of the files in it."""
        with os.scandir(directory) as entries:
            yield from [entry.name for entry in entries]

    def sync(self, directories: Iterable[Path]) -> None:
        """Names that were made and moved in them stay."""
        for directory in sorted(set(directories)):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
