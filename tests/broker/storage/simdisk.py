"""A disk in memory that forgets what was not synced, for crash tests.

A *kill* of the process keeps everything that was written (the page cache lives on). A *power cut*
keeps what was synced; of the rest, changes of directories survive as a random prefix, and each
write survives whole, torn, as zeros, or not at all, independently of the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import posixpath
import random
from collections.abc import Callable, Sequence

from onceward.broker.storage.filesystem import LockHeldError
from onceward.broker.types import Buffer


class Killed(BaseException):
    """The process dies at this step. Not an Exception: nothing may catch it."""


@dataclasses.dataclass
class Write:
    position: int
    data: bytes


@dataclasses.dataclass
class Truncate:
    size: int


@dataclasses.dataclass(eq=False)
class Inode:
    """A file's content as the process sees it, and what of it a power cut leaves for sure."""

    data: bytearray = dataclasses.field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[Write | Truncate] = dataclasses.field(default_factory=list)

    def change(self, change: Write | Truncate) -> None:
        _apply(self.data, change)
        self.unsynced.append(change)

    def sync(self, content: bytes, changes: int) -> None:
        self.durable = content
        del self.unsynced[:changes]

    def lose_power(self, rng: random.Random) -> None:
        data = bytearray(self.durable)
        for change in self.unsynced:
            survivor = _survivor(change, rng)
            if survivor is not None:
                _apply(data, survivor)
        self.data, self.durable, self.unsynced = data, bytes(data), []


@dataclasses.dataclass
class DirectoryChange:
    """``new`` None: removed. ``old`` None: made. A change of a directory moves what is in it."""

    old: str | None
    new: str | None
    inode: Inode | None = None


Names = dict[str, Inode | None]


