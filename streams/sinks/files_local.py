"""Files in a local directory, and their positions in a SQLite database beside them.

What is committed, and whose it is, says a small SQLite database in ``_onceward`` under the
directory: a commit writes its files there under names nobody reads, and notes them in the SQLite
transaction that moves the positions. That transaction decides. Then the files are moved to their
names; what a crash prevents, the next commit or the next owner does.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from onceward.broker.client import TopicPartition

from .database import DatabaseSink
from .effects import Batch
from .errors import SinkError, SinkUnavailable
from .files_disk import Disk
from .files_rows import HIDDEN, NewFile
from .positions import Advance, Claim, Position, Start

_DECLARED_WRONG: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    }
)


class LocalFiles(DatabaseSink):
    """``rows_of``: adds the files of a batch to its ``connection``, which is this one. The rest is
    as ``FilesSink`` has it."""

    def __init__(
        self,
        name: str,
        description: str,
        path: Path,
        rows_of: Callable[[Batch], object],
        *,
        timeout: float,
        disk: Disk,
    ) -> None:
        super().__init__(name, timeout=timeout)
        self.path = path
        self.disk = disk
        self._description = description
        self._rows_of = rows_of
        self._hidden = path / HIDDEN
        self._database = self._hidden / "positions.db"
        self._moved: list[tuple[int]] = []

    def describe(self) -> str:
        return self._description

    # DatabaseSink

    def connect(self) -> sqlite3.Connection:
        self.disk.make_directory(self._hidden)
        connection = sqlite3.connect(
            self._database, timeout=5.0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def prepare(self) -> None:
        """``number`` is never used again: another worker may still be moving that file."""
        self.create_positions()
        self.execute(
            "CREATE TABLE IF NOT EXISTS onceward_files "
            "(number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL)"
        )

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def interrupt(self) -> None:
        connection = self.connection
        if connection is not None:
            connection.interrupt()

    def judge(self, error: Exception) -> SinkUnavailable | SinkError | None:
        if isinstance(error, OSError):
            kind = SinkError if error.errno in _DECLARED_WRONG else SinkUnavailable
            return kind(f"{self.describe()}: {error}")
        verdict = super().judge(error)
        if verdict is None and isinstance(error, sqlite3.Error):
            return SinkError(f"{self.describe()}: {self._database}: {error}")
        return verdict

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        claims = await super().take_over(app, starts)
        # From here on no former owner can commit: what it has committed is all there is.
        await self._run(lambda: self._in_transaction(self._clear))
        return claims

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        if not self.disk.exists(self._database):
            raise SinkError(f"{self.describe()}: nothing was written there yet")
        return await super().positions(app)

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        await super().commit(batch, advances)
        await self._run(self._publish)

    def apply(self, batch: Batch) -> None:
        batch.connection = self
        self._rows_of(batch)
        self.disk.sync([self._hidden])
        moved, self._moved = self._moved, []
        self.connection.executemany("DELETE FROM onceward_files WHERE number = ?", moved)

    # within the thread

    def add(self, app: str, file: NewFile) -> None:
        """To the open transaction, under a name that is free."""
        name = next(name for name in file.names(app, self.name) if self._is_free(name))
        number = self.execute("INSERT INTO onceward_files (name) VALUES (?)", (name,)).lastrowid
        self.disk.write(self._unread(number), file.data)

    def _is_free(self, name: str) -> bool:
        if self.disk.exists(self.path / name):
            return False
        noted = self.execute("SELECT 1 FROM onceward_files WHERE name = ? LIMIT 1", (name,))
        return noted.fetchone() is None

    def _unread(self, number: int) -> Path:
        return self._hidden / f"{number}.data"

    def _publish(self) -> list[tuple[int]]:
        """Move what is committed to where it is read, other workers' files among it; several may do
        so at once. Returns the numbers."""
        noted = self.execute("SELECT number, name FROM onceward_files ORDER BY number").fetchall()
        known = set(self._moved)
        fresh = [(number, name) for number, name in noted if (number,) not in known]
        for number, name in fresh:
            self.disk.make_directory((self.path / name).parent)
            self.disk.move(self._unread(number), self.path / name)
        self.disk.sync(self._touched(name for _, name in fresh))
        self._moved = [(number,) for number, _ in noted]
        return self._moved

    def _touched(self, names: Iterable[str]) -> list[Path]:
        directories = [(self.path / name).parent for name in names]
        return [*directories, self._hidden] if directories else []

    def _clear(self) -> None:
        """Finish what is committed and remove the rest. Nobody writes now: this is within the
        transaction, which one worker at a time has."""
        moved, self._moved = self._publish(), []
        self.connection.executemany("DELETE FROM onceward_files WHERE number = ?", moved)
        for name in self.disk.names(self._hidden):
            if name.endswith(".data"):
                self.disk.remove(self._hidden / name)
