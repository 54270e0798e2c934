"""A disk in memory that forgets what was not synced.

A *kill* of the process keeps everything that was written (the page cache lives on). A *power cut*
keeps what was synced; of the rest, changes of directories survive as a random prefix, and each
write survives whole, torn, as zeros, or not at all, independently of the others. A sync that
*fails* does as Linux: the pages it could not write are clean from then on, the process goes on
reading them, and no later sync writes them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ....broker.storage.filesystem import LockHeldError
from ....broker.types import Buffer
from .errors import HostDied

if TYPE_CHECKING:
    import random

    from .host import Host

MEAN_SYNC_S = 1e-3
SECTOR = 512


@dataclasses.dataclass(slots=True)
class Write:
    position: int
    data: bytes


@dataclasses.dataclass(slots=True)
class Truncate:
    size: int


@dataclasses.dataclass(eq=False, slots=True)
class Inode:
    """A file's content as the process sees it, and what of it a power cut leaves for sure."""

    data: bytearray = dataclasses.field(default_factory=bytearray)
    durable: bytearray = dataclasses.field(default_factory=bytearray)
    unsynced: list[Write | Truncate] = dataclasses.field(default_factory=list)

    def change(self, change: Write | Truncate) -> None:
        _apply(self.data, change)
        self.unsynced.append(change)

    def sync(self, changes: Sequence[Write | Truncate]) -> None:
        """``changes`` are on the disk, those that another sync did not bring there before."""
        for change in self.forget(changes):
            _apply(self.durable, change)

    def forget(self, changes: Sequence[Write | Truncate]) -> list[Write | Truncate]:
        """No sync will write ``changes`` any more; returns those that none had written yet."""
        count = len(changes)
        if not count:
            return []
        unsynced = self.unsynced
        first, last = changes[0], changes[-1]
        # If both are where they were, so is all between them: the usual case.
        if len(unsynced) >= count and unsynced[0] is first and unsynced[count - 1] is last:
            known = list(changes)  # which may be ``unsynced`` itself
            del unsynced[:count]
            return known
        asked = {id(change) for change in changes}
        known = [change for change in self.unsynced if id(change) in asked]
        self.unsynced = [change for change in self.unsynced if id(change) not in asked]
        return known

    def lose_power(self, rng: random.Random) -> None:
        data = bytearray(self.durable)
        for change in self.unsynced:
            survivor = _survivor(change, rng)
            if survivor is not None:
                _apply(data, survivor)
        self.data, self.durable, self.unsynced = data, bytearray(data), []


@dataclasses.dataclass(slots=True, eq=False)
class DirectoryChange:
    """``new`` None: removed. ``old`` None: made. A change of a directory moves what is in it."""

    old: str | None
    new: str | None
    inode: Inode | None = None


Names = dict[str, Inode | None]


