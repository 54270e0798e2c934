"""What runs once per row, in Python; ``_rows`` is the same compiled, and tests hold both equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final


class RowMaker:
    """Makes rows of what agents write: a new dict by column, of values of the types ``takes``,
    which others become through ``adapt``. ``as_row`` makes a new dict of any value.

    Raises what these raise.
    """

    __slots__ = ("_adapt", "_as_row", "_takes")

    def __init__(
        self,
        takes: frozenset[type],
        as_row: Callable[[Any], dict[str, Any]],
        adapt: Callable[[Any], Any],
        /,
    ) -> None:
        self._takes = takes
        self._as_row = as_row
        self._adapt = adapt

    def __call__(self, value: Any, /) -> dict[str, Any]:
        row = self._as_row(value)
        if not self._takes.issuperset(map(type, row.values())):
            for column, field in row.items():
                if type(field) not in self._takes:
                    row[column] = self._adapt(field)
        return row


def shape(values: list[Any], /) -> tuple[str, ...] | None:
    """The columns of dicts that all have the same in the same order; None when there are no values,
    or others, or something that is not a dict."""
    if not values or {type(value) for value in values} != {dict}:
        return None
    columns = set(map(tuple, values))
    return columns.pop() if len(columns) == 1 else None


Encode = Callable[[bytes, tuple[str, ...], list[dict[str, Any]], int, int, type], Any]
encode: Final[Encode | None] = None
"""Compiled only: rows in COPY's binary format. Otherwise psycopg makes it."""
