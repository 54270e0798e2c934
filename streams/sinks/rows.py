"""Rows of a table from what agents write, and a table's columns from a declared type. Pure."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..errors import ConfigurationError
from ..serde.json import is_pydantic
from .rows_kernel import shape

Row = dict[str, Any]
PLAIN: Final = frozenset({int, str, float, bytes, type(None)})
"""Types every database takes as they are."""
_AS_TEXT: Final = frozenset({Decimal, datetime, date, time, timedelta})
"""Common types that are text in JSON."""

_CLASS_VAR: Final[object] = typing.ClassVar


class Deletion(NamedTuple):
    """The row with this key goes."""

    key: Row


class Run(NamedTuple):
    """Consecutive values that one statement can write: the same columns, all rows or all
    deletions."""

    is_deletion: bool
    columns: tuple[str, ...]
    start: int
    rows: list[Row]


def as_row(value: Any) -> Row:
    """A new dict by column from a dict, Record, dataclass, pydantic or Faust model. Raises
    TypeError."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names}
    if is_pydantic(type(value)):
        return dict(value.model_dump())
    if hasattr(value, "asdict"):
        return dict(value.asdict())
    if hasattr(value, "DESCRIPTOR") and hasattr(value, "SerializeToString"):
        return _of_message(value)
    raise TypeError(
        f"a row is a dict, Record, dataclass or model, not {type(value).__name__}: {value!r}"
    )


def _of_message(message: Any) -> Row:
    """Fields of a Protobuf message: what is not there and has no default is None."""
    from google.protobuf.json_format import MessageToDict

    whole = MessageToDict(message, preserving_proto_field_name=True)
    row: Row = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        elif field.message_type is not None:
            row[field.name] = whole.get(
                field.name, {} if field.message_type.GetOptions().map_entry else []
            )
        else:
            value = getattr(message, field.name)
            is_plain = type(value) in PLAIN or isinstance(value, bool)
            row[field.name] = value if is_plain else list(value)
    return row


def plain(value: Any) -> Any:
    """A value as a database without own types for it keeps it: ISO times, decimals and UUIDs as
    text, enums as their values, containers and models as JSON text. Raises TypeError."""
    if type(value) in PLAIN:
        return value
    if type(value) in _AS_TEXT:
        return msgspec.to_builtins(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    for kind in (int, str, float, bytes):
        if isinstance(value, kind) and not isinstance(value, enum.Enum):
            return kind(value)  # type: ignore[arg-type]
    built = msgspec.to_builtins(value)
    return built if type(built) in PLAIN else msgspec.json.encode(built).decode()


def rows_alike(values: Sequence[Row | Deletion]) -> tuple[tuple[str, ...], list[Row]] | None:
    """The columns and the rows, when these are all there is and have the same columns in the same
    order."""
    rows = cast("list[Row]", values if isinstance(values, list) else list(values))
    columns = shape(rows)
    return None if columns is None else (columns, rows)


def runs(values: Sequence[Row | Deletion]) -> Iterator[Run]:
    """Split into runs, in order: rows of one key must be written in the order they came."""
    if (alike := rows_alike(values)) is not None:
        columns, rows = alike
        yield Run(False, columns, 0, rows)
        return
    current: Run | None = None
    for index, value in enumerate(values):
        is_deletion = type(value) is Deletion
        row = value.key if isinstance(value, Deletion) else value
        columns = tuple(row)
        if current is None or (is_deletion, columns) != current[:2]:
            if current is not None:
                yield current
            current = Run(is_deletion, columns, index, [])
        current.rows.append(row)
    if current is not None:
        yield current


def columns_of(value_type: Any, name_of: Callable[[Any], str]) -> dict[str, str]:
    """Column types by name, in the order of the type's fields.

    ``value_type``: a Record, dataclass, TypedDict or pydantic class, or a dict of columns to Python
    types or SQL type names. ``name_of`` names a Python type (without ``| None``) in SQL. Raises
    ConfigurationError.
    """
    if isinstance(value_type, dict):
        hints = value_type
    elif isinstance(value_type, type):
        try:
            hints = typing.get_type_hints(value_type)
        except NameError as error:
            raise ConfigurationError(
                f"the fields of {value_type.__name__} cannot be looked at: {error}"
            ) from None
        if is_pydantic(value_type):
            fields = value_type.model_fields  # type: ignore[attr-defined]
            hints = {name: hint for name, hint in hints.items() if name in fields}
        hints = {
            name: hint for name, hint in hints.items() if typing.get_origin(hint) is not _CLASS_VAR
        }
    else:
        hints = {}
    if not hints:
        raise ConfigurationError(
            f"{value_type!r} says no columns: give value_type= a Record, dataclass, TypedDict or "
            'model class, or a dict such as {"account": str, "amount": int}'
        )
    return {
        name: hint if isinstance(hint, str) else name_of(_without_none(hint))
        for name, hint in hints.items()
    }


def _without_none(hint: Any) -> Any:
    """``int`` from ``int | None`` and ``Annotated[int, ...]``."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _without_none(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(hint) if each is not type(None)]
        return _without_none(members[0]) if len(members) == 1 else object
    return hint
