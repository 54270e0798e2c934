"""A database query, read on and on by a column that only grows."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import itertools
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ..errors import ConfigurationError
from .errors import SourceError, SourceUnavailable
from .models import typed_rows
from .source import Given, Reader, Split

logger = logging.getLogger(__name__)

T = TypeVar("T")
_PLACEHOLDERS: Final[Mapping[str, str]] = {
    "qmark": "?",
    "format": "%s",
    "pyformat": "%s",
    "numeric": ":1",
}
_TEXTS: Final[Mapping[str, Any]] = {
    "datetime": datetime.datetime,
    "date": datetime.date,
    "Decimal": decimal.Decimal,
}
_GONE = ("InterfaceError", "OperationalError")
_WRONG = ("no such", "near ", "syntax error", "ambiguous")
"""What SQLite calls operational although trying again does not help."""


class Query(Reader):
    """Rows of ``select`` in the order of ``key``, as dicts by column or the topic's ``value_type``.

        app.source(orders, Query(lambda: sqlite3.connect("shop.db"), "SELECT * FROM orders",
                                 key="id"), key="id")

    ``connect`` gives a DB-API connection; it is used in one thread of its own. ``key`` is a column
    of the result: unique, never NULL, and larger in every new row. Rows that are changed or deleted
    later are not seen. ``every``: seconds between two looks for new rows (None: end when there are
    none). ``limit``: rows per query. ``placeholder``: the driver's, where it does not say.

    **The trap of growing keys.** Databases hand out keys when a row is written and show it when its
    transaction commits, so a row may appear *behind* larger ones that were read already, and would
    be missed. So rows are only taken once the largest key is ``settle`` seconds old: make that
    longer than the longest transaction that writes to the table; 0 where there is one writer at a
    time. Raises ConfigurationError.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        select: str,
        *,
        key: str,
        every: float | None = 1.0,
        settle: float = 2.0,
        limit: int = 5_000,
        placeholder: str | None = None,
    ) -> None:
        if not callable(connect):
            raise ConfigurationError("Query: connect must be callable: lambda: driver.connect(...)")
        if limit < 1 or settle < 0 or (every is not None and every <= 0):
            raise ConfigurationError(
                "Query: limit and every must be more than 0, settle at least 0"
            )
        self.connect = connect
        self.select = select.strip().rstrip(";")
        self.key = key
        self.every = every
        self.settle = settle
        self.limit = limit
        self.placeholder = placeholder

    def describe(self) -> str:
        return f"query {self.select!r} by {self.key}"

    async def read(self, split: Split) -> Given:
        loop = asyncio.get_running_loop()
        database = _Database(self)
        executor = ThreadPoolExecutor(1, f"source-{split.source.name}")
        seen: deque[tuple[float, Any]] = deque()
        try:
            while True:
                after = as_key(split.position)
                ceiling = None
                if self.settle:
                    largest = await loop.run_in_executor(executor, database.largest)
                    seen.append((loop.time(), largest))
                    ceiling = _settled(seen, loop.time() - self.settle)
                is_settled = not self.settle or seen[0][0] <= loop.time() - self.settle
                page = _Page([], [])
                if not self.settle or ceiling is not None:
                    page = await loop.run_in_executor(executor, database.page, after, ceiling)
                if page.keys:
                    position = as_position(page.keys[-1], self.key)
                    yield typed_rows(split.topic, page.rows, position, self._place(page.keys))
                if len(page.keys) == self.limit:
                    continue
                if self.every is None and is_settled:
                    return
                await asyncio.sleep(self.settle if self.every is None else self.every)
        finally:
            executor.submit(database.close)
            executor.shutdown(wait=False)

    def _place(self, keys: list[Any]) -> Callable[[int], str]:
        return lambda index: f"the row with {self.key} {keys[index]!r}"


class _Page(NamedTuple):
    rows: list[dict[str, Any]]
    keys: list[Any]


