"""The OpenAPI document of the registry, made from its routes."""

from __future__ import annotations

import re

from ..entities import CONTRACT_MEMBERS
from ..schemas.json_text import Json
from .media_types import PRODUCED
from .router import Route
from .routes import ROUTES

_PARAMETER = re.compile(r"\{(\w+)\}")
_BOOLEANS = frozenset(
    {
        "deleted",
        "deletedOnly",
        "deletedAsNegative",
        "normalize",
        "permanent",
        "verbose",
        "force",
        "recursive",
        "defaultToGlobal",
        "latestOnly",
        "fetchMaxId",
    }
)
_NUMBERS = frozenset({"offset", "limit"})
_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer"}
_BOOLEAN: Json = {"type": "boolean"}


def openapi_document() -> dict[str, Json]:
    """OpenAPI 3.1. ``/contexts/{context}`` may stand before every path but is not repeated."""
    paths: dict[str, dict[str, Json]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onceward schema registry",
            "version": "1",
            "description": "Every path may be prefixed with /contexts/{context}.",
        },
        "paths": {**paths},
        "components": {"schemas": _components()},
    }


def _operation(route: Route) -> Json:
    path_parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in _PARAMETER.findall(route.path)
    ]
    query_parameters: list[Json] = [
        {"name": name, "in": "query", "schema": _type_of(name)} for name in route.query
    ]
    operation: dict[str, Json] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.path)}",
        "parameters": path_parameters + query_parameters,
        "responses": {
            "200": {"description": "Success", "content": _content({})},
            "default": {
                "description": "Failure",
                "content": _content({"$ref": "#/components/schemas/Error"}),
            },
        },
    }
    if route.body:
        schema: Json = {"$ref": f"#/components/schemas/{route.body}"}
        operation["requestBody"] = {"required": True, "content": _content(schema)}
    return operation


def _type_of(name: str) -> Json:
    if name in _BOOLEANS:
        return _BOOLEAN
    return _NUMBER if name in _NUMBERS else _TEXT


def _content(schema: Json) -> dict[str, Json]:
    return {media_type: {"schema": schema} for media_type in PRODUCED}


def _components() -> dict[str, Json]:
    reference: Json = {
        "type": "object",
        "required": ["name", "subject", "version"],
        "properties": {"name": _TEXT, "subject": _TEXT, "version": _NUMBER},
    }
    return {
        "Error": {
            "type": "object",
            "required": ["error_code", "message"],
            "properties": {"error_code": _NUMBER, "message": _TEXT},
        },
        "Schema": {
            "type": "object",
            "properties": {
                "schema": _TEXT,
                "schemaType": {"enum": ["AVRO", "JSON", "PROTOBUF"]},
                "references": {"type": "array", "items": reference},
                "metadata": {"type": ["object", "null"]},
                "ruleSet": {"type": ["object", "null"]},
                "id": _NUMBER,
                "version": _NUMBER,
            },
        },
        "Config": {
            "type": "object",
            "properties": {
                "compatibility": _TEXT,
                "alias": _TEXT,
                "normalize": _BOOLEAN,
                "compatibilityGroup": _TEXT,
                "compatibilityPolicy": {"enum": ["STRICT", "LENIENT"]},
                **{name: {"type": "object"} for name in CONTRACT_MEMBERS},
            },
        },
        "Mode": {
            "type": "object",
            "required": ["mode"],
            "properties": {"mode": {"enum": ["READWRITE", "READONLY", "IMPORT"]}},
        },
    }
