"""Which part of a Python type goes with which part of an Avro schema, for both directions. Pure."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from ...schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
    branch_name,
    describe,
)
from ..errors import UnsupportedType
from ..models import (
    UNTYPED,
    EnumOf,
    ListOf,
    MapOf,
    Model,
    RecordOf,
    Scalar,
    UnionOf,
    Untyped,
)
from .derive import symbols_of
from .logical import Logical, logical_of

NONE: Final = Scalar(type(None))
_FITS: Final[dict[type, frozenset[str]]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"int", "long", "float", "double"}),
    float: frozenset({"double", "float"}),
    str: frozenset({"string", "enum"}),
    bytes: frozenset({"bytes", "fixed"}),
    type(None): frozenset({"null"}),
}
_LOGICAL: Final = frozenset({datetime.datetime, datetime.date, datetime.time, Decimal, uuid.UUID})


def logical_for(node: AvroType, model: Model) -> Logical | None:
    """The logical type of ``node`` if values of ``model`` are of its class. None for raw values."""
    logical = logical_of(node)
    if logical is None or not isinstance(model, Scalar):
        return None
    return logical if model.cls is logical.cls else None


def fits(node: AvroType, model: Model) -> bool:
    """Whether a value of ``model`` may be one of ``node``, looking no deeper than needed to choose
    a branch of a union."""
    match model:
        case Untyped():
            return True
        case Scalar():
            if model.cls in _LOGICAL:
                return logical_for(node, model) is not None
            return node.kind in _FITS[model.cls]
        case EnumOf():
            return isinstance(node, EnumType) or (_has_text_values(model) and node.kind == "string")
        case ListOf():
            return isinstance(node, ArrayType)
        case MapOf():
            return isinstance(node, MapType)
        case RecordOf():
            return isinstance(node, RecordType)
        case UnionOf():
            return isinstance(node, UnionType)


def branches_of(union: UnionType, model: Model) -> list[tuple[int, AvroType, Model]]:
    """Index, branch and model of every branch of ``union`` that ``model`` has values for, the
    best choice for a value first. Raises UnsupportedType when some value has no branch."""
    if isinstance(model, Untyped):
        return [(at, branch, UNTYPED) for at, branch in enumerate(union.branches)]
    members = _flat(model)
    records = sum(isinstance(each, RecordOf) for each in members)
    found = []
    for member in members:
        choice = min(
            (
                (_rank(branch, member, records), at)
                for at, branch in enumerate(union.branches)
                if fits(branch, member)
            ),
            default=None,
        )
        if choice is None or choice[0] >= _NEVER:
            raise UnsupportedType(f"{describe(union)} has no branch for {_name(member)}")
        found.append((choice[1], union.branches[choice[1]], member))
    return found


_NEVER: Final = 100


def _rank(branch: AvroType, member: Model, records: int) -> int:
    """0 is best. Of several record classes each goes with the branch of its name."""
    if isinstance(member, RecordOf | EnumOf):
        is_namesake = branch_name(branch).rpartition(".")[2] == (
            member.name if isinstance(member, RecordOf) else member.cls.__name__
        )
        if is_namesake:
            return 0
        return _NEVER if isinstance(member, RecordOf) and records > 1 else 1
    if isinstance(member, Scalar) and member.cls is int:
        return ("long", "int", "double", "float").index(branch.kind)
    if isinstance(member, Scalar) and member.cls is float:
        return ("double", "float").index(branch.kind)
    if isinstance(member, Scalar) and member.cls is str:
        return ("string", "enum").index(branch.kind)
    return 0


def model_for_branch(branch: AvroType, model: Model, records: int = 1) -> Model | None:
    """The member of ``model`` a value read from ``branch`` becomes; None when there is none."""
    if isinstance(model, Untyped):
        return UNTYPED
    members = _flat(model)
    records = sum(isinstance(each, RecordOf) for each in members)
    ranked = [
        (_rank(branch, member, records), at)
        for at, member in enumerate(members)
        if fits(branch, member)
    ]
    best = min(ranked, default=(_NEVER, 0))
    return members[best[1]] if best[0] < _NEVER else None


def _flat(model: Model) -> list[Model]:
    if not isinstance(model, UnionOf):
        return [model]
    return [each for member in model.members for each in _flat(member)]


def _has_text_values(model: EnumOf) -> bool:
    return all(isinstance(member.value, str) for member in model.cls)


def symbol_members(model: EnumOf) -> dict[str, enum.Enum]:
    """Members of an enum by their symbols."""
    return dict(zip(symbols_of(model.cls), model.cls, strict=True))


def is_zero_sized(node: AvroType) -> bool:
    """Whether values may take no bytes at all: then data does not bound how many there are."""
    return next(_sized(node, set()), None) is None


def _sized(node: AvroType, seen: set[int]) -> Iterator[AvroType]:
    """Parts that take at least a byte."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, RecordType):
        for field in node.fields:
            yield from _sized(field.type, seen)
    elif isinstance(node, FixedType):
        if node.size:
            yield node
    elif not (isinstance(node, PrimitiveType) and node.kind == "null"):
        yield node


def _name(model: Model) -> str:
    match model:
        case Scalar():
            return model.cls.__name__
        case RecordOf() | EnumOf():
            return model.cls.__name__
        case _:
            return type(model).__name__.removesuffix("Of").lower()


def mismatch(node: AvroType, model: Model, place: str) -> UnsupportedType:
    return UnsupportedType(f"{place}: {_name(model)} does not fit {describe(node)}")