class SimDisk:
    """A ``FileSystem``. It works with a host of a ``World`` (syncs then take virtual time and
    every change is a step of the host) and without one, on any event loop.

    ``steps`` counts changes; the one numbered ``kill_at`` raises HostDied.
    """

    def __init__(self, host: Host | None = None) -> None:
        self.names: Names = {"": None, "/": None}
        self.host = host
        self.steps = 0
        self.kill_at: int | None = None
        self.free_bytes: int | None = None
        """What can still be written before ENOSPC; None: no limit."""
        self.failing_syncs = False
        """Every sync fails, and loses nothing: a disk that is gone."""
        self.sync_gate: asyncio.Event | None = None
        """While set and unset as an event, async syncs hang after they began."""
        self.syncs = 0
        self._durable_names: Names = dict(self.names)
        self._pending: list[DirectoryChange] = []
        self._locks: dict[str, SimLock] = {}
        self._failing_fsyncs = 0
        self._slow_s = self._slow_p = 0.0

    # -- faults ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process is gone: its locks are free, its writes are kept."""
        self._locks.clear()
        self.kill_at = None

    def power_cut(self, rng: random.Random) -> None:
        """Keep what was synced, and of the rest what ``rng`` spares."""
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

    def fail_fsyncs(self, count: int) -> None:
        """The next ``count`` syncs of files fail with EIO and lose the dirty pages."""
        self._failing_fsyncs = count

    def slow_fsync(self, mean_s: float, probability: float) -> None:
        """From now on such a part of the syncs takes ``mean_s`` on average; (0, 0) ends it."""
        self._slow_s, self._slow_p = mean_s, probability

    # -- FileSystem -----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        inode = self.names.get(path)
        created = False
        if inode is None:
            if not create or path in self.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._check_parent(path)
            self.step("write", path)
            created = True
            inode = Inode()
            self._change(DirectoryChange(None, path, inode))
        return SimFile(self, path, inode, created)

    def exists(self, path: str) -> bool:
        return path in self.names

    def list(self, path: str) -> Sequence[str]:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        inside = path if path.endswith("/") or not path else f"{path}/"
        size = len(inside)
        found = [name[size:] for name in self.names if name.startswith(inside)]
        return sorted(name for name in found if name and "/" not in name)

    def makedirs(self, path: str) -> None:
        if path in self.names:
            return
        self.makedirs(_parent(path))
        self.step("write", path)
        self._change(DirectoryChange(None, path))

    def rename(self, old: str, new: str) -> None:
        self._check_exists(old)
        self.step("rename", f"{old} {new}")
        self._change(DirectoryChange(old, new))

    def remove(self, path: str) -> None:
        self._check_exists(path)
        self.step("remove", path)
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
        temporary = path + ".tmp"
        self.step("write", temporary)
        inode = Inode()
        inode.change(Write(0, bytes(data)))
        self._change(DirectoryChange(None, temporary, inode))
        self.sync_file(temporary, inode, inode.unsynced, created=False)
        self.rename(temporary, path)
        self.sync_names(path)
        self.fsync_dir(_parent(path))

    def fsync_dir(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.step("fsync_dir", path)
        self._block()
        for change in list(self._pending):
            if _parent(change.new or change.old or "") == path:
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

    # -- used by SimFile ------------------------------------------------------------------------

    def step(self, kind: str, path: str, data: bytes = b"") -> None:
        """A change is about to happen. Raises HostDied: it must not."""
        if self.host is not None:
            self.host.step(kind, path)
            self.host.world.record(kind, self.host.name, path, len(data), zlib.crc32(data))
        self.steps += 1
        if self.kill_at is not None and self.steps >= self.kill_at:
            raise HostDied

    def sync_latency(self) -> float:
        """Virtual seconds the next sync takes; 0 without a host."""
        if self.host is None:
            return 0.0
        rng = self.host.world.rng("disk")
        mean = MEAN_SYNC_S
        if self._slow_p and rng.random() < self._slow_p:
            mean = self._slow_s
        return rng.expovariate(1 / mean) if mean else 0.0

    def sync_file(
        self, path: str, inode: Inode, changes: Sequence[Write | Truncate], *, created: bool
    ) -> None:
        """End a sync that covers ``changes``. Raises OSError and HostDied."""
        self.step("fsync", path)
        if self.failing_syncs:
            raise OSError(errno.EIO, "the disk is broken")
        if self._failing_fsyncs:
            self._failing_fsyncs -= 1
            inode.forget(changes)
            raise OSError(errno.EIO, "Input/output error")
        inode.sync(changes)
        if created:
            self.sync_names(path)

    def block(self) -> None:
        """A blocking sync: the process does nothing else meanwhile."""
        self._block()

    def sync_names(self, path: str) -> None:
        """Make the creation of ``path`` and of the directories it is in durable, and what happened
        to their names before: changes of one name reach the disk in order."""
        parents = {path}
        while path not in ("", "/"):
            path = _parent(path)
            parents.add(path)
        due: list[DirectoryChange] = []
        names: set[str | None] = set()
        for change in reversed(self._pending):
            touched = {change.old, change.new} - {None}
            if (change.old is None and change.new in parents) or names & touched:
                names |= touched
                due.append(change)
        for change in reversed(due):
            self._settle(change)

    def take_space(self, wanted: int) -> int:
        """How many of the bytes fit."""
        if self.free_bytes is None:
            return wanted
        taken = min(wanted, self.free_bytes)
        self.free_bytes -= taken
        return taken

    def _block(self) -> None:
        if self.host is not None and self.host.loop is not None:
            self.host.loop.block(self.sync_latency())

    def _check_space(self, wanted: int) -> None:
        if self.take_space(wanted) < wanted:
            raise OSError(errno.ENOSPC, "no space left")

    def _check_exists(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)

    def _check_parent(self, path: str) -> None:
        self._check_exists(_parent(path))

    def _change(self, change: DirectoryChange) -> None:
        _apply_to_names(self.names, change)
        self._pending.append(change)

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
        self._disk.step("write", self._path, data)
        fits = self._disk.take_space(len(data))
        if fits:
            self._inode.change(Write(position, data[:fits]))
        if fits < len(data):
            raise OSError(errno.ENOSPC, "no space left")
        return position

    def pread(self, position: int, length: int) -> bytes:
        assert not self._closed
        return bytes(memoryview(self._inode.data)[position : position + length])

    def fsync(self) -> Awaitable[None]:
        loop = asyncio.get_running_loop()
        synced: asyncio.Future[None] = loop.create_future()
        if self._closed:
            synced.set_result(None)
            return synced
        self._disk.syncs += 1
        finish = self.begin_sync()
        gate = self._disk.sync_gate
        if gate is not None:
            return _finish_behind(gate, finish)
        loop.call_later(self._disk.sync_latency(), _finish_for, synced, finish)
        return synced

    def fsync_now(self) -> None:
        assert not self._closed
        self._disk.block()
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """A sync in two halves: it covers what is written now, and counts when it is finished."""
        changes = list(self._inode.unsynced)

        def finish() -> None:
            self._disk.sync_file(self._path, self._inode, changes, created=self._created)
            self._created = False

        return finish

    def truncate(self, size: int) -> None:
        assert not self._closed
        self._disk.step("truncate", self._path)
        self._inode.change(Truncate(size))

    def close(self) -> None:
        self._closed = True


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self.path = path

    def release(self) -> None:
        self._disk.unlock(self)


def _finish_for(synced: asyncio.Future[None], finish: Callable[[], None]) -> None:
    """The sync is over, unless nobody waits for it any more."""
    if synced.cancelled():
        return
    try:
        finish()
    except (OSError, HostDied) as error:
        synced.set_exception(error)
    else:
        synced.set_result(None)


async def _finish_behind(gate: asyncio.Event, finish: Callable[[], None]) -> None:
    await gate.wait()
    finish()


def _parent(path: str) -> str:
    """``posixpath.dirname`` for paths without doubled slashes."""
    head, slash, _ = path.rpartition("/")
    return head or slash


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
        sectors = len(change.data) // SECTOR
        return Write(change.position, change.data[: SECTOR * rng.randint(0, sectors)])
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
