"""Rows in a MySQL or MariaDB database: written in the same transaction as their position."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from onceward.broker.client import TopicPartition

from .changes import Change, columns_in, insertions, upserts, upserts_in_order
from .database import DatabaseSink
from .effects import Batch
from .errors import SinkError, SinkTimeout, SinkUnavailable
from .mysql_positions import TABLES, MySqlPositions
from .mysql_session import (
    DUPLICATE,
    DUPLICATE_COLUMN,
    LOCK_TIMEOUT,
    NO_SUCH_SESSION,
    NOT_YOUR_SESSION,
    OUT_OF_RANGE,
    TIMED_OUT,
    Address,
    Session,
    code_of,
    is_of_the_row,
    is_passing,
    reason,
)
from .mysql_types import (
    COLUMNS,
    JSON_CHECKS,
    UNIQUE,
    Column,
    RowTooLarge,
    key_type,
    literals,
    mysql_type,
    mysql_type_of,
    rows_of,
    statements,
    tells_apart,
)
from .names import listed, quoted, table_parts
from .positions import Advance, Claim, PositionTable, Start
from .postgres_types import TAKES, adapt
from .rows import Deletion, Row
from .table import Mode, SqlTable

logger = logging.getLogger(__name__)

_TICK: Final = "`"
_TABLES_LOCK: Final = "onceward tables"
_STATEMENT_BYTES: Final = 4 * 1024 * 1024
_KEYS_AT_ONCE: Final = 500
"""Keys of a DELETE: with many more the server scans the whole table."""


class _Locked(SinkUnavailable):
    """Something was locked for longer than the lock timeout."""


class _ColumnsMissing(SinkUnavailable):
    """Columns are to be added first, outside of the transaction: an ALTER would commit it."""

    def __init__(self, sink: str, columns: Mapping[str, str]) -> None:
        super().__init__(f"{sink}: the table has no column {min(columns)!r} yet")
        self.columns = columns


class _Table(NamedTuple):
    """``columns`` by their names in small letters; ``uniques`` the columns of each unique index,
    None where it has only beginnings of them, or expressions."""

    columns: dict[str, Column]
    uniques: list[frozenset[str] | None]


class MySqlSink(SqlTable, DatabaseSink):
    """Transactional: every row appears exactly once, whatever crashes, with or without a key.

    For MySQL from 8.0 and MariaDB from 10.6. ``dsn`` as in
    ``mysql://user:password@host:3306/database``, with ``?unix_socket=``, ``ssl_mode=`` (disabled,
    preferred, required, verify_ca, verify_identity), ``ssl_ca=``, ``ssl_cert=``, ``ssl_key=``. The
    positions are kept in that database; ``table`` may be in another, as in ``etl.totals``, and a
    name with a dot is in double quotes. Its engine must be InnoDB.

    Rows are dicts, Records, dataclasses or models with a field per column; an ``upsert`` changes
    the columns a row has and leaves the others, and needs a primary key or unique index over
    exactly ``key``. It never changes a row with another key: a row whose values another unique
    index has already is refused. Keys that the column's collation takes for equal (``a`` and ``A``,
    often) are one row, and the last effect counts. ``None`` deletes the row with the record's key.
    Lists, dicts and models go into JSON; a string is for JSON the document's text. Times are UTC.
    The server cuts nothing off: it is told to refuse what does not fit.

    ``create`` makes the table, if it is missing, with the columns of ``value_type``;
    ``add_columns`` adds columns of ``value_type``, and of rows, when they are missing. ``name``
    (default: the table) names the position: renaming it starts anew.

    No call takes longer than ``timeout`` seconds, none waits longer than ``lock_timeout`` (whole
    seconds for MySQL) for a lock. A worker that takes a partition over ends the session of the
    former owner when that is stuck in a transaction, which the same user may do. Unless the server
    has ``innodb_flush_log_at_trx_commit=1``, a crash of it may lose what it has committed: the
    worker notices and stops. Raises ConfigurationError, and ImportError without PyMySQL.
    """

    placeholder = "%s"
    quote = _TICK
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
        parts = table_parts(table, self.name)
        self._place = (parts[0] if len(parts) == 2 else None, parts[-1])
        self._quoted = ".".join(quoted(part, _TICK) for part in parts)
        self._table: _Table | None = None
        self._at_rows = False

    def describe(self) -> str:
        return f"sink {self.name!r} (table {self.table} of {self._address})"

    def adapt(self, value: Any) -> Any:
        return adapt(value)

    def sql_type(self, kind: Any) -> str:
        return mysql_type(kind)

    # DatabaseSink

    def connect(self) -> Session:
        return self._address.connect(self.timeout, self._lock_timeout)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return self.connection.run(statement, parameters)

    def begin(self) -> None:
        self._table = None
        self._at_rows = False
        self.execute("START TRANSACTION READ WRITE")

    def interrupt(self) -> None:
        connection = self.connection
        if connection is not None:
            connection.cut()

    def forget_schema(self) -> None:
        self._table = None

    def judge(self, error: Exception) -> SinkUnavailable | SinkError | None:
        message = f"{self.describe()}: {self.reason(error)}"
        code = code_of(error)
        if code == LOCK_TIMEOUT:
            return _Locked(message)
        if code in TIMED_OUT:
            return SinkTimeout(message)
        # two workers took over at once a partition that was never here
        is_beaten = code == DUPLICATE and not self._at_rows
        if is_beaten or is_passing(error):
            return SinkUnavailable(message)
        return None if is_of_the_row(error) else SinkError(message)

    def reason(self, error: Exception) -> str:
        if code_of(error) == OUT_OF_RANGE and "pow(" in str(error).lower():
            return "another row has the values of this one in a unique index that is not the key"
        return self._address.scrub(reason(error))

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        try:
            return await super().take_over(app, starts)
        except _Locked:
            await self._run(lambda: self._end_holders(app, starts))
            return await super().take_over(app, starts)

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        try:
            await super().commit(batch, advances)
        except _ColumnsMissing as missing:
            columns = missing.columns
            batch.refused.clear()
            await self._run(lambda: self._add(columns))
            await super().commit(batch, advances)

    def apply(self, batch: Batch) -> None:
        self._at_rows = True
        table = self._table or self._current_table()
        values = batch.values
        lacking = {
            column
            for shape in columns_in(values)
            for column in shape
            if column.lower() not in table.columns
        }
        if lacking and self._add_columns:
            raise _ColumnsMissing(self.describe(), self._types_of(lacking, values))
        if lacking:
            values = self.refuse_lacking(batch, lacking)
        for change in self._changes(values, table):
            if change.is_deletion:
                self._delete(change, table)
            else:
                self._insert(change, table)

    # rows

    def _changes(self, values: Sequence[Row | Deletion], table: _Table) -> Iterator[Change]:
        if self.mode is Mode.INSERT:
            yield from insertions(values)
            return
        keys = [value.key if isinstance(value, Deletion) else value for value in values]
        for column in self.key:
            if not tells_apart(table.columns[column.lower()], {row[column] for row in keys}):
                yield from upserts_in_order(values, self.key)
                return
        by_key = itemgetter(*self.key)
        for change in upserts(values, self.key):
            # in order, as two workers that lock the same rows could wait for each other
            yield change._replace(rows=sorted(change.rows, key=by_key))

    def _insert(self, change: Change, table: _Table) -> None:
        columns = [table.columns[column.lower()] for column in change.columns]
        names = listed(change.columns, _TICK)
        head = f"INSERT INTO {self._quoted} ({names}) VALUES "
        tail = self._on_duplicate(change.columns, table) if self.mode is Mode.UPSERT else ""
        try:
            self._run_statements(head, rows_of(columns, change.rows), ",", tail)
        except RowTooLarge as error:
            sizes = {
                column.name: len(literals(column, [value])[0])
                for column, value in zip(columns, change.rows[0].values(), strict=True)
            }
            widest = max(sizes, key=lambda name: sizes[name])
            raise ValueError(f"{error}, most of them in column {widest!r}") from None

    def _run_statements(self, head: str, rows: Sequence[str], between: str, tail: str) -> None:
        most = self.connection.max_statement
        for statement in statements(head, rows, between, tail, _STATEMENT_BYTES, most):
            self.connection.query(statement)

    def _on_duplicate(self, columns: Sequence[str], table: _Table) -> str:
        """What happens to a row that is there, which MySQL finds in *any* unique index: a row that
        has another key is an error, and no other row is changed."""
        changes = [
            f"{quoted(column, _TICK)} = VALUES({quoted(column, _TICK)})"
            for column in columns
            if column not in self.key
        ]
        first = quoted(self.key[0], _TICK)
        ours = frozenset(map(str.lower, self.key))
        if any(unique != ours for unique in table.uniques):
            same = " AND ".join(
                f"{quoted(c, _TICK)} <=> VALUES({quoted(c, _TICK)})" for c in self.key
            )
            error = f"POW(1e9, 99 + LENGTH({first})) IS NULL"
            changes.insert(0, f"{first} = IF(({same}) OR {error}, {first}, {first})")
        elif not changes:
            changes = [f"{first} = {first}"]
        return " ON DUPLICATE KEY UPDATE " + ", ".join(changes)

    def _delete(self, change: Change, table: _Table) -> None:
        columns = [table.columns[column.lower()] for column in change.columns]
        names = [quoted(column, _TICK) for column in change.columns]
        for at in range(0, len(change.rows), _KEYS_AT_ONCE):
            rows = [row.values() for row in change.rows[at : at + _KEYS_AT_ONCE]]
            fields = [
                literals(column, values)
                for column, values in zip(columns, zip(*rows, strict=True), strict=True)
            ]
            head = f"DELETE FROM {self._quoted} WHERE "
            if len(names) == 1:
                self._run_statements(f"{head}{names[0]} IN (", fields[0], ",", ")")
                continue
            conditions = [
                " AND ".join(f"{name} = {text}" for name, text in zip(names, texts, strict=True))
                for texts in zip(*fields, strict=True)
            ]
            self._run_statements(head, conditions, " OR ", "")

    # tables

    def prepare(self) -> None:
        """One statement after the other, each a transaction: those that make a table end one."""
        if not self.connection.is_durable:
            logger.warning(
                "%s: innodb_flush_log_at_trx_commit is not 1: a crash of the server may lose what "
                "it has committed",
                self.describe(),
            )
        found = self._there()
        if len(found) <= len(TABLES):
            self._alone(self._make_tables)
            found = self._there()
        for name in (*TABLES, self._place[1]):
            self._check_engine(name, found)
        table = self._look_up()
        lacking = self.lacking([c for c in self._declared if c.lower() in table.columns])
        self._add({column: self._declared[column] for column in lacking})
        if lacking:
            table = self._look_up()
        self.check_key([c for c in self.key if c.lower() in table.columns])
        ours = frozenset(map(str.lower, self.key))
        if self.mode is Mode.UPSERT and ours not in table.uniques:
            raise self.no_unique_key()

    def _alone(self, work: Callable[[], None]) -> None:
        """One worker at a time: statements that make tables end in deadlocks beside each other."""
        seconds = math.ceil(self._lock_timeout)
        got = self.execute("SELECT GET_LOCK(%s, %s)", (_TABLES_LOCK, seconds)).fetchone()
        if got[0] != 1:
            raise _Locked(f"{self.describe()}: another worker is making the tables")
        try:
            work()
        finally:
            self.execute("SELECT RELEASE_LOCK(%s)", (_TABLES_LOCK,))

    def _make_tables(self) -> None:
        if len(self._engines(None, *TABLES)) < len(TABLES):
            self.create_positions()
        if not self._engines(*self._place):
            self._create_table()

    def _there(self) -> dict[str, str | None]:
        return {**self._engines(None, *TABLES), **self._engines(*self._place)}

    def _engines(self, database: str | None, *tables: str) -> dict[str, str | None]:
        """By table, of those that are there; a view has none. Some servers keep small letters."""
        marks = ", ".join(["%s"] * len(tables))
        rows = self.execute(
            "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = "
            f"COALESCE(%s, DATABASE()) AND TABLE_NAME IN ({marks})",
            (database, *tables),
        ).fetchall()
        found = dict(rows)
        return {
            table: found[name]
            for table in tables
            for name in (table.lower(), table)
            if name in found
        }

    def _check_engine(self, table: str, engines: Mapping[str, str | None]) -> None:
        engine = engines.get(table)
        if engine is None:
            raise SinkError(f"{self.describe()}: {table} is a view, give the table")
        if engine.lower() != "innodb":
            raise SinkError(
                f"{self.describe()}: the engine of {table} is {engine}, which has no transactions "
                "that go together with the positions; ALTER TABLE ... ENGINE = InnoDB"
            )

    def _current_table(self) -> _Table:
        """The table, which stays so until the transaction ends."""
        self.execute(f"SELECT 1 FROM {self._quoted} LIMIT 0")
        self._check_engine(self._place[1], self._engines(*self._place))
        self._table = self._look_up()
        return self._table

    def _look_up(self) -> _Table:
        columns = {row[0].lower(): Column(*row) for row in self.execute(COLUMNS, self._place)}
        if self.connection.is_mariadb:
            checks = " ".join(row[0] for row in self.execute(JSON_CHECKS, self._place))
            for name, column in columns.items():
                if quoted(column.name, _TICK) in checks and column.kind == "longtext":
                    columns[name] = column._replace(kind="json")
        uniques: dict[str, frozenset[str] | None] = {}
        for index, column, part in self.execute(UNIQUE, self._place):
            before = uniques.get(index, frozenset())
            is_whole = column is not None and part is None and before is not None
            uniques[index] = before | {column.lower()} if is_whole and before is not None else None
        return _Table(columns, list(uniques.values()))

    def _create_table(self) -> None:
        if not self._create:
            other = self.execute(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = "
                "COALESCE(%s, DATABASE()) AND LOWER(TABLE_NAME) = LOWER(%s)",
                self._place,
            ).fetchone()
            hint = f", there is {other[0]}: names are taken as they are written" if other else ""
            raise self.no_table(hint)
        parts = []
        for column, kind in self._declared.items():
            if column in self.key:
                kind = key_type(kind, is_mariadb=self.connection.is_mariadb)
            parts.append(f"{quoted(column, _TICK)} {kind}")
        if self.key:
            parts.append(f"PRIMARY KEY ({listed(self.key, _TICK)})")
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self._quoted} ({', '.join(parts)}) "
            "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"
        )

    def _types_of(
        self, lacking: Collection[str], values: Sequence[Row | Deletion]
    ) -> dict[str, str]:
        rows = [value for value in values if not isinstance(value, Deletion)]
        return {
            column: self._declared.get(column)
            or mysql_type_of([row[column] for row in rows if column in row])
            for column in sorted(lacking)
        }

    def _add(self, columns: Mapping[str, str]) -> None:
        """Each is there or not, whatever happens in between; another worker may be first."""
        for column, kind in columns.items():
            try:
                self.execute(
                    f"ALTER TABLE {self._quoted} ADD COLUMN {quoted(column, _TICK)} {kind} NULL"
                )
            except Exception as error:
                if code_of(error) != DUPLICATE_COLUMN:
                    raise

    # positions

    def _positions(self, app: str) -> PositionTable:
        return MySqlPositions(app, self.name, lambda: str(self.connection.token))

    def _end_holders(self, app: str, starts: Mapping[TopicPartition, Start]) -> None:
        """Whoever is in a transaction over these partitions owns them no more: it may have been
        stopped in the middle, and would hold them up for ever."""
        positions = MySqlPositions(app, self.name, str)
        for tp in sorted(starts):
            # who is in the middle of taking over is shown too
            self.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            token = positions.session_of(self.execute, tp)
            if token is None or token == self.connection.token:
                continue
            (session,) = self.execute("SELECT IS_USED_LOCK(%s)", (token,)).fetchone()
            if session is not None:
                self._end_session(tp, session)

    def _end_session(self, tp: TopicPartition, session: int) -> None:
        try:
            self.execute("KILL CONNECTION %s", (session,))
        except Exception as error:
            if code_of(error) == NOT_YOUR_SESSION:
                raise SinkUnavailable(
                    f"{self.describe()}: the former owner of {tp} is stuck in a transaction, and "
                    f"its session cannot be ended: {self.reason(error)}"
                ) from error
            if code_of(error) != NO_SUCH_SESSION:
                raise
