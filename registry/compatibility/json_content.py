"""Open and closed content models: what adding and removing properties or items means.

A model is open when it allows anything under any other name, closed when it allows nothing, and
partially open when a schema covers the other names: ``patternProperties``, a schema under
``additionalProperties``, ``items`` after a tuple, or an ``unevaluated...`` one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..schemas.json_schema.nodes import (
    ArrayNode,
    EmptyNode,
    FalseNode,
    Node,
    ObjectNode,
    plain,
)
from ..schemas.json_schema.patterns import Pattern
from ..schemas.path import Path
from .verdict import MAX_REASONS, Found, Incompatibility, Judging, Pair, PairGuard

MakePair: TypeAlias = Callable[[Node, Node, Path], Pair]
"""(reader, writer, path) -> the pair, to be yielded to the guard."""

_WHY_OPEN = (
    "the writer allowed anything here (open content model), so its documents may hold another "
    "value; close the model with additionalProperties false first, or use the LENIENT policy"
)


class ContentModel:
    """Compares the properties of objects and the items of arrays."""

    def __init__(self, pair: MakePair, guard: PairGuard, lenient: bool) -> None:
        self._pair = pair
        self._guard = guard
        self._lenient = lenient

    def properties(self, reader: ObjectNode, writer: ObjectNode, path: Path) -> Judging:
        found: Found = []
        patterns = self._patterns(reader), self._patterns(writer)
        for name, old in writer.properties.items():
            if len(found) >= MAX_REASONS:
                return found
            here = path / "properties" / name
            new = reader.properties.get(name)
            if new is not None:
                found += yield self._pair(new, old, here)
            elif not _is_open(reader):
                cover = self._cover(reader, patterns[0], name)
                found += yield from self._removed(old, cover, here, "PROPERTY")
        for name in reader.properties:
            if name not in writer.properties and len(found) < MAX_REASONS:
                cover = None if _is_open(writer) else self._cover(writer, patterns[1], name)
                here = path / "properties" / name
                found += yield from self._property_added(reader, writer, name, cover, here)
        return found

    def _property_added(
        self, reader: ObjectNode, writer: ObjectNode, name: str, cover: Node | None, path: Path
    ) -> Judging:
        new = reader.properties[name]
        required = name in reader.required
        has_default = plain(new).has_default
        if _is_open(writer):
            if isinstance(plain(new), EmptyNode):
                return []
            kind = "OPTIONAL_PROPERTY"
            if required:
                kind = "REQUIRED_PROPERTY_WITH_DEFAULT" if has_default else "REQUIRED_PROPERTY"
            if self._lenient and kind != "REQUIRED_PROPERTY":
                return []
            return _one(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL", path, new, None, _WHY_OPEN)
        found = yield from self._added_under_cover(new, cover, path, "PROPERTY")
        if required and not has_default:
            why = f"property {name} is new and required, and has no default"
            rule = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
            found += _one(rule, path, new, None, why)
        return found

    def items(self, reader: ArrayNode, writer: ArrayNode, path: Path) -> Judging:
        """The items of tuples, by position."""
        found: Found = []
        common = min(len(reader.prefix), len(writer.prefix))
        for index in range(common):
            here = path / "items" / index
            found += yield self._pair(reader.prefix[index], writer.prefix[index], here)
        for index, old in enumerate(writer.prefix[common:], common):
            if not _is_open(reader):
                found += yield from self._removed(
                    old, _rest(reader), path / "items" / index, "ITEM"
                )
        for index, new in enumerate(reader.prefix[common:], common):
            here = path / "items" / index
            if not _is_open(writer):
                found += yield from self._added_under_cover(new, _rest(writer), here, "ITEM")
            elif not isinstance(plain(new), EmptyNode):
                found += _one("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", here, new, None, _WHY_OPEN)
        return found

    def _removed(self, old: Node, cover: Node | None, path: Path, kind: str) -> Judging:
        """What the writer names, the reader does not, and its model is not open."""
        lenient = self._lenient and kind == "PROPERTY"
        if cover is None:
            if lenient or isinstance(plain(old), FalseNode):
                return []
            rule = f"{kind}_REMOVED_FROM_CLOSED_CONTENT_MODEL"
            return _one(rule, path, None, old, "the reader forbids what it does not name")
        found = yield self._pair(cover, old, path)
        if found and not lenient:
            rule = f"{kind}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            why = "the reader's schema for everything it does not name does not take it"
            found = found + _one(rule, path, cover, old, why)
        return found

    def _added_under_cover(self, new: Node, cover: Node | None, path: Path, kind: str) -> Judging:
        """What the reader names, and the writer's model forbids or covers by another schema."""
        if cover is None:
            return []
        found = yield self._pair(new, cover, path)
        if found and not (self._lenient and kind == "PROPERTY"):
            rule = f"{kind}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            why = "the writer's schema for everything it does not name allows other values"
            found = found + _one(rule, path, new, cover, why)
        return found

    def _patterns(self, node: ObjectNode) -> list[tuple[Pattern, Node]]:
        return [(Pattern(text), inner) for text, inner in node.pattern_properties.items()]

    def _cover(
        self, node: ObjectNode, patterns: list[tuple[Pattern, Node]], name: str
    ) -> Node | None:
        for pattern, inner in patterns:
            self._guard.count(pattern.cost(name))
            if pattern.found_in(name):
                return inner
        return _rest(node)

    def additional(self, reader: ObjectNode, writer: ObjectNode, path: Path) -> Judging:
        """``additionalProperties`` and ``unevaluatedProperties`` themselves."""
        here = path / "additionalProperties"
        found = yield from self._more(reader, writer, here, "ADDITIONAL_PROPERTIES")
        here = path / "unevaluatedProperties"
        rest = yield from self._unevaluated(reader, writer, here, "UNEVALUATED_PROPERTIES")
        return found + rest

    def additional_items(self, reader: ArrayNode, writer: ArrayNode, path: Path) -> Judging:
        """``additionalItems`` (``items`` after a tuple) and ``unevaluatedItems`` themselves."""
        found = yield from self._more(reader, writer, path / "additionalItems", "ADDITIONAL_ITEMS")
        here = path / "unevaluatedItems"
        rest = yield from self._unevaluated(reader, writer, here, "UNEVALUATED_ITEMS")
        return found + rest

    def _more(
        self,
        reader: ObjectNode | ArrayNode,
        writer: ObjectNode | ArrayNode,
        path: Path,
        kind: str,
    ) -> Judging:
        new, old = _additional(reader), _additional(writer)
        if new is None or (old is not None and isinstance(plain(old), FalseNode)):
            return []
        forbids = isinstance(plain(new), FalseNode)
        if old is not None and not forbids:
            return (yield self._pair(new, old, path))
        if self._lenient and isinstance(reader, ObjectNode):
            return []
        if forbids:
            return _one(
                f"{kind}_REMOVED", path, new, old, "the reader forbids what it does not name"
            )
        why = "the reader has a schema for what it does not name, the writer allowed anything"
        return _one(f"{kind}_NARROWED", path, new, old, why)

    def _unevaluated(
        self,
        reader: ObjectNode | ArrayNode,
        writer: ObjectNode | ArrayNode,
        path: Path,
        kind: str,
    ) -> Judging:
        new, old = reader.unevaluated, writer.unevaluated
        if new is None or (old is not None and isinstance(plain(old), FalseNode)):
            return []
        forbids = isinstance(plain(new), FalseNode)
        anything = old is None or isinstance(plain(old), EmptyNode)
        if not forbids and old is not None and not anything:
            return (yield self._pair(new, old, path))
        if isinstance(plain(new), EmptyNode) and old is not None:
            return []
        if self._lenient and isinstance(reader, ObjectNode):
            return []
        rule = f"{kind}_REMOVED" if forbids else f"{kind}_NARROWED"
        return _one(rule, path, new, old, "the reader allows less of what no keyword names")