class _Database:
    """What runs in the thread."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._connection: Any = None

    def largest(self) -> Any:
        """The largest key there is; None without rows."""
        query = self._query
        sql = f"SELECT max({query.key}) FROM ({query.select}) AS onceward"
        return self._run(lambda: self._execute(sql, []).fetchone()[0])

    def page(self, after: Any, ceiling: Any) -> _Page:
        """Rows behind ``after``, up to ``ceiling`` (None: all)."""
        return self._run(lambda: self._page(after, ceiling))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # noqa: BLE001 - it is gone in any case
                return

    def _page(self, after: Any, ceiling: Any) -> _Page:
        query = self._query
        conditions = [
            (f"{query.key} {sign} ", value)
            for sign, value in ((">", after), ("<=", ceiling))
            if value is not None
        ]
        marks = self._marks(len(conditions))
        where = " AND ".join(text + mark for (text, _), mark in zip(conditions, marks, strict=True))
        sql = f"SELECT * FROM ({query.select}) AS onceward"
        sql += f" WHERE {where}" if where else ""
        sql += f" ORDER BY {query.key} LIMIT {query.limit + 1}"
        cursor = self._execute(sql, [value for _, value in conditions])
        columns = [column[0] for column in cursor.description]
        if query.key not in columns:
            raise SourceError(f"{query.describe()}: the result has no column {query.key!r}")
        found = cursor.fetchall()
        at = columns.index(query.key)
        keys = [row[at] for row in found]
        for one, other in itertools.pairwise(keys):
            if one == other:
                raise SourceError(
                    f"{query.describe()}: {query.key} {one!r} is there twice, but rows are told "
                    "apart by it: it must be unique"
                )
        rows = [dict(zip(columns, row, strict=True)) for row in found[: query.limit]]
        return _Page(rows, keys[: query.limit])

    def _marks(self, count: int) -> list[str]:
        mark = self._query.placeholder
        if mark is None:
            module = sys.modules.get(type(self._connection).__module__.split(".")[0].lstrip("_"))
            mark = _PLACEHOLDERS.get(getattr(module, "paramstyle", "qmark"), "?")
        if mark.endswith("1"):
            return [f"{mark[:-1]}{number}" for number in range(1, count + 1)]
        return [mark] * count

    def _end_snapshot(self) -> None:
        """One that stays open would never show new rows."""
        try:
            self._connection.rollback()
        except Exception:  # noqa: BLE001 - some refuse when none is open; lost ones show later
            return

    def _execute(self, sql: str, parameters: list[Any]) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(sql, tuple(parameters))
        return cursor

    def _run(self, work: Callable[[], T]) -> T:
        """Raises SourceUnavailable and SourceError for what the driver raises."""
        try:
            if self._connection is None:
                self._connection = self._query.connect()
            result = work()
            self._end_snapshot()
            return result
        except SourceError:
            raise
        except Exception as error:
            self.close()
            what = f"{self._query.describe()}: {type(error).__name__}: {error}"
            is_wrong = any(sign in str(error) for sign in _WRONG)
            if isinstance(error, OSError) or (type(error).__name__ in _GONE and not is_wrong):
                raise SourceUnavailable(what) from error
            raise SourceError(what) from error


def _settled(seen: deque[tuple[float, Any]], until: float) -> Any:
    """The largest key as of ``until``; older ones are forgotten."""
    while len(seen) > 1 and seen[1][0] <= until:
        seen.popleft()
    return seen[0][1] if seen[0][0] <= until else None


def as_position(key: Any, column: str) -> Any:
    """A key as a position: text with the name of its type where JSON has none."""
    if type(key) in (int, str, float):
        return key
    name = type(key).__name__
    if name in _TEXTS:
        return {name: msgspec.to_builtins(key)}
    raise SourceError(f"{column} is a {name}: a key must be a number, text, date, time or Decimal")


def as_key(position: Any) -> Any:
    if not isinstance(position, dict):
        return position
    ((name, text),) = position.items()
    return msgspec.convert(text, _TEXTS[name])
