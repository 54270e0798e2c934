"""Whether JSON data fits a schema: quickly, where the schema has only what most schemas have, and
by the jsonschema package otherwise and for the place of a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...schemas.json_text import Json
from ...schemas.schema import InvalidSchema, ResolvedReference
from ..errors import DoesNotFit, SchemasUnavailable, shown

Check = Callable[[Any], bool]

_HARD: Final = frozenset(
    {
        "patternProperties", "dependencies", "dependentRequired", "dependentSchemas", "if", "not",
        "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "prefixItems",
        "additionalItems", "multipleOf", "uniqueItems", "minProperties", "maxProperties",
        "$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy",
    }
)  # fmt: skip
"""Keywords this module leaves to the package."""
_EASY: Final = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "enum", "const",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
        "minItems", "maxItems", "pattern", "anyOf", "allOf", "oneOf",
    }
)  # fmt: skip
_OLD: Final = ("draft-03", "draft-04")


class _TooHard(Exception):
    """The schema is not for this module."""


def quick_check(schema: Json) -> Check | None:
    """An exact check of Python data (dict, list, str, int, float, bool, None), None for schemas
    that need the package. It may say no to data that only the package can judge: tuples, numbers
    JSON has not."""
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    if any(old in str(dialect) for old in _OLD):
        return None
    try:
        return _Checks(schema).check(schema)
    except (_TooHard, RecursionError):
        return None


class _Checks:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._known: dict[str, Check] = {}
        self._open: set[str] = set()

    def check(self, schema: Json) -> Check:
        if schema is True:
            return lambda value: True
        if schema is False:
            return lambda value: False
        if not isinstance(schema, dict) or not _HARD.isdisjoint(schema):
            raise _TooHard
        if schema is not self._root and ("$id" in schema or "id" in schema):
            raise _TooHard
        reference = schema.get("$ref")
        if reference is not None:
            if not _EASY.isdisjoint(schema):
                raise _TooHard  # what stands beside a reference counts in some drafts only
            return self._referred(reference)
        checks = [*self._of_values(schema), *self._of_kinds(schema), *self._combined(schema)]
        if not checks:
            return lambda value: True
        if len(checks) == 1:
            return checks[0]
        return lambda value: all(check(value) for check in checks)

    def _referred(self, reference: Json) -> Check:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _TooHard
        known = self._known.get(reference)
        if known is not None:
            return known
        if reference in self._open:  # a recursive schema: looked up when it is used
            return lambda value: self._known[reference](value)
        target = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if "%" in name or not isinstance(target, dict) or name not in target:
                raise _TooHard
            target = target[name]
        if reference not in ("#", "#/") and not reference.startswith("#/"):
            raise _TooHard
        self._open.add(reference)
        self._known[reference] = check = self.check(target)
        return check

    def _of_values(self, schema: Mapping[str, Json]) -> list[Check]:
        checks: list[Check] = []
        if "type" in schema:
            checks.append(_type_check(schema["type"]))
        if "enum" in schema:
            checks.append(_one_of(schema["enum"]))
        if "const" in schema:
            checks.append(_one_of([schema["const"]]))
        return checks

    def _of_kinds(self, schema: Mapping[str, Json]) -> list[Check]:
        checks: list[Check] = []
        if not {"properties", "required", "additionalProperties"}.isdisjoint(schema):
            checks.append(self._object(schema))
        if not {"items", "minItems", "maxItems"}.isdisjoint(schema):
            checks.append(self._array(schema))
        if not {"minLength", "maxLength", "pattern"}.isdisjoint(schema):
            checks.append(_text_check(schema))
        checks += _bounds(schema)
        return checks

    def _object(self, schema: Mapping[str, Json]) -> Check:
        given, needed = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(given, dict) or not isinstance(needed, list):
            raise _TooHard
        properties = {name: self.check(inner) for name, inner in given.items()}
        required = frozenset(map(str, needed))
        other = schema.get("additionalProperties", True)
        others = None if other is True else self.check(other)
        get = properties.get

        def check(value: Any) -> bool:
            if type(value) is not dict:
                return not isinstance(value, Mapping)
            if not required <= value.keys():
                return False
            for name, each in value.items():
                inner = get(name)
                if inner is None:
                    if type(name) is not str or (others is not None and not others(each)):
                        return False
                elif not inner(each):
                    return False
            return True

        return check

    def _array(self, schema: Mapping[str, Json]) -> Check:
        items = schema.get("items", True)
        if isinstance(items, list):
            raise _TooHard
        inner = None if items is True else self.check(items)
        fewest, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))
        if not isinstance(fewest, int) or not isinstance(most, int | float):
            raise _TooHard

        def check(value: Any) -> bool:
            if type(value) is not list:
                return not isinstance(value, tuple)
            if not fewest <= len(value) <= most:
                return False
            return inner is None or all(map(inner, value))

        return check

    def _combined(self, schema: Mapping[str, Json]) -> list[Check]:
        checks: list[Check] = []
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword not in schema:
                continue
            given = schema[keyword]
            if not isinstance(given, list):
                raise _TooHard
            checks.append(_combination(keyword, [self.check(each) for each in given]))
        return checks


def _combination(keyword: str, parts: list[Check]) -> Check:
    if keyword == "allOf":
        return lambda value: all(part(value) for part in parts)
    if keyword == "anyOf":
        return lambda value: any(part(value) for part in parts)
    return lambda value: sum(part(value) for part in parts) == 1


def _is_number(value: Any) -> bool:
    """JSON has neither NaN nor infinities."""
    kind = type(value)
    return kind is int or (kind is float and value - value == 0)


def _is_integer(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


_TYPES: Final[dict[str, Check]] = {
    "string": lambda value: type(value) is str,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: value is True or value is False,
    "null": lambda value: value is None,
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
}


def _type_check(given: Json) -> Check:
    names = given if isinstance(given, list) else [given]
    checks = [_TYPES[name] for name in names if isinstance(name, str) and name in _TYPES]
    if len(checks) != len(names):
        raise _TooHard
    if len(checks) == 1:
        return checks[0]
    return lambda value: any(check(value) for check in checks)


def _one_of(given: Json) -> Check:
    if not isinstance(given, list) or not all(isinstance(each, str | None) for each in given):
        raise _TooHard  # 1, 1.0 and true are equal in Python
    allowed = frozenset(each for each in given if isinstance(each, str))
    with_none = None in given
    return lambda value: value in allowed if type(value) is str else value is None and with_none


def _text_check(schema: Mapping[str, Json]) -> Check:
    fewest, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    if not isinstance(fewest, int) or not isinstance(most, int | float):
        raise _TooHard
    pattern = schema.get("pattern")
    try:
        search = re.compile(str(pattern)).search if pattern is not None else None
    except re.error:
        raise _TooHard from None

    def check(value: Any) -> bool:
        if not isinstance(value, str):
            return True
        return fewest <= len(value) <= most and (search is None or search(value) is not None)

    return check


def _bounds(schema: Mapping[str, Json]) -> list[Check]:
    checks: list[Check] = []
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "minimum": lambda value, bound: value >= bound,
        "maximum": lambda value, bound: value <= bound,
        "exclusiveMinimum": lambda value, bound: value > bound,
        "exclusiveMaximum": lambda value, bound: value < bound,
    }
    for keyword, holds in compare.items():
        if keyword in schema:
            checks.append(_bound(schema[keyword], holds))
    return checks


def _bound(limit: Json, holds: Callable[[Any, Any], bool]) -> Check:
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        raise _TooHard
    return lambda value: type(value) not in (int, float) or holds(value, limit)


class Validator:
    """Checks data against one schema; ``references`` are the schemas it names. Raises InvalidSchema
    for text that is no schema."""

    def __init__(self, schema: Json, references: Sequence[ResolvedReference] = ()) -> None:
        self._schema = schema
        self._references = tuple(references)
        self._full: Any = None
        self.quick = quick_check(schema) if not references else None

    def fault(self, data: Any, place: str) -> DoesNotFit | None:
        """The first fault, by the jsonschema package."""
        try:
            from jsonschema.exceptions import best_match
            from referencing.exceptions import Unresolvable
        except ModuleNotFoundError as missing:
            raise SchemasUnavailable(
                f"validating JSON needs {missing.name}: pip install 'onceward[registry]'"
            ) from None

        if self._full is None:
            self._full = self._build()
        try:
            error = best_match(self._full.iter_errors(data))
        except Unresolvable as unresolved:
            raise InvalidSchema(f"a reference leads nowhere: {unresolved}") from None
        if error is None:
            return None
        path = place
        for step in error.absolute_path:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        if error.validator == "type":
            wanted = error.validator_value
            expected = wanted if isinstance(wanted, str) else " or ".join(map(str, wanted))
            return DoesNotFit(path, f"expected {expected}, got {shown(error.instance)}")
        return DoesNotFit(path, error.message)

    def _build(self) -> Any:
        from jsonschema.validators import Draft7Validator, validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        resources = [
            (one.name, Resource.from_contents(json.loads(one.text), default_specification=DRAFT7))
            for one in self._references
        ]
        registry: Any = Registry().with_resources(resources)
        schema: Any = self._schema
        kind = validator_for(schema, default=Draft7Validator)
        return kind(schema, registry=registry)
