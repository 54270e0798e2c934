"""Columns of a PostgreSQL table: which type a Python value becomes, and how a batch is copied.

A batch goes in COPY's binary format where every column holds values of just the column's type,
which costs half as much on both sides. Otherwise it goes as text, and the server converts or
refuses as it does with a quoted literal.
"""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from ..serde.json import is_pydantic
from .rows import Row

Values = Sequence[Any]
Fit = Callable[[set[type], Values], tuple[str, Values] | None]
"""From the types that occur besides None and the values: COPY's type name and values, or None when
they cannot go in binary."""

TAKES: Final = frozenset(
    {int, str, float, bytes, bool, Decimal, datetime, date, time, timedelta, UUID, type(None)}
)
"""Immutable types that are kept as they are until the commit."""
_NESTED: Final = (bytes, Decimal, datetime, date, time, timedelta, UUID)
_SQL_TYPES: Final[Mapping[type, str]] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE PRECISION",
    str: "TEXT",
    bytes: "BYTEA",
    bytearray: "BYTEA",
    memoryview: "BYTEA",
    Decimal: "NUMERIC",
    datetime: "TIMESTAMPTZ",
    date: "DATE",
    time: "TIME",
    timedelta: "INTERVAL",
    UUID: "UUID",
    Mapping: "JSONB",
    msgspec.Struct: "JSONB",
    list: "JSONB",
    tuple: "JSONB",
    set: "JSONB",
    frozenset: "JSONB",
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence)


class JsonText(str):
    """A document, as JSON text."""

    __slots__ = ()
    __repr__ = str.__str__  # in dead letters, too, it is a string like any other


class Column(NamedTuple):
    """``kind`` is the type's name in ``pg_type`` (a domain's is its base type's), or ``array``,
    ``json_array``, ``enum``. ``is_exact``: its order tells different texts apart. ``type``: as SQL
    writes it."""

    name: str
    kind: str
    is_exact: bool
    type: str


COLUMNS: Final = """
    SELECT a.attname,
           CASE WHEN coalesce(b.typtype, t.typtype) = 'e' THEN 'enum'
                WHEN coalesce(b.typname, t.typname) IN ('_json', '_jsonb') THEN 'json_array'
                WHEN coalesce(b.typcategory, t.typcategory) = 'A' THEN 'array'
                ELSE coalesce(b.typname, t.typname) END,
           coalesce(c.collisdeterministic, true),
           format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
    LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum"""
"""Rows for ``Column`` of the table whose quoted name is the parameter."""


def adapt(value: Any) -> Any:
    """A snapshot of a value of a type that is not in ``TAKES``: lists of plain values, documents as
    ``JsonText``. Raises TypeError."""
    if isinstance(value, enum.Enum):
        inner = value.value
        return inner if type(inner) in TAKES else adapt(inner)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    for kind in (int, str, float, bytes):
        if isinstance(value, kind):
            return kind(value)  # type: ignore[arg-type]
    if isinstance(value, Decimal | datetime | date | time | timedelta | UUID):
        return value
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        kept = (*_NESTED, bytearray, memoryview)  # or they become base64
        return _frozen(msgspec.to_builtins(value, builtin_types=kept))
    return JsonText(msgspec.json.encode(value).decode())


def _frozen(values: Iterable[Any]) -> list[Any]:
    """Copies of the buffers in lists within lists."""
    return [
        bytes(each)
        if isinstance(each, bytearray | memoryview)
        else _frozen(each)
        if isinstance(each, list | tuple)
        else each
        for each in values
    ]


