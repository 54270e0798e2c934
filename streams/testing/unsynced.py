"""The disk of a local cluster: real files that are never synced, since nothing of them is needed
after a power cut. That makes a test several times faster."""

from __future__ import annotations

import asyncio

from onceward.broker.storage.filesystem import File, FileSystem, Lock, OsFileSystem

Buffer = bytes | bytearray | memoryview


class UnsyncedFile:
    """``File``: everything but syncing is the file's."""

    def __init__(self, file: File) -> None:
        self.size = file.size
        self.append = file.append
        self.pread = file.pread
        self.truncate = file.truncate
        self.close = file.close

    async def fsync(self) -> None:
        await asyncio.sleep(0)  # later than the call, as a real one

    def fsync_now(self) -> None: ...


class UnsyncedFileSystem:
    """``FileSystem`` over the operating system's."""

    def __init__(self) -> None:
        inner: FileSystem = OsFileSystem()
        self._inner = inner
        self.exists = inner.exists
        self.list = inner.list
        self.makedirs = inner.makedirs
        self.rename = inner.rename
        self.remove = inner.remove
        self.remove_tree = inner.remove_tree
        self.read = inner.read

    def open(self, path: str, *, create: bool = False) -> UnsyncedFile:
        return UnsyncedFile(self._inner.open(path, create=create))

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        file = self._inner.open(temporary, create=True)
        file.truncate(0)
        file.append([data])
        file.close()
        self._inner.rename(temporary, path)

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        return self._inner.lock(path)
