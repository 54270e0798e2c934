"""``JsonSchema``: types to schemas, validation, and what is refused with its place."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from decimal import Decimal
from random import Random
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from onceward.registry import (
    DoesNotFit,
    JsonSchema,
    MemoryRegistry,
    Reference,
    SchemasUnavailable,
    SchemaText,
    Undecodable,
    UnsupportedType,
)
from onceward.registry.schemas import SchemaType
from onceward.registry.serializers.json_schema.serializer import JsonCodec
from onceward.registry.serializers.json_schema.validate import Validator, quick_check
from onceward.streams import Record

from ..json_generation import JsonGenerator

NOW = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, datetime.UTC)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(Record):
    sku: str
    price: int


class Order(Record):
    id: str
    lines: list[Line]
    when: datetime.datetime
    total: Decimal
    data: bytes = b"\xff"
    color: Color = Color.RED
    note: str | None = None
    parent: Order | None = None
    by_name: dict[str, Line] = msgspec.field(default_factory=dict)


ORDER = Order("1", [Line("a", 1)], NOW, Decimal("1.5"), by_name={"k": Line("b", 2)})


X: Any = "x"
"""Fits nothing it is given as."""


def wrong(**fields: Any) -> Any:
    return ORDER.derive(**fields)


def codec(value_type: Any = None, **options: Any) -> JsonCodec:
    options.setdefault("registry", MemoryRegistry())
    return JsonSchema(value_type, **options).bind(None, "orders", is_key=False)


def test_every_kind_of_field_comes_back() -> None:
    orders = codec(Order)
    child = Order("2", [], NOW, Decimal(2), parent=ORDER)
    assert orders.decode_many(orders.encode_many([child, None, ORDER])) == [child, None, ORDER]


def test_the_schema_made_from_a_type_holds_its_values() -> None:
    orders = codec(Order)
    data = orders.encode(Order("2", [], NOW, Decimal(2), parent=ORDER))
    schema = json.loads(orders.registry.now(orders.registry.latest("orders-value")).schema.text)
    assert (schema["title"], schema["required"]) == ("Order", ["id", "lines", "when", "total"])
    assert schema["properties"]["parent"]["anyOf"][0] == {"$ref": "#"}
    assert Validator(schema).fault(json.loads(data[5:]), "order") is None


def test_a_field_with_a_default_may_be_added_later() -> None:
    """Objects are closed: in an open one the new name could have held anything."""

    @dataclasses.dataclass
    class Line2:
        sku: str
        price: int
        weight: float = 0.5

    registry = MemoryRegistry()
    data = codec(Line, registry=registry).encode(Line("a", 1))
    later = codec(Line2, registry=registry)
    later.encode(Line2("a", 1))
    assert later.decode(data) == Line2("a", 1)
    with pytest.raises(SchemasUnavailable, match="incompatible"):
        registry = MemoryRegistry()
        codec(Line, registry=registry, open_content=True).encode(Line("a", 1))
        codec(Line2, registry=registry, open_content=True).encode(Line2("a", 1))


class Model(pydantic.BaseModel):
    id: int
    when: datetime.datetime | None = None


class Typed(TypedDict):
    id: int


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (Model, Model(id=1, when=NOW)),
        (Typed, {"id": 1}),
        (list[int], [1, 2]),
        (dict[str, float], {"a": 1.5}),
        (str, "text"),
        (Color, Color.BLUE),
    ],
    ids=repr,
)
def test_other_types_come_back(value_type: Any, value: Any) -> None:
    one = codec(value_type)
    assert one.decode(one.encode(value)) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Order("1", [Line("a", 1), Line("b", X)], NOW, Decimal(1)), "order.lines[1].price: expected int, got 'x'"),  # noqa: E501
        (wrong(id=5), "order.id: expected str, got 5"),
        (wrong(by_name={"k": Line("a", X)}), "order.by_name[...].price: expected int"),
        ({"id": "1"}, "order: 'lines' is a required property"),
        (7, "order: expected object, got 7"),
        (wrong(lines=[{"sku": "a", "price": 1, "more": 2}]), "order.lines[0]: Additional prop"),
        (object(), "order: object has no JSON form"),
        (wrong(total=float("nan")), "order.total: expected decimal, got None"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(DoesNotFit) as caught:
        codec(Order).encode(value)
    assert str(caught.value).startswith(message)


LINES = {
    "title": "Cart",
    "type": "object",
    "properties": {
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "kind": {"enum": ["a", "b", None]},
    },
    "required": ["lines"],
    "additionalProperties": False,
    "definitions": {
        "line": {"type": "object", "properties": {"price": {"type": "integer", "minimum": 0}}}
    },
}


def test_dicts_are_held_against_a_given_schema() -> None:
    carts = codec(schema=LINES)
    cart = {"lines": [{"price": 1, "more": [1]}], "kind": None}
    assert carts.decode(carts.encode(cart)) == cart
    for value, message in (
        (
            {"lines": [{"price": 1}, {"price": "x"}]},
            "cart.lines[1].price: expected integer, got 'x'",
        ),
        ({"lines": [{"price": -1}]}, "cart.lines[0].price: -1 is less than the minimum of 0"),
        ({"lines": [], "kind": "c"}, "cart.kind: 'c' is not one of ['a', 'b', None]"),
        ({"lines": [], "other": 1}, "cart: Additional properties are not allowed"),
    ):
        with pytest.raises(DoesNotFit) as caught:
            carts.encode(value)
        assert str(caught.value).startswith(message)
        data = codec(schema=LINES, validate=False).encode(value)
        with pytest.raises(Undecodable, match=r"cart"):
            carts.decode(data)


def test_without_type_or_schema_records_are_held_against_their_own() -> None:
    registry = MemoryRegistry()
    data = codec(schema=LINES, registry=registry).encode({"lines": []})
    reader = codec(registry=registry)
    assert reader.decode(data) == {"lines": []}
    with pytest.raises(Undecodable, match="'lines' is a required property"):
        reader.decode(data[:5] + b"{}")
    with pytest.raises(Undecodable, match="schema 9 is not in the registry"):
        reader.decode(b"\x00\x00\x00\x00\x09{}")


def test_with_a_type_the_registry_is_not_asked_for_schemas_of_others() -> None:
    registry = MemoryRegistry()
    assert codec(Line, registry=registry).decode(b'\x00\x00\x00\x00\x09{"sku":"a","price":1}') == (
        Line("a", 1)
    )
    assert registry.requests == []


def test_a_schema_may_refer_to_others() -> None:
    registry = MemoryRegistry()
    line = {"type": "object", "properties": {"price": {"type": "integer"}}}
    registry.now(registry.register("line", SchemaText(SchemaType.JSON, json.dumps(line))))
    cart = {"title": "Cart", "type": "object", "properties": {"line": {"$ref": "line.json"}}}
    reference = Reference("line.json", "line", 1)
    one = codec(schema=cart, references=[reference], registry=registry)
    data = one.encode({"line": {"price": 1}})
    assert codec(registry=registry).decode(data) == {"line": {"price": 1}}
    with pytest.raises(DoesNotFit, match=r"cart\.line\.price: expected integer, got 'x'"):
        one.encode({"line": {"price": "x"}})


@pytest.mark.parametrize("value_type", [complex, Line | Order, dict[int, str]], ids=repr)
def test_types_without_a_schema_are_refused(value_type: Any) -> None:
    with pytest.raises(UnsupportedType):
        codec(value_type)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_the_quick_check_agrees_with_the_package(seed: int) -> None:
    random = Random(seed)
    generator = JsonGenerator(random)
    schema = generator.schema()
    check = quick_check(schema)
    if check is None:
        return
    package = Draft7Validator(schema)
    for _ in range(10):
        value = generator.fitting(generator.changed(schema) if random.random() < 0.5 else schema)
        assert check(value) == package.is_valid(value), (schema, value)


VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-3, 3)
    | st.sampled_from(["a", "b", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), VALUES)
def test_the_quick_check_agrees_with_the_package_on_anything(seed: int, value: Any) -> None:
    schema = JsonGenerator(Random(seed)).schema()
    check = quick_check(schema)
    if check is not None:
        assert check(value) == Draft7Validator(schema).is_valid(value), schema


def test_a_recursive_schema_is_checked_to_the_bottom() -> None:
    tree: Any = {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}}
    check = quick_check(tree)
    assert check is not None
    assert check({"n": 1, "next": {"next": {"n": 2}}})
    assert not check({"n": 1, "next": {"next": {"n": "2"}}})
