"""Defaults of an Avro schema as Python data. Pure."""

from __future__ import annotations

from typing import Any

from ...schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from ...schemas.json_text import Json


def default_value(node: AvroType, default: Json) -> Any:
    """What a writer takes for the JSON form of a default: bytes are not text, numbers of the right
    kind. In a union the first branch the default fits counts."""
    match node:
        case RecordType() if isinstance(default, dict):
            return {
                field.name: default_value(field.type, default.get(field.name, field.default))
                for field in node.fields
            }
        case ArrayType() if isinstance(default, list):
            return [default_value(node.items, each) for each in default]
        case MapType() if isinstance(default, dict):
            return {key: default_value(node.values, each) for key, each in default.items()}
        case UnionType():
            branch = next((one for one in node.branches if _fits(one, default)), node.branches[0])
            return default_value(branch, default)
        case FixedType() if isinstance(default, str):
            return default.encode("latin-1")
        case PrimitiveType() if node.kind == "bytes" and isinstance(default, str):
            return default.encode("latin-1")
        case PrimitiveType() if node.kind in ("float", "double") and default is not None:
            return float(default)  # type: ignore[arg-type]
        case _:
            return default


def _fits(node: AvroType, default: Json) -> bool:
    match node.kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            return isinstance(default, int) and not isinstance(default, bool)
        case "float" | "double":
            return isinstance(default, int | float) and not isinstance(default, bool)
        case "array":
            return isinstance(default, list)
        case "record" | "map":
            return isinstance(default, dict)
        case _:
            return isinstance(default, str) and (
                not isinstance(node, EnumType) or default in node.symbols
            )
