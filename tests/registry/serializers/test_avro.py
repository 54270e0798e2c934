"""``Avro``: types to schemas, evolution, options, and what is refused with its place."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from onceward.registry import (
    Aliases,
    Avro,
    Digits,
    DoesNotFit,
    MemoryRegistry,
    Reference,
    SchemasUnavailable,
    SchemaText,
    Undecodable,
    UnsupportedType,
)
from onceward.registry.schemas import SchemaType
from onceward.registry.serializers.avro.serializer import AvroCodec
from onceward.streams import Record

NOW = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, datetime.UTC)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Line(Record):
    sku: str
    price: int
    weight: float = 0.5


class Order(Record):
    id: str
    lines: list[Line]
    color: Color
    level: Level
    when: datetime.datetime
    day: datetime.date
    at: datetime.time
    total: Annotated[Decimal, Digits(12, 2)]
    key: uuid.UUID
    data: bytes
    on: bool
    note: str | None = None
    amount: int | str | None = 7
    tags: set[str] = msgspec.field(default_factory=set)
    by_name: dict[str, Line] = msgspec.field(default_factory=dict)
    parent: Order | None = None
    favourite: Color = Color.BLUE
    extra: list[int] | None = msgspec.field(default_factory=list)


ORDER = Order(
    "1",
    [Line("a", 1), Line("b", -(2**62), 1.25)],
    Color.RED,
    Level.HIGH,
    NOW,
    NOW.date(),
    NOW.time(),
    Decimal("-12.50"),
    uuid.UUID(int=77),
    b"\x00\xff",
    True,
    note="so",
    amount="text",
    tags={"x", "y"},
    by_name={"one": Line("c", 3)},
)


X: Any = "x"
EMPTY: Any = b""
"""Fits nothing it is given as."""


def codec(value_type: Any = None, **options: Any) -> AvroCodec:
    options.setdefault("registry", MemoryRegistry())
    return Avro(value_type, **options).bind(None, options.pop("topic", "orders"), is_key=False)


def registered(one: AvroCodec, subject: str = "orders-value") -> Any:
    return json.loads(one.registry.now(one.registry.latest(subject)).schema.text)


def test_every_kind_of_field_comes_back() -> None:
    orders = codec(Order)
    child = ORDER.derive(parent=ORDER, note=None)
    assert orders.decode(orders.encode(ORDER)) == ORDER
    assert orders.decode_many(orders.encode_many([child, None, ORDER])) == [child, None, ORDER]


def test_the_schema_of_a_type() -> None:
    orders = codec(Order, namespace="shop", aliases=["Purchase"])
    orders.encode(ORDER)
    schema = registered(orders)
    fields = {field["name"]: field for field in schema["fields"]}
    assert (schema["name"], schema["namespace"], schema["aliases"]) == (
        "Order",
        "shop",
        ["Purchase"],
    )
    assert fields["color"]["type"]["symbols"] == ["red", "blue"]
    assert fields["level"]["type"]["symbols"] == ["LOW", "HIGH"]
    assert fields["when"]["type"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert (fields["total"]["type"]["precision"], fields["total"]["type"]["scale"]) == (12, 2)
    assert (fields["note"]["type"], fields["note"]["default"]) == (["null", "string"], None)
    assert (fields["amount"]["type"], fields["amount"]["default"]) == (
        ["long", "null", "string"],
        7,
    )
    assert (fields["parent"]["type"], fields["parent"]["default"]) == (["null", "Order"], None)
    assert fields["extra"]["type"][0] == {"type": "array", "items": "long"}
    assert fields["favourite"] == {"name": "favourite", "type": "Color", "default": "blue"}


@dataclasses.dataclass
class Plain:
    id: int
    line: Line
    names: tuple[str, ...] = ()


class Model(pydantic.BaseModel):
    id: int
    when: datetime.datetime
    names: list[str] = []


class Typed(TypedDict):
    id: int
    name: NotRequired[str]


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (Plain, Plain(1, Line("a", 2), ("x", "y"))),
        (Model, Model(id=1, when=NOW, names=["a"])),
        (Typed, {"id": 1, "name": "n"}),
        (Typed, {"id": 1}),
        (str, "text"),
        (int, -5),
        (bytes, b"raw"),
        (list[int], [1, 2]),
        (dict[str, float], {"a": 1.5}),
        (Color, Color.BLUE),
        (datetime.datetime, NOW),
        (Decimal, Decimal("1.000000001")),
        (str | None, "x"),
        (Line | Plain, Line("a", 1)),
        (Line | Plain, Plain(1, Line("a", 2))),
    ],
    ids=repr,
)
def test_other_types_come_back(value_type: Any, value: Any) -> None:
    one = codec(value_type)
    assert one.decode(one.encode(value)) == value


def test_bytes_alone_have_no_length_in_front() -> None:
    one = codec(bytes)
    assert one.encode(b"abc") == b"\x00\x00\x00\x00\x01abc"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 5}, "order.id: expected string, got 5"),
        ({"lines": [Line("a", 1), Line("b", X)]}, "order.lines[1].price: expected long, got 'x'"),
        ({"lines": [Line("a", 1 << 63)]}, f"order.lines[0].price: {1 << 63} is out of the range"),
        ({"lines": [Line("a", True)]}, "order.lines[0].price: expected long, got True"),
        ({"lines": [Line("a", 1, X)]}, "order.lines[0].weight: expected double, got 'x'"),
        ({"lines": "ab"}, "order.lines: expected array, got 'ab'"),
        ({"lines": [5]}, "order.lines[0]: expected record Line, got 5"),
        ({"color": "green"}, "order.color: expected one of red, blue, got 'green'"),
        ({"total": Decimal("1.234")}, "order.total: expected decimal, got Decimal('1.234')"),
        ({"total": Decimal("1e20")}, "order.total: expected decimal, got Decimal('1E+20')"),
        ({"when": datetime.datetime(2024, 1, 1)}, "order.when: expected timestamp-micros"),  # noqa: DTZ001
        ({"note": 5}, "order.note: expected one of null, string, got 5"),
        ({"amount": 1.5}, "order.amount: expected one of long, null, string, got 1.5"),
        ({"by_name": {"k": Line(EMPTY, 1)}}, "order.by_name['k'].sku: expected string, got b''"),
        ({"by_name": {1: Line("a", 1)}}, "order.by_name: keys are strings, got 1"),
        ({"id": "\ud800"}, r"order.id: half of a surrogate pair in '\ud800'"),
        ({"parent": ORDER.derive(on=X)}, "order.parent.on: expected boolean, got 'x'"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_with_its_place(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DoesNotFit) as caught:
        codec(Order).encode(ORDER.derive(**change))
    assert str(caught.value).startswith(message)


def test_dicts_are_checked_as_strictly() -> None:
    lines = codec(Line)
    assert lines.decode(lines.encode({"sku": "a", "price": 1})) == Line("a", 1)
    for value, message in (
        ({"sku": "a"}, "line.price: is missing, and has no default"),
        ({"sku": "a", "price": 1, "wait": 2.0}, "line: record Line has no field 'wait'"),
        ({"sku": "a", "price": 1.0}, "line.price: expected long, got 1.0"),
        (5, "line: expected record Line, got 5"),
    ):
        with pytest.raises(DoesNotFit) as caught:
            lines.encode(value)
        assert str(caught.value) == message


def test_a_batch_with_a_bad_record_names_it() -> None:
    with pytest.raises(DoesNotFit, match=r"line\.price"):
        codec(Line).encode_many([Line("a", 1), Line("b", X)])


class Old(Record):
    name: str
    count: int
    gone: str
    kind: Color = Color.RED


class Kind(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class New(Record):
    name: str | None
    total: Annotated[float, Aliases("count")]
    kind: str
    added: list[str] = msgspec.field(default_factory=lambda: ["x"])
    line: Line | None = None


NEW_SCHEMA = {
    "type": "record",
    "name": "New",
    "aliases": ["Old"],
    "fields": [
        {"name": "name", "type": ["null", "string"]},
        {"name": "total", "type": "double", "aliases": ["count"]},
        {"name": "kind", "type": {
            "type": "enum", "name": "Color", "symbols": ["BLUE"], "default": "BLUE"}},
        {"name": "added", "type": {"type": "array", "items": "string"}, "default": ["x"]},
        {"name": "line", "default": None, "type": ["null", {
            "type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"}, {"name": "price", "type": "long"}]}]},
    ],
}  # fmt: skip


def test_old_records_are_read_as_the_new_type() -> None:
    registry = MemoryRegistry()
    data = codec(Old, registry=registry).encode(Old("n", 5, "?", Color.RED))
    new = codec(New, registry=registry, schema=NEW_SCHEMA)
    found = new.decode(data)
    assert found == New("n", 5.0, "BLUE", ["x"], None)
    found.added.append("y")
    assert new.decode(data).added == ["x"], "a default is made anew for every record"


def test_a_type_that_cannot_read_the_records_says_why() -> None:
    class Other(Record):
        name: int

    registry = MemoryRegistry()
    data = codec(Old, registry=registry).encode(Old("n", 5, "?"))
    schema = {**NEW_SCHEMA, "fields": [{"name": "name", "type": "long"}]}
    with pytest.raises(Undecodable, match="holds string, which cannot be read as long"):
        codec(Other, registry=registry, schema=schema).decode(data)


def test_without_type_or_schema_records_are_read_as_written() -> None:
    registry = MemoryRegistry()
    data = codec(Old, registry=registry).encode(Old("n", 5, "?"))
    assert codec(registry=registry).decode(data) == {
        "name": "n", "count": 5, "gone": "?", "kind": "red",
    }  # fmt: skip


def test_names_in_a_schema_are_never_code(tmp_path: Path) -> None:
    """Compiled functions are made of source: what a registry sends must not get into it."""
    bad = f"x'+str(__import__('os').mkdir({str(tmp_path / 'made')!r}))+'"
    registry = MemoryRegistry()
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [
            {"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
            {"name": "b", "type": ["null", {"type": "fixed", "name": "F", "size": 1}]},
        ]}
    )  # fmt: skip
    data = codec(schema=text, registry=registry).encode({"a": "B", "b": None})
    hostile = text.replace('"E"', json.dumps(bad)).replace('"A", "B"', json.dumps(bad))
    hostile = hostile.replace('"F"', json.dumps(bad + "'\n")).replace('"b"', json.dumps(bad))
    reader = codec(registry=_Sending(hostile))
    with pytest.raises(Undecodable):
        reader.decode(data)
    assert not (tmp_path / "made").exists()


class _Sending(MemoryRegistry):
    """A registry that answers with one text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    async def by_id(self, schema_id: int, subject: str | None = None) -> SchemaText:
        return SchemaText(SchemaType.AVRO, self._text)