def sql_type(kind: Any) -> str:
    """The column type for a declared Python type, which has no ``| None`` any more."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _common({type(each) for each in arguments})
    if origin in _LISTS:
        members = {each for each in arguments if each is not Ellipsis}
        element = sql_type(members.pop()) if len(members) == 1 else "JSONB"
        return "JSONB" if element == "JSONB" or element.endswith("[]") else f"{element}[]"
    kind = kind if origin is None else origin
    if not isinstance(kind, type):
        return "TEXT"
    if issubclass(kind, enum.Enum):
        return _common({type(member.value) for member in kind})
    if is_pydantic(kind) or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return "JSONB"
    return next((name for known, name in _SQL_TYPES.items() if issubclass(kind, known)), "TEXT")


def sql_type_of(values: Sequence[Any]) -> str:
    """The column type for values seen, which may hold None."""
    types = {type(value) for value in values if value is not None}
    if types == {JsonText}:
        return "JSONB"
    if types == {list}:
        elements = {type(each) for value in values if value is not None for each in value}
        element = _common(elements - {type(None)})
        return "JSONB" if not elements or element == "JSONB" else f"{element}[]"
    if types == {int} and not _within(values, 63):
        return "NUMERIC"
    if types == {int, float}:
        return "DOUBLE PRECISION"
    return _common(types)


def _common(types: set[type]) -> str:
    return sql_type(types.pop()) if len(types) == 1 else "TEXT"


# copying


class Transfer(NamedTuple):
    """Rows for COPY; ``types`` of its binary format, or None for text."""

    types: list[str] | None
    rows: Iterable[Values]


SMALL: Final = 8
"""Fewer rows go as text: so a refused row that is alone says what the server says of it."""


def transfer(columns: Sequence[Column], rows: Sequence[Row]) -> Transfer:
    """How ``rows``, whose fields are ``columns`` in this order, are copied.

    Raises TypeError for a value that no text of the column's type can stand for.
    """
    fields: list[Values] = list(zip(*[row.values() for row in rows], strict=True))
    seen = [set(map(type, values)) - {type(None)} for values in fields]
    if len(rows) >= SMALL:
        binary = []
        for column, types, values in zip(columns, seen, fields, strict=True):
            fit = _FITS.get(column.kind)
            fitting = None if fit is None else fit(types, values)
            if fitting is None:
                break
            binary.append(fitting)
        else:
            return Transfer([name for name, _ in binary], zip(*[v for _, v in binary], strict=True))
    texts = [
        values if types <= _AS_THEY_ARE else [_text(column, value) for value in values]
        for column, types, values in zip(columns, seen, fields, strict=True)
    ]
    return Transfer(None, zip(*texts, strict=True))


_AS_THEY_ARE: Final = frozenset({str, JsonText})


def _text(column: Column, value: Any) -> Any:
    """A value whose text the server takes for what the value is."""
    kind = column.kind
    if value is None or type(value) in _AS_THEY_ARE:
        return value
    if kind in ("json", "jsonb"):
        return msgspec.json.encode(value).decode()
    if type(value) is list:
        if kind == "json_array":
            return [None if each is None else msgspec.json.encode(each).decode() for each in value]
        return value if kind == "array" else msgspec.json.encode(value).decode()
    if type(value) is bool:
        if kind == "bool":
            return value
        return str(value).lower() if kind in TEXTS else int(value)
    if type(value) is bytes and kind != "bytea":
        raise TypeError(f"bytes do not fit column {column.name!r}, which is of type {column.type}")
    if kind == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)  # its text would lose the offset
    return value


def _within(values: Iterable[Any], bits: int) -> bool:
    present = [value for value in values if value is not None]
    return not present or (-(1 << bits) <= min(present) and max(present) < 1 << bits)


def _integers(name: str, bits: int) -> Fit:
    def fit(types: set[type], values: Values) -> tuple[str, Values] | None:
        return (name, values) if types <= {int} and _within(values, bits) else None

    return fit


def _only(name: str, *kinds: type) -> Fit:
    allowed = frozenset(kinds)
    return lambda types, values: (name, values) if types <= allowed else None


def _floats(types: set[type], values: Values) -> tuple[str, Values] | None:
    if types <= {float}:
        return "float8", values
    if types <= {float, int} and _within((v for v in values if type(v) is int), 1023):
        return "float8", [None if value is None else float(value) for value in values]
    return None


def _numerics(types: set[type], values: Values) -> tuple[str, Values] | None:
    if types <= {Decimal, int}:
        return "numeric", values
    if types <= {Decimal, int, float}:
        return "numeric", [Decimal(repr(v)) if type(v) is float else v for v in values]
    return None


def _datetimes(name: str, *, with_zone: bool) -> Fit:
    def fit(types: set[type], values: Values) -> tuple[str, Values] | None:
        if not types <= {datetime}:
            return None
        zones = {value.tzinfo for value in values if value is not None}
        is_right = None not in zones if with_zone else zones <= {None}
        return (name, values) if is_right else None

    return fit


def _jsonb(types: set[type], values: Values) -> tuple[str, Values] | None:
    if not types <= _AS_THEY_ARE:
        return None
    # a version byte before the text is the whole of jsonb's binary format
    return "bytea", [None if value is None else b"\x01" + value.encode() for value in values]


TEXTS: Final = frozenset({"text", "varchar", "bpchar", "citext", "enum"})
_AS_TEXT: Final = _only("text", str, JsonText)
_FITS: Final[Mapping[str, Fit]] = {
    "int2": _integers("int2", 15),
    "int4": _integers("int4", 31),
    "int8": _integers("int8", 63),
    "float8": _floats,
    "numeric": _numerics,
    "bool": _only("bool", bool),
    "date": _only("date", date),
    "timestamptz": _datetimes("timestamptz", with_zone=True),
    "timestamp": _datetimes("timestamp", with_zone=False),
    "uuid": _only("uuid", UUID),
    "bytea": _only("bytea", bytes),
    "json": _AS_TEXT,
    "jsonb": _jsonb,
    **dict.fromkeys(TEXTS, _AS_TEXT),
}
_EXACT: Final[Mapping[str, type]] = {
    **dict.fromkeys(("int2", "int4", "int8"), int),
    **dict.fromkeys(("text", "varchar"), str),
    "uuid": UUID,
    "date": date,
    "bytea": bytes,
    "bool": bool,
}


def tells_apart(column: Column, types: set[type]) -> bool:
    """Whether values of these types are the same for the column only when they are in Python."""
    is_whole = "(" not in column.type  # varchar(3) takes "abc " for "abc"
    return column.is_exact and is_whole and types <= {_EXACT.get(column.kind)}
