"""Columns of a MySQL table: their types for Python's, and values as literals of SQL.

A batch goes as text, in few INSERTs of many rows: ``LOAD DATA LOCAL``, which would be faster, turns
what the server refuses into warnings. Each value is written for the type of its column, so that the
server need not guess: it takes 20260102 for a date, 1.5 for the whole number 2, and the text
'abc' for the number 0 when they are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from .postgres_types import JsonText, sql_type, sql_type_of

Literals = Callable[["Column", Sequence[Any]], list[str]]

_NO_PAD: Final = ("_nopad_bin", "_0900_bin")
"""Endings of collations that tell all texts apart, spaces at the end too."""
_ASCII: Final = frozenset({"ascii", "latin1", "utf8", "utf8mb3", "utf8mb4"})
_MOST_DIGITS: Final = 300
_TOO_BIG: Final = 1 << 128
_NOTHING: Final = type(None)


class Column(NamedTuple):
    """``kind``: the type's name without its size, or ``json``; ``type`` with it. ``size`` in
    characters, ``charset`` and ``collation`` of texts."""

    name: str
    kind: str
    type: str
    size: int
    charset: str
    collation: str


COLUMNS: Final = """
    SELECT COLUMN_NAME, LOWER(DATA_TYPE), COLUMN_TYPE, COALESCE(CHARACTER_MAXIMUM_LENGTH, 0),
           COALESCE(CHARACTER_SET_NAME, ''), COALESCE(COLLATION_NAME, '')
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s"""
JSON_CHECKS: Final = """
    SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS
    WHERE CONSTRAINT_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s
      AND CHECK_CLAUSE LIKE 'json_valid(%%'"""
"""MariaDB's JSON is a text with such a condition."""
UNIQUE: Final = """
    SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s AND NON_UNIQUE = 0"""


# types

_OF_POSTGRES: Final[Mapping[str, str]] = {
    "DOUBLE PRECISION": "DOUBLE",
    "TEXT": "LONGTEXT",
    "BYTEA": "LONGBLOB",
    "NUMERIC": "DECIMAL(38, 9)",
    "TIMESTAMPTZ": "DATETIME(6)",
    "TIME": "TIME(6)",
    "INTERVAL": "TIME(6)",
    "UUID": "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin",
    "JSONB": "JSON",
}


def _translated(kind: str) -> str:
    return "JSON" if kind.endswith("[]") else _OF_POSTGRES.get(kind, kind)


def mysql_type(kind: Any) -> str:
    """The column type for a declared Python type, which has no ``| None`` any more."""
    return _translated(sql_type(kind))


def mysql_type_of(values: Sequence[Any]) -> str:
    """The column type for values seen, which may hold None."""
    return _translated(sql_type_of(values))


def key_type(kind: str, *, is_mariadb: bool) -> str:
    """``kind`` as it may be part of a key: as long as an index can take, texts told apart."""
    if kind == "LONGTEXT":
        collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        return f"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE {collation}"
    return "VARBINARY(255)" if kind == "LONGBLOB" else kind


# which keys are one


def tells_apart(column: Column, values: set[Any]) -> bool:
    """Whether these are the same for the column only when they are in Python."""
    types = set(map(type, values))
    if len(types) != 1:
        return False
    kind, (known,) = column.kind, types
    if kind in _WHOLE:
        return known is int
    if kind in ("varbinary", "blob", "tinyblob", "mediumblob", "longblob"):
        return known is bytes
    if kind == "date":
        return known is date
    if known is UUID:
        return True
    if kind not in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext"):
        return False
    if known is not str:
        return False
    if max(map(len, values)) <= column.size and column.collation.endswith(_NO_PAD):
        return kind != "char"
    if column.charset in _ASCII and all(map(_is_plain, values)):
        return len(set(map(str.lower, values))) == len(values)
    return False


def _is_plain(text: str) -> bool:
    """Whether it is equal, in every collation, just to itself in other cases."""
    return text.isascii() and text.isprintable() and not text.endswith(" ")


# literals


def rows_of(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """``(1,'a')`` for each row, whose fields are ``columns`` in this order.

    Raises TypeError and ValueError for what does not fit, with the column's name.
    """
    if not columns:
        return ["()"] * len(rows)
    fields = zip(*[row.values() for row in rows], strict=True)
    texts = [literals(column, values) for column, values in zip(columns, fields, strict=True)]
    return [f"({text})" for text in map(",".join, zip(*texts, strict=True))]


def literals(column: Column, values: Sequence[Any]) -> list[str]:
    """Values of one column. Raises TypeError, ValueError."""
    types = set(map(type, values))
    if _NOTHING not in types:
        return _written(column, types, values)
    types.discard(_NOTHING)
    present = iter(_written(column, types, [value for value in values if value is not None]))
    return ["NULL" if value is None else next(present) for value in values]


def _written(column: Column, types: set[type], values: Sequence[Any]) -> list[str]:
    write = _KINDS.get(column.kind, _others)
    try:
        if len(types) == 1:
            (known,) = types
            if known is int and write in (_wholes, _decimals, _floats):
                return list(map(str, values))
            if known in (str, JsonText) and write in (_texts, _documents, _binaries, _others):
                return texts(values)
        return write(column, values)
    except (ValueError, OverflowError, InvalidOperation) as error:
        raise ValueError(
            f"{error} in column {column.name!r}, which is of type {column.type}"
        ) from None


def texts(values: Sequence[str]) -> list[str]:
    """Texts in quotes. All at once where that can be: most have nothing to be escaped."""
    whole = "\0".join(values)
    if "'" in whole or "\\" in whole:
        if whole.count("\0") != len(values) - 1:
            return ["'" + _escaped(value) + "'" for value in values]
        values = _escaped(whole).split("\0")
    return ["'" + value + "'" for value in values]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _misfit(column: Column, value: Any) -> TypeError:
    return TypeError(
        f"{type(value).__name__} does not fit column {column.name!r}, which is of type "
        f"{column.type}"
    )


def _wholes(column: Column, values: Sequence[Any]) -> list[str]:
    return [_whole(column, value) for value in values]


def _whole(column: Column, value: Any) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        value = Decimal(value)
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value) >= _TOO_BIG or value != int(value):
            raise ValueError(f"{value} is no whole number it takes")
        return str(int(value))
    if isinstance(value, str):
        try:
            return str(int(value))
        except ValueError:
            raise ValueError(f"{_shown(value)} is no whole number") from None
    raise _misfit(column, value)


