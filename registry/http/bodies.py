"""Bodies of requests, read into what the registry works with."""

from __future__ import annotations

from collections.abc import Mapping

from ..contracts import read_metadata, read_rule_set
from ..entities import CONFIG_MEMBERS, LATEST, SchemaRequest, contract_text
from ..errors import RegistryError, invalid_schema
from ..schemas import Reference
from ..schemas.json_text import Json
from ..settings import parse_mode

OTHER_CONFIG_MEMBERS = (
    "aliasForDeks",
    "validateFields",
    "validateRules",
)
"""Members of Confluent's config that are refused here: they would have no effect."""


def schema_request(body: Mapping[str, Json]) -> SchemaRequest:
    """Unknown members and nulls are ignored. Raises ``RegistryError``."""
    return SchemaRequest(
        _text(body, "schema") or "",
        _text(body, "schemaType"),
        _references(body.get("references")),
        contract_text(read_metadata(body.get("metadata"))),
        contract_text(read_rule_set(body.get("ruleSet"))),
        _number(body, "id"),
        _number(body, "version"),
    )


def _text(body: Mapping[str, Json], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid_schema(f"{name} is not a text")
    return value


def _number(body: Mapping[str, Json], name: str) -> int:
    value = body.get(name)
    if value is None:
        return -1
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid_schema(f"{name} is not a number")
    return value


def _references(value: Json) -> tuple[Reference, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_schema("references is not a list")
    return tuple(_reference(one) for one in value)


def _reference(value: Json) -> Reference:
    if not isinstance(value, dict):
        raise invalid_schema("a reference is not an object")
    name, subject, version = value.get("name"), value.get("subject"), value.get("version", LATEST)
    if not isinstance(name, str) or not isinstance(subject, str) or not name or not subject:
        raise invalid_schema("a reference has no name or no subject")
    if not isinstance(version, int) or isinstance(version, bool):
        raise invalid_schema(f"reference {name[:100]!r} has no version number")
    return Reference(name, subject, version)


def config_changes(body: Mapping[str, Json]) -> dict[str, Json]:
    """Members as they are stored: requests say ``compatibility`` for ``compatibilityLevel``."""
    changes: dict[str, Json] = {}
    for name in (*CONFIG_MEMBERS, *OTHER_CONFIG_MEMBERS):
        if name in body:
            changes[name] = body[name]
    if "compatibility" in body:
        changes["compatibilityLevel"] = body["compatibility"]
    if not changes:
        raise RegistryError(42203, "There is no compatibility level in the request")
    return changes


def mode_of(body: Mapping[str, Json]) -> str:
    """Raises ``RegistryError`` 42204."""
    return parse_mode(body.get("mode"))
