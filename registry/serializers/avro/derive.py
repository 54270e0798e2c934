"""An Avro schema from a Python type. Pure.

int is long, float double, datetime timestamp-micros, date date, time time-micros, UUID string with
logical type uuid, ``Decimal`` bytes with logical type decimal (``Digits``), an enum an enum of its
values (of its names where a value is no Avro name), ``X | None`` a union with null.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import re
import uuid
from collections.abc import Sequence
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
    Style,
    UnionOf,
    Untyped,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Final = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
}
_LOGICAL: Final = {
    datetime.datetime: ("long", "timestamp-micros"),
    datetime.date: ("int", "date"),
    datetime.time: ("long", "time-micros"),
    uuid.UUID: ("string", "uuid"),
}


def schema_of(model: Model, namespace: str = "", aliases: Sequence[str] = ()) -> Json:
    """The schema as JSON data. ``namespace`` is that of all named types; ``aliases`` are former
    names of the outermost record. Raises UnsupportedType."""
    schema = _Deriving(namespace).schema(model, "value")
    if isinstance(schema, dict):
        if namespace and "name" in schema:
            schema = {"type": schema["type"], "name": schema["name"], "namespace": namespace} | {
                name: value for name, value in schema.items() if name not in ("type", "name")
            }
        if aliases:
            schema["aliases"] = list(aliases)
    return schema


def symbols_of(cls: type[enum.Enum]) -> list[str]:
    """Symbols of an enum in the order of its members."""
    values = [member.value for member in cls]
    if all(isinstance(value, str) and _NAME.fullmatch(value) for value in values):
        return values
    return [member.name for member in cls]


class _Deriving:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._names: dict[str, type] = {}

    def schema(self, model: Model, place: str) -> Json:
        match model:
            case Scalar():
                return _scalar(model)
            case ListOf():
                return {"type": "array", "items": self.schema(model.item, f"{place}[]")}
            case MapOf():
                return {"type": "map", "values": self.schema(model.value, f"{place}{{}}")}
            case UnionOf():
                return self._union([self.schema(each, place) for each in model.members])
            case EnumOf():
                name = model.cls.__name__
                if self._is_known(name, model.cls):
                    return name
                symbols: list[Json] = [*symbols_of(model.cls)]
                return {"type": "enum", "name": name, "symbols": symbols}
            case RecordOf():
                return self._record(model)
            case Untyped():
                raise UnsupportedType(f"{place}: Any has no Avro schema; give the schema instead")

    def _record(self, model: RecordOf) -> Json:
        name = model.name
        if self._is_known(name, model.cls):
            return name
        fields: list[Json] = [self._field(field, f"{name}.{field.name}") for field in model.fields]
        return {"type": "record", "name": name, "fields": fields}

    def _field(self, field: FieldOf, place: str) -> Json:
        schema = self.schema(field.model, place)
        shown: dict[str, Json] = {"name": field.name, "type": schema}
        if field.may_miss:
            members = schema if isinstance(schema, list) else [schema]
            shown["type"] = self._union(["null", *members])
            shown["default"] = None
        elif field.make_default is not None:
            self._default(shown, field, field.make_default())
        if field.aliases:
            shown["aliases"] = list(field.aliases)
        return shown

    def _default(self, shown: dict[str, Json], field: FieldOf, value: Any) -> None:
        """A default stands for the first branch of a union."""
        schema, model = shown["type"], field.model
        if isinstance(schema, list) and isinstance(model, UnionOf):
            branch = next((at for at, one in enumerate(model.members) if _is_of(one, value)), None)
            if branch is None:
                return
            model = model.members[branch]
            first = self._reference(model)
            kept = [each for each in schema if _name_of(each) != _name_of(first)]
            moved = [each for each in schema if each not in kept]
            shown["type"] = [*moved, *kept]
        try:
            shown["default"] = default_json(model, value)
        except (TypeError, ValueError):
            raise UnsupportedType(
                f"field {field.name!r}: default {value!r} is not of the field's type"
            ) from None

    def _reference(self, model: Model) -> Json:
        if isinstance(model, RecordOf):
            return model.name
        if isinstance(model, EnumOf):
            return model.cls.__name__
        return self.schema(model, "default")

    def _union(self, members: list[Json]) -> Json:
        """Null comes first: that is where a default of null belongs."""
        flat: list[Json] = []
        for member in members:
            for each in member if isinstance(member, list) else [member]:
                if each not in flat:
                    flat.append(each)
        flat.sort(key=lambda each: each != "null")
        return flat[0] if len(flat) == 1 else flat

    def _is_known(self, name: str, cls: type) -> bool:
        """Whether the name stands for the class already. Raises UnsupportedType."""
        if not _NAME.fullmatch(name):
            raise UnsupportedType(f"{name!r} is no Avro name: give the schema instead")
        if self._names.setdefault(name, cls) is not cls:
            raise UnsupportedType(f"two types are called {name!r}: rename one of them")
        seen = f"{name} "  # a name is taken when it was written out
        if seen in self._names:
            return True
        self._names[seen] = cls
        return False


def _scalar(model: Scalar) -> Json:
    if model.cls is decimal.Decimal:
        digits = model.digits
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": digits.precision,
            "scale": digits.scale,
        }
    kind = _PLAIN.get(model.cls)
    if kind is not None:
        return kind
    kind, logical = _LOGICAL[model.cls]
    return {"type": kind, "logicalType": logical}


def _name_of(schema: Json) -> Json:
    """What tells a union's branches apart."""
    return schema.get("name", schema["type"]) if isinstance(schema, dict) else schema


def _is_of(model: Model, value: Any) -> bool:
    match model:
        case Scalar():
            return type(value) is model.cls
        case ListOf():
            return isinstance(value, list | tuple | set | frozenset)
        case MapOf():
            return isinstance(value, dict)
        case EnumOf() | RecordOf():
            is_items = isinstance(model, RecordOf) and model.style is Style.ITEMS
            return isinstance(value, dict if is_items else model.cls)
        case _:
            return True


def default_json(model: Model, value: Any) -> Json:
    """A default as it stands in a schema. Raises TypeError, ValueError."""
    if not _is_of(model, value) and not (isinstance(value, int) and model == Scalar(float)):
        raise TypeError(f"{value!r} is not of the type")
    match model:
        case EnumOf():
            return symbols_of(model.cls)[list(model.cls).index(value)]
        case ListOf():
            return [default_json(model.item, each) for each in value]
        case MapOf():
            return {key: default_json(model.value, each) for key, each in value.items()}
        case RecordOf():
            return {
                field.name: default_json(
                    field.model,
                    value[field.attribute]
                    if model.style is Style.ITEMS
                    else getattr(value, field.attribute),
                )
                for field in model.fields
            }
        case UnionOf():
            # inside a default only the first branch can be meant
            return default_json(model.members[0], value)
        case _:
            return _scalar_json(model, value)


def _scalar_json(model: Model, value: Any) -> Json:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, decimal.Decimal) and isinstance(model, Scalar):
        unscaled = int(value.scaleb(model.digits.scale, decimal.Context(prec=200)))
        size = (unscaled.bit_length() + 8) // 8
        return unscaled.to_bytes(size, "big", signed=True).decode("latin-1")
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (value - epoch) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    built: Json = msgspec.to_builtins(value)
    return built
