"""Where a value does not fit an Avro schema. Only run once encoding failed, and to choose between
branches of a union that look alike. Pure."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any, Final

from ...schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    RecordType,
    UnionType,
    branch_name,
    describe,
)
from ..errors import DoesNotFit, shown
from ..models import EnumOf, ListOf, MapOf, Model, RecordOf, Style, Untyped
from . import values
from .binding import branches_of, logical_for, symbol_members
from .logical import Logical, logical_of

_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}
_MISSING: Final = object()
_REFUSALS: Final = (TypeError, ValueError, OverflowError, ArithmeticError)


def find_fault(node: AvroType, model: Model, value: Any, path: str) -> DoesNotFit | None:
    """The first fault in ``value``, None when it fits."""
    if isinstance(node, UnionType):
        return _in_union(node, model, value, path)
    logical = logical_of(node)
    if logical is not None and _is_meant(logical, node, model, value):
        return _in_logical(node, logical, value, path)
    match node:
        case RecordType():
            return _in_record(node, model, value, path)
        case ArrayType():
            if not isinstance(value, list | tuple | set | frozenset):
                return _expected("array", value, path)
            item = model.item if isinstance(model, ListOf) else Untyped()
            faults = (
                find_fault(node.items, item, v, f"{path}[{at}]") for at, v in enumerate(value)
            )
            return next((fault for fault in faults if fault), None)
        case MapType():
            return _in_map(node, model, value, path)
        case EnumType():
            return _in_enum(node, model, value, path)
        case _:
            return _in_scalar(node, value, path)


def _expected(what: str, value: Any, path: str) -> DoesNotFit:
    return DoesNotFit(path, f"expected {what}, got {shown(value)}")


def _is_meant(logical: Logical, node: AvroType, model: Model, value: Any) -> bool:
    """Whether the value stands for the logical type, not for the raw one below it."""
    if isinstance(model, Untyped):
        return isinstance(value, logical.cls)
    return logical_for(node, model) is not None


def _in_logical(node: AvroType, logical: Logical, value: Any, path: str) -> DoesNotFit | None:
    try:
        raw = logical.encode(value)
    except _REFUSALS as error:
        name = f"{node.props.get('logicalType')}" if hasattr(node, "props") else node.kind
        return DoesNotFit(path, f"expected {name}, got {shown(value)}: {error}")
    return _in_scalar(node, raw, path)


def _in_scalar(node: AvroType, value: Any, path: str) -> DoesNotFit | None:
    kind = node.kind
    fits: bool
    match kind:
        case "null":
            fits = value is None
        case "boolean":
            fits = value is True or value is False
        case "string":
            fits = isinstance(value, str)
            if fits and not _is_unicode(value):
                return DoesNotFit(path, f"half of a surrogate pair in {shown(value)}")
        case "bytes":
            fits = isinstance(value, bytes | bytearray | memoryview)
        case "fixed":
            fits = isinstance(value, bytes | bytearray | memoryview)
            if fits and isinstance(node, FixedType) and len(value) != node.size:
                return DoesNotFit(path, f"expected {node.size} bytes, got {len(value)}")
        case _:
            return _in_number(kind, value, path)
    return None if fits else _expected(describe(node), value, path)


def _in_number(kind: str, value: Any, path: str) -> DoesNotFit | None:
    if isinstance(value, Decimal | datetime.datetime):
        return _expected(kind, value, path)
    try:
        if kind in _RANGES:
            if not -_RANGES[kind] <= values.as_int(value) < _RANGES[kind]:
                return DoesNotFit(path, f"{shown(value)} is out of the range of {kind}")
        else:
            (values.pack_float if kind == "float" else values.pack_double)(values.as_float(value))
    except OverflowError:
        return DoesNotFit(path, f"{shown(value)} is out of the range of {kind}")
    except _REFUSALS:
        return _expected(kind, value, path)
    return None


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_enum(node: EnumType, model: Model, value: Any, path: str) -> DoesNotFit | None:
    symbol = value
    if isinstance(model, EnumOf) and isinstance(value, model.cls):
        symbol = next(name for name, one in symbol_members(model).items() if one is value)
    if isinstance(symbol, str) and symbol in node.symbols:
        return None
    known = ", ".join(node.symbols[:10]) + (", …" if len(node.symbols) > 10 else "")
    return DoesNotFit(path, f"expected one of {known}, got {shown(value)}")


def _in_map(node: MapType, model: Model, value: Any, path: str) -> DoesNotFit | None:
    try:
        items = values.as_map(value)
    except TypeError:
        return _expected("map", value, path)
    inner = model.value if isinstance(model, MapOf) else Untyped()
    for key, each in items.items():
        if not isinstance(key, str) or not _is_unicode(key):
            return DoesNotFit(path, f"keys are strings, got {shown(key)}")
        fault = find_fault(node.values, inner, each, f"{path}[{shown(key)}]")
        if fault is not None:
            return fault
    return None


def _in_record(node: RecordType, model: Model, value: Any, path: str) -> DoesNotFit | None:
    if isinstance(model, RecordOf) and isinstance(
        value, model.cls if model.style is not Style.ITEMS else dict
    ):
        return _in_typed(node, model, value, path)
    try:
        fields = values.as_dict(value)
    except TypeError:
        return _expected(describe(node), value, path)
    known = {field.name for field in node.fields}
    unknown = [name for name in fields if name not in known]
    if unknown:
        return DoesNotFit(path, f"{describe(node)} has no field {shown(unknown[0])}")
    for field in node.fields:
        each = fields.get(field.name, _MISSING)
        if each is _MISSING:
            if not field.has_default:
                return DoesNotFit(f"{path}.{field.name}", "is missing, and has no default")
            continue
        fault = find_fault(field.type, Untyped(), each, f"{path}.{field.name}")
        if fault is not None:
            return fault
    return None


def _in_typed(node: RecordType, model: RecordOf, value: Any, path: str) -> DoesNotFit | None:
    for field in node.fields:
        mine = model.field(field.name)
        if mine is None:
            continue
        place = f"{path}.{field.name}"
        if model.style is Style.ITEMS:
            each = value.get(mine.attribute, None if mine.may_miss else _MISSING)
        else:
            each = getattr(value, mine.attribute, _MISSING)
        if each is _MISSING:
            return DoesNotFit(place, "is missing")
        fault = find_fault(field.type, mine.model, each, place)
        if fault is not None:
            return fault
    return None


def _in_union(node: UnionType, model: Model, value: Any, path: str) -> DoesNotFit | None:
    if isinstance(model, Untyped) and _is_hint(value):
        named = [branch for branch in node.branches if branch_name(branch) == value[0]]
        if named:
            return find_fault(named[0], model, value[1], path)
    deepest: DoesNotFit | None = None
    for _, branch, member in branches_of(node, model):
        fault = find_fault(branch, member, value, path)
        if fault is None:
            return None
        if fault.path != path and (deepest is None or len(fault.path) > len(deepest.path)):
            deepest = fault
    if deepest is not None:
        return deepest
    names = ", ".join(describe(branch) for branch in node.branches[:10])
    return _expected(f"one of {names}", value, path)


def _is_hint(value: Any) -> bool:
    """``("shop.Order", {...})`` says which branch is meant, as for fastavro."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def without_hint(union: UnionType, value: Any) -> Any:
    """The value; one with a hint stays as it is where there is something to choose."""
    others = [branch for branch in union.branches if branch.kind != "null"]
    if len(others) > 1 or not _is_hint(value):
        return value
    return value[1] if value[0] in map(branch_name, union.branches) else value


def choose_branch(union: UnionType, value: Any) -> tuple[int, Any]:
    """Index of the branch for untyped data, and the data without a hint. Raises DoesNotFit."""
    if _is_hint(value):
        for at, branch in enumerate(union.branches):
            if (
                branch_name(branch) == value[0]
                and find_fault(branch, Untyped(), value[1], "") is None
            ):
                return at, value[1]
    order = sorted(range(len(union.branches)), key=lambda at: _width(union.branches[at].kind))
    for at in order:
        if find_fault(union.branches[at], Untyped(), value, "") is None:
            return at, value
    raise DoesNotFit("", "fits no branch")


def _width(kind: str) -> int:
    """Of numbers the narrowest integer and the widest float that fits, an integer before those."""
    order = ("int", "long", "double", "float")
    return order.index(kind) if kind in order else -1
