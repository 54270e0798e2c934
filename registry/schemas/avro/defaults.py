"""Whether a field's default value fits the field's type."""

from __future__ import annotations

from ..json_text import Json
from .types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    RecordType,
    UnionType,
)

_RANGES = {"int": 1 << 31, "long": 1 << 63}


def is_valid_default(node: AvroType, value: Json) -> bool:
    """As Java 1.12 has it: any branch of a union will do; bytes are texts of code points to 255."""
    match node:
        case UnionType():
            return any(is_valid_default(branch, value) for branch in node.branches)
        case ArrayType():
            return isinstance(value, list) and all(
                is_valid_default(node.items, item) for item in value
            )
        case MapType():
            return isinstance(value, dict) and all(
                is_valid_default(node.values, item) for item in value.values()
            )
        case RecordType():
            return isinstance(value, dict) and all(
                is_valid_default(field.type, value[field.name])
                if field.name in value
                else field.has_default
                for field in node.fields
            )
        case EnumType():
            return isinstance(value, str) and value in node.symbols
        case FixedType():
            return _is_bytes(value) and len(str(value)) == node.size
        case _:
            return _is_primitive(node.kind, value)


def _is_primitive(kind: str, value: Json) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if kind == "bytes":
        return _is_bytes(value)
    if isinstance(value, bool):
        return False
    if kind in _RANGES:
        return isinstance(value, int) and -_RANGES[kind] <= value < _RANGES[kind]
    return isinstance(value, int | float)


def _is_bytes(value: Json) -> bool:
    return isinstance(value, str) and all(ord(char) < 256 for char in value)
