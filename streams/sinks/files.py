"""Rows in files of a local directory: every row in exactly one file, whatever crashes.

What is committed, and whose it is, says a small SQLite database in ``_onceward`` under the
directory: a commit writes its files there under names nobody reads, and notes them in the SQLite
transaction that moves the positions. That transaction decides. Then the files are moved to their
names; what a crash prevents, the next commit or the next owner does.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from onceward.broker.client import TopicPartition

from ..errors import ConfigurationError
from .database import DatabaseSink
from .effects import Batch
from .errors import SinkError, SinkUnavailable
from .files_disk import Disk
from .files_format import CsvFormat, Format, JsonLinesFormat, ParquetFormat
from .positions import Advance, Claim, Position, Start
from .rows import Row, columns_of
from .table import Mode, TableRows

PartitionBy = str | Sequence[str] | Callable[[Row], str]

_HIDDEN: Final = "_onceward"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
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


class FilesSink(TableRows, DatabaseSink):
    """Transactional: every row is in exactly one file. For the workers of one machine.

    ``path`` is a directory. ``format`` ``jsonl``, ``csv`` (``columns``, or those of ``value_type``)
    or ``parquet`` (extra ``parquet``; ``schema``, a ``pyarrow.Schema``, or ``value_type``).
    ``partition_by`` names fields that become directories (``day=2026-01-01/``) and are left out of
    the files, or is a function from a row to a relative directory. ``name`` (default: the
    directory's) names the position: renaming it starts anew. ``timeout`` in seconds bounds a call.

    A commit adds one file per input partition and directory, ``app.sink.topic-partition-offset``
    with the offset of its first record; so files are as large as ``commit_interval``,
    ``batch_rows`` and ``batch_bytes`` make them. They are never changed and may be taken away at
    any time. A file appears whole or not at all, several of one commit one after the other; names
    that begin with ``_`` are not data. Files and positions are safe from power failures.

    The positions are compared and set in SQLite, so a worker that lost a partition cannot add
    files, while one that is stopped within a commit holds up the others until it goes on or ends.
    SQLite's locks must work there: no network file system. Raises ConfigurationError.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: str = "jsonl",
        partition_by: PartitionBy = (),
        columns: Sequence[str] | None = None,
        schema: Any = None,
        value_type: Any = None,
        name: str | None = None,
        on_error: str | None = None,
        timeout: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        self.path = Path(path)
        super().__init__(name or self.path.resolve().name, mode=Mode.INSERT, on_error=on_error)
        self.timeout = timeout
        self._fields: tuple[str, ...] = ()
        self._directory: Callable[[Row], str] = self._by_fields
        if callable(partition_by):
            self._directory = partition_by
        else:
            self._fields = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self._format = self._made_format(format, columns, schema, value_type)
        self.takes = self._format.takes
        self._hidden = self.path / _HIDDEN
        self._database = self._hidden / "positions.db"
        self._disk = Disk() if disk is None else disk
        self._moved: list[tuple[int]] = []

    def _made_format(
        self, format: str, columns: Sequence[str] | None, schema: Any, value_type: Any
    ) -> Format:
        where = f"sink {self.name!r}"
        if columns is not None and format != "csv":
            raise ConfigurationError(f"{where}: columns= is for CSV files")
        if schema is not None and format != "parquet":
            raise ConfigurationError(f"{where}: schema= is for Parquet files")
        if format == "jsonl":
            return JsonLinesFormat()
        if format == "csv":
            if columns is None and value_type is not None:
                declared = columns_of(value_type, str)
                columns = [column for column in declared if column not in self._fields]
            return CsvFormat(columns)
        if format == "parquet":
            if schema is None and value_type is None:
                raise ConfigurationError(
                    f"{where}: Parquet files need schema= or value_type=, or every file would "
                    "have columns of its own"
                )
            return ParquetFormat(value_type if schema is None else schema, self._fields)
        raise ConfigurationError(f"{where}: format must be jsonl, csv or parquet, not {format!r}")

    def describe(self) -> str:
        return f"sink {self.name!r} ({self._format.suffix} files in {self.path})"

    def adapt(self, value: Any) -> Any:
        return self._format.adapt(value)

    # DatabaseSink

    def connect(self) -> sqlite3.Connection:
        self._disk.make_directory(self._hidden)
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
        if not self._disk.exists(self._database):
            raise SinkError(f"{self.describe()}: nothing was written there yet")
        return await super().positions(app)

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        await super().commit(batch, advances)
        await self._run(self._publish)

    def apply(self, batch: Batch) -> None:
        for (tp, directory), indexes in self._files_of(batch).items():
            rows = [batch.values[index] for index in indexes]
            if self._fields:
                left_out = frozenset(self._fields)
                rows = [{k: v for k, v in row.items() if k not in left_out} for row in rows]
            encoded = self._format.encode(rows)
            for at, reason in encoded.bad:
                batch.refuse(indexes[at], reason)
            if len(encoded.bad) == len(rows):
                continue
            offset = batch.written.records[indexes[0]].offset
            self._write(encoded.data, self._name(batch.app, tp, offset, directory))
        batch.refused.sort()
        self._disk.sync([self._hidden])
        moved, self._moved = self._moved, []
        self.connection.executemany("DELETE FROM onceward_files WHERE number = ?", moved)

    # within the thread

    def _files_of(self, batch: Batch) -> dict[tuple[TopicPartition, str], list[int]]:
        """Indexes of effects by input partition and directory, in order."""
        files: dict[tuple[TopicPartition, str], list[int]] = {}
        for index, row in enumerate(batch.values):
            try:
                directory = self._checked(self._directory(row))
            except Exception as error:  # noqa: BLE001 - a user's function: its row is at fault
                batch.refuse(index, f"partition_by: {type(error).__name__}: {error}")
                continue
            place = (batch.written.records[index].block.tp, directory)
            files.setdefault(place, []).append(index)
        return files

    def _by_fields(self, row: Row) -> str:
        return "/".join(
            f"{field}={_NO_VALUE if (value := row.get(field)) is None else quote(str(value), '')}"
            for field in self._fields
        )

    def _checked(self, directory: str) -> str:
        parts = PurePosixPath(directory).parts
        if directory.startswith("/") or any(part == ".." or part == _HIDDEN for part in parts):
            raise ValueError(f"{directory!r} is not a directory below {self.path}")
        return directory

    def _name(self, app: str, tp: TopicPartition, offset: int, directory: str) -> str:
        """A name that is free: there are files at the same offset if a position was set back by
        hand."""
        owner = f"{quote(app, '')}.{quote(self.name, '')}"
        stem = f"{owner}.{tp.topic}-{tp.partition}-{offset:020}"
        name = str(PurePosixPath(directory, f"{stem}.{self._format.suffix}"))
        again = 1
        while self._disk.exists(self.path / name) or self._is_noted(name):
            again += 1
            name = str(PurePosixPath(directory, f"{stem}-{again}.{self._format.suffix}"))
        return name

    def _is_noted(self, name: str) -> bool:
        found = self.execute("SELECT 1 FROM onceward_files WHERE name = ? LIMIT 1", (name,))
        return found.fetchone() is not None

    def _write(self, data: bytes, name: str) -> None:
        number = self.execute("INSERT INTO onceward_files (name) VALUES (?)", (name,)).lastrowid
        self._disk.write(self._unread(number), data)

    def _unread(self, number: int) -> Path:
        return self._hidden / f"{number}.data"

    def _publish(self) -> list[tuple[int]]:
        """Move what is committed to where it is read, other workers' files among it; several may do
        so at once. Returns the numbers."""
        noted = self.execute("SELECT number, name FROM onceward_files ORDER BY number").fetchall()
        known = set(self._moved)
        fresh = [(number, name) for number, name in noted if (number,) not in known]
        for number, name in fresh:
            self._disk.make_directory((self.path / name).parent)
            self._disk.move(self._unread(number), self.path / name)
        self._disk.sync(self._touched(name for _, name in fresh))
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
        for name in self._disk.names(self._hidden):
            if name.endswith(".data"):
                self._disk.remove(self._hidden / name)
