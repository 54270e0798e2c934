"""The nodes of one JSON type, and the reading of their keywords."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..json_text import Json
from ..path import Path
from ..schema import InvalidSchema
from .nodes import ArrayNode, Node, NumberNode, ObjectNode, StringNode
from .patterns import Pattern, PatternError

Load = Callable[[Json, Path], Node]


@dataclass(frozen=True, slots=True)
class Keywords:
    """The keywords of one schema object. Every getter raises ``InvalidSchema`` for a wrong type."""

    raw: dict[str, Json]
    path: Path
    load: Load
    modern: bool
    """Whether this is 2019-09 or later, where ``unevaluated...`` and ``prefixItems`` count."""

    def number(self, name: str) -> int | float | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidSchema(f"{name} is a number", str(self.path / name))
        return value

    def limits(self, *names: str) -> dict[str, float]:
        found = {name: self.number(name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def counts(self, *names: str) -> dict[str, float]:
        """Limits that count something: whole numbers from 0."""
        limits = self.limits(*names)
        for name, value in limits.items():
            if value < 0 or value != int(value):
                raise InvalidSchema(f"{name} is a whole number from 0", str(self.path / name))
        return limits

    def text(self, name: str) -> str | None:
        value = self.raw.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidSchema(f"{name} is a text", str(self.path / name))
        return value

    def flag(self, name: str) -> bool:
        value = self.raw.get(name, False)
        if not isinstance(value, bool):
            raise InvalidSchema(f"{name} is true or false", str(self.path / name))
        return value

    def object(self, name: str) -> dict[str, Json]:
        value = self.raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise InvalidSchema(f"{name} is an object", str(self.path / name))
        return value

    def schemas(self, name: str) -> dict[str, Node]:
        """An object whose every member is a schema."""
        return {
            member: self.load(inner, self.path / name / member)
            for member, inner in self.object(name).items()
        }

    def schema(self, name: str) -> Node | None:
        if name not in self.raw:
            return None
        return self.load(self.raw[name], self.path / name)

    def unevaluated(self, name: str) -> Node | None:
        return self.schema(name) if self.modern else None


def texts(value: Json, path: Path) -> frozenset[str]:
    """A list of texts, each of which counts once."""
    if not isinstance(value, list):
        raise InvalidSchema("a list of texts is needed", str(path))
    found: set[str] = set()
    for item in value:
        if not isinstance(item, str):
            raise InvalidSchema("a list of texts is needed", str(path))
        found.add(item)
    return frozenset(found)


def string_node(keywords: Keywords) -> StringNode:
    limits = keywords.counts("minLength", "maxLength")
    pattern = keywords.text("pattern")
    if pattern is not None:
        _check_pattern(pattern, keywords.path / "pattern")
    return StringNode(keywords.raw, limits, pattern)


def number_node(keywords: Keywords, integer: bool = False) -> NumberNode:
    limits = keywords.limits("minimum", "maximum")
    for name, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        value = keywords.raw.get(name)
        if isinstance(value, bool):  # draft 4: the plain limit itself is excluded
            if value and plain in limits:
                limits[name] = limits[plain]
        else:
            limits.update(keywords.limits(name))
    multiple_of = keywords.number("multipleOf")
    if multiple_of is not None and multiple_of <= 0:
        raise InvalidSchema("multipleOf is over 0", str(keywords.path / "multipleOf"))
    return NumberNode(keywords.raw, integer, limits, multiple_of)


def object_node(keywords: Keywords) -> ObjectNode:
    required_with: dict[str, frozenset[str]] = {}
    schema_with = keywords.schemas("dependentSchemas")
    dependencies = {**keywords.object("dependencies"), **keywords.object("dependentRequired")}
    for name, value in dependencies.items():
        path = keywords.path / "dependencies" / name
        if isinstance(value, list):
            required_with[name] = texts(value, path)
        else:
            schema_with[name] = keywords.load(value, path)
    if isinstance(keywords.raw.get("required"), bool):  # draft 3, which some generators still write
        required = frozenset[str]()
    else:
        required = texts(keywords.raw.get("required", []), keywords.path / "required")
    keywords.schema("propertyNames")  # checked, not compared
    for pattern in keywords.object("patternProperties"):
        _check_pattern(pattern, keywords.path / "patternProperties")
    return ObjectNode(
        keywords.raw,
        keywords.counts("minProperties", "maxProperties"),
        keywords.schemas("properties"),
        keywords.schemas("patternProperties"),
        required,
        keywords.schema("additionalProperties"),
        keywords.unevaluated("unevaluatedProperties"),
        required_with,
        schema_with,
    )


def array_node(keywords: Keywords) -> ArrayNode:
    raw, path = keywords.raw, keywords.path
    items: Node | None = None
    additional: Node | None = None
    prefix: Json = None
    if keywords.modern and "prefixItems" in raw:
        prefix = raw["prefixItems"]
        additional = keywords.schema("items")
    elif isinstance(raw.get("items"), list):
        prefix = raw["items"]
        additional = keywords.schema("additionalItems")
    else:
        items = keywords.schema("items")
        if items is None:
            additional = keywords.schema("additionalItems")
        elif keywords.modern and raw["items"] is False:
            items, additional = None, items
    if prefix is not None and not isinstance(prefix, list):
        raise InvalidSchema("prefixItems is a list of schemas", str(path / "prefixItems"))
    keywords.schema("contains")  # checked, not compared
    return ArrayNode(
        raw,
        keywords.counts("minItems", "maxItems", "minContains", "maxContains"),
        items,
        [keywords.load(item, path / "items" / index) for index, item in enumerate(prefix or [])],
        additional,
        keywords.unevaluated("unevaluatedItems"),
        keywords.flag("uniqueItems"),
    )


def _check_pattern(pattern: str, path: Path) -> None:
    try:
        Pattern(pattern)
    except PatternError as error:
        raise InvalidSchema(f"pattern: {error}", str(path)) from None
