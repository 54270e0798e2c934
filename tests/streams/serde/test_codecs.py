"""Every kind of value type through its codec and back."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from onceward.streams import ConfigurationError, Record
from onceward.streams.serde import codec_for, default_key_codec, default_value_codec


class Order(Record):
    id: str
    amount: int = 0


class Nested(Record, serializer="json", coerce=True):
    order: Order
    at: datetime.datetime


class Plain(msgspec.Struct):
    id: str


@dataclasses.dataclass
class Data:
    id: str
    tags: list[str]


class Typed(TypedDict):
    id: str


class Model(pydantic.BaseModel):
    id: str
    amount: float = 1.0


class FaustLike:
    """The methods of a ``faust.Record`` that matter."""

    def __init__(self, id: str) -> None:
        self.id = id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FaustLike) and other.id == self.id

    __hash__ = None  # type: ignore[assignment]

    def to_representation(self) -> dict[str, Any]:
        return {"id": self.id, "__faust": {"ns": "app.FaustLike"}}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> FaustLike:
        return cls(data["id"])


NOON = datetime.datetime(2024, 1, 2, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value_type", "value", "encoded"),
    [
        (Order, Order(id="a", amount=3), b'{"id":"a","amount":3}'),
        (Nested, Nested(Order("a"), NOON), None),
        (Plain, Plain("a"), b'{"id":"a"}'),
        (Data, Data("a", ["x"]), b'{"id":"a","tags":["x"]}'),
        (Typed, {"id": "a"}, b'{"id":"a"}'),
        (Model, Model(id="a"), b'{"id":"a","amount":1.0}'),
        (FaustLike, FaustLike("a"), b'{"id":"a","__faust":{"ns":"app.FaustLike"}}'),
        (str, "grüß", "grüß".encode()),
        (bytes, b"\xff\x00", b"\xff\x00"),
        (int, 42, b"42"),
        (float, 1.5, b"1.5"),
        (dict, {"a": [1, None]}, b'{"a":[1,null]}'),
        (list[int], [1, 2], b"[1,2]"),
        (None, {"a": 1}, b'{"a":1}'),
        (None, "text", b'"text"'),
    ],
)
def test_a_value_of_every_type_survives(value_type: Any, value: Any, encoded: bytes | None) -> None:
    codec = default_value_codec(None, value_type, "json")
    data = codec.encode(value)
    assert encoded is None or data == encoded
    assert codec.decode(data) == value
    assert type(codec.decode(data)) is type(value)


@pytest.mark.parametrize("value_type", [Order, Data, Model, FaustLike, int, Typed])
def test_what_does_not_fit_the_type_is_refused(value_type: Any) -> None:
    codec = default_value_codec(None, value_type, "json")
    for wrong in (b"", b"{", b'{"id":[]}' if value_type is not FaustLike else b"[]"):
        with pytest.raises((msgspec.MsgspecError, ValueError)):
            codec.decode(wrong)


def test_untyped_keys_are_raw_and_take_anything() -> None:
    codec = default_key_codec(None, None, None)
    assert codec.encode("a") == b"a"
    assert codec.encode(b"a") == b"a"
    assert codec.encode(7) == b"7"
    assert codec.decode(b"a") == b"a"


@pytest.mark.parametrize(
    ("name", "value", "encoded"),
    [
        ("int", 300, b"300"),
        ("int32", 1, b"\0\0\0\1"),
        ("int64", -1, b"\xff" * 8),
        ("float64", 1.0, b"\x3f\xf0" + bytes(6)),
        ("str", "a", b"a"),
        ("raw", b"a", b"a"),
    ],
)
def test_named_serializers(name: str, value: Any, encoded: bytes) -> None:
    codec = codec_for(name, None, topic=None, is_key=False)
    assert codec.encode(value) == encoded
    assert codec.decode(encoded) == value


def test_packed_numbers_refuse_what_is_no_such_number() -> None:
    codec = codec_for("int32", None, topic=None, is_key=False)
    with pytest.raises(ValueError, match="4 bytes"):
        codec.decode(b"123")
    with pytest.raises(ValueError, match="'a'"):
        codec.encode("a")


def test_an_object_with_dumps_and_loads_is_a_serializer() -> None:
    class Reversed:
        def dumps(self, value: str) -> bytes:
            return value.encode()[::-1]

        def loads(self, data: bytes) -> str:
            return data[::-1].decode()

    codec = default_value_codec(Reversed(), str, "json")
    assert codec.decode(codec.encode("abc")) == "abc"
    assert codec.encode("abc") == b"cba"


@pytest.mark.parametrize("serializer", ["yaml", 7])
def test_an_unknown_serializer_is_refused(serializer: Any) -> None:
    with pytest.raises(ConfigurationError, match="unknown: use one of json, raw"):
        codec_for(serializer, None, topic=None, is_key=False)
    with pytest.raises(ConfigurationError, match="bytes or str"):
        codec_for("raw", Order, topic=None, is_key=False)


def test_records_know_fausts_methods() -> None:
    order = Order("a", amount=2)
    assert order.asdict() == {"id": "a", "amount": 2}
    assert Order.loads(order.dumps()) == order
    assert Order.from_data(order.to_representation()) == order
    assert order.derive(amount=3) == Order("a", 3)
    assert order.derive(Order("b", 9), id="c") == Order("c", 9)
