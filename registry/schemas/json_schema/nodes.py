"""A JSON Schema as a tree of typed nodes, in which comparing two schemas is a walk.

A schema object that says several things at once becomes an ``allOf`` of its parts, a list of types
an ``anyOf``. Nodes are shared where a ``$ref`` leads, so a recursive schema is a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..json_text import Json, dump_json


@dataclass(slots=True, eq=False)
class SchemaNode:
    """``raw`` is the schema as written; the default value makes a required property harmless."""

    raw: Json

    @property
    def has_default(self) -> bool:
        return isinstance(self.raw, dict) and "default" in self.raw

    @property
    def holds_bytes(self) -> bool:
        """Kafka Connect's mark of a decimal or bytes value, in whatever JSON type it is kept."""
        return isinstance(self.raw, dict) and self.raw.get("connect.type") == "bytes"

    def content(self) -> str:
        """The schema as text in which the order of members does not count."""
        return dump_json(self.raw, sort_keys=True)

    @property
    def label(self) -> str:
        return "schema"


@dataclass(slots=True, eq=False)
class EmptyNode(SchemaNode):
    """``true`` or an object without constraints: allows everything."""

    @property
    def label(self) -> str:
        return "anything"


@dataclass(slots=True, eq=False)
class FalseNode(SchemaNode):
    """``false``: allows nothing."""

    @property
    def label(self) -> str:
        return "nothing"


@dataclass(slots=True, eq=False)
class ConstNode(SchemaNode):
    value: Json = None

    @property
    def label(self) -> str:
        return f"const {dump_json(self.value)}"


@dataclass(slots=True, eq=False)
class EnumNode(SchemaNode):
    values: list[Json] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"enum {dump_json(self.values[:10])}"


@dataclass(slots=True, eq=False)
class NullNode(SchemaNode):
    @property
    def label(self) -> str:
        return "null"


@dataclass(slots=True, eq=False)
class BooleanNode(SchemaNode):
    @property
    def label(self) -> str:
        return "boolean"


@dataclass(slots=True, eq=False)
class StringNode(SchemaNode):
    limits: Mapping[str, float] = field(default_factory=dict)
    """minLength, maxLength, where given."""
    pattern: str | None = None

    @property
    def label(self) -> str:
        return "string"


@dataclass(slots=True, eq=False)
class NumberNode(SchemaNode):
    integer: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    """minimum, maximum, exclusiveMinimum, exclusiveMaximum, where given."""
    multiple_of: int | float | None = None

    @property
    def label(self) -> str:
        return "integer" if self.integer else "number"


@dataclass(slots=True, eq=False)
class ObjectNode(SchemaNode):
    limits: Mapping[str, float] = field(default_factory=dict)
    """minProperties, maxProperties, where given."""
    properties: dict[str, Node] = field(default_factory=dict)
    pattern_properties: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    additional: Node | None = None
    """The schema of what is not named; None when anything goes."""
    unevaluated: Node | None = None
    required_with: dict[str, frozenset[str]] = field(default_factory=dict)
    """Property -> the properties that must be there with it."""
    schema_with: dict[str, Node] = field(default_factory=dict)
    """Property -> the schema that holds when it is there."""

    @property
    def label(self) -> str:
        return "object"


@dataclass(slots=True, eq=False)
class ArrayNode(SchemaNode):
    limits: Mapping[str, float] = field(default_factory=dict)
    """minItems, maxItems, minContains, maxContains, where given."""
    items: Node | None = None
    """The schema of every item, when all have the same."""
    prefix: list[Node] = field(default_factory=list)
    """The schemas of the first items, when each has its own."""
    additional: Node | None = None
    """The schema of what is not named; None when anything goes."""
    unevaluated: Node | None = None
    unique: bool = False

    @property
    def label(self) -> str:
        return "array"


@dataclass(slots=True, eq=False)
class NotNode(SchemaNode):
    inner: Node = field(kw_only=True)

    @property
    def label(self) -> str:
        return "not"


@dataclass(slots=True, eq=False)
class ConditionalNode(SchemaNode):
    """``if``/``then``/``else``: its branches are not compared, as in Confluent's registry."""

    @property
    def label(self) -> str:
        return "if/then/else"


@dataclass(slots=True, eq=False)
class CombinedNode(SchemaNode):
    criterion: str = "allOf"
    parts: list[Node] = field(default_factory=list)

    @property
    def label(self) -> str:
        shown = [plain(part) for part in self.parts[:10]]
        names = [one.criterion if isinstance(one, CombinedNode) else one.label for one in shown]
        return f"{self.criterion} of {', '.join(names)}{', …' if len(self.parts) > 10 else ''}"


@dataclass(slots=True, eq=False)
class RefNode(SchemaNode):
    """A ``$ref``. ``target`` is set when the whole schema was loaded, and is no RefNode then."""

    target: Node | None = None


Node: TypeAlias = (
    EmptyNode
    | FalseNode
    | ConstNode
    | EnumNode
    | NullNode
    | BooleanNode
    | StringNode
    | NumberNode
    | ObjectNode
    | ArrayNode
    | NotNode
    | ConditionalNode
    | CombinedNode
    | RefNode
)
PlainNode: TypeAlias = (
    EmptyNode
    | FalseNode
    | ConstNode
    | EnumNode
    | NullNode
    | BooleanNode
    | StringNode
    | NumberNode
    | ObjectNode
    | ArrayNode
    | NotNode
    | ConditionalNode
    | CombinedNode
)


def plain(node: Node) -> PlainNode:
    """The node itself, or where its ``$ref`` leads."""
    if isinstance(node, RefNode):
        target = node.target
        assert target is not None and not isinstance(target, RefNode), "loading was not finished"
        return target
    return node