def _decimals(column: Column, values: Sequence[Any]) -> list[str]:
    return [_decimal(column, value) for value in values]


def _decimal(column: Column, value: Any) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        value = Decimal(repr(value))
    elif isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise ValueError(f"{_shown(value)} is no number") from None
    if not isinstance(value, Decimal):
        raise _misfit(column, value)
    if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{value} is no number it takes")
    return format(value, "f")


def _floats(column: Column, values: Sequence[Any]) -> list[str]:
    if set(map(type, values)) == {float}:
        if not all(map(math.isfinite, values)):
            bad = next(value for value in values if not math.isfinite(value))
            raise ValueError(f"{bad} is no number it takes")
        return list(map(repr, values))
    return [_float(column, value) for value in values]


def _float(column: Column, value: Any) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{_shown(value)} is no number") from None
    if not isinstance(value, float | Decimal):
        raise _misfit(column, value)
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number it takes")
    return repr(float(value))


def _texts(column: Column, values: Sequence[Any]) -> list[str]:
    return texts([_text(column, value) for value in values])


def _text(column: Column, value: Any) -> str:
    if isinstance(value, str):
        return value
    if column.kind in ("enum", "set") or isinstance(value, bytes):
        raise _misfit(column, value)  # a number would be the member's number
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return msgspec.json.encode(value).decode()
    return _duration(value) if isinstance(value, timedelta) else str(value)


def _documents(column: Column, values: Sequence[Any]) -> list[str]:
    return texts([v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in values])


def _binaries(column: Column, values: Sequence[Any]) -> list[str]:
    return [_binary(column, value) for value in values]


def _binary(column: Column, value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, UUID):
        return f"x'{value.hex}'" if column.size == 16 else f"'{value}'"
    if isinstance(value, str):
        return "'" + _escaped(value) + "'"
    raise _misfit(column, value)


def _instants(column: Column, values: Sequence[Any]) -> list[str]:
    return [_instant(column, value) for value in values]


def _instant(column: Column, value: Any) -> str:
    """In UTC, as the session is. A text is read here, as servers differ in what they make of an
    offset."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return "'" + _escaped(value) + "'"
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            if value.tzinfo is not UTC:
                value = value.astimezone(UTC)
            value = value.replace(tzinfo=None)
        return f"'{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    raise _misfit(column, value)


def _days(column: Column, values: Sequence[Any]) -> list[str]:
    return [_day(column, value) for value in values]


def _day(column: Column, value: Any) -> str:
    if isinstance(value, datetime):
        value = value.date() if value.tzinfo is None else value.astimezone(UTC).date()
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + _escaped(value) + "'"
    raise _misfit(column, value)


def _times(column: Column, values: Sequence[Any]) -> list[str]:
    return [_time(column, value) for value in values]


def _time(column: Column, value: Any) -> str:
    if isinstance(value, timedelta):
        return f"'{_duration(value)}'"
    if isinstance(value, time):
        return f"'{value.replace(tzinfo=None).isoformat()}'"
    if isinstance(value, str):
        return "'" + _escaped(value) + "'"
    raise _misfit(column, value)


def _duration(value: timedelta) -> str:
    """``-100:02:03.000004``."""
    sign, rest = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(rest.days * 86400 + rest.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}.{rest.microseconds:06}"


def _others(column: Column, values: Sequence[Any]) -> list[str]:
    """Types of the server's own: it reads them from text."""
    return [
        f"x'{value.hex()}'" if isinstance(value, bytes) else "'" + _escaped(str(value)) + "'"
        for value in values
    ]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")


_WHOLE: Final = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit")
_KINDS: Final[Mapping[str, Literals]] = {
    **dict.fromkeys(_WHOLE, _wholes),
    **dict.fromkeys(("decimal", "numeric"), _decimals),
    **dict.fromkeys(("float", "double"), _floats),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"), _texts
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _binaries
    ),
    **dict.fromkeys(("datetime", "timestamp"), _instants),
    "json": _documents,
    "date": _days,
    "time": _times,
}


# statements


class RowTooLarge(ValueError):
    """No statement can hold a row."""


def statements(
    head: str, rows: Sequence[str], between: str, tail: str, usual: int, most: int
) -> Iterator[bytes]:
    """``rows`` in statements of about ``usual`` bytes, in order, and none of more than ``most``.

    Raises RowTooLarge, UnicodeEncodeError.
    """
    waiting = [rows]
    while waiting:
        part = waiting.pop()
        data = f"{head}{between.join(part)}{tail}".encode()
        if len(data) <= min(usual, most) or (len(part) == 1 and len(data) <= most):
            yield data
            continue
        if len(part) == 1:
            raise RowTooLarge(
                f"the row takes {len(data)} bytes and the server not more than {most} "
                "(max_allowed_packet)"
            )
        size = max(1, len(part) * min(usual, most) // (2 * len(data)))
        waiting += [part[at : at + size] for at in range(0, len(part), size)][::-1]
