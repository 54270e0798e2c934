"""Rows in a SQLite database: written in the same SQLite transaction as their position."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from onceward.broker.client import TopicPartition

from .database import DatabaseSink
from .effects import Batch
from .errors import SinkError, SinkUnavailable
from .positions import Position
from .rows import Run, runs
from .table import Mode, SqlTable

_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
    }
)
_OF_THE_ROW: Final = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_RANGE,
    }
)
_SQL_TYPES: Final = {int: "INTEGER", bool: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


class SqliteSink(SqlTable, DatabaseSink):
    """Transactional: every row appears exactly once, whatever crashes.

    ``path`` of the database, shared by the workers of one machine; ``table`` as in SQL. Rows are
    dicts, Records, dataclasses or models with a field per column; an ``upsert`` changes the columns
    it has and leaves the others. Times, decimals and UUIDs are kept as text, lists and dicts as
    JSON. ``create`` makes the table, if it is missing, with the columns of ``value_type``;
    ``add_columns`` adds columns of ``value_type``, and of rows, that the table has not. ``name``
    (default: the table) names the position: renaming it starts anew. ``busy_timeout`` in seconds
    waits for other writers, ``timeout`` bounds any call.

    The database is put into WAL mode and every commit is synced, as otherwise a power failure could
    lose rows that Kafka's offsets say are there. Raises ConfigurationError.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        table: str,
        key: str | Sequence[str] | None = None,
        mode: str | None = None,
        value_type: Any = None,
        create: bool = False,
        add_columns: bool = False,
        name: str | None = None,
        on_error: str | None = None,
        timeout: float = 10.0,
        busy_timeout: float = 5.0,
    ) -> None:
        super().__init__(
            table,
            key=key,
            mode=mode,
            value_type=value_type,
            create=create,
            add_columns=add_columns,
            name=name,
            on_error=on_error,
        )
        self.timeout = timeout
        self.path = str(path)
        self._busy_timeout = busy_timeout
        self._columns: frozenset[str] = frozenset()
        self._statements: dict[tuple[bool, tuple[str, ...]], str] = {}

    def describe(self) -> str:
        return f"sink {self.name!r} (table {self.table} of {self.path})"

    def sql_type(self, kind: Any) -> str:
        return _sql_type(kind)

    # DatabaseSink

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def prepare(self) -> None:
        self.create_positions()
        columns = self._read_columns()
        if not columns:
            if not self._create:
                raise self.no_table()
            self._create_table()
            columns = self._read_columns()
        lacking = self.lacking(columns)
        for column in lacking:
            self._add_column(column, self._declared[column])
        self.check_key([*columns, *lacking])
        if self.mode is Mode.UPSERT and not self._has_unique_key():
            raise self.no_unique_key()

    def check_value(self, column: str, value: Any) -> None:
        self.execute("SELECT ?", (value,))

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def interrupt(self) -> None:
        connection = self.connection
        if connection is not None:
            connection.interrupt()

    def forget_schema(self) -> None:
        self._columns = frozenset()

    def judge(self, error: Exception) -> SinkUnavailable | SinkError | None:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _PASSING:
            return SinkUnavailable(f"{self.describe()}: {error}")
        if code is not None and code & 0xFF not in _OF_THE_ROW:
            return SinkError(f"{self.describe()}: {error}")
        return None

    def apply(self, batch: Batch) -> None:
        columns = self._columns or self._read_columns()
        for run in runs(batch.values):
            if not columns.issuperset(run.columns):
                if not self._take_columns(batch, run, columns):
                    continue
                columns = self._read_columns()
            statement = self._statement(run.is_deletion, run.columns)
            self.connection.executemany(statement, [tuple(row.values()) for row in run.rows])

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        self._check_file()
        return await super().positions(app)

    def _check_file(self) -> None:
        """Connecting would create it."""
        if not Path(self.path).exists():
            raise SinkError(f"{self.describe()}: there is no such file")

    # columns

    def _take_columns(self, batch: Batch, run: Run, columns: frozenset[str]) -> bool:
        """Add the columns a run has and the table has not, or refuse its rows."""
        lacking = [column for column in run.columns if column not in columns]
        if not self._add_columns or run.is_deletion:
            for index in range(run.start, run.start + len(run.rows)):
                batch.refuse(index, f"the table has no column {lacking[0]!r}")
            return False
        for column in lacking:
            values = [row[column] for row in run.rows if row[column] is not None]
            self._add_column(column, _sql_type(type(values[0])) if values else "TEXT")
        return True

    def _read_columns(self) -> frozenset[str]:
        found = self.execute(f"PRAGMA table_info({_quoted(self.table)})").fetchall()
        self._columns = frozenset(row[1] for row in found)
        return self._columns

    def _create_table(self) -> None:
        """Strict: a value of a wrong type is refused and not converted."""
        parts = [f"{_quoted(column)} {kind}" for column, kind in self._declared.items()]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, self.key))})")
        plain = set(self._declared.values()) <= {"INTEGER", "REAL", "TEXT", "BLOB"}
        strict = " STRICT" if plain and sqlite3.sqlite_version_info >= (3, 37) else ""
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {_quoted(self.table)} ({', '.join(parts)}){strict}"
        )

    def _add_column(self, column: str, kind: str) -> None:
        self.execute(f"ALTER TABLE {_quoted(self.table)} ADD COLUMN {_quoted(column)} {kind}")
        self._columns |= {column}

    def _has_unique_key(self) -> bool:
        wanted = set(self.key)
        info = self.execute(f"PRAGMA table_info({_quoted(self.table)})").fetchall()
        if {row[1] for row in info if row[5]} == wanted:
            return True
        for index in self.execute(f"PRAGMA index_list({_quoted(self.table)})").fetchall():
            is_unique, is_partial = index[2], index[4]
            named = self.execute(f"PRAGMA index_info({_quoted(index[1])})").fetchall()
            if is_unique and not is_partial and {row[2] for row in named} == wanted:
                return True
        return False

    # statements

    def _statement(self, is_deletion: bool, columns: tuple[str, ...]) -> str:
        statement = self._statements.get((is_deletion, columns))
        if statement is None:
            statement = self._deletion_of(columns) if is_deletion else self._insertion_of(columns)
            self._statements[is_deletion, columns] = statement
        return statement

    def _deletion_of(self, columns: tuple[str, ...]) -> str:
        where = " AND ".join(f"{_quoted(column)} = ?" for column in columns)
        return f"DELETE FROM {_quoted(self.table)} WHERE {where}"

    def _insertion_of(self, columns: tuple[str, ...]) -> str:
        table = _quoted(self.table)
        if not columns:
            return f"INSERT INTO {table} DEFAULT VALUES"
        names = ", ".join(map(_quoted, columns))
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        if self.mode is Mode.INSERT:
            return statement
        changes = ", ".join(
            f"{_quoted(column)} = excluded.{_quoted(column)}"
            for column in columns
            if column not in self.key
        )
        action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        return f"{statement} ON CONFLICT ({', '.join(map(_quoted, self.key))}) {action}"


def _sql_type(kind: Any) -> str:
    """As ``rows.plain`` stores a value of the type."""
    if isinstance(kind, type):
        for known, name in _SQL_TYPES.items():
            if issubclass(kind, known):
                return name
    return "TEXT"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