# options


def test_subjects_by_record_name_hold_one_type_each() -> None:
    registry = MemoryRegistry()
    one = codec(Line | Plain, registry=registry, namespace="shop", subject_name_strategy="record")
    values = [Line("a", 1), Plain(1, Line("b", 2))]
    assert one.decode_many(one.encode_many(values)) == values
    assert registry.now(registry.subjects()) == ["shop.Line", "shop.Plain"]
    with pytest.raises(DoesNotFit, match="expected one of Line, Plain, got 5"):
        one.encode(5)
    other = codec(Line, registry=registry, subject_name_strategy="topic_record")
    other.encode(values[0])
    assert "orders-Line" in registry.now(registry.subjects())


def test_without_auto_register_the_schema_must_be_there() -> None:
    registry = MemoryRegistry()
    with pytest.raises(SchemasUnavailable, match="Subject 'orders-value' not found"):
        codec(Line, registry=registry, auto_register=False).encode(Line("a", 1))
    first = codec(Line, registry=registry).encode(Line("a", 1))
    assert codec(Line, registry=registry, auto_register=False).encode(Line("a", 1)) == first


def test_the_latest_version_can_be_what_is_written() -> None:
    registry = MemoryRegistry()
    codec(Line, registry=registry).encode(Line("a", 1))
    wider = {"type": "record", "name": "Line", "fields": [
        {"name": "sku", "type": "string"}, {"name": "price", "type": "double"},
        {"name": "more", "type": "string", "default": "d"}]}  # fmt: skip
    codec(schema=wider, registry=registry).encode({"sku": "a", "price": 1})
    one = codec(Line, registry=registry, use_latest_version=True)
    data = one.encode(Line("a", 2))
    assert data[:5] == b"\x00\x00\x00\x00\x02"
    assert codec(registry=registry).decode(data) == {"sku": "a", "price": 2.0, "more": "d"}