def _additional(node: ObjectNode | ArrayNode) -> Node | None:
    """The schema of what keywords do not name; None when anything goes."""
    more = node.additional
    return None if more is None or isinstance(plain(more), EmptyNode) else more


def _is_open(node: ObjectNode | ArrayNode) -> bool:
    if _additional(node) is not None:
        return False
    if isinstance(node, ObjectNode) and node.pattern_properties:
        return False
    return node.unevaluated is None or isinstance(plain(node.unevaluated), EmptyNode)


def _rest(node: ObjectNode | ArrayNode) -> Node | None:
    """The schema of everything the model does not name, if there is one."""
    more = _additional(node) or node.unevaluated
    if more is None or isinstance(plain(more), FalseNode):
        return None
    return None if isinstance(plain(more), EmptyNode) else more


def _one(rule: str, path: Path, new: Node | None, old: Node | None, why: str) -> Found:
    labels = ["" if node is None else plain(node).label for node in (new, old)]
    return [Incompatibility(rule, str(path), labels[0], labels[1], why)]


def limits_narrowed(reader: Mapping[str, float], writer: Mapping[str, float], path: Path) -> Found:
    """Limits the reader adds, or draws closer than the writer."""
    found: Found = []
    for name, limit in reader.items():
        old = writer.get(name)
        upper = "max" in name.lower()
        if old is not None and (limit >= old if upper else limit <= old):
            continue
        change = "ADDED" if old is None else "DECREASED" if upper else "INCREASED"
        rule = "".join(f"_{char}" if char.isupper() else char.upper() for char in name)
        shown = f"{limit}", "" if old is None else f"{old}"
        why = f"{name} of the reader is narrower"
        found.append(Incompatibility(f"{rule}_{change}", str(path / name), *shown, why))
    return found
