"""JSON Schema documents to the tree of ``nodes``.

Which parts a schema object falls into decides most verdicts; it follows what is known of how
Confluent's registry loads draft 4 to 7, 2019-09 and 2020-12. Every keyword that is read is also
checked, so a document that is no schema is refused with its place.
"""

from __future__ import annotations

from collections.abc import Callable

from ..json_text import Json
from ..path import Path
from ..schema import InvalidSchema
from .documents import Documents
from .nodes import (
    BooleanNode,
    CombinedNode,
    ConditionalNode,
    ConstNode,
    EmptyNode,
    EnumNode,
    FalseNode,
    Node,
    NotNode,
    NullNode,
    RefNode,
    plain,
)
from .typed import Keywords, array_node, number_node, object_node, string_node

_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_FAMILIES: tuple[tuple[str, frozenset[str]], ...] = (
    (
        "array",
        frozenset(
            {
                "items",
                "additionalItems",
                "prefixItems",
                "unevaluatedItems",
                "minItems",
                "maxItems",
                "uniqueItems",
                "contains",
                "minContains",
                "maxContains",
            }
        ),
    ),
    (
        "object",
        frozenset(
            {
                "properties",
                "required",
                "minProperties",
                "maxProperties",
                "dependencies",
                "dependentRequired",
                "dependentSchemas",
                "patternProperties",
                "additionalProperties",
                "unevaluatedProperties",
                "propertyNames",
            }
        ),
    ),
    (
        "number",
        frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    ),
    ("string", frozenset({"minLength", "maxLength", "pattern", "format"})),
)
_CRITERIA = ("allOf", "anyOf", "oneOf")
_REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")


class Loader:
    """Loads one schema, and what its ``$ref``s lead to, each once."""

    def __init__(self, documents: Documents, root: Json) -> None:
        self._documents = documents
        self._known: dict[int, RefNode] = {}
        self._waiting: list[tuple[RefNode, Json, Path]] = []
        declared = root.get("$schema") if isinstance(root, dict) else None
        declared = declared if isinstance(declared, str) else ""
        self._modern = "2019-09" in declared or "2020-12" in declared
        self._root = root

    def load(self) -> Node:
        """Raises ``InvalidSchema`` with the JSON pointer of what is wrong."""
        root = self._load(self._root, Path(""))
        done = 0
        while done < len(self._waiting):
            reference, raw, path = self._waiting[done]
            reference.target = self._target(raw, path)
            done += 1
        shorten([reference for reference, _, _ in self._waiting])
        return plain(root)

    def _load(self, raw: Json, path: Path) -> RefNode:
        """A node that will lead to the one for ``raw``: schemas of any depth load in a loop."""
        known = self._known.get(id(raw)) if isinstance(raw, dict) else None
        if known is None:
            known = RefNode(raw)
            self._waiting.append((known, raw, path))
            if isinstance(raw, dict):
                self._known[id(raw)] = known
        return known

    def _target(self, raw: Json, path: Path) -> Node:
        if isinstance(raw, bool):
            return EmptyNode(raw) if raw else FalseNode(raw)
        if not isinstance(raw, dict):
            raise InvalidSchema("a schema is an object or a boolean", str(path))
        return self._parse(raw, path)

    def _parse(self, raw: dict[str, Json], path: Path) -> Node:
        for member in _REFERENCES:
            value = raw.get(member)
            if value is None:
                continue
            if not isinstance(value, str):
                raise InvalidSchema(f"{member} is a text", str(path / member))
            base = self._documents.base_of(raw)
            target = self._documents.resolve(value, base, str(path / member))
            reference = self._load(target, Path(value))
            if not self._modern:
                return reference  # up to draft 7 what stands beside a $ref does not count
            beside = self._parts(raw, path)
            return CombinedNode(raw, "allOf", [reference, *beside]) if beside else reference
        parts = self._parts(raw, path)
        if not parts:
            return EmptyNode(raw)
        return parts[0] if len(parts) == 1 else CombinedNode(raw, "allOf", parts)

    def _parts(self, raw: dict[str, Json], path: Path) -> list[Node]:
        parts: list[Node] = []
        if "enum" in raw:
            values = raw["enum"]
            if not isinstance(values, list):
                raise InvalidSchema("enum is a list", str(path / "enum"))
            parts.append(EnumNode(raw, values))
        for criterion in _CRITERIA:
            if criterion in raw:
                parts.append(self._combined(raw, criterion, path))
        if "not" in raw:
            parts.append(NotNode(raw, inner=self._load(raw["not"], path / "not")))
        if "const" in raw:
            parts.append(ConstNode(raw, raw["const"]))
        if "if" in raw:
            for member in ("if", "then", "else"):
                if member in raw:
                    self._load(raw[member], path / member)
            parts.append(ConditionalNode(raw))
        return parts + self._typed(raw, path)

    def _combined(self, raw: dict[str, Json], criterion: str, path: Path) -> Node:
        inner = raw[criterion]
        if not isinstance(inner, list) or not inner:
            raise InvalidSchema(f"{criterion} is a list of schemas", str(path / criterion))
        parts: list[Node] = []
        for index, item in enumerate(inner):
            parts.append(self._load(item, path / criterion / index))
        return CombinedNode(raw, criterion, parts)

    def _typed(self, raw: dict[str, Json], path: Path) -> list[Node]:
        declared = raw.get("type")
        if declared is None:
            names = [name for name, keywords in _FAMILIES if not keywords.isdisjoint(raw)]
        elif isinstance(declared, list):
            names = []
            for name in declared:
                names.append(_type_name(name, path))
            if not names:
                raise InvalidSchema("type is an empty list", str(path / "type"))
            typed = [self._of_type(raw, name, path) for name in dict.fromkeys(names)]
            return [CombinedNode(raw, "anyOf", typed)] if len(typed) > 1 else typed
        else:
            names = [_type_name(declared, path)]
        return [self._of_type(raw, name, path) for name in names]

    def _of_type(self, raw: dict[str, Json], name: str, path: Path) -> Node:
        keywords = Keywords(raw, path, self._load, self._modern)
        builders: dict[str, Callable[[Keywords], Node]] = {
            "array": array_node,
            "object": object_node,
            "number": number_node,
            "integer": lambda keywords: number_node(keywords, integer=True),
            "string": string_node,
            "boolean": lambda keywords: BooleanNode(keywords.raw),
            "null": lambda keywords: NullNode(keywords.raw),
        }
        return builders[name](keywords)


def _type_name(name: Json, path: Path) -> str:
    if not isinstance(name, str) or name not in _TYPES:
        raise InvalidSchema(f"{str(name)[:100]!r} is no JSON type", str(path / "type"))
    return name


def shorten(references: list[RefNode]) -> None:
    """Makes every reference lead to a node that is none itself.

    Raises ``InvalidSchema`` for one that leads only back to itself.
    """
    for reference in references:
        chain: dict[int, RefNode] = {}
        node: Node | None = reference
        while isinstance(node, RefNode):
            if id(node) in chain:
                raise InvalidSchema("$ref leads back to itself")
            chain[id(node)] = node
            node = node.target
        for passed in chain.values():
            passed.target = node
