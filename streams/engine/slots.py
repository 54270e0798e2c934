"""A worker's place on its host: what stays the same over restarts. The engine's only use of files.

``{datadir}/slots/{app}-{n}.lock`` is locked by the worker in slot ``n``. The kernel releases the
lock when the process dies, however it dies, so the next worker started takes the same slot, and
with it the same transactional id, group instance id and state directory.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigurationError
from ..state import MemoryStore, RocksDBStore, Store


@dataclass(slots=True)
class WorkerSlot:
    """A locked slot; ``release`` it. ``identity`` is unique over hosts and stable over restarts."""

    number: int
    identity: str
    directory: Path
    _lock: int

    def open_store(self, scheme: str, table: str, partition: int) -> Store:
        """The store of a table partition: ``memory://`` or ``rocksdb://`` in this slot's
        directory."""
        if scheme == "memory://":
            return MemoryStore()
        path = self.directory / "tables" / f"{table}-{partition}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return RocksDBStore(str(path))

    def release(self) -> None:
        """Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def take_slot(datadir: str | Path, app_id: str, *, max_slots: int = 1000) -> WorkerSlot:
    """Lock the lowest free slot. Raises ConfigurationError when the directory cannot be used."""
    slots = Path(datadir) / "slots"
    try:
        slots.mkdir(parents=True, exist_ok=True)
        host = _host_id(Path(datadir) / "host-id")
        for number in range(max_slots):
            lock = os.open(slots / f"{app_id}-{number}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            if _try_lock(lock):
                directory = slots / f"{app_id}-{number}"
                return WorkerSlot(number, f"{app_id}-{host}-{number}", directory, lock)
            os.close(lock)
    except OSError as error:
        raise ConfigurationError(f"the data directory {datadir} cannot be used: {error}") from error
    raise ConfigurationError(f"all {max_slots} worker slots in {slots} are taken")


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _host_id(path: Path) -> str:
    """An id made once per data directory; workers started at the same time agree on it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        known = os.pread(descriptor, 64, 0).decode().strip()
        if not known:
            known = uuid.uuid4().hex[:12]
            os.pwrite(descriptor, known.encode(), 0)
            os.fsync(descriptor)
        return known
    finally:
        os.close(descriptor)
