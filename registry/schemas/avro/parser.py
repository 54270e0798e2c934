"""Avro JSON to the tree of ``types``, checked as Java's ``Schema.Parser`` checks it.

Source: the Avro 1.12 specification, and what Avro for Java 1.12.1 takes and refuses.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..json_text import Json
from ..schema import InvalidSchema
from .defaults import is_valid_default
from .text import canonical_text
from .types import (
    PRIMITIVES,
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    Name,
    NamedType,
    PrimitiveType,
    Props,
    RecordType,
    UnionType,
    branch_name,
)

_SCHEMA_ATTRIBUTES = frozenset(
    {"type", "name", "namespace", "doc", "fields", "items", "values", "size", "symbols", "aliases"}
)
_ENUM_ATTRIBUTES = _SCHEMA_ATTRIBUTES | {"default"}
_FIELD_ATTRIBUTES = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_ORDERS = ("ascending", "descending", "ignore")
_MAX_FIXED_SIZE = (1 << 31) - 1


class AvroParser:
    """Parses schemas that share their named types: first the referenced ones, then the one meant.

    ``strict`` also checks the form of names and the default values; schemas that were stored
    without that check are read without it.
    """

    def __init__(self, strict: bool = True) -> None:
        self.names: dict[str, NamedType] = {}
        self._strict = strict

    def parse(self, node: Json, namespace: str = "", path: str = "") -> AvroType:
        """Raises ``InvalidSchema`` with the JSON pointer of what is wrong."""
        if isinstance(node, str):
            return self._named(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path)
        if not isinstance(node, dict):
            raise InvalidSchema("a type is a name, an object or a list", path)
        kind = node.get("type")
        if kind is None:
            raise InvalidSchema("type is missing", path)
        if not isinstance(kind, str):
            return self.parse(kind, namespace, f"{path}/type")
        if kind in PRIMITIVES:
            return PrimitiveType(kind, _props(node, _SCHEMA_ATTRIBUTES))
        if kind in ("array", "map"):
            member = "items" if kind == "array" else "values"
            if member not in node:
                raise InvalidSchema(f"{kind} has no {member}", path)
            inner = self.parse(node[member], namespace, f"{path}/{member}")
            props = _props(node, _SCHEMA_ATTRIBUTES)
            return ArrayType(inner, props) if kind == "array" else MapType(inner, props)
        if kind in ("record", "error"):
            return self._record(node, kind == "error", namespace, path)
        if kind == "enum":
            return self._enum(node, namespace, path)
        if kind == "fixed":
            return self._fixed(node, namespace, path)
        return self._named(kind, namespace, f"{path}/type")

    def _named(self, text: str, namespace: str, path: str) -> AvroType:
        if text in PRIMITIVES:
            return PrimitiveType(text, {})
        name = _split(text, namespace)
        found = self.names.get(name.full) or self.names.get(text)
        if found is None:
            raise InvalidSchema(f"unknown type {name.full!r}", path)
        return found

    def _union(self, node: list[Json], namespace: str, path: str) -> UnionType:
        branches: list[AvroType] = []
        seen: set[str] = set()
        for index, item in enumerate(node):
            here = f"{path}/{index}"
            branch = self.parse(item, namespace, here)
            if isinstance(branch, UnionType):
                raise InvalidSchema("a union may not hold a union directly", here)
            name = branch_name(branch)
            if name in seen:
                raise InvalidSchema(f"union holds {name!r} twice", here)
            seen.add(name)
            branches.append(branch)
        return UnionType(branches)

    def _record(
        self, node: Mapping[str, Json], is_error: bool, namespace: str, path: str
    ) -> NamedType:
        name = self._name(node, namespace, path)
        record = RecordType(
            name,
            self._aliases(node, name, path),
            _text(node, "doc"),
            _props(node, _SCHEMA_ATTRIBUTES),
            is_error=is_error,
        )
        earlier = self._define(record, path)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema("record has no list of fields", path)
        seen: set[str] = set()
        for index, item in enumerate(fields):
            here = f"{path}/fields/{index}"
            field = self._field(item, name.namespace, here)
            if field.name in seen:
                raise InvalidSchema(f"record has two fields {field.name!r}", here)
            seen.add(field.name)
            record.fields.append(field)
        return self._settle(record, earlier, path)

    def _field(self, node: Json, namespace: str, path: str) -> Field:
        if not isinstance(node, dict):
            raise InvalidSchema("a field is an object", path)
        name = node.get("name")
        if not isinstance(name, str):
            raise InvalidSchema("field has no name", path)
        self._check_name(name, f"{path}/name")
        if "type" not in node:
            raise InvalidSchema("field has no type", path)
        parsed = self.parse(node["type"], namespace, f"{path}/type")
        order = node.get("order", "ascending")
        order = order.lower() if isinstance(order, str) else order
        if order not in _ORDERS:
            raise InvalidSchema(f"order is one of {', '.join(_ORDERS)}", f"{path}/order")
        default = node.get("default")
        if isinstance(default, str) and parsed.kind in ("float", "double"):
            default = _number(
                default, f"{path}/default"
            )  # Java takes "1.5", and "NaN" has no other
        if self._strict and "default" in node and not is_valid_default(parsed, default):
            raise InvalidSchema(f"default does not fit type {parsed.kind}", f"{path}/default")
        return Field(
            name,
            parsed,
            "default" in node,
            default,
            order,
            _texts(node, "aliases", path),
            _text(node, "doc"),
            _props(node, _FIELD_ATTRIBUTES),
        )

    def _enum(self, node: Mapping[str, Json], namespace: str, path: str) -> NamedType:
        name = self._name(node, namespace, path)
        if not isinstance(node.get("symbols"), list):
            raise InvalidSchema("enum has no list of symbols", path)
        symbols = _texts(node, "symbols", path)
        seen: set[str] = set()
        for index, symbol in enumerate(symbols):
            self._check_name(symbol, f"{path}/symbols/{index}")
            if symbol in seen:
                raise InvalidSchema(f"enum has symbol {symbol!r} twice", f"{path}/symbols/{index}")
            seen.add(symbol)
        default = node.get("default")
        if default is not None and (not isinstance(default, str) or default not in seen):
            raise InvalidSchema("enum default is none of its symbols", f"{path}/default")
        enum = EnumType(
            name,
            symbols,
            default,
            self._aliases(node, name, path),
            _text(node, "doc"),
            _props(node, _ENUM_ATTRIBUTES),
        )
        return self._settle(enum, self._define(enum, path), path)

    def _fixed(self, node: Mapping[str, Json], namespace: str, path: str) -> NamedType:
        name = self._name(node, namespace, path)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED_SIZE:
            raise InvalidSchema("fixed needs a size, a whole number", path)
        fixed = FixedType(
            name,
            size,
            self._aliases(node, name, path),
            _text(node, "doc"),
            _props(node, _SCHEMA_ATTRIBUTES),
        )
        return self._settle(fixed, self._define(fixed, path), path)

    def _define(self, node: NamedType, path: str) -> NamedType | None:
        """Makes ``node`` known by its name; returns what had the name before."""
        full = node.name.full
        if full in PRIMITIVES:
            raise InvalidSchema(f"{full!r} is the name of a primitive type", path)
        earlier = self.names.get(full)
        self.names[full] = node
        return earlier

    def _settle(self, node: NamedType, earlier: NamedType | None, path: str) -> NamedType:
        """A type may be written out twice if both are the same; the first one then counts."""
        if earlier is None:
            return node
        if canonical_text(node) != canonical_text(earlier):
            raise InvalidSchema(f"{node.name.full!r} is defined twice, and differently", path)
        self.names[node.name.full] = earlier
        return earlier

    def _name(self, node: Mapping[str, Json], namespace: str, path: str) -> Name:
        text = node.get("name")
        if not isinstance(text, str):
            raise InvalidSchema("named type has no name", path)
        given = node.get("namespace")
        if given is not None and not isinstance(given, str):
            raise InvalidSchema("namespace is a text", f"{path}/namespace")
        name = _split(text, namespace if given is None else given)
        self._check_name(name.short, f"{path}/name")
        for part in name.namespace.split(".") if name.namespace else ():
            self._check_name(part, f"{path}/namespace")
        return name

    def _aliases(self, node: Mapping[str, Json], name: Name, path: str) -> list[Name]:
        return [_split(alias, name.namespace) for alias in _texts(node, "aliases", path)]

    def _check_name(self, name: str, path: str) -> None:
        """Letters, digits and underscores, no digit first; letters of any script, as in Java."""
        if not name:
            raise InvalidSchema("a name is empty", path)
        if not self._strict:
            return
        plain = name.replace("_", "a")
        if not (plain[0].isalpha() and all(char.isalpha() or char.isdigit() for char in plain)):
            raise InvalidSchema(f"{name[:100]!r} is no Avro name", path)


def _split(text: str, namespace: str) -> Name:
    """A name as written, in ``namespace`` unless it brings its own."""
    space, dot, short = text.rpartition(".")
    return Name(space, short) if dot else Name(namespace, text)


def _props(node: Mapping[str, Json], attributes: frozenset[str]) -> Props:
    return {name: value for name, value in node.items() if name not in attributes}


def _text(node: Mapping[str, Json], member: str) -> str | None:
    value = node.get(member)
    return value if isinstance(value, str) else None


def _texts(node: Mapping[str, Json], member: str, path: str) -> list[str]:
    value = node.get(member)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidSchema(f"{member} is a list of texts", f"{path}/{member}")
    texts: list[str] = []
    for item in value:
        if not isinstance(item, str):
            raise InvalidSchema(f"{member} is a list of texts", f"{path}/{member}")
        texts.append(item)
    return texts


def _number(text: str, path: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSchema("default is no number", path) from None
