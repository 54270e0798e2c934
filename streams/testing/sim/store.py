"""State stores and worker slots on simulated machines.

``SimStore`` stands for RocksDB: a write ahead log on the simulated disk and the data in memory. As
RocksDB's default has it, a write is not synced: it survives the death of the process, and after a
power cut a whole prefix of the writes is there; now and then it is made durable, as by a flush.
"""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.slots import WorkerSlot
from ...state import MemoryStore, RocksDBStore, Store

if TYPE_CHECKING:
    from ....broker.storage.filesystem import FileSystem
    from .host import Host

_ENTRY = struct.Struct("<II")  # length, CRC-32 of what follows
_WRITE = struct.Struct("<qII")  # checkpoint, 1 when everything is cleared first, changes
_CHANGE = struct.Struct("<Ii")  # length of the key, of the value or -1

_FLUSH_AFTER = 8
"""So many writes after the last one, the log is synced: a memtable that is full."""

Change = tuple[bytes, bytes | None]


class SimStore:
    """``Store`` in the file ``path``; its directory is made. Raises OSError as the disk does."""

    def __init__(self, disk: FileSystem, path: str) -> None:
        disk.makedirs(path.rpartition("/")[0])
        self._file = disk.open(path, create=True)
        self._data: dict[bytes, bytes] = {}
        self._checkpoint = 0
        self._unsynced = 0
        self._recover()

    @property
    def checkpoint(self) -> int:
        return self._checkpoint

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self._data.items()))

    def write(self, changes: Iterable[Change], checkpoint: int) -> None:
        self._log(list(changes), checkpoint, cleared=False)

    def clear(self) -> None:
        self._log([], 0, cleared=True)

    def close(self) -> None:
        self._file.close()

    def _log(self, changes: list[Change], checkpoint: int, *, cleared: bool) -> None:
        parts = [_WRITE.pack(checkpoint, cleared, len(changes))]
        for key, value in changes:
            parts.append(_CHANGE.pack(len(key), -1 if value is None else len(value)))
            parts += [key, value or b""]
        payload = b"".join(parts)
        end = self._file.size()
        try:
            self._file.append([_ENTRY.pack(len(payload), zlib.crc32(payload)), payload])
        except OSError:
            self._file.truncate(end)  # what comes later must not stand behind a torn entry
            raise
        self._apply(changes, checkpoint, cleared=cleared)
        self._unsynced += 1
        if self._unsynced >= _FLUSH_AFTER:
            self._unsynced = 0
            self._file.fsync_now()

    def _apply(self, changes: Iterable[Change], checkpoint: int, *, cleared: bool) -> None:
        if cleared:
            self._data.clear()
        for key, value in changes:
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value
        self._checkpoint = checkpoint

    def _recover(self) -> None:
        log = self._file.pread(0, self._file.size())
        good = 0
        while True:
            payload = _entry(log, good)
            if payload is None:
                break
            checkpoint, cleared, count = _WRITE.unpack_from(payload)
            self._apply(_changes(payload, count), checkpoint, cleared=bool(cleared))
            good += _ENTRY.size + len(payload)
        if good < len(log):
            self._file.truncate(good)


class SimSlot(WorkerSlot):
    """The one slot of a simulated machine. ``rocksdb://`` is a ``SimStore`` on its disk."""

    def __init__(self, host: Host, app_id: str) -> None:
        super().__init__(0, f"{app_id}-{host.name}", Path("/slots") / app_id, -1)
        self._disk = host.disk

    def open_store(self, scheme: str, table: str, partition: int) -> Store:
        if scheme == "memory://":
            return MemoryStore()
        return SimStore(self._disk, f"{self.directory}/tables/{table}-{partition}")


class RocksSlot(WorkerSlot):
    """A slot with real RocksDB below the real directory ``directory``.

    Each process of the host works on a copy of what its predecessor left, because the dead one
    keeps its databases open to the end of the world. So a kill leaves what was written, and a
    power cut too: what it would lose of the real disk is not simulated.
    """

    def __init__(self, host: Host, app_id: str, directory: Path) -> None:
        own = directory / host.name / str(host.incarnation)
        host.real_directories.append(str(own))
        super().__init__(0, f"{app_id}-{host.name}", own, -1)
        before = sorted((directory / host.name).glob("*"), key=lambda path: int(path.name))
        if before:
            shutil.copytree(before[-1], own, ignore=shutil.ignore_patterns("LOCK"))
        else:
            own.mkdir(parents=True)

    def open_store(self, scheme: str, table: str, partition: int) -> Store:
        if scheme == "memory://":
            return MemoryStore()
        path = self.directory / f"{table}-{partition}"
        return RocksDBStore(str(path))


def _entry(log: bytes, at: int) -> bytes | None:
    """The payload of the entry at this position, None when it is torn or the log ends."""
    if len(log) < at + _ENTRY.size:
        return None
    length, crc = _ENTRY.unpack_from(log, at)
    payload = log[at + _ENTRY.size : at + _ENTRY.size + length]
    whole = len(payload) == length >= _WRITE.size  # zeros would pass the CRC
    return payload if whole and zlib.crc32(payload) == crc else None


def _changes(payload: bytes, count: int) -> Iterator[Change]:
    at = _WRITE.size
    for _ in range(count):
        key_size, value_size = _CHANGE.unpack_from(payload, at)
        at += _CHANGE.size
        key = payload[at : at + key_size]
        at += key_size
        size = max(value_size, 0)
        yield key, None if value_size < 0 else payload[at : at + size]
        at += size
