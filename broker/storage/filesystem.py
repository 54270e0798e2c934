"""The door to the disk: the port every storage class uses, and the real thing behind it.

Durability contract, the same for ``OsFileSystem`` and for a simulated disk:

- what ``append`` wrote survives the death of the process at once, and a power cut only after a
  ``fsync`` that *started* later; what was not synced may survive whole, torn, or not at all;
- syncing a file that ``open`` created also makes its name durable, and the directories made for it;
- ``rename`` and ``remove`` are durable after ``fsync_dir`` of the directory; ``write_atomic`` is
  durable and complete when it returns, and leaves the old content when it does not.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from ..types import Buffer

_IOV_MAX = 512


class LockHeldError(Exception):
    """Another process (or another holder in this one) has the lock."""


class Lock(Protocol):
    """A lock on a path, held until ``release`` or the death of the process."""

    def release(self) -> None: ...


class File(Protocol):
    """One open append-only file."""

    def size(self) -> int: ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end; returns the position of the first byte.

        Raises OSError (ENOSPC, EIO); part of the data may then be there: ``truncate`` it back.
        """
        ...

    def pread(self, position: int, length: int) -> bytes:
        """Up to ``length`` bytes; shorter only at the end of the file."""
        ...

    def fsync(self) -> Awaitable[None]:
        """Make every append made before this call durable. Raises OSError: the data may be gone."""
        ...

    def fsync_now(self) -> None:
        """``fsync`` that blocks: for start, stop and rare small files."""
        ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The disk. Paths are text with ``/``; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> Sequence[str]:
        """Names (not paths) in a directory, sorted."""
        ...

    def makedirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file at ``path`` without waiting. Raises LockHeldError."""
        ...


class OsFile:
    """A file descriptor. Writes go to the tracked end, so the size costs no system call."""

    def __init__(self, filesystem: OsFileSystem, path: str, descriptor: int) -> None:
        self._filesystem = filesystem
        self._path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._syncing = 0
        self._closed = False

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        start = self._size
        pending = [buffer for buffer in buffers if len(buffer)]
        while pending:
            written = os.pwritev(self._descriptor, pending[:_IOV_MAX], self._size)
            self._size += written
            pending = _unwritten(pending, written)
        return start

    def pread(self, position: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        while 0 < len(data) < length:
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    async def fsync(self) -> None:
        if self._closed:
            return
        directories = self._filesystem.unsynced_directories(self._path)
        loop = asyncio.get_running_loop()
        # The descriptor must not be closed (and its number reused) under a running sync.
        self._syncing += 1
        try:
            await loop.run_in_executor(
                self._filesystem.executor, _sync, self._descriptor, directories
            )
        finally:
            self._sync_ended()
        self._filesystem.synced_directories(self._path, directories)

    def _sync_ended(self) -> None:
        self._syncing -= 1
        if self._closed and not self._syncing:
            os.close(self._descriptor)

    def fsync_now(self) -> None:
        directories = self._filesystem.unsynced_directories(self._path)
        _sync(self._descriptor, directories)
        self._filesystem.synced_directories(self._path, directories)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._syncing:
                os.close(self._descriptor)


class OsFileSystem:
    """The operating system's disk. ``executor`` runs the syncs (None: the loop's default one)."""

    def __init__(self, executor: Executor | None = None) -> None:
        self.executor = executor
        self._created: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create and not os.path.exists(path):
            descriptor = os.open(path, flags | os.O_CREAT, 0o644)
            self._created.add(path)
        else:
            descriptor = os.open(path, flags)
        return OsFile(self, path, descriptor)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            os.mkdir(directory)
            self._created.add(directory)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)
        self._forget(old)

    def remove(self, path: str) -> None:
        os.unlink(path)
        self._forget(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)
        self._forget(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        directories = self.unsynced_directories(os.path.dirname(path))
        _sync_directories([os.path.dirname(path), *directories])
        self.synced_directories(os.path.dirname(path), directories)

    def fsync_dir(self, path: str) -> None:
        _sync_directories([path])

    def lock(self, path: str) -> OsLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LockHeldError(path) from None
        return OsLock(descriptor)

    def unsynced_directories(self, path: str) -> Sequence[str]:
        """Directories to sync so that ``path`` is found after a power cut."""
        directories = []
        while path in self._created:
            path = os.path.dirname(path)
            directories.append(path)
        return directories

    def synced_directories(self, path: str, directories: Sequence[str]) -> None:
        """``directories`` (of ``unsynced_directories(path)``) are durable now."""
        for directory in directories:
            self._created.discard(path)
            path = directory

    def _forget(self, path: str) -> None:
        inside = path + "/"
        self._created = {
            name for name in self._created if name != path and not name.startswith(inside)
        }


class OsLock:
    """An ``flock``: the kernel drops it when the process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _unwritten(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """What is left of ``buffers`` after a (partial) write."""
    left: list[Buffer] = []
    for buffer in buffers:
        if written >= len(buffer):
            written -= len(buffer)
        else:
            left.append(memoryview(buffer)[written:] if written else buffer)
            written = 0
    return left


def _sync(descriptor: int, directories: Sequence[str]) -> None:
    os.fdatasync(descriptor)
    _sync_directories(directories)


def _sync_directories(paths: Sequence[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
