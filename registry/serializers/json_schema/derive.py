"""A JSON Schema from a Python type, for what msgspec (or pydantic) makes of its values. Pure."""

from __future__ import annotations

import datetime
import enum
import uuid
from decimal import Decimal
from typing import Any, Final

import msgspec

from ...schemas.json_text import Json
from ..errors import UnsupportedType
from ..models import (
    EnumOf,
    FieldOf,
    ListOf,
    MapOf,
    Model,
    RecordOf,
    Scalar,
    UnionOf,
    Untyped,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Final[dict[type, dict[str, Json]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    type(None): {"type": "null"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    Decimal: {"type": "string", "format": "decimal"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}


def schema_of(model: Model, *, is_open: bool = False) -> dict[str, Json]:
    """The schema as JSON data. ``is_open``: objects may have more properties than are declared.

    Closed is what lets a field with a default be added later: readers of an open schema may have
    met any value under the new name. Raises UnsupportedType.
    """
    deriving = _Deriving(model, is_open)
    root = deriving.body(model, "value")
    schema: dict[str, Json] = {"$schema": DIALECT, **root}
    if deriving.definitions:
        schema["$defs"] = deriving.definitions
    return schema


class _Deriving:
    def __init__(self, root: Model, is_open: bool) -> None:
        self._root = root
        self._is_open = is_open
        self._classes: dict[str, type] = {}
        self.definitions: dict[str, Json] = {}

    def body(self, model: Model, place: str) -> dict[str, Json]:
        """Written out, not referred to."""
        match model:
            case Scalar():
                return dict(_SCALARS[model.cls])
            case ListOf():
                items: dict[str, Json] = {"type": "array"}
                if not isinstance(model.item, Untyped):
                    items["items"] = self._inner(model.item, f"{place}[]")
                if model.make in (set, frozenset):
                    items["uniqueItems"] = True
                return items
            case MapOf():
                if isinstance(model.value, Untyped):
                    return {"type": "object"}
                inner = self._inner(model.value, f"{place}{{}}")
                return {"type": "object", "additionalProperties": inner}
            case UnionOf():
                return {"anyOf": [self._inner(each, place) for each in model.members]}
            case EnumOf():
                values = [msgspec.to_builtins(member.value) for member in model.cls]
                return {"title": model.cls.__name__, "enum": values}
            case RecordOf():
                return self._record(model)
            case Untyped():
                return {}

    def _inner(self, model: Model, place: str) -> Json:
        if not isinstance(model, RecordOf | EnumOf):
            return self.body(model, place)
        if model is self._root:
            return {"$ref": "#"}
        name = model.cls.__name__
        if self._classes.setdefault(name, model.cls) is not model.cls:
            raise UnsupportedType(f"two types are called {name!r}: rename one of them")
        if name not in self.definitions:
            self.definitions[name] = {}  # a type may contain itself
            self.definitions[name] = self.body(model, name)
        return {"$ref": f"#/$defs/{name}"}

    def _record(self, model: RecordOf) -> dict[str, Json]:
        properties: dict[str, Json] = {}
        required: list[Json] = []
        config = getattr(model.cls, "__struct_config__", None)
        if config is not None and config.array_like:
            raise UnsupportedType(f"{model.name}: a Struct with array_like has no schema here")
        if config is not None and config.tag is not None:
            properties[config.tag_field] = {"enum": [config.tag]}
            required.append(config.tag_field)
        for field in model.fields:
            properties[field.name] = self._field(model, field)
            if field.make_default is None and not field.may_miss:
                required.append(field.name)
        schema: dict[str, Json] = {
            "title": model.name,
            "type": "object",
            "properties": properties,
        }
        if required:
            schema["required"] = required
        if not self._is_open:
            schema["additionalProperties"] = False
        return schema

    def _field(self, model: RecordOf, field: FieldOf) -> Json:
        schema = self._inner(field.model, f"{model.name}.{field.name}")
        if field.make_default is None or not isinstance(schema, dict):
            return schema
        default = field.make_default()
        if isinstance(default, enum.Enum):
            default = default.value
        return {**schema, "default": _plain(default)}


def _plain(value: Any) -> Json:
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    built: Json = msgspec.to_builtins(value, str_keys=True)
    return built
