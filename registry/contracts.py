"""Metadata and rule sets of a schema: read from a request, kept in one spelling.

The registry stores and returns them; rules run in clients. Members that are not known are dropped,
as other registries do. Source: Confluent's ``Metadata``, ``RuleSet`` and ``Rule`` entities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import RegistryError, invalid_rule_set
from .schemas.json_text import Json

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
    """Rules by group, each with its members in Confluent's order. Raises ``RegistryError``."""
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
    if rule.get("kind", "TRANSFORM") not in _KINDS:
        raise invalid_rule_set(f"rule {name!r}: kind is not TRANSFORM or CONDITION")
    if rule.get("mode", modes[-1]) not in modes:
        raise invalid_rule_set(f"rule {name!r}: mode is not one of {', '.join(modes)}")
    if not isinstance(rule.get("type"), str):
        raise invalid_rule_set(f"rule {name!r} has no type")
    return {member: rule[member] for member in _RULE_MEMBERS if rule.get(member) is not None}


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
    "disabled",
)
