"""Rows in a DuckDB database: written in the same transaction as their position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from .changes import Change, columns_in, insertions, upserts
from .database import DatabaseSink
from .effects import Batch
from .errors import SinkError, SinkUnavailable
from .names import listed, quoted, table_parts
from .postgres_types import TAKES, JsonText, adapt, sql_type, sql_type_of
from .rows import Deletion, Row
from .table import Mode, SqlTable

try:
    import duckdb
except ImportError as error:
    raise ImportError(
        f"DuckDbSink needs duckdb ({error}): pip install 'onceward[duckdb]'"
    ) from error

_EXACT: Final[Mapping[str, type]] = {
    "BIGINT": int, "INTEGER": int, "SMALLINT": int, "HUGEINT": int, "VARCHAR": str,
}  # fmt: skip
_OF_THE_ROW: Final = (duckdb.DataError, duckdb.IntegrityError, duckdb.InvalidInputException)


class DuckDbSink(SqlTable, DatabaseSink):
    """Transactional: every row appears exactly once, whatever crashes.

    DuckDB lets *one process* open a file for writing: run one worker, with as many coroutines as
    you like. A second worker waits, with the partitions it has got, until the first one ends; so
    does a query from another process. Good for files that are analysed afterwards, or ``ATTACH``ed
    in an agent's own process.

    Rows, ``key``, ``mode``, ``create``, ``add_columns`` and ``name`` are as with other tables:
    dicts, Records, dataclasses or models with a field per column; an ``upsert`` changes the columns
    a row has and leaves the others, and needs a primary key or unique constraint over exactly
    ``key``; ``None`` deletes the row with the record's key. Lists go into list columns or JSON,
    dicts and models into JSON. A refused row costs more than elsewhere, as DuckDB has no
    savepoints: the batch is tried in parts. Raises ConfigurationError, ImportError without duckdb.
    """

    takes = TAKES
    has_savepoints = False

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
        timeout: float = 30.0,
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
        self._parts = table_parts(table, self.name)
        self._quoted = ".".join(map(quoted, self._parts))

    def describe(self) -> str:
        return f"sink {self.name!r} (table {self.table} of {self.path})"

    def adapt(self, value: Any) -> Any:
        return adapt(value)

    def sql_type(self, kind: Any) -> str:
        return _duckdb_type(kind)

    # DatabaseSink

    def connect(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(self.path)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return self.connection.execute(statement, list(parameters))

    def begin(self) -> None:
        self.execute("BEGIN TRANSACTION")

    def interrupt(self) -> None:
        connection = self.connection
        if connection is not None:
            connection.interrupt()

    def judge(self, error: Exception) -> SinkUnavailable | SinkError | None:
        text = f"{self.describe()}: {self.reason(error)}"
        if isinstance(error, duckdb.IOException) and "lock on file" in str(error):
            return SinkUnavailable(f"{text}. One process at a time can write to a DuckDB file")
        if isinstance(error, duckdb.IOException) and "not a valid DuckDB" in str(error):
            return SinkError(text)
        if isinstance(error, _OF_THE_ROW) or not isinstance(error, duckdb.Error):
            return None
        if isinstance(error, duckdb.ProgrammingError | duckdb.NotSupportedError):
            return SinkError(text)
        return SinkUnavailable(text)

    def reason(self, error: Exception) -> str:
        text = str(error).partition("\nLINE 1: ")[0]  # what comes is the statement
        return f"{type(error).__name__}: {' '.join(text.split())}"[:1000]

    def check_value(self, column: str, value: Any) -> None:
        kind = self._columns_there()[column]
        self.execute(f"SELECT ?::{kind}", [_fitted(value, kind)])

    def prepare(self) -> None:
        self._in_transaction(self._check_tables)

    def apply(self, batch: Batch) -> None:
        columns = self._columns_there()
        values = batch.values
        lacking = {c for shape in columns_in(values) for c in shape if c not in columns}
        if lacking and not self._add_columns:
            values = self.refuse_lacking(batch, lacking)
        elif lacking:
            for column in sorted(lacking):
                kind = self._declared.get(column)
                if kind is None:
                    kind = _in_duckdb(sql_type_of([row.get(column) for row in _rows(values)]))
                self._add_column(column, kind)
            columns = self._columns_there()
        for change in self._changes(values, columns):
            self._run_change(change, columns)

    # rows

    def _changes(
        self, values: Sequence[Row | Deletion], columns: Mapping[str, str]
    ) -> Iterable[Change]:
        if self.mode is Mode.INSERT:
            return insertions(values)
        for column in self.key:
            types = {type(row[column]) for row in _rows(values)}
            if not types <= {_EXACT.get(columns[column])}:
                return _one_by_one(values)
        return upserts(values, self.key)

    def _run_change(self, change: Change, columns: Mapping[str, str]) -> None:
        names = listed(change.columns)
        if not change.columns:
            for _ in change.rows:
                self.execute(f"INSERT INTO {self._quoted} DEFAULT VALUES")
            return
        kinds = [columns[column] for column in change.columns]
        fields = zip(*[row.values() for row in change.rows], strict=True)
        lists = [
            [_fitted(value, kind) for value in values]
            for values, kind in zip(fields, kinds, strict=True)
        ]
        given = ", ".join(
            f"unnest(?::{kind}[]) AS {quoted(column)}"
            for column, kind in zip(change.columns, kinds, strict=True)
        )
        if change.is_deletion:
            where = " AND ".join(
                f"{self._quoted}.{quoted(c)} = gone.{quoted(c)}" for c in change.columns
            )
            statement = f"DELETE FROM {self._quoted} USING (SELECT {given}) AS gone WHERE {where}"
        else:
            statement = f"INSERT INTO {self._quoted} ({names}) SELECT {given}"
            if self.mode is Mode.UPSERT:
                statement += self._on_conflict(change.columns)
        self.execute(statement, lists)

    def _on_conflict(self, columns: Sequence[str]) -> str:
        changes = ", ".join(
            f"{quoted(column)} = excluded.{quoted(column)}"
            for column in columns
            if column not in self.key
        )
        action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        return f" ON CONFLICT ({listed(self.key)}) {action}"

    # columns

    def _check_tables(self) -> None:
        self.create_positions()
        columns = self._columns_there()
        if not columns:
            if not self._create:
                raise self.no_table()
            parts = [f"{quoted(column)} {kind}" for column, kind in self._declared.items()]
            if self.key:
                parts.append(f"PRIMARY KEY ({listed(self.key)})")
            self.execute(f"CREATE TABLE {self._quoted} ({', '.join(parts)})")
            columns = self._columns_there()
        lacking = self.lacking(columns)
        for column in lacking:
            self._add_column(column, self._declared[column])
        self.check_key([*columns, *lacking])
        if self.mode is Mode.UPSERT:
            keys = listed(self.key)
            try:
                self.execute(
                    f"EXPLAIN INSERT INTO {self._quoted} ({keys}) SELECT {keys} "
                    f"FROM {self._quoted} ON CONFLICT ({keys}) DO NOTHING"
                )
            except duckdb.BinderException as error:
                raise self.no_unique_key(f" ({self.reason(error)})") from error

    def _columns_there(self) -> dict[str, str]:
        """Types by name."""
        schema = self._parts[0] if len(self._parts) == 2 else None
        found = self.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
            "AND schema_name = coalesce(?, current_schema()) "
            "AND database_name = current_database() ORDER BY column_index",
            (self._parts[-1], schema),
        ).fetchall()
        return dict(found)

    def _add_column(self, column: str, kind: str) -> None:
        self.execute(f"ALTER TABLE {self._quoted} ADD COLUMN {quoted(column)} {kind}")


def _rows(values: Iterable[Row | Deletion]) -> list[Row]:
    return [value.key if isinstance(value, Deletion) else value for value in values]


def _one_by_one(values: Iterable[Row | Deletion]) -> Iterator[Change]:
    """For keys that may be one to the database though they differ in Python."""
    for value in values:
        row = value.key if isinstance(value, Deletion) else value
        yield Change(isinstance(value, Deletion), tuple(row), [row])


def _fitted(value: Any, kind: str) -> Any:
    if type(value) is JsonText:
        return str.__str__(value)
    if type(value) is list and not kind.endswith("]"):
        return msgspec.json.encode(value).decode()
    return value


def _in_duckdb(kind: str) -> str:
    """A type of PostgreSQL as DuckDB calls it."""
    return kind.replace("JSONB", "JSON").replace("NUMERIC", "DECIMAL(38, 9)")


def _duckdb_type(kind: Any) -> str:
    return _in_duckdb(sql_type(kind))
