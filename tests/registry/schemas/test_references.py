"""Following references, reading JSON, and the GUID."""

from __future__ import annotations

import hashlib
import json

import pytest

from onceward.registry.schemas import (
    InvalidSchema,
    Limits,
    Reference,
    ResolvedReference,
    SchemaTooLarge,
    SchemaType,
    parse_schema,
    resolve_references,
    schema_guid,
    schema_type_of,
)
from onceward.registry.schemas.json_text import double_text, dump_json, load_json


class Store:
    """Schemas by name; ``text`` is the name itself."""

    def __init__(self, **references: str) -> None:
        self._references = references

    def __call__(self, reference: Reference) -> ResolvedReference | None:
        if reference.name not in self._references:
            return None
        inner = tuple(refer(name) for name in self._references[reference.name])
        return ResolvedReference(reference, SchemaType.AVRO, reference.name, inner)


def refer(name: str) -> Reference:
    return Reference(name, f"{name}-subject", 1)


def names(store: Store, *roots: str, limits: Limits | None = None) -> str:
    return "".join(
        found.name for found in resolve_references([refer(root) for root in roots], store, limits)
    )


def test_what_a_schema_refers_to_comes_before_it_and_only_once() -> None:
    assert names(Store(a="bc", b="d", c="d", d=""), "a") == "dbca"
    assert names(Store(a="", b="a"), "b", "a") == "ab"
    assert names(Store()) == ""


def test_a_reference_to_nothing_is_refused() -> None:
    with pytest.raises(InvalidSchema, match=r"'x'.*subject 'x-subject', version 1"):
        names(Store(a="x"), "a")


@pytest.mark.parametrize("store", [Store(a="a"), Store(a="b", b="c", c="a")])
def test_a_circle_of_references_is_refused(store: Store) -> None:
    with pytest.raises(InvalidSchema, match="back to itself"):
        names(store, "a")


def test_too_many_and_too_large_references_are_refused() -> None:
    store = Store(a="bcd", b="", c="", d="")
    with pytest.raises(SchemaTooLarge):
        names(store, "a", limits=Limits(max_references=3))
    with pytest.raises(SchemaTooLarge):
        names(store, "a", limits=Limits(max_bytes=3))
    assert names(store, "a", limits=Limits(max_references=4, max_bytes=4)) == "bcda"


def test_a_long_chain_of_references_needs_no_deep_stack() -> None:
    def lookup(reference: Reference) -> ResolvedReference:
        number = int(reference.name)
        inner = (refer(str(number - 1)),) if number else ()
        return ResolvedReference(reference, SchemaType.AVRO, "", inner)

    found = resolve_references([refer("3000")], lookup, Limits(max_references=5000))
    assert [one.name for one in found] == [str(number) for number in range(3001)]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", "NaN", "[Infinity]", "1e999", "nope", '"\\ud800"', "\ud800", "1" * 5000],
)
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        dump_json(load_json(text, Limits()))


@pytest.mark.parametrize("text", ["[" * 300 + "]" * 300, '{"a":' * 100_000, '"' + "x" * 2_000_000])
def test_text_over_the_limits_is_refused_before_it_is_parsed(text: str) -> None:
    for schema_type in (SchemaType.AVRO, SchemaType.JSON):
        with pytest.raises(SchemaTooLarge):
            parse_schema(schema_type, text)


def test_brackets_in_strings_are_no_nesting() -> None:
    text = json.dumps({"doc": "[" * 500 + '\\"' + "{" * 500})
    assert load_json(text, Limits()) == json.loads(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.25e10, "1.25E10"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-10, "1.0E-10"),
        (-1.2345e-7, "-1.2345E-7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_a_number_is_printed_as_java_prints_it(value: float, text: str) -> None:
    assert double_text(value) == text


def test_the_guid_is_the_md5_of_the_text_and_what_is_registered_with_it() -> None:
    assert schema_guid('"string"') == "095d71cf-1255-6b9d-5e33-0ad575b3df5d"
    expected = hashlib.md5(
        b"text" + b"name" + b"subject" + b"\0\0\0\x02"
        b"\x01" + b"tagABkeyvalueS"
        b"\x01" + b"ruleTRANSFORMUPGRADETYPETpvexpr\x01"
    ).hexdigest()  # fmt: skip
    guid = schema_guid(
        "text",
        [Reference("name", "subject", 2)],
        {"sensitive": ["S"], "tags": {"tag": ["B", "A"]}, "properties": {"key": "value"}},
        {
            "migrationRules": [
                {
                    "name": "rule",
                    "kind": "TRANSFORM",
                    "mode": "UPGRADE",
                    "type": "TYPE",
                    "tags": ["T"],
                    "params": {"p": "v"},
                    "expr": "expr",
                    "disabled": True,
                }
            ]
        },
    )
    assert guid.replace("-", "") == expected


def test_an_absent_schema_type_is_avro_and_an_unknown_one_is_refused() -> None:
    assert schema_type_of(None) is SchemaType.AVRO
    assert schema_type_of("JSON") is SchemaType.JSON
    with pytest.raises(InvalidSchema):
        schema_type_of("THRIFT")
