"""Avro schemas: what is accepted, and the canonical and normalised text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.registry.schemas import InvalidSchema, Reference, ResolvedReference, SchemaType
from onceward.registry.schemas.avro.schema import AvroSchema


def record(*fields: Any, **attributes: Any) -> Any:
    return {"type": "record", "name": "R", "fields": list(fields), **attributes}


def field(kind: Any, **attributes: Any) -> Any:
    return {"name": "f", "type": kind, **attributes}


def parse(schema: Any, *, strict: bool = True) -> AvroSchema:
    return AvroSchema.parse(json.dumps(schema), strict=strict)


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        {"type": "string"},
        {"type": {"type": "string"}},
        ["null", "int"],
        [],
        record(),
        record(field("int", default=1)),
        record(field(["null", "int"], default=None)),
        record(field(["null", "int"], default=7)),  # any branch, as in Java 1.12
        record(field("float", default="1.5")),
        record(field("double", default=1)),
        record(field("bytes", default="\u00ff")),
        record(field({"type": "array", "items": "int"}, default=[1, 2])),
        record(field({"type": "map", "values": "long"}, default={"a": 1})),
        record(field(["null", "R"], default=None)),
        record(field(ENUM, default="A")),
        record({"name": "a", "type": ENUM}, {"name": "b", "type": ENUM}),  # twice, but the same
        record(field("int"), name="Größe"),
        record(field("int", order="descending", doc="d", aliases=["g"], extra={"x": 1})),
        {"type": "error", "name": "Oops", "fields": []},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "int", "logicalType": "no-such-type"},
    ],
)
def test_a_valid_schema_is_accepted_and_its_text_is_stable(schema: Any) -> None:
    parsed = parse(schema)
    assert AvroSchema.parse(parsed.canonical).canonical == parsed.canonical


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("nope", ""),
        (7, ""),
        ({}, ""),
        ({"type": "array"}, ""),
        ({"type": "map", "values": "nope"}, "/values"),
        (["int", "int"], "/1"),
        (["int", ["null"]], "/1"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "string"}], "/1"),
        ({"type": "record", "fields": []}, ""),
        ({"type": "record", "name": "R"}, ""),
        (record(name="a-b"), "/name"),
        (record(name="1a"), "/name"),
        (record(namespace="a..b"), "/namespace"),
        (record(name="string"), ""),
        (record({"type": "int"}), "/fields/0"),
        (record({"name": "f"}), "/fields/0"),
        (record({"name": "a b", "type": "int"}), "/fields/0/name"),
        (record(field("int"), field("string")), "/fields/1"),
        (record(field("int", default="1")), "/fields/0/default"),
        (record(field("int", default=1.0)), "/fields/0/default"),
        (record(field("int", default=1 << 31)), "/fields/0/default"),
        (record(field("int", default=True)), "/fields/0/default"),
        (record(field("string", default=None)), "/fields/0/default"),
        (record(field("bytes", default="\u0100")), "/fields/0/default"),
        (record(field(ENUM, default="C")), "/fields/0/default"),
        (record(field("int", order="sideways")), "/fields/0/order"),
        (record(field("int", aliases="g")), "/fields/0/aliases"),
        (record({"name": "a", "type": ENUM}, {"name": "b", "type": {**ENUM, "symbols": ["A"]}}),
         "/fields/1/type"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "/symbols/1"),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "/symbols/0"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "/default"),
        ({"type": "enum", "name": "E"}, ""),
        ({"type": "fixed", "name": "F"}, ""),
        ({"type": "fixed", "name": "F", "size": -1}, ""),
        ({"type": "fixed", "name": "F", "size": True}, ""),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_its_place(schema: Any, path: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(schema)
    assert caught.value.path == path


def test_a_stored_schema_is_read_without_the_checks_of_names_and_defaults() -> None:
    stored = record(field("int", default="none"), name="old-name")
    assert parse(stored, strict=False).name == "old-name"


def test_the_canonical_text_is_the_one_java_prints() -> None:
    parsed = parse(
        {
            "fields": [
                {"doc": "how much", "default": 1e10, "type": "double", "name": "amount"},
                {"name": "next", "type": ["null", "shop.Order"], "default": None, "x": [1.0]},
                {"name": "e", "type": {"symbols": ["A"], "name": "other.E", "type": "enum"}},
                {"name": "again", "type": "other.E", "order": "ignore", "aliases": ["was"]},
                {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            ],
            "extra": 1,
            "aliases": ["Old", "elsewhere.Old"],
            "doc": "An ürder",
            "name": "shop.Order",
            "type": "record",
        }
    )
    assert parsed.canonical == (
        '{"type":"record","name":"Order","namespace":"shop","doc":"An ürder","fields":['
        '{"name":"amount","type":"double","doc":"how much","default":1.0E10},'
        '{"name":"next","type":["null","Order"],"default":null,"x":[1.0]},'
        '{"name":"e","type":{"type":"enum","name":"E","namespace":"other","symbols":["A"]}},'
        '{"name":"again","type":"other.E","order":"ignore","aliases":["was"]},'
        '{"name":"when","type":{"type":"long","logicalType":"timestamp-millis"}}],'
        '"extra":1,"aliases":["Old","elsewhere.Old"]}'
    )
    assert parsed.name == "shop.Order"


def test_normalised_text_has_full_names_and_sorted_attributes() -> None:
    money = {"type": "bytes", "scale": 2, "precision": 9, "b": 1, "logicalType": "decimal", "a": 2}
    parsed = parse(record(field(money), z=1, namespace="n", aliases=["Q"]))
    assert parsed.normalized().canonical == (
        '{"name":"n.R","type":"record","fields":[{"name":"f","type":{"type":"bytes",'
        '"logicalType":"decimal","precision":9,"scale":2,"a":2,"b":1},"order":"ascending"}],'
        '"aliases":["n.Q"],"z":1}'
    )


def test_spellings_of_one_schema_have_one_normalised_text() -> None:
    one = record(field({"type": "int"}), namespace="n", aliases=["B", "A"], x=1, w={"b": 1, "a": 2})
    other = {
        "name": "n.R",
        "w": {"a": 2, "b": 1},
        "x": 1,
        "aliases": ["n.A", "n.B"],
        "fields": [field("int", order="ascending")],
        "type": "record",
    }
    assert parse(one).canonical != parse(other).canonical
    assert parse(one).normalized().canonical == parse(other).normalized().canonical


def test_referenced_types_stay_names_and_can_be_written_out() -> None:
    reference = Reference("n.User", "user", 1)
    user = '{"type":"record","name":"User","namespace":"n","fields":[]}'
    resolved = [ResolvedReference(reference, SchemaType.AVRO, user)]
    text = json.dumps(record(field("n.User")))
    parsed = AvroSchema.parse(text, (reference,), resolved)
    assert parsed.canonical == (
        '{"type":"record","name":"R","fields":[{"name":"f","type":"n.User"}]}'
    )
    written_out = parse(record(field(json.loads(user))))
    assert parsed.formatted("resolved") == written_out.canonical
    assert parsed.matches(written_out) and written_out.matches(parsed)
    assert not parsed.matches(parse(record(field("int"))))


def test_a_reference_of_another_type_is_refused() -> None:
    reference = Reference("x", "x", 1)
    resolved = [ResolvedReference(reference, SchemaType.JSON, "{}")]
    with pytest.raises(InvalidSchema, match="no Avro"):
        AvroSchema.parse('"int"', (reference,), resolved)


def test_a_name_without_namespace_is_found_outside_of_every_namespace() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 1}
    inner = {"type": "record", "name": "n.I", "fields": [{"name": "g", "type": "F"}]}
    schema = record({"name": "a", "type": fixed}, {"name": "b", "type": inner})
    assert '"type":"F"' in parse(schema).canonical