def test_an_incompatible_type_is_refused_by_the_registry() -> None:
    registry = MemoryRegistry()
    codec(schema={"type": "record", "name": "Line", "fields": []}, registry=registry).encode({})
    with pytest.raises(SchemasUnavailable, match=r"subject 'orders-value'.*incompatible"):
        codec(Line, registry=registry).encode(Line("a", 1))


def test_a_schema_may_refer_to_others() -> None:
    registry = MemoryRegistry()
    line = {"type": "record", "name": "Line", "namespace": "shop", "fields": [
        {"name": "sku", "type": "string"}, {"name": "price", "type": "long"}]}  # fmt: skip
    found = registry.now(registry.register("lines", SchemaText(SchemaType.AVRO, json.dumps(line))))
    outer = {"type": "record", "name": "Cart", "fields": [
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}}]}  # fmt: skip
    reference = Reference("shop.Line", "lines", found.version or 0)

    class Cart(Record):
        lines: list[Line]

    one = codec(Cart, registry=registry, schema=outer, references=[reference])
    cart = Cart([Line("a", 1)])
    assert one.decode(one.encode(cart)) == cart
    reader = codec(Cart, registry=registry, schema=outer, references=[reference])
    assert reader.decode(one.encode(cart)) == cart


@pytest.mark.parametrize(
    ("value_type", "message"),
    [
        (complex, "complex has no schema"),
        (dict[int, str], "keys of a mapping must be str"),
        (list, "Any has no Avro schema"),
        (tuple[int, str], "tuple of different types"),
    ],
)
def test_types_without_a_schema_are_refused(value_type: Any, message: str) -> None:
    with pytest.raises(UnsupportedType, match=message):
        codec(value_type)


def test_a_type_must_have_the_fields_of_a_given_schema() -> None:
    schema = {"type": "record", "name": "Line", "fields": [{"name": "colour", "type": "string"}]}
    with pytest.raises(SchemasUnavailable, match="Line has no such field"):
        codec(Line, schema=schema).encode(Line("a", 1))
    typed = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "long"}]}
    with pytest.raises(SchemasUnavailable, match="str does not fit long"):
        codec(Line, schema=typed).encode(Line("a", 1))