class SimDisk:
    """A ``FileSystem``. ``steps`` counts changes; the one numbered ``kill_at`` raises Killed."""

    def __init__(self) -> None:
        self.names: Names = {"": None, "/": None}
        self._durable_names: Names = dict(self.names)
        self._pending: list[DirectoryChange] = []
        self._locks: dict[str, SimLock] = {}
        self.steps = 0
        self.kill_at: int | None = None
        self.free_bytes: int | None = None
        self.failing_syncs = False
        self.sync_gate: asyncio.Event | None = None
        """While set and unset as an event, async syncs hang after they began."""
        self.syncs = 0

    # crashes

    def kill(self) -> None:
        """The process is gone: its locks are free, its writes are kept."""
        self._locks.clear()
        self.kill_at = None

    def power_cut(self, rng: random.Random) -> None:
        self.kill()
        names = dict(self._durable_names)
        for change in self._pending[: rng.randint(0, len(self._pending))]:
            _apply_to_names(names, change)
        self.names = names
        self._durable_names = dict(names)
        self._pending = []
        for inode in names.values():
            if inode is not None:
                inode.lose_power(rng)

    def step(self) -> None:
        self.steps += 1
        if self.kill_at is not None and self.steps >= self.kill_at:
            raise Killed

    # FileSystem

    def open(self, path: str, *, create: bool = False) -> SimFile:
        inode = self.names.get(path)
        created = False
        if inode is None:
            if not create or path in self.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._check_parent(path)
            self.step()
            created = True
            inode = Inode()
            self._change(DirectoryChange(None, path, inode))
        return SimFile(self, path, inode, created)

    def exists(self, path: str) -> bool:
        return path in self.names

    def list(self, path: str) -> Sequence[str]:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return sorted(
            posixpath.basename(name)
            for name in self.names
            if name not in ("", "/") and posixpath.dirname(name) == path
        )

    def makedirs(self, path: str) -> None:
        if path in self.names:
            return
        self.makedirs(posixpath.dirname(path))
        self.step()
        self._change(DirectoryChange(None, path))

    def rename(self, old: str, new: str) -> None:
        self._check_exists(old)
        self.step()
        self._change(DirectoryChange(old, new))

    def remove(self, path: str) -> None:
        self._check_exists(path)
        self.step()
        self._change(DirectoryChange(path, None))

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def read(self, path: str) -> bytes:
        inode = self.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(inode.data)

    def write_atomic(self, path: str, data: Buffer) -> None:
        self._check_parent(path)
        self._check_space(len(data))
        self.step()
        inode = Inode(bytearray(data), bytes(data))
        temporary = path + ".tmp"
        self._change(DirectoryChange(None, temporary, inode))
        self.step()
        self._change(DirectoryChange(temporary, path))
        self.step()
        self._sync_names(path)
        self.fsync_dir(posixpath.dirname(path))

    def fsync_dir(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.step()
        for change in list(self._pending):
            if posixpath.dirname(change.new or change.old or "") == path:
                self._settle(change)

    def lock(self, path: str) -> SimLock:
        if path in self._locks:
            raise LockHeldError(path)
        self.open(path, create=True)
        self._locks[path] = SimLock(self, path)
        return self._locks[path]

    def unlock(self, lock: SimLock) -> None:
        if self._locks.get(lock.path) is lock:
            del self._locks[lock.path]

    # used by SimFile

    def sync_names(self, path: str) -> None:
        """Make the creation of ``path`` and of the directories it is in durable."""
        self._sync_names(path)

    def take_space(self, wanted: int) -> int:
        """How many of the bytes fit."""
        if self.free_bytes is None:
            return wanted
        taken = min(wanted, self.free_bytes)
        self.free_bytes -= taken
        return taken

    def _check_space(self, wanted: int) -> None:
        if self.take_space(wanted) < wanted:
            raise OSError(errno.ENOSPC, "no space left")

    def _check_exists(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)

    def _check_parent(self, path: str) -> None:
        self._check_exists(posixpath.dirname(path))

    def _change(self, change: DirectoryChange) -> None:
        _apply_to_names(self.names, change)
        self._pending.append(change)

    def _sync_names(self, path: str) -> None:
        parents = {path}
        while path not in ("", "/"):
            path = posixpath.dirname(path)
            parents.add(path)
        for change in list(self._pending):
            if change.old is None and change.new in parents:
                self._settle(change)

    def _settle(self, change: DirectoryChange) -> None:
        _apply_to_names(self._durable_names, change)
        self._pending.remove(change)


class SimFile:
    def __init__(self, disk: SimDisk, path: str, inode: Inode, created: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._created = created
        self._closed = False

    def size(self) -> int:
        return len(self._inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        assert not self._closed
        data = b"".join(buffers)
        position = len(self._inode.data)
        self._disk.step()
        fits = self._disk.take_space(len(data))
        if fits:
            self._inode.change(Write(position, data[:fits]))
        if fits < len(data):
            raise OSError(errno.ENOSPC, "no space left")
        return position

    def pread(self, position: int, length: int) -> bytes:
        assert not self._closed
        return bytes(self._inode.data[position : position + length])

    async def fsync(self) -> None:
        if self._closed:
            return
        self._disk.syncs += 1
        finish = self.begin_sync()
        gate = self._disk.sync_gate
        if gate is not None:
            await gate.wait()
        else:
            await asyncio.sleep(0)
        finish()

    def fsync_now(self) -> None:
        assert not self._closed
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """A sync in two halves: it covers what is written now, and counts when it is finished."""
        content, changes = bytes(self._inode.data), len(self._inode.unsynced)

        def finish() -> None:
            self._disk.step()
            if self._disk.failing_syncs:
                raise OSError(errno.EIO, "the disk is broken")
            self._inode.sync(content, changes)
            if self._created:
                self._disk.sync_names(self._path)

        return finish

    def truncate(self, size: int) -> None:
        assert not self._closed
        self._disk.step()
        self._inode.change(Truncate(size))

    def close(self) -> None:
        self._closed = True


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self.path = path

    def release(self) -> None:
        self._disk.unlock(self)


def _apply(data: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        del data[change.size :]
        data.extend(bytes(change.size - len(data)))
    else:
        data.extend(bytes(max(0, change.position - len(data))))
        data[change.position : change.position + len(change.data)] = change.data


def _survivor(change: Write | Truncate, rng: random.Random) -> Write | Truncate | None:
    if isinstance(change, Truncate):
        return change if rng.random() < 0.5 else None
    outcome = rng.choice(("whole", "torn", "sector", "zeros", "lost"))
    if outcome == "torn":
        return Write(change.position, change.data[: rng.randint(0, len(change.data))])
    if outcome == "sector":
        sectors = len(change.data) // 512
        return Write(change.position, change.data[: 512 * rng.randint(0, sectors)])
    if outcome == "zeros":
        return Write(change.position, bytes(len(change.data)))
    return change if outcome == "whole" else None


def _apply_to_names(names: Names, change: DirectoryChange) -> None:
    if change.old is None:
        assert change.new is not None
        names[change.new] = change.inode
        return
    inside = change.old + "/"
    for name in [name for name in names if name == change.old or name.startswith(inside)]:
        inode = names.pop(name)
        if change.new is not None:
            names[change.new + name[len(change.old) :]] = inode
