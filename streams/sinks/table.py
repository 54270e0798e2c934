"""What sinks that write rows of one table share: keys, modes, rows and tombstones."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from ..config import choice
from ..engine.feed import Slot
from ..errors import ConfigurationError
from .effects import Batch
from .errors import SinkError
from .rows import Deletion, Row, as_row, columns_of, plain
from .rows_kernel import RowMaker
from .sink import Sink


class Mode(enum.StrEnum):
    """INSERT adds a row per effect; UPSERT makes the row with that key have the given columns."""

    INSERT = "insert"
    UPSERT = "upsert"


class TableRows(Sink):
    """The ``encode`` of a table sink.

    ``key``: the column, or columns, that say which row is meant (upsert and deletion); ``mode``:
    default ``upsert`` when there is a key, else ``insert``. Writing None deletes the row with the
    given key, or with the key of the record being handled. Raises ConfigurationError.
    """

    def __init__(
        self,
        name: str,
        *,
        key: str | Sequence[str] | None = None,
        mode: str | None = None,
        on_error: str | None = None,
    ) -> None:
        super().__init__(name, on_error=on_error)
        self._make_row = RowMaker(frozenset(self.takes), as_row, self.adapt)
        self.key = (key,) if isinstance(key, str) else tuple(key or ())
        default = Mode.UPSERT if self.key else Mode.INSERT
        self.mode = default if mode is None else choice(Mode, "mode", mode)
        if self.mode is Mode.UPSERT and not self.key:
            raise ConfigurationError(f"sink {name!r}: mode='upsert' needs key=, the row's column")

    def encode(self, value: Any, key: Any, slot: Slot) -> Row | Deletion:
        """A row of plain values. Raises TypeError, ValueError."""
        if value is None:
            return self._deletion(slot.key() if key is None else key)
        row = self._make_row(value)
        for column in self.key:
            if row.get(column) is None:
                raise ValueError(f"sink {self.name!r}: a row has no {column!r}, which is its key")
        return row

    takes: frozenset[type] = frozenset({int, str, float, bytes, type(None)})
    """Types of values the database takes as they are."""

    def adapt(self, value: Any) -> Any:
        """A value of another type as the database takes it. Raises TypeError."""
        return plain(value)

    def _deletion(self, key: Any) -> Deletion:
        if not self.key:
            raise ValueError(
                f"sink {self.name!r}: None deletes a row, which needs key=, the row's column"
            )
        if isinstance(key, dict):
            fields = [key.get(column) for column in self.key]
        elif len(self.key) == 1:
            fields = [key]
        else:
            fields = list(key) if isinstance(key, tuple | list) else [key]
        if len(fields) != len(self.key) or any(field is None for field in fields):
            raise ValueError(
                f"sink {self.name!r}: None deletes the row with a key of {', '.join(self.key)}, "
                f"but the key is {key!r}"
            )
        return Deletion(
            {
                column: field if type(field) in self.takes else self.adapt(field)
                for column, field in zip(self.key, fields, strict=True)
            }
        )


class SqlTable(TableRows):
    """A table with columns, that ``create`` makes if it is missing and ``add_columns`` widens.

    ``value_type``: see ``columns_of``; ``name``: default the table. ``declared`` is its columns'
    SQL types by name. Raises ConfigurationError.
    """

    def __init__(
        self,
        table: str,
        *,
        key: str | Sequence[str] | None,
        mode: str | None,
        value_type: Any,
        create: bool,
        add_columns: bool,
        name: str | None,
        on_error: str | None,
    ) -> None:
        super().__init__(name or table, key=key, mode=mode, on_error=on_error)
        self.table = table
        self._create = create
        self._add_columns = add_columns
        self._declared = {} if value_type is None else columns_of(value_type, self.sql_type)
        if create and not self._declared:
            raise ConfigurationError(
                f"sink {self.name!r}: create=True needs value_type=, whose fields are the columns"
            )
        if self._declared and (missing := [c for c in self.key if c not in self._declared]):
            raise ConfigurationError(
                f"sink {self.name!r}: key {missing[0]!r} is no field of value_type"
            )

    @abstractmethod
    def sql_type(self, kind: Any) -> str:
        """The column type for a declared Python type, which has no ``| None`` any more."""

    def lacking(self, columns: Collection[str]) -> list[str]:
        """Declared columns that the table has not. Raises SinkError when they are not to be
        added."""
        lacking = [column for column in self._declared if column not in columns]
        if lacking and not self._add_columns:
            raise SinkError(
                f"{self.describe()}: the table has no column {lacking[0]!r}; add it, or give "
                "add_columns=True"
            )
        return lacking

    def check_key(self, columns: Collection[str]) -> None:
        """Raises SinkError unless the key's columns are there."""
        for column in self.key:
            if column not in columns:
                raise SinkError(
                    f"{self.describe()}: the table has no column {column!r}, which is to be the key"
                )

    def no_table(self, hint: str = "") -> SinkError:
        return SinkError(
            f"{self.describe()}: there is no such table{hint}; create it, or give create=True "
            "and value_type="
        )

    def no_unique_key(self, why: str = "") -> SinkError:
        return SinkError(
            f"{self.describe()}: upsert needs a primary key or unique index over exactly "
            f"{', '.join(self.key)}{why}"
        )

    def refuse_lacking(self, batch: Batch, lacking: Collection[str]) -> list[Row | Deletion]:
        """Refuse what has a column that the table has not; returns the rest."""
        kept = []
        for index, value in enumerate(batch.values):
            row = value.key if isinstance(value, Deletion) else value
            wrong = next((column for column in row if column in lacking), None)
            if wrong is None:
                kept.append(value)
            else:
                batch.refuse(index, f"the table has no column {wrong!r}")
        return kept
