"""Which versions each level compares with, in which direction, and what it says."""

from __future__ import annotations

import json

import pytest

from onceward.registry.compatibility import CompatibilityLevel, Policy, Version, can_read, check
from onceward.registry.schemas import ParsedSchema, SchemaType, parse_schema

L = CompatibilityLevel


def parcel(*fields: dict[str, object]) -> ParsedSchema:
    schema = {"type": "record", "name": "Parcel", "fields": list(fields)}
    return parse_schema(SchemaType.AVRO, json.dumps(schema))


CODE: dict[str, object] = {"name": "code", "type": "string"}
V1 = parcel(CODE)
V2 = parcel(CODE, {"name": "weight", "type": "double", "default": 0.0})
V3 = parcel(CODE, {"name": "weight", "type": "double"})


def live(*schemas: ParsedSchema) -> list[Version]:
    return [Version(number, schema) for number, schema in enumerate(schemas, 1)]


@pytest.mark.parametrize(
    ("level", "history", "new", "compatible"),
    [
        (L.NONE, (V1,), V3, True),
        (L.BACKWARD, (), V3, True),
        (L.BACKWARD, (V1,), V2, True),
        (L.BACKWARD, (V1, V2), V3, True),
        (L.BACKWARD, (V1,), V3, False),
        (L.BACKWARD_TRANSITIVE, (V1, V2), V3, False),
        (L.BACKWARD_TRANSITIVE, (V2,), V3, True),  # V1 is deleted
        (L.FORWARD, (V3,), V2, True),
        (L.FORWARD, (V3, V2), V1, True),
        (L.FORWARD, (V3,), V1, False),
        (L.FORWARD_TRANSITIVE, (V3, V2), V1, False),
        (L.FULL, (V1,), V2, True),
        (L.FULL, (V1, V2), V3, True),
        (L.FULL, (V3, V2), V1, True),
        (L.FULL_TRANSITIVE, (V1, V2), V3, False),
        (L.FULL_TRANSITIVE, (V3, V2), V1, False),
        (L.FULL_TRANSITIVE, (V2,), V1, True),
    ],
)
def test_a_level_compares_with_the_newest_or_with_all_versions(
    level: CompatibilityLevel,
    history: tuple[ParsedSchema, ...],
    new: ParsedSchema,
    compatible: bool,
) -> None:
    assert check(level, new, live(*history)).is_compatible is compatible


def test_a_failed_check_names_the_version_the_reason_and_the_level() -> None:
    verdict = check(L.FULL_TRANSITIVE, V3, live(V1, V2))
    assert verdict.against is not None and verdict.against.number == 1
    assert [reason.rule for reason in verdict.backward] == ["READER_FIELD_MISSING_DEFAULT_VALUE"]
    assert verdict.forward == ()
    messages = verdict.messages()
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in messages[0]
    assert "/fields/1" in messages[0] and "weight" in messages[0]
    assert messages[1:] == [
        "{oldSchemaVersion: 1}",
        f"{{oldSchema: '{V1.canonical}'}}",
        "{compatibility: 'FULL_TRANSITIVE'}",
    ]


def test_the_newest_version_is_compared_first_and_the_first_failure_decides() -> None:
    verdict = check(L.BACKWARD_TRANSITIVE, V3, live(V1, V2, V1))
    assert verdict.against is not None and verdict.against.number == 3


def test_a_passed_check_has_no_messages() -> None:
    assert check(L.BACKWARD, V2, live(V1)).messages() == []


def test_a_long_old_schema_is_cut_in_the_messages() -> None:
    fields: list[dict[str, object]] = [
        {"name": f"f{number}", "type": "int"} for number in range(1000)
    ]
    verdict = check(L.FORWARD, V1, live(parcel(*fields)))
    assert len(verdict.messages()[-2]) < 11_000


def test_another_schema_type_is_incompatible_except_at_none() -> None:
    other = parse_schema(SchemaType.JSON, '{"type": "string"}')
    verdict = check(L.BACKWARD, other, live(V1))
    assert [reason.rule for reason in verdict.backward] == ["SCHEMA_TYPE_CHANGED"]
    assert check(L.NONE, other, live(V1)).is_compatible


def test_a_level_is_read_in_any_case() -> None:
    assert CompatibilityLevel.parse("full_transitive") is L.FULL_TRANSITIVE
    with pytest.raises(ValueError):
        CompatibilityLevel.parse("SIDEWAYS")


def test_the_lenient_policy_reaches_the_comparison() -> None:
    texts = '{"type":"object","properties":{"a":{"type":"string"}}}', '{"type":"object"}'
    new, old = (parse_schema(SchemaType.JSON, text) for text in texts)
    assert not check(L.BACKWARD, new, live(old)).is_compatible
    assert check(L.BACKWARD, new, live(old), Policy.LENIENT).is_compatible


def test_schemas_that_take_too_long_to_compare_count_as_incompatible_with_that_reason() -> None:
    def branches(first: int) -> ParsedSchema:
        parts = [{"type": "string", "maxLength": number} for number in range(first, first + 700)]
        return parse_schema(SchemaType.JSON, json.dumps({"oneOf": parts}))

    reasons = can_read(branches(0), branches(1))
    assert [reason.rule for reason in reasons] == ["TOO_COMPLEX"]
