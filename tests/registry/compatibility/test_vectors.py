"""Every verdict of the vectors, with the rule and the path that lead to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.registry.compatibility import Incompatibility, Policy, can_read
from onceward.registry.schemas import ParsedSchema, SchemaType, parse_schema

from ..vector_files import imports, vectors

# the vectors' short codes -> the rules' names
RULES: dict[str, str] = {
    "PROP_OPT_ADDED_OPEN": "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    "PROP_REQ_ADDED_UNOPEN": "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROP_REQDEF_ADDED_OPEN": "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
    "PROP_REMOVED_CLOSED": "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "PROP_REMOVED_NOTCOV": "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROP_ADDED_NOTCOV": "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_OPEN": "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
    "AP_REMOVED": "ADDITIONAL_PROPERTIES_REMOVED",
    "AP_NARROWED": "ADDITIONAL_PROPERTIES_NARROWED",
    "REQUIRED_ADDED": "REQUIRED_ATTRIBUTE_ADDED",
    "MULT_EXPANDED": "MULTIPLE_OF_EXPANDED",
    "ENUM_NARROWED": "ENUM_ARRAY_NARROWED",
    "ENUM_CHANGED": "ENUM_ARRAY_CHANGED",
    "SUM_NARROWED": "SUM_TYPE_NARROWED",
    "PRODUCT_EXTENDED": "PRODUCT_TYPE_EXTENDED",
    "COMB_CHANGED": "COMBINED_TYPE_CHANGED",
    "NOT_EXTENDED": "NOT_TYPE_EXTENDED",
    "UNIQUE_ADDED": "UNIQUE_ITEMS_ADDED",
    "DEP_ARR_ADDED": "DEPENDENCY_ARRAY_ADDED",
    "MULTI_TO_ONEOF": "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
    "TO_EXISTING_ONEOF": "FIELD_MOVED_TO_EXISTING_ONEOF",
    "REQUIRED_REMOVED": "REQUIRED_FIELD_REMOVED",
    "FIELD_NUMERIC_LABEL": "FIELD_NUMERIC_LABEL_CHANGED",
}
SOME_LIMIT = {
    "UPPER_TIGHTER": ("_DECREASED", "_ADDED"),
    "LOWER_TIGHTER": ("_INCREASED", "_ADDED"),
}


def parsed(schema_type: SchemaType, vector: Any) -> tuple[ParsedSchema, ParsedSchema]:
    """The reader's and the writer's schema."""
    sides = []
    for side in ("reader", "writer"):
        text = vector[side]
        if schema_type is not SchemaType.PROTOBUF:
            text = json.dumps(text)
        sides.append(parse_schema(schema_type, text, (), imports(vector, side)))
    return sides[0], sides[1]


def check_verdicts(vector: Any, reader: ParsedSchema, writer: ParsedSchema) -> None:
    backward, forward = can_read(reader, writer), can_read(writer, reader)
    assert (not backward) is vector["backward"], backward
    assert (not forward) is vector["forward"], forward
    assert (not backward and not forward) is vector["full"]
    for reason in (*backward, *forward):
        assert reason.rule and reason.path and reason.description
        assert reason.reader or reason.writer


def fits(code: str, reason: Incompatibility) -> bool:
    return reason.rule == RULES.get(code, code) or reason.rule.endswith(SOME_LIMIT.get(code, "?"))


@pytest.mark.parametrize("vector", vectors("avro"), ids=lambda vector: vector["id"])
def test_avro_verdict_rule_and_path_are_those_of_java(vector: Any) -> None:
    reader, writer = parsed(SchemaType.AVRO, vector)
    check_verdicts(vector, reader, writer)
    reasons = [f"{reason.rule}@{reason.path}" for reason in can_read(reader, writer)]
    assert "; ".join(reasons) == vector["why"]


@pytest.mark.parametrize("vector", vectors("json"), ids=lambda vector: vector["id"])
def test_json_schema_verdict_and_rules_are_those_of_confluent(vector: Any) -> None:
    reader, writer = parsed(SchemaType.JSON, vector)
    check_verdicts(vector, reader, writer)
    reasons = can_read(reader, writer)
    assert len(reasons) == len(vector["why"])
    assert all(any(fits(code, reason) for reason in reasons) for code in vector["why"])
    assert (not can_read(reader, writer, Policy.LENIENT)) is vector["backward_lenient"]


@pytest.mark.parametrize("vector", vectors("proto"), ids=lambda vector: vector["id"])
def test_protobuf_verdict_and_rules_are_those_of_confluent(vector: Any) -> None:
    reader, writer = parsed(SchemaType.PROTOBUF, vector)
    check_verdicts(vector, reader, writer)
    codes = {"REQUIRED_ADDED": "REQUIRED_FIELD_ADDED"}
    expected = [codes.get(code, RULES.get(code, code)) for code in vector["why"]]
    assert sorted(reason.rule for reason in can_read(reader, writer)) == sorted(expected)


@pytest.mark.parametrize(
    ("schema_type", "vector"),
    [
        pytest.param(schema_type, vector, id=vector["id"])
        for schema_type, name in (
            (SchemaType.AVRO, "avro"),
            (SchemaType.JSON, "json"),
            (SchemaType.PROTOBUF, "proto"),
        )
        for vector in vectors(name)
    ],
)
def test_canonical_and_normalised_text_mean_the_same_and_are_stable(
    schema_type: SchemaType, vector: Any
) -> None:
    for side, schema in zip(("reader", "writer"), parsed(schema_type, vector), strict=True):
        resolved = imports(vector, side)
        again = parse_schema(schema_type, schema.canonical, (), resolved)
        assert again.canonical == schema.canonical
        normal = schema.normalized()
        normal_again = parse_schema(schema_type, normal.canonical, (), resolved)
        assert normal_again.normalized().canonical == normal.canonical
        if vector["id"] != "A60":  # an ambiguous alias does not even read itself
            assert not can_read(normal_again, schema) and not can_read(schema, normal_again)
