"""The tree of an Avro schema. Named types are shared nodes, so a recursive schema is a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ..json_text import Json

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class Name(NamedTuple):
    """A full name in its two parts; ``namespace`` is empty for the null namespace."""

    namespace: str
    short: str

    @property
    def full(self) -> str:
        return f"{self.namespace}.{self.short}" if self.namespace else self.short

    def within(self, enclosing: str) -> str:
        """How the name is written inside ``enclosing``: short where that is the same namespace."""
        return self.short if self.namespace == enclosing else self.full


Props: TypeAlias = dict[str, Json]
"""Attributes the specification does not define, logical types among them, in their order."""


@dataclass(slots=True, eq=False)
class PrimitiveType:
    kind: str
    props: Props


@dataclass(slots=True, eq=False)
class ArrayType:
    items: AvroType
    props: Props
    kind: str = "array"


@dataclass(slots=True, eq=False)
class MapType:
    values: AvroType
    props: Props
    kind: str = "map"


@dataclass(slots=True, eq=False)
class UnionType:
    branches: list[AvroType]
    kind: str = "union"


@dataclass(slots=True, eq=False)
class FixedType:
    name: Name
    size: int
    aliases: list[Name]
    doc: str | None
    props: Props
    kind: str = "fixed"


@dataclass(slots=True, eq=False)
class EnumType:
    name: Name
    symbols: list[str]
    default: str | None
    aliases: list[Name]
    doc: str | None
    props: Props
    kind: str = "enum"


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    has_default: bool
    default: Json
    order: str
    aliases: list[str]
    doc: str | None
    props: Props


@dataclass(slots=True, eq=False)
class RecordType:
    name: Name
    aliases: list[Name]
    doc: str | None
    props: Props
    fields: list[Field] = field(default_factory=list)
    is_error: bool = False
    kind: str = "record"


NamedType: TypeAlias = FixedType | EnumType | RecordType
AvroType: TypeAlias = PrimitiveType | ArrayType | MapType | UnionType | NamedType


def describe(node: AvroType) -> str:
    """A type in a few words, for messages: ``record shop.Order``, ``union of null, string``."""
    if isinstance(node, FixedType | EnumType | RecordType):
        return f"{node.kind} {node.name.full}"
    if isinstance(node, UnionType):
        names = [branch_name(branch) for branch in node.branches[:20]]
        return "union of " + ", ".join(names) + (", …" if len(node.branches) > 20 else "")
    return node.kind


def branch_name(node: AvroType) -> str:
    """What tells a union's branches apart: the full name, or the kind of an unnamed type."""
    if isinstance(node, FixedType | EnumType | RecordType):
        return node.name.full
    return node.kind
