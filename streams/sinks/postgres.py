"""Rows in a PostgreSQL database: written in the same transaction as their position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onceward.broker.client import TopicPartition

from .changes import Change, columns_in, insertions, upserts, upserts_in_order
from .database import DatabaseSink
from .effects import Batch
from .errors import SinkError, SinkTimeout, SinkUnavailable
from .names import listed, quoted, table_parts
from .positions import Advance, Claim, PositionTable, Start
from .postgres_copy import Misfit, blocks
from .postgres_session import (
    Address,
    ClientCursor,
    InsufficientPrivilege,
    Session,
    is_of_the_row,
    is_passing,
    reason,
)
from .postgres_types import (
    COLUMNS,
    TAKES,
    Column,
    adapt,
    sql_type,
    sql_type_of,
    tells_apart,
    transfer,
)
from .rows import Deletion, Row
from .table import Mode, SqlTable

_STAGE: Final = "pg_temp.onceward_stage"
_UNIQUE: Final = """
    SELECT array_agg(a.attname::text) FROM pg_index i, unnest(i.indkey[0:i.indnkeyatts-1]) n
    LEFT JOIN pg_attribute a ON a.attnum = n
    WHERE i.indrelid = to_regclass(%s) AND a.attrelid = i.indrelid AND i.indisunique
      AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid
    GROUP BY i.indexrelid"""
_END_HOLDER: Final = """
    SELECT pg_terminate_backend(l.pid) FROM onceward_positions p
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = p.xmax
    WHERE p.app = %s AND p.sink = %s AND p.topic = %s AND p."partition" = %s
      AND l.pid <> pg_backend_pid()"""


class _Locked(SinkUnavailable):
    """Something was locked for longer than the lock timeout."""


_PASSING: Final[Mapping[str, type[SinkUnavailable]]] = {"55P03": _Locked, "57014": SinkTimeout}


class PostgresSink(SqlTable, DatabaseSink):
    """Transactional: every row appears exactly once, whatever crashes, with or without a key.

    ``dsn`` as libpq takes it (``postgresql://user:password@host:5432/database``). ``table`` is
    written as it is in the catalogue: ``totals``, ``etl.totals``, ``Totals`` (not ``totals``); a
    name with a dot in double quotes. Rows are dicts, Records, dataclasses or models with a field
    per column; an ``upsert`` changes the columns a row has and leaves the others, and needs a
    primary key or unique index over exactly ``key``. ``None`` deletes the row with the record's
    key. Lists go into arrays or JSON, dicts and models into JSON; a string is for a column of
    another type what a quoted literal is, so for JSON the document's text. A time without zone is
    UTC.

    ``create`` makes the table, if it is missing, with the columns of ``value_type``;
    ``add_columns`` adds columns of ``value_type``, and of rows, when they are missing and only
    then. ``name`` (default: the table) names the position: renaming it starts anew.

    No call takes longer than ``timeout`` seconds, none waits longer than ``lock_timeout`` for a
    lock. A worker that takes a partition over ends the session of the former owner when that is
    stuck in a transaction. Needs a session of its own: a pooler must not work by transaction.
    Raises ConfigurationError, and ImportError without psycopg 3.
    """

    batch_rows = 40_000
    placeholder = "%s"
    takes = TAKES

    def __init__(
        self,
        dsn: str,
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
        lock_timeout: float = 2.0,
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
        self._lock_timeout = lock_timeout
        self._address = Address(dsn, self.name)
        self._parts = table_parts(table, self.name)
        self._quoted = ".".join(map(quoted, self._parts))
        self._columns: dict[str, Column] = {}
        self._copies = True
        self._encodes = True
        self._stage: dict[str, Column] | None = None
        self._stage_is_used = False

    def describe(self) -> str:
        return f"sink {self.name!r} (table {self.table} of {self._address})"

    def adapt(self, value: Any) -> Any:
        return adapt(value)

    def sql_type(self, kind: Any) -> str:
        return sql_type(kind)

    # DatabaseSink

    def connect(self) -> Session:
        return self._address.connect(self.timeout, self._lock_timeout)

    def prepare(self) -> None:
        self._in_transaction(self._check_tables)

    def begin(self) -> None:
        self._columns = {}
        self._stage_is_used = False
        self._encodes = True
        self._run_statement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def advance(
        self, positions: PositionTable, advances: Sequence[Advance]
    ) -> TopicPartition | None:
        return positions.advance(self.execute, advances, self._execute_many)

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """In one round trip."""
        cursor = self.connection.cursor()
        cursor.executemany(statement, rows)
        changed: int = cursor.rowcount
        return changed

    def interrupt(self) -> None:
        connection = self.connection
        if connection is not None:
            connection.cut()

    def forget_schema(self) -> None:
        self._columns = {}
        self._stage = None

    def judge(self, error: Exception) -> SinkUnavailable | SinkError | None:
        message = f"{self.describe()}: {self.reason(error)}"
        if is_passing(error):
            state = getattr(error, "sqlstate", None) or ""
            return _PASSING.get(state, SinkUnavailable)(message)
        return None if is_of_the_row(error) else SinkError(message)

    def reason(self, error: Exception) -> str:
        return self._address.scrub(reason(error))

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        try:
            return await super().take_over(app, starts)
        except _Locked:
            await self._run(lambda: self._end_holders(app, starts))
            return await super().take_over(app, starts)

    def apply(self, batch: Batch) -> None:
        known = len(batch.refused)
        try:
            self._write(batch)
        except Misfit:
            # that ended a COPY halfway: back to where the batch began, and everything by psycopg
            self._run_statement("ROLLBACK TO SAVEPOINT onceward")
            self.forget_schema()
            del batch.refused[known:]
            self._encodes = False
            self._write(batch)

    def _write(self, batch: Batch) -> None:
        columns = self._columns or self._current_columns()
        values = batch.values
        lacking = {
            column for shape in columns_in(values) for column in shape if column not in columns
        }
        if lacking:
            values = self._with_columns(batch, lacking)
        for change in self._changes(values):
            if change.is_deletion:
                self._delete(change)
            elif not change.columns:
                for _ in change.rows:
                    self._run_statement(f"INSERT INTO {self._quoted} DEFAULT VALUES")
            elif self.mode is Mode.INSERT and self._copies:
                self._copy(self._quoted, change)
            else:
                self._insert_from_stage(change)

    # rows

    def _changes(self, values: Sequence[Row | Deletion]) -> Iterator[Change]:
        if self.mode is Mode.INSERT:
            return insertions(values)
        keys = [value.key if isinstance(value, Deletion) else value for value in values]
        for column in self.key:
            types = {type(row[column]) for row in keys}
            if not tells_apart(self._columns[column], types):
                return upserts_in_order(values, self.key)
        return upserts(values, self.key)

    def _copy(self, target: str, change: Change) -> None:
        """Into the table itself, or the stage."""
        columns = [self._columns[column] for column in change.columns]
        statement = f"COPY {target} ({listed(change.columns)}) FROM STDIN"
        encodes = self._encodes and self.connection.info.encoding == "utf-8"
        if encodes and (made := blocks(columns, change.rows)) is not None:
            with self.connection.cursor().copy(f"{statement} (FORMAT BINARY)".encode()) as copy:
                for block in made:
                    copy.write(block)
            return
        types, rows = transfer(columns, change.rows)
        form = "" if types is None else " (FORMAT BINARY)"
        with self.connection.cursor().copy(f"{statement}{form}".encode()) as copy:
            if types is not None:
                copy.set_types(types)
            write = copy.write_row
            for row in rows:
                write(row)

    def _fill_stage(self, change: Change) -> None:
        """The temporary table holds the change's rows, and no others, until the commit."""
        if self._stage is None:
            self._stage, self._stage_is_used = self._look_up(_STAGE), True
        if self._stage != self._columns:
            self._run_statement(f"DROP TABLE IF EXISTS {_STAGE}")
            self._run_statement(
                f"CREATE TEMPORARY TABLE onceward_stage ON COMMIT DELETE ROWS AS "
                f"SELECT {listed(self._columns)} FROM {self._quoted} WITH NO DATA"
            )
            self._stage = self._columns
        elif self._stage_is_used:
            self._run_statement(f"DELETE FROM {_STAGE}")
        self._stage_is_used = True
        self._copy(_STAGE, change)

    def _insert_from_stage(self, change: Change) -> None:
        self._fill_stage(change)
        names = listed(change.columns)
        statement = f"INSERT INTO {self._quoted} ({names}) SELECT {names} FROM {_STAGE}"
        if self.mode is Mode.UPSERT:
            keys = listed(self.key)
            changes = ", ".join(
                f"{quoted(column)} = excluded.{quoted(column)}"
                for column in change.columns
                if column not in self.key
            )
            action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
            # in order, as two workers that lock the same rows could wait for each other
            statement += f" ORDER BY {keys} ON CONFLICT ({keys}) {action}"
        self._run_statement(statement)

    def _delete(self, change: Change) -> None:
        self._fill_stage(change)
        where = " AND ".join(
            f"old.{quoted(column)} = gone.{quoted(column)}" for column in change.columns
        )
        self._run_statement(
            f"DELETE FROM {self._quoted} AS old USING {_STAGE} AS gone WHERE {where}"
        )

    def _run_statement(self, statement: str) -> None:
        self.connection.execute(statement.encode())

    # columns

    def _check_tables(self) -> None:
        """Create what is missing, one worker at a time, or say what is."""
        found = self.execute(
            "SELECT to_regclass('onceward_positions'), to_regclass('onceward_refused')"
        ).fetchone()
        columns = self._look_up(self._quoted)
        changes = self._create if not columns else self._add_columns and self.lacking(columns)
        if None in found or changes:
            self.execute("SELECT pg_advisory_xact_lock(hashtext('onceward tables'))")
        if None in found:
            self.create_positions()
        if not columns:
            self._create_table()
            columns = self._look_up(self._quoted)
        lacking = self.lacking(columns)
        for column in lacking:
            self._add_column(column, self._declared[column])
        self.check_key([*columns, *lacking])
        unique = self.execute(_UNIQUE, (self._quoted,)).fetchall()
        if self.mode is Mode.UPSERT and not any(set(row[0]) == set(self.key) for row in unique):
            raise self.no_unique_key()
        (has_policies,) = self.execute(
            "SELECT row_security_active(to_regclass(%s))", (self._quoted,)
        ).fetchone()
        self._copies = not has_policies  # COPY does not work with them

    def _create_table(self) -> None:
        if not self._create:
            lower = ".".join(map(quoted, [part.lower() for part in self._parts]))
            (other,) = self.execute("SELECT to_regclass(%s)::text", (lower,)).fetchone()
            hint = f", there is {other}: names are taken as they are written" if other else ""
            raise self.no_table(hint)
        parts = [f"{quoted(column)} {kind}" for column, kind in self._declared.items()]
        if self.key:
            parts.append(f"PRIMARY KEY ({listed(self.key)})")
        self._run_statement(f"CREATE TABLE IF NOT EXISTS {self._quoted} ({', '.join(parts)})")

    def _current_columns(self) -> dict[str, Column]:
        """The table's columns, which stay so until the transaction ends if rows are copied into it:
        a type changed under binary rows would turn them into other values. EXPLAIN locks as an
        insertion does, and needs no other privilege."""
        lock = ""
        if self.mode is Mode.INSERT and self._copies:
            lock = f"EXPLAIN INSERT INTO {self._quoted} DEFAULT VALUES"
        self._columns = self._look_up(self._quoted, after=lock)
        return self._columns

    def _look_up(self, table: str, *, after: str = "") -> dict[str, Column]:
        """The columns there are, ``after`` a statement that goes with the question."""
        if not after:
            found = self.execute(COLUMNS, (table,)).fetchall()
        else:
            cursor = ClientCursor(self.connection)
            cursor.execute(f"{after}; {cursor.mogrify(COLUMNS, (table,))}".encode())
            cursor.nextset()
            found = cursor.fetchall()
        return {row[0]: Column(*row) for row in found}

    def _add_column(self, column: str, kind: str) -> None:
        self._run_statement(
            f"ALTER TABLE {self._quoted} ADD COLUMN IF NOT EXISTS {quoted(column)} {kind}"
        )

    def _with_columns(self, batch: Batch, lacking: set[str]) -> list[Row | Deletion]:
        """Add the columns that rows have and the table has not; or the rows without those."""
        if not self._add_columns:
            return self.refuse_lacking(batch, lacking)
        for column in sorted(lacking):
            values = [row[column] for row in batch.values if column in row]
            self._add_column(column, self._declared.get(column) or sql_type_of(values))
        self._columns = self._look_up(self._quoted)
        return batch.values

    # former owners

    def _end_holders(self, app: str, starts: Mapping[TopicPartition, Start]) -> None:
        """Whoever is in a transaction over these partitions owns them no more: it may have been
        stopped in the middle, and would hold them up for ever."""
        try:
            for topic, partition in sorted(starts):
                self.execute(_END_HOLDER, (app, self.name, topic, partition))
        except InsufficientPrivilege as error:
            raise SinkUnavailable(
                f"{self.describe()}: the former owner of {topic}-{partition} is stuck in a "
                f"transaction, and its session cannot be ended: {self.reason(error)}"
            ) from error
