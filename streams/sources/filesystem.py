"""Files as sources see them: names in order, and bytes from a place on, decompressed. The sources'
only use of the disk.

Reads are small and direct, not in a thread: the same run then reads the same bytes between the same
two steps, in a simulation too.
"""

from __future__ import annotations

import glob
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from .errors import SourceError, SourceUnavailable

_HEAD = 1024
_WILD = frozenset("*?[")


class Found(NamedTuple):
    """A file: ``name`` is relative to the fixed part of the pattern, so that a moved directory is
    the same one."""

    name: str
    path: str
    size: int | None = None
    """Where listing says it."""


class Head(NamedTuple):
    """The first bytes of a file on disk: how many were looked at, and their CRC-32."""

    length: int
    crc: int


def listing(pattern: str) -> list[Found]:
    """Files that match, in the order of their names. A directory stands for all files in it."""
    if os.path.isdir(pattern):
        pattern = os.path.join(pattern, "*")
    root = root_of(pattern)
    paths = (path for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path))
    return sorted(Found(os.path.relpath(path, root).replace(os.sep, "/"), path) for path in paths)


def is_pattern(path: str) -> bool:
    """Whether it may stand for several files."""
    return os.path.isdir(path) or is_wild(path)


def is_wild(path: str) -> bool:
    return not _WILD.isdisjoint(path)


def root_of(pattern: str) -> str:
    """The directory above the first part with a wildcard."""
    directory = os.path.dirname(pattern)
    while not _WILD.isdisjoint(directory):
        directory = os.path.dirname(directory)
    return directory or os.curdir


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns errors of the disk and of compressed data into those of sources."""
    try:
        yield
    except PermissionError as error:
        raise SourceError(f"{path} may not be read: {error.strerror}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SourceError(f"{path} is not a whole gzip file: {error}") from error
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror or error}") from error


class InputFile:
    """An open file. ``size`` is that on disk, when it was opened; offsets count decompressed
    bytes. ``raw``: a copy of what ``path`` names elsewhere."""

    def __init__(self, path: str, raw: BinaryIO | None = None) -> None:
        self.path = path
        self.is_compressed = path.endswith(".gz")
        with explained(path):
            if raw is None:
                raw = open(path, "rb")  # noqa: SIM115 - closed by close()
            self._raw: BinaryIO = raw
            self.size = os.fstat(raw.fileno()).st_size
            self._stream: BinaryIO = raw
            if self.is_compressed:
                self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw))

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._raw.close()

    def head(self, length: int | None = None) -> Head:
        """Of a kilobyte, or of ``length`` bytes where that is less."""
        size = _HEAD if length is None else min(length, _HEAD)
        with explained(self.path):
            data = os.pread(self._raw.fileno(), size, 0)
        return Head(len(data), zlib.crc32(data))

    def size_now(self) -> int:
        """On disk."""
        with explained(self.path):
            return os.fstat(self._raw.fileno()).st_size

    def seek(self, offset: int) -> None:
        with explained(self.path):
            self._stream.seek(offset)

    def read(self, size: int) -> bytes:
        """Empty at the end."""
        with explained(self.path):
            return self._stream.read(size)

    @property
    def descriptor(self) -> BinaryIO:
        """The file itself, for libraries that read it."""
        return self._raw


def size_of(path: str) -> int | None:
    """Bytes on disk; None when it is gone."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
