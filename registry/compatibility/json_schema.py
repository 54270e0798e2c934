"""Whether documents valid for one JSON Schema are taken by another.

This is Confluent's rule, a walk over typed nodes and not a test of set inclusion. It refuses some
harmless changes, and some harmful ones it does not see: ``required`` of a property ``properties``
does not name, ``patternProperties``, ``propertyNames``, ``contains``, ``if``/``then``/``else`` and
``format`` by themselves; parts of a combination that both sides have but that no part matches.
"""

from __future__ import annotations

from collections.abc import Generator
from decimal import Decimal

from ..schemas.json_schema.nodes import (
    ArrayNode,
    CombinedNode,
    ConstNode,
    EmptyNode,
    EnumNode,
    FalseNode,
    Node,
    NotNode,
    NumberNode,
    ObjectNode,
    PlainNode,
    StringNode,
    plain,
)
from ..schemas.json_schema.schema import JsonSchema
from ..schemas.json_text import Json, dump_json
from ..schemas.path import Path
from .json_content import ContentModel, limits_narrowed
from .matching import maximum_matching
from .verdict import Found, Incompatibility, Judging, Pair, PairGuard, Policy


def compare_json(
    reader: JsonSchema, writer: JsonSchema, policy: Policy = Policy.STRICT
) -> tuple[Incompatibility, ...]:
    """All reasons why ``reader`` may refuse ``writer``'s documents; none when it takes them.

    Paths look like ``#/properties/size``. Raises ``ComparisonTooComplex``.
    """
    return tuple(_Comparison(policy).run(reader.root, writer.root))


