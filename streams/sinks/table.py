"""What sinks that write rows of one table share: keys, modes, rows and tombstones."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ..config import choice
from ..engine.feed import Slot
from ..errors import ConfigurationError
from .rows import Deletion, Row, as_row, plain
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
        self.key = (key,) if isinstance(key, str) else tuple(key or ())
        default = Mode.UPSERT if self.key else Mode.INSERT
        self.mode = default if mode is None else choice(Mode, "mode", mode)
        if self.mode is Mode.UPSERT and not self.key:
            raise ConfigurationError(f"sink {name!r}: mode='upsert' needs key=, the row's column")

    def encode(self, value: Any, key: Any, slot: Slot) -> Row | Deletion:
        """A row of plain values. Raises TypeError, ValueError."""
        if value is None:
            return self._deletion(slot.key() if key is None else key)
        row = as_row(value)
        if not self.takes.issuperset(map(type, row.values())):
            for column, field in row.items():
                if type(field) not in self.takes:
                    row[column] = self.adapt(field)
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
