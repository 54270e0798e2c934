"""An Avro tree back to text: as Java prints a schema, and in Confluent's normalised form."""

from __future__ import annotations

from collections.abc import Iterable

from ..json_text import Json, dump_json, quote
from .types import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    PrimitiveType,
    Props,
    RecordType,
    UnionType,
)


def canonical_text(node: AvroType, known: Iterable[str] = ()) -> str:
    """The text of Java's ``Schema.toString``: nothing is dropped, attributes in a fixed order.

    ``known`` are full names of types defined elsewhere: they are written as names.
    """
    return dump_json(_Printer(known).type(node, ""))


class _Printer:
    def __init__(self, known: Iterable[str]) -> None:
        self._known = set(known)

    def type(self, node: AvroType, namespace: str) -> Json:
        match node:
            case PrimitiveType():
                return {"type": node.kind, **node.props} if node.props else node.kind
            case ArrayType():
                return {"type": "array", "items": self.type(node.items, namespace), **node.props}
            case MapType():
                return {"type": "map", "values": self.type(node.values, namespace), **node.props}
            case UnionType():
                return [self.type(branch, namespace) for branch in node.branches]
            case _:
                return self._named(node, namespace)

    def _named(self, node: NamedType, namespace: str) -> Json:
        name = node.name
        if name.full in self._known:
            return name.within(namespace)
        self._known.add(name.full)
        is_error = isinstance(node, RecordType) and node.is_error
        shown: dict[str, Json] = {"type": "error" if is_error else node.kind, "name": name.short}
        if name.namespace != namespace:
            shown["namespace"] = name.namespace
        if node.doc is not None:
            shown["doc"] = node.doc
        match node:
            case RecordType():
                shown["fields"] = [self._field(field, name.namespace) for field in node.fields]
            case EnumType():
                shown["symbols"] = list(node.symbols)
                if node.default is not None:
                    shown["default"] = node.default
            case FixedType():
                shown["size"] = node.size
        shown.update(node.props)
        if node.aliases:
            shown["aliases"] = [alias.within(name.namespace) for alias in node.aliases]
        return shown

    def _field(self, field: Field, namespace: str) -> Json:
        shown: dict[str, Json] = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            shown["doc"] = field.doc
        if field.has_default:
            shown["default"] = field.default
        if field.order != "ascending":
            shown["order"] = field.order
        if field.aliases:
            shown["aliases"] = list(field.aliases)
        shown.update(field.props)
        return shown


def normalized_text(node: AvroType, known: Iterable[str] = ()) -> str:
    """Full names everywhere and one order for all attributes, the free ones sorted by name.

    Source: the attribute order of Confluent's ``AvroSchemaUtils`` under ``normalize=true``.
    """
    return _normalized(node, set(known))


def _normalized(node: AvroType, known: set[str]) -> str:
    match node:
        case PrimitiveType():
            kind = quote(node.kind)
            return f'{{"type":{kind}{_sorted_props(node.props)}}}' if node.props else kind
        case ArrayType():
            inner = _normalized(node.items, known)
            return f'{{"type":"array","items":{inner}{_sorted_props(node.props)}}}'
        case MapType():
            inner = _normalized(node.values, known)
            return f'{{"type":"map","values":{inner}{_sorted_props(node.props)}}}'
        case UnionType():
            return f"[{','.join(_normalized(branch, known) for branch in node.branches)}]"
        case _:
            return _normalized_named(node, known)


def _normalized_named(node: NamedType, known: set[str]) -> str:
    name = node.name.full
    if name in known:
        return quote(name)
    known.add(name)
    match node:
        case RecordType():
            body = ",".join(_normalized_field(field, known) for field in node.fields)
            body = f'"fields":[{body}]'
        case EnumType():
            body = f'"symbols":{dump_json(list(node.symbols))}'
        case FixedType():
            body = f'"size":{node.size}'
    text = f'{{"name":{quote(name)},"type":{quote(node.kind)},{body}'
    logical, rest = _split_logical(node.props)
    text += _members(logical)
    if node.doc:
        text += f',"doc":{quote(node.doc)}'
    if node.aliases:
        text += f',"aliases":{dump_json(list[Json](sorted({a.full for a in node.aliases})))}'
    if isinstance(node, EnumType) and node.default is not None:
        text += f',"default":{quote(node.default)}'
    return text + _members(rest) + "}"


def _normalized_field(field: Field, known: set[str]) -> str:
    text = f'{{"name":{quote(field.name)},"type":{_normalized(field.type, known)}'
    text += f',"order":{quote(field.order)}'
    if field.doc is not None:
        text += f',"doc":{quote(field.doc)}'
    if field.aliases:
        text += f',"aliases":{dump_json(list[Json](sorted(set(field.aliases))))}'
    if field.has_default:
        text += f',"default":{dump_json(field.default, sort_keys=True)}'
    return text + _sorted_props(field.props) + "}"


def _sorted_props(props: Props) -> str:
    logical, rest = _split_logical(props)
    return _members(logical) + _members(rest)


def _split_logical(props: Props) -> tuple[Props, Props]:
    """The logical type with what belongs to it, and the other attributes in order of name."""
    names = ("logicalType", "precision", "scale")
    logical: Props = {name: props[name] for name in names if name in props}
    if "logicalType" not in logical:
        logical = {}
    elif logical.get("scale") == 0:
        del logical["scale"]  # the specification's default
    rest = {
        n: props[n] for n in sorted(props) if n not in logical and (not logical or n != "scale")
    }
    return logical, rest


def _members(props: Props) -> str:
    return "".join(
        f",{quote(name)}:{dump_json(value, sort_keys=True)}" for name, value in props.items()
    )
