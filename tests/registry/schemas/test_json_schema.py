"""JSON Schemas: what is accepted, where references lead, canonical text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.registry.compatibility import can_read
from onceward.registry.schemas import InvalidSchema, Reference, ResolvedReference, SchemaType
from onceward.registry.schemas.json_schema.nodes import ObjectNode, StringNode, plain
from onceward.registry.schemas.json_schema.schema import JsonSchema

DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def parse(schema: Any, **documents: Any) -> JsonSchema:
    resolved = [
        ResolvedReference(Reference(name, name, 1), SchemaType.JSON, json.dumps(document))
        for name, document in documents.items()
    ]
    references = tuple(one.reference for one in resolved)
    return JsonSchema.parse(json.dumps(schema), references, resolved)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("text", ""),
        ([], ""),
        ({"type": "text"}, "/type"),
        ({"type": []}, "/type"),
        ({"properties": []}, "/properties"),
        ({"properties": {"a": {"items": {"type": "nope"}}}}, "/properties/a/items/type"),
        ({"items": [{"minimum": "1"}]}, "/items/0/minimum"),
        ({"required": "a"}, "/required"),
        ({"required": [1]}, "/required"),
        ({"minLength": -1}, "/minLength"),
        ({"maxItems": 1.5}, "/maxItems"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"uniqueItems": 1}, "/uniqueItems"),
        ({"enum": "a"}, "/enum"),
        ({"anyOf": []}, "/anyOf"),
        ({"oneOf": [3]}, "/oneOf/0"),
        ({"not": 3}, "/not"),
        ({"if": {"type": "nope"}}, "/if/type"),
        ({"contains": 3}, "/contains"),
        ({"propertyNames": 3}, "/propertyNames"),
        ({"dependencies": {"a": [1]}}, "/dependencies/a"),
        ({"pattern": "a("}, "/pattern"),
        ({"patternProperties": {"[": {}}}, "/patternProperties"),
        ({"$ref": 3}, "/$ref"),
        ({"$ref": "#/definitions/none"}, "/$ref"),
        ({"$ref": "#none"}, "/$ref"),
        ({"$ref": "http://example.com/schema.json"}, "/$ref"),
        ({"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": 1}}},
         "#/definitions/a/type"),
    ],
)  # fmt: skip
def test_a_document_that_is_no_schema_is_refused_with_its_place(schema: Any, path: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(schema)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
        {
            "$ref": "#/definitions/a",
            "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
        },
    ],
)
def test_a_reference_that_leads_only_to_itself_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="itself"):
        parse(schema)


def test_the_canonical_text_keeps_the_order_and_the_normalised_one_does_not() -> None:
    parsed = parse({"type": "object", "properties": {"b": {"maximum": 1e8}, "a": {}}, "é": "ü"})
    assert parsed.canonical == (
        '{"type":"object","properties":{"b":{"maximum":1.0E8},"a":{}},"é":"ü"}'
    )
    assert parsed.normalized().canonical == (
        '{"properties":{"a":{},"b":{"maximum":1.0E8}},"type":"object","é":"ü"}'
    )


def test_the_name_is_the_title() -> None:
    assert parse({"title": "Order"}).name == "Order"
    assert parse(True).name is None


STRING = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/s", "definitions": {"s": STRING}},
        {"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": STRING}},
        {"$ref": "#/anyOf/1", "anyOf": [{}, STRING]},
        {"$ref": "#there", "definitions": {"s": {"$id": "#there", **STRING}}},
        {"$ref": "#there", "$defs": {"s": {"$anchor": "there", **STRING}}},
        {"$id": "http://x.y/a/root.json", "$ref": "s.json",
         "definitions": {"s": {"$id": "http://x.y/a/s.json", **STRING}}},
        {"$id": "http://x.y/root.json", "$ref": "http://x.y/root.json#/definitions/s",
         "definitions": {"s": STRING}},
        {"$id": "urn:one:two", "$ref": "#/definitions/s", "definitions": {"s": STRING}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x.y/r.json",
         "$ref": "s.json", "definitions": {"s": {"id": "s.json", **STRING}}},
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": STRING}},
    ],
)  # fmt: skip
def test_a_reference_inside_the_document_is_followed(schema: Any) -> None:
    assert isinstance(parse(schema).root, StringNode)


@pytest.mark.parametrize(
    ("reference", "document"),
    [
        ("common.json", STRING),
        ("common.json#/definitions/s", {"definitions": {"s": STRING}}),
        ("common.json", {"$ref": "#/definitions/s", "definitions": {"s": STRING}}),
        ("http://elsewhere/s.json", {"$id": "http://elsewhere/s.json", **STRING}),
    ],
)
def test_a_reference_into_a_registered_schema_is_followed(reference: str, document: Any) -> None:
    schema = {"$id": "http://x.y/root.json", "$ref": reference}
    assert isinstance(parse(schema, **{"common.json": document}).root, StringNode)


def test_a_metaschema_may_be_referred_to_and_is_not_fetched() -> None:
    schema = {"properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}}
    root = parse(schema).root
    assert isinstance(root, ObjectNode)
    assert plain(root.properties["schema"]).label == "anything"


def test_an_id_that_is_data_is_no_id() -> None:
    schema = {
        "type": "object",
        "default": {"$id": "http://elsewhere/"},
        "properties": {"$id": STRING, "a": {"$ref": "#/definitions/s"}},
        "definitions": {"s": STRING},
    }
    root = parse(schema).root
    assert isinstance(root, ObjectNode)
    assert isinstance(plain(root.properties["a"]), StringNode)


def test_what_stands_beside_a_reference_counts_from_2019_on() -> None:
    schema = {"$ref": "#/$defs/s", "maxLength": 5, "$defs": {"s": STRING}}
    assert isinstance(parse(schema).root, StringNode)
    assert parse({"$schema": DRAFT_2020, **schema}).root.label == "allOf of string, string"


def test_tuples_of_2020_12_are_prefix_items() -> None:
    old = {"$schema": DRAFT_2020, "prefixItems": [STRING], "items": False}
    new = {"$schema": DRAFT_2020, "prefixItems": [STRING, STRING], "items": False}
    assert not can_read(parse(new), parse(old))
    assert [reason.rule for reason in can_read(parse(old), parse(new))] == [
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
    ]


def test_an_empty_items_schema_is_as_good_as_none() -> None:
    assert not can_read(parse({"type": "array", "items": {}}), parse({"type": "array"}))
    assert not can_read(
        parse({"type": "object", "additionalProperties": {}}), parse({"type": "object"})
    )


def test_the_exclusive_limit_of_draft_4_is_a_limit() -> None:
    plain_limit = parse({"type": "number", "maximum": 5})
    exclusive = parse({"type": "number", "maximum": 5, "exclusiveMaximum": True})
    assert [reason.rule for reason in can_read(exclusive, plain_limit)] == [
        "EXCLUSIVE_MAXIMUM_ADDED"
    ]
    assert not can_read(plain_limit, exclusive)


def test_the_reason_for_an_open_model_says_how_to_change_it() -> None:
    reasons = can_read(parse({"properties": {"a": STRING}}), parse({"properties": {}}))
    assert "open content model" in reasons[0].description
    assert "additionalProperties" in reasons[0].description and "LENIENT" in reasons[0].description