class _Comparison:
    def __init__(self, policy: Policy) -> None:
        self._guard = PairGuard()
        self._content = ContentModel(self.pair, self._guard, policy is Policy.LENIENT)

    def run(self, reader: Node, writer: Node) -> Found:
        return self._guard.run(self.pair(reader, writer, Path("#")))

    def pair(self, reader: Node, writer: Node, path: Path) -> Pair:
        r, w = plain(reader), plain(writer)
        return Pair((id(r), id(w)), path, lambda: self._nodes(r, w, path))

    def _nodes(self, reader: PlainNode, writer: PlainNode, path: Path) -> Judging:
        if (yield from self._read_by_one_part(reader, writer, path)):
            return []
        match reader, writer:
            case CombinedNode(), CombinedNode():
                return (yield from self._combined(reader, writer, path))
            case NotNode(), NotNode():
                return (yield from self._not(reader, writer, path))
            case ObjectNode(), ObjectNode():
                return (yield from self._objects(reader, writer, path))
            case ArrayNode(), ArrayNode():
                return (yield from self._arrays(reader, writer, path))
            case StringNode(), StringNode():
                found = limits_narrowed(reader.limits, writer.limits, path)
                return found + _pattern(reader, writer, path)
            case NumberNode(), NumberNode():
                return _numbers(reader, writer, path)
            case ConstNode(), ConstNode():
                return _values([reader.value], [writer.value], path)
            case EnumNode(), EnumNode():
                return _values(reader.values, writer.values, path)
        if type(reader) is type(writer):
            return []
        if isinstance(writer, FalseNode) or isinstance(reader, EmptyNode):
            return []
        if reader.holds_bytes and writer.holds_bytes:
            return []
        description = f"{writer.label} became {reader.label}"
        return [Incompatibility("TYPE_CHANGED", str(path), reader.label, writer.label, description)]

    def _read_by_one_part(
        self, reader: PlainNode, writer: PlainNode, path: Path
    ) -> Generator[Pair, Found, bool]:
        """Where only one side is a combination: whether a part of it settles the matter."""
        pairs: list[Pair] = []
        if isinstance(reader, CombinedNode) and not isinstance(writer, CombinedNode):
            if len(reader.parts) == 1 or reader.criterion != "allOf":
                pairs = [self.pair(part, writer, path) for part in reader.parts]
        elif isinstance(writer, CombinedNode) and not isinstance(reader, CombinedNode):  # noqa: SIM102
            if len(writer.parts) == 1 or writer.criterion == "allOf":
                pairs = [self.pair(reader, part, path) for part in writer.parts]
        for pair in pairs:
            if not (yield pair):
                return True
        return False

    def _combined(self, reader: CombinedNode, writer: CombinedNode, path: Path) -> Judging:
        def one(rule: str, description: str) -> Found:
            return [Incompatibility(rule, str(path), reader.label, writer.label, description)]

        if not _criterion_fits(reader, writer):
            return one("COMBINED_TYPE_CHANGED", f"{writer.criterion} became {reader.criterion}")
        reads, writes = _distinct(reader.parts), _distinct(writer.parts)
        found: Found = []
        if len(writes) < len(reads) and reader.criterion == "allOf":
            found += one("PRODUCT_TYPE_EXTENDED", "the reader's allOf has more parts")
        if len(writes) > len(reads) and writer.criterion != "allOf":
            found += one("SUM_TYPE_NARROWED", f"the reader's {reader.criterion} has fewer parts")
        edges: list[list[int]] = []
        for row, written in enumerate(writes):
            here = path / writer.criterion / row
            columns: list[int] = []
            for column, part in enumerate(reads):
                if not (yield self.pair(part, written, here)):
                    columns.append(column)
            edges.append(columns)
        self._guard.count(sum(map(len, edges)))
        if maximum_matching(edges) < min(len(reads), len(writes)):
            found += one(
                "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
                f"the parts of the writer's {writer.criterion} cannot each be read by a part "
                f"of the reader's {reader.criterion}",
            )
        return found

    def _not(self, reader: NotNode, writer: NotNode, path: Path) -> Judging:
        if not (yield self.pair(writer.inner, reader.inner, path / "not")):
            return []
        labels = plain(reader.inner).label, plain(writer.inner).label
        why = "the reader forbids more"
        return [Incompatibility("NOT_TYPE_EXTENDED", str(path), *labels, why)]

    def _objects(self, reader: ObjectNode, writer: ObjectNode, path: Path) -> Judging:
        self._guard.count(len(reader.properties) + len(writer.properties))
        found = _required(reader, writer, path / "required")
        found += yield from self._content.properties(reader, writer, path)
        found += yield from self._dependencies(reader, writer, path / "dependencies")
        found += yield from self._content.additional(reader, writer, path)
        return found + limits_narrowed(reader.limits, writer.limits, path)

    def _dependencies(self, reader: ObjectNode, writer: ObjectNode, path: Path) -> Judging:
        found: Found = []
        for name, needed in reader.required_with.items():
            before = writer.required_with.get(name)
            if before is not None and needed <= before:
                continue
            if before is None:
                rule = "DEPENDENCY_ARRAY_ADDED"
            else:
                rule = (
                    "DEPENDENCY_ARRAY_EXTENDED" if before < needed else "DEPENDENCY_ARRAY_CHANGED"
                )
            shown = ", ".join(sorted(needed)), ", ".join(sorted(before or ()))
            why = f"with {name} the reader needs other properties than the writer"
            found.append(Incompatibility(rule, str(path / name), *shown, why))
        for name, node in reader.schema_with.items():
            old = writer.schema_with.get(name)
            if old is not None:
                found += yield self.pair(node, old, path / name)
                continue
            why = f"with {name} the reader asks for more than the writer"
            rule, label = "DEPENDENCY_SCHEMA_ADDED", plain(node).label
            found.append(Incompatibility(rule, str(path / name), label, "", why))
        return found

    def _arrays(self, reader: ArrayNode, writer: ArrayNode, path: Path) -> Judging:
        self._guard.count(len(reader.prefix) + len(writer.prefix))
        found: Found = []
        if reader.items is not None and not isinstance(plain(reader.items), EmptyNode):
            if writer.items is not None:
                found += yield self.pair(reader.items, writer.items, path / "items")
            else:
                label = plain(reader.items).label
                why = "the reader gives its items a schema, the writer does not"
                found.append(Incompatibility("SCHEMA_ADDED", str(path / "items"), label, "", why))
        found += yield from self._content.items(reader, writer, path)
        found += yield from self._content.additional_items(reader, writer, path)
        found += limits_narrowed(reader.limits, writer.limits, path)
        if reader.unique and not writer.unique:
            here = str(path / "uniqueItems")
            why = "the writer may repeat items"
            found.append(Incompatibility("UNIQUE_ITEMS_ADDED", here, "true", "", why))
        return found


