"""``Protobuf``: generated classes, texts, generic reading, and what is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.registry import (
    DoesNotFit,
    MemoryRegistry,
    Protobuf,
    Reference,
    SchemasUnavailable,
    SchemaText,
    Undecodable,
    UnsupportedType,
)
from onceward.registry.schemas import SchemaType
from onceward.registry.serializers.protobuf import ProtobufCodec, index_path
from onceward.streams.sinks.rows import as_row

from .messages import FILES, MONEY, message_classes

NESTED = """syntax = "proto3";
message A { message B { message C {} } }
message D { int32 k = 1; }
"""


def codec(message: Any = None, **options: Any) -> ProtobufCodec:
    options.setdefault("registry", MemoryRegistry())
    return Protobuf(message, **options).bind(None, "orders", is_key=False)


@pytest.mark.parametrize(
    ("name", "fields", "data"),
    [
        ("A", {}, "000000000100"),
        ("D", {}, "00000000010202"),
        ("A.B", {}, "0000000001040000"),
        ("A.B.C", {}, "000000000106000000"),
        ("D", {"k": 5}, "000000000102020805"),
    ],
)
def test_bytes_are_those_of_confluent(name: str, fields: dict[str, Any], data: str) -> None:
    (cls,) = message_classes({"x.proto": NESTED}, name)
    one = codec(cls)
    assert one.encode(cls(**fields)).hex() == data
    assert one.decode(bytes.fromhex(data)) == cls(**fields)


def test_imports_are_registered_before_and_referred_to() -> None:
    registry = MemoryRegistry()
    (order,) = message_classes(FILES, "shop.Order")
    one = codec(order, registry=registry)
    value = order(id="1", lines=[{"sku": "a", "count": 2}], total={"units": 5}, kind="PAID")
    value.by_name["x"].sku = "b"
    value.at.FromSeconds(77)
    assert one.decode_many(one.encode_many([value, None])) == [value, None]
    assert registry.now(registry.subjects()) == ["orders-value", "shop/money.proto"]
    found = registry.now(registry.latest("orders-value")).schema
    assert found.references == (Reference("shop/money.proto", "shop/money.proto", 1),)


def test_without_a_class_messages_are_read_as_what_they_are() -> None:
    registry = MemoryRegistry()
    order, reason = message_classes(FILES, "shop.Order", "shop.Cancel.Reason")
    data = codec(order, registry=registry).encode(order(id="1", number=5))
    other = codec(reason, registry=registry).encode(reason(text="late"))
    found, second = codec(registry=registry).decode_many([data, other])
    assert (found.DESCRIPTOR.full_name, found.id, found.number) == ("shop.Order", "1", 5)
    assert (second.DESCRIPTOR.full_name, second.text) == ("shop.Cancel.Reason", "late")
    assert codec(registry=registry, as_dict=True).decode(data) == {"id": "1", "number": "5"}


def test_a_message_of_another_type_is_refused() -> None:
    registry = MemoryRegistry()
    order, cancel = message_classes(FILES, "shop.Order", "shop.Cancel")
    data = codec(order, registry=registry).encode(order(id="1"))
    with pytest.raises(Undecodable, match=r"it holds message shop\.Order, not shop\.Cancel"):
        codec(cancel, registry=registry).decode(data)


def test_a_message_is_found_where_the_writer_has_it() -> None:
    registry = MemoryRegistry()
    (before,) = message_classes({"x.proto": NESTED}, "D")
    moved = 'syntax = "proto3";\nmessage D { int32 k = 1; string more = 2; }\nmessage A {}\n'
    (after,) = message_classes({"x.proto": moved}, "D")
    data = codec(before, registry=registry).encode(before(k=5))
    assert codec(after, registry=registry).decode(data) == after(k=5)
    assert (index_path(before.DESCRIPTOR), index_path(after.DESCRIPTOR)) == ((1,), (0,))


def test_text_with_references_is_enough() -> None:
    registry = MemoryRegistry()
    registry.now(registry.register("money", SchemaText(SchemaType.PROTOBUF, MONEY)))
    text = 'syntax = "proto3"; import "m.proto"; message Price { shop.Money money = 1; }'
    one = codec(text, registry=registry, references=[Reference("m.proto", "money", 1)])
    data = one.encode({"money": {"units": 5, "currency": "EUR"}})
    assert codec(registry=registry, as_dict=True).decode(data) == {
        "money": {"units": "5", "currency": "EUR"}
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"lines": [{"count": "x"}]}, "order.lines.count: invalid literal"),
        ({"nope": 1}, 'order: Message type "shop.Order" has no field named "nope"'),
        (5, "order: expected message shop.Order, got 5"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(value: Any, message: str) -> None:
    (order,) = message_classes(FILES, "shop.Order")
    with pytest.raises(DoesNotFit) as caught:
        codec(order).encode(value)
    assert str(caught.value).startswith(message)


def test_a_required_field_must_be_there() -> None:
    text = 'syntax = "proto2"; message R { required string a = 1; optional R r = 2; }'
    (cls,) = message_classes({"r.proto": text}, "R")
    with pytest.raises(DoesNotFit, match=r"r\.r\.a: is required and missing"):
        codec(cls).encode(cls(a="x", r=cls()))


@pytest.mark.parametrize("end", ["", "0c", "06", "0202", "0008", "000a05", "00ff"])
def test_bytes_that_are_no_message_are_refused(end: str) -> None:
    (cls,) = message_classes({"x.proto": NESTED}, "D")
    one = codec(cls)
    one.encode(cls())
    data = b"\x00\x00\x00\x00\x01" + bytes.fromhex(end)
    if end == "0202":
        assert one.decode(data) == cls()
        return
    with pytest.raises(Undecodable):
        one.decode(data)


def test_a_message_is_a_row_for_sinks() -> None:
    (order,) = message_classes(FILES, "shop.Order")
    value = order(id="1", lines=[{"sku": "a", "count": 2}], total={"units": 5}, account="me")
    assert as_row(value) == {
        "id": "1",
        "lines": [{"sku": "a", "count": 2}],
        "by_name": {},
        "total": {"units": "5"},
        "at": None,
        "kind": 0,
        "account": "me",
        "number": None,
    }


def test_ids_in_headers_hold_the_path_too() -> None:
    (cls,) = message_classes({"x.proto": NESTED}, "D")
    one = codec(cls, header_ids=True)
    header, payload = one.split(one.encode(cls(k=7)))
    assert (len(header), header[-2:], payload) == (19, b"\x02\x02", b"\x08\x07")
    assert one.decode_many([payload], [[("__value_schema_id", header)]]) == [cls(k=7)]


def test_what_is_no_message_class_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="int is no generated Protobuf message class"):
        codec(int)
    with pytest.raises(UnsupportedType, match="there is no message 'X'; messages are: A, D"):
        codec('syntax = "proto3"; message A {} message D {}', name="X")


def test_the_latest_version_must_have_the_message() -> None:
    registry = MemoryRegistry()
    codec('syntax = "proto3"; message Other {}', registry=registry).encode({})
    (cls,) = message_classes({"x.proto": NESTED}, "D")
    with pytest.raises(SchemasUnavailable, match="it has no message D"):
        codec(cls, registry=registry, use_latest_version=True).encode(cls())
