"""Metadata and rule sets of a schema: read from a request, kept in one spelling.

The registry stores and returns them; rules run in clients. Members that are not known are dropped,
as other registries do. Source: Confluent's ``Metadata``, ``RuleSet`` and ``Rule`` entities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import RegistryError, invalid_rule_set
from .schemas.json_text import Json

VERSION_PROPERTY = "confluent:version"
"""A metadata property that says which version the schema is; a lookup does not mind it."""
RULE_GROUPS = ("migrationRules", "domainRules", "encodingRules")
_RULE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MAX_RULE_NAME = 64
_KINDS = ("TRANSFORM", "CONDITION")
_MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")


def read_metadata(value: Json) -> dict[str, Json] | None:
    """``{tags, properties, sensitive}`` with everything in order. Raises ``RegistryError``."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RegistryError(42201, "metadata is not an object")
    kept: dict[str, Json] = {}
    tags = _members(value, "tags")
    if tags:
        kept["tags"] = {name: _texts(tags[name], f"tags/{name}") for name in sorted(tags)}
    properties = _members(value, "properties")
    if properties:
        kept["properties"] = {
            name: _text(properties[name], f"properties/{name}") for name in sorted(properties)
        }
    sensitive = value.get("sensitive")
    if sensitive:
        kept["sensitive"] = _texts(sensitive, "sensitive")
    return kept


def _members(value: Mapping[str, Json], name: str) -> dict[str, Json]:
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RegistryError(42201, f"metadata: {name} is not an object")
    return found


def _text(value: Json, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise RegistryError(42201, f"metadata: {where} is not a text")


def _texts(value: Json, where: str) -> list[Json]:
    if not isinstance(value, list):
        raise RegistryError(42201, f"metadata: {where} is not a list")
    return [*sorted({_text(item, where) for item in value})]


def read_rule_set(value: Json) -> dict[str, Json] | None:
    """Rules by group, each with its members in Confluent's order and what it leaves open filled
    in, so that one rule set has one text. Raises ``RegistryError``."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid_rule_set("it is not an object")
    kept: dict[str, Json] = {}
    names: set[str] = set()
    for group in RULE_GROUPS:
        rules = value.get(group)
        if rules is None:
            continue
        if not isinstance(rules, list):
            raise invalid_rule_set(f"{group} is not a list")
        modes = _MIGRATION_MODES if group == "migrationRules" else _DOMAIN_MODES
        if rules:
            kept[group] = [_rule(rule, modes, names) for rule in rules]
    if isinstance(value.get("enableAt"), str):
        kept["enableAt"] = value["enableAt"]
    return kept


def _rule(rule: Json, modes: tuple[str, ...], names: set[str]) -> dict[str, Json]:
    if not isinstance(rule, dict):
        raise invalid_rule_set("a rule is not an object")
    name = rule.get("name")
    if not isinstance(name, str) or not _RULE_NAME.fullmatch(name) or len(name) > _MAX_RULE_NAME:
        raise invalid_rule_set(f"rule name {str(name)[:40]!r} is missing or not allowed")
    if name in names:
        raise invalid_rule_set(f"rule name {name!r} is used twice")
    names.add(name)
    kind, mode = rule.get("kind") or _KINDS[0], rule.get("mode") or modes[-1]
    if kind not in _KINDS:
        raise invalid_rule_set(f"rule {name!r}: kind is not TRANSFORM or CONDITION")
    if mode not in modes:
        raise invalid_rule_set(f"rule {name!r}: mode is not one of {', '.join(modes)}")
    if not isinstance(rule.get("type"), str):
        raise invalid_rule_set(f"rule {name!r} has no type")
    tags, params = rule.get("tags"), rule.get("params")
    if tags is not None and not isinstance(tags, list):
        raise invalid_rule_set(f"rule {name!r}: tags is not a list")
    if params is not None and not isinstance(params, dict):
        raise invalid_rule_set(f"rule {name!r}: params is not an object")
    full: dict[str, Json] = {
        **rule,
        "kind": kind,
        "mode": mode,
        "tags": [*sorted({str(tag) for tag in tags or ()})],
        "params": {key: params[key] for key in sorted(params)} if params else {},
    }
    kept = {member: full[member] for member in _RULE_MEMBERS if full.get(member)}
    return {**kept, "disabled": rule.get("disabled") is True}


_RULE_MEMBERS = (
    "name",
    "doc",
    "kind",
    "mode",
    "type",
    "tags",
    "params",
    "expr",
    "onSuccess",
    "onFailure",
)
"""In Confluent's order; ``disabled`` comes last and is always there."""


def merge_metadata(*layers: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """A later layer replaces tags and properties of the same name and adds to what is sensitive.

    None when every layer is None.
    """
    merged: dict[str, Json] | None = None
    for layer in layers:
        if layer is None:
            continue
        found: dict[str, Json] = merged or {}
        for name in ("tags", "properties"):
            both = {**_members(found, name), **_members(layer, name)}
            if both:
                found[name] = {key: both[key] for key in sorted(both)}
        sensitive = {*_items(found, "sensitive"), *_items(layer, "sensitive")}
        if sensitive:
            found["sensitive"] = [*sorted(str(one) for one in sensitive)]
        merged = {
            name: found[name] for name in ("tags", "properties", "sensitive") if name in found
        }
    return merged


def _items(value: Mapping[str, Json], name: str) -> list[str]:
    found = value.get(name)
    return [str(one) for one in found] if isinstance(found, list) else []


def merge_rule_sets(*layers: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """A later layer's rules come last and replace rules of the same name in their group."""
    merged: dict[str, Json] | None = None
    for layer in layers:
        if layer is None:
            continue
        found: dict[str, Json] = merged or {}
        for group in RULE_GROUPS:
            old, new = found.get(group), layer.get(group)
            if isinstance(new, list) and new:
                names = {_name_of(rule) for rule in new}
                kept = old if isinstance(old, list) else []
                found[group] = [*(rule for rule in kept if _name_of(rule) not in names), *new]
        if layer.get("enableAt") is not None:
            found["enableAt"] = layer["enableAt"]
        merged = {name: found[name] for name in (*RULE_GROUPS, "enableAt") if name in found}
    return merged


def _name_of(rule: Json) -> Json:
    return rule.get("name") if isinstance(rule, dict) else None


def with_version(metadata: Mapping[str, Json], number: int) -> dict[str, Json]:
    """Metadata that says the version it belongs to, if it said one before."""
    properties = _members(metadata, "properties")
    if VERSION_PROPERTY not in properties:
        return dict(metadata)
    return {**metadata, "properties": {**properties, VERSION_PROPERTY: str(number)}}


def without_version(metadata: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """What a lookup compares; None when nothing is left."""
    kept = dict(metadata or {})
    properties = kept.get("properties")
    if isinstance(properties, dict) and VERSION_PROPERTY in properties:
        rest = {name: value for name, value in properties.items() if name != VERSION_PROPERTY}
        kept["properties"] = rest
        if not rest:
            del kept["properties"]
    return kept or None