def _criterion_fits(reader: CombinedNode, writer: CombinedNode) -> bool:
    if reader.criterion in (writer.criterion, "anyOf"):
        return True
    one_read, one_written = len(reader.parts) == 1, len(writer.parts) == 1
    return (
        (one_read and one_written)
        or (one_written and reader.criterion == "oneOf")
        or (one_read and writer.criterion == "allOf")
    )


def _distinct(parts: list[Node]) -> list[Node]:
    """The parts without repetitions, which add nothing to a combination."""
    kinds = [(type(node), node.label) for node in map(plain, parts)]
    if len(set(kinds)) == len(
        parts
    ):  # what differs in kind need not be written out to be told apart
        return parts
    return list(
        {(*kind, part.content()): part for kind, part in zip(kinds, parts, strict=True)}.values()
    )


def _numbers(reader: NumberNode, writer: NumberNode, path: Path) -> Found:
    found = limits_narrowed(reader.limits, writer.limits, path)
    old, new = writer.multiple_of, reader.multiple_of
    if new is not None and (old is None or not _divides(new, old)):
        if old is None:
            rule, why = "MULTIPLE_OF_ADDED", f"the reader asks for multiples of {new}"
        else:
            rule = "MULTIPLE_OF_EXPANDED" if _divides(old, new) else "MULTIPLE_OF_CHANGED"
            why = f"not every multiple of {old} is one of {new}"
        shown = str(new), "" if old is None else str(old)
        found.append(Incompatibility(rule, str(path / "multipleOf"), *shown, why))
    if reader.integer and not writer.integer:
        labels = reader.label, writer.label
        found.append(Incompatibility("TYPE_NARROWED", str(path), *labels, "number became integer"))
    return found


def _divides(divisor: float, number: float) -> bool:
    """Whether every multiple of ``number`` is one of ``divisor``, as decimal numbers."""
    try:
        return Decimal(str(number)) % Decimal(str(divisor)) == 0
    except ArithmeticError:  # a quotient of more digits than Decimal keeps
        return False


def _pattern(reader: StringNode, writer: StringNode, path: Path) -> Found:
    if reader.pattern is None or reader.pattern == writer.pattern:
        return []
    rule = "PATTERN_ADDED" if writer.pattern is None else "PATTERN_CHANGED"
    shown = reader.pattern, writer.pattern or ""
    return [Incompatibility(rule, str(path / "pattern"), *shown, "patterns are compared as text")]


def _values(reader: list[Json], writer: list[Json], path: Path) -> Found:
    allowed, written = ({dump_json(value, sort_keys=True) for value in v} for v in (reader, writer))
    if written <= allowed:
        return []
    rule = "ENUM_ARRAY_NARROWED" if allowed < written else "ENUM_ARRAY_CHANGED"
    missing = ", ".join(sorted(written - allowed)[:10])
    shown = ", ".join(sorted(allowed)[:10]), ", ".join(sorted(written)[:10])
    why = f"the reader no longer allows {missing}"
    return [Incompatibility(rule, str(path), *shown, why)]


def _required(reader: ObjectNode, writer: ObjectNode, path: Path) -> Found:
    return [
        Incompatibility(
            "REQUIRED_ATTRIBUTE_ADDED",
            str(path / name),
            "required",
            "optional",
            f"property {name} became required and has no default",
        )
        for name in sorted(reader.required - writer.required)
        if name in writer.properties
        and name in reader.properties
        and not plain(reader.properties[name]).has_default
    ]
