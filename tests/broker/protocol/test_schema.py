from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward.broker.errors import ProtocolError
from onceward.broker.protocol.fields import Field, Kind, schema_of, struct_type
from onceward.broker.protocol.messages import (
    FetchResponse,
    JoinGroupRequest,
    MetadataRequest,
    ProduceRequest,
)
from onceward.broker.protocol.primitives import uvarint
from onceward.broker.protocol.schema import (
    bytes_,
    decode_struct,
    encode_struct,
    int16,
    int32,
    int32s,
    int64,
    message,
    nested,
    string,
    strings,
    struct,
    structs,
    uuid,
)


@message("0-3", flexible="2+")
class Sample:
    """The features of the declaration language in one class."""

    @nested
    class Item:
        """An item."""

        name: str = string("0+")
        size: int = int64("1+", default=-1)

    @nested
    class Extra:
        """A tagged struct."""

        note: str | None = string("2+", nullable="2+", default=None)

    id: int = int32("0+")
    label: str | None = string("0+", nullable="1+", default=None)
    old: int = int16("0-1", default=7)
    hint: str = string("3+", ignorable=True)
    items: list[Sample.Item] | None = structs("0+", nullable="3+")
    cursor: Sample.Item | None = struct("3+", nullable="3+")
    extra: Sample.Extra | None = struct("2+", tag=1)
    weights: list[int] = int32s("2+", tag=0)
    key: bytes = uuid("2+", tag=300)


@message("0-1", flexible="1+")
class OneArray:
    """An array to lie about the length of."""

    names: list[str] = strings("0+")
    data: bytes = bytes_("0+")


def test_a_coordinator_record_round_trips_in_every_version() -> None:
    for version in range(4):
        value = Sample(
            id=5,
            label="x",
            items=[Sample.Item("a", 4 if version else -1), Sample.Item("b")],
            hint="h" if version == 3 else "",
            cursor=Sample.Item("c", 1) if version == 3 else None,
            extra=Sample.Extra("n") if version >= 2 else None,
            weights=list(range(200)) if version >= 2 else [],
        )
        assert decode_struct(Sample, version, encode_struct(Sample, version, value)) == value


def test_the_bytes_of_a_flexible_version_are_what_kip_482_says() -> None:
    item, extra = Sample.Item("i", 2), Sample.Extra("n")
    value = Sample(id=1, label="ab", items=[item], extra=extra, weights=[9])
    assert (
        encode_struct(Sample, 2, value)
        == (
            b"\x00\x00\x00\x01"  # id
            b"\x03ab"  # label, length + 1
            b"\x02\x02i" + bytes(7) + b"\x02\x00"  # one item, its size, no tags
            b"\x02\x00\x05\x02\x00\x00\x00\x09"  # two tags: number 0 with 5 bytes, one int32
            b"\x01\x03\x02n\x00"  # and number 1 with 3 bytes, a struct
        )
    )


def test_a_field_missing_from_the_version_takes_its_default() -> None:
    decoded = decode_struct(Sample, 2, encode_struct(Sample, 2, Sample(items=[])))
    assert (decoded.old, decoded.hint, decoded.cursor) == (7, "", None)


def test_a_value_the_version_cannot_carry_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(ValueError, match="version 2 of Sample cannot carry old"):
        encode_struct(Sample, 2, Sample(label="", old=8))
    with pytest.raises(ValueError, match=r"version 0 of Sample\.Item cannot carry size"):
        encode_struct(Sample, 0, Sample(label="", items=[Sample.Item("a", 1)]))
    assert encode_struct(Sample, 2, Sample(hint="dropped")) == encode_struct(Sample, 2, Sample())


def test_none_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(ValueError, match="label must not be None in version 0"):
        encode_struct(Sample, 0, Sample())
    with pytest.raises(ValueError, match="items must not be None in version 2"):
        encode_struct(Sample, 2, Sample(items=None))
    with pytest.raises(ValueError, match="topics must not be None in version 0"):
        encode_struct(MetadataRequest, 0, MetadataRequest(topics=None))


def test_a_null_from_the_wire_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(ProtocolError, match=r"Sample\.label must not be null"):
        decode_struct(Sample, 0, b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00\x00\x00")


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    unknown = b"\x02" + uvarint(77) + uvarint(3) + b"abc" + uvarint(9000) + uvarint(0)
    data = b"\x00\x00\x00\x01\x01" + b"\x02\x02i" + bytes(8) + unknown
    data += b"\x03" + b"\x00\x05\x02\x00\x00\x00\x09" + b"\x01\x03\x02n\x00" + b"\x63\x01?"
    expected = Sample(
        id=1, label="", items=[Sample.Item("i", 0)], weights=[9], extra=Sample.Extra("n")
    )
    assert decode_struct(Sample, 2, data) == expected


def test_a_tagged_field_whose_size_is_wrong_is_refused() -> None:
    start = b"\x00\x00\x00\x01\x01\x01\x01"
    assert decode_struct(Sample, 2, start + b"\x00\x05\x02\x00\x00\x00\x09").weights == [9]
    for size in (0, 4, 6):
        with pytest.raises(ProtocolError, match="wrong size"):
            decode_struct(Sample, 2, start + b"\x00" + bytes([size]) + b"\x02\x00\x00\x00\x09?")


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b"\x7f\xff\xff\xff" + b"\x00\x00" * 8),
        (0, b"\x00\x00\x00\x05" + b"\x00\x00" * 4),
        (0, b"\x00\x00\x00\x00" + b"\x7f\xff\xff\xff"),
        (0, b"\x00\x00\x00\x01" + b"\x7f\xff" + b"abc"),
        (1, b"\xff\xff\xff\xff\x07" + b"\x01" * 8),
        (1, b"\x02\x05abc"),
    ],
)
def test_a_length_or_count_beyond_the_data_is_refused_before_it_is_used(
    version: int, data: bytes
) -> None:
    with pytest.raises(ProtocolError, match="is longer than its message"):
        decode_struct(OneArray, version, data)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b"\xff\xff\xff\xff" + b"\x00" * 8),
        (1, b"\x00\x01\x00"),
        (1, b"\xff\xff\xff\xff\xff\x07" + b"\x01" * 8),
        (1, b"\x02\x03\xff\xfe\x01\x00"),
    ],
)
def test_nulls_endless_varints_and_bad_utf_8_are_refused(version: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_struct(OneArray, version, data)


def test_bytes_after_the_value_are_refused() -> None:
    with pytest.raises(ProtocolError, match="1 bytes are left after OneArray"):
        decode_struct(OneArray, 0, encode_struct(OneArray, 0, OneArray()) + b"?")


def test_a_version_that_does_not_exist_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="ProduceRequest has no version 2"):
        encode_struct(ProduceRequest, 2, ProduceRequest())
    with pytest.raises(ValueError, match="OneArray has no version 2"):
        decode_struct(OneArray, 2, b"")


def test_any_buffer_can_be_decoded() -> None:
    data = encode_struct(OneArray, 1, OneArray(["a"], b"b"))
    for buffer in (data, bytearray(data), memoryview(data)):
        assert decode_struct(OneArray, 1, buffer) == OneArray(["a"], b"b")


def test_list_defaults_are_not_shared() -> None:
    first, second = OneArray(), OneArray()
    first.names.append("x")
    assert second.names == []
    decoded = decode_struct(FetchResponse, 4, encode_struct(FetchResponse, 4, FetchResponse()))
    decoded.node_endpoints.append(FetchResponse.NodeEndpoint())
    assert decode_struct(FetchResponse, 4, encode_struct(FetchResponse, 4, FetchResponse())) == (
        FetchResponse()
    )


def test_the_connection_grace_travels_as_tag_10000_from_version_6_on() -> None:
    plain, asking = JoinGroupRequest(), JoinGroupRequest(connection_grace_ms=500)
    assert encode_struct(JoinGroupRequest, 5, asking) == encode_struct(JoinGroupRequest, 5, plain)
    data = encode_struct(JoinGroupRequest, 6, asking)
    assert data.endswith(b"\x01\x90\x4e\x04\x00\x00\x01\xf4")
    assert decode_struct(JoinGroupRequest, 6, data) == asking
    assert decode_struct(JoinGroupRequest, 6, encode_struct(JoinGroupRequest, 6, plain)) == plain


PYTHON_TYPES = {
    Kind.INT8: "int",
    Kind.INT16: "int",
    Kind.UINT16: "int",
    Kind.INT32: "int",
    Kind.INT64: "int",
    Kind.BOOLEAN: "bool",
    Kind.UUID: "bytes",
    Kind.STRING: "str",
    Kind.BYTES: "bytes",
    Kind.RECORDS: "Records",
}


def _expected_annotation(owner: type[Any], field: Field) -> str:
    if field.kind is Kind.STRUCT:
        text = struct_type(owner, field).__qualname__
    else:
        text = PYTHON_TYPES[field.kind]
    if field.is_array:
        text = f"list[{text}]"
    absent = field.kind is Kind.STRUCT and not field.is_array and field.tag is not None
    may_be_none = (field.nullable.last >= 0 or absent) and field.kind is not Kind.RECORDS
    return f"{text} | None" if may_be_none else text


def test_annotations_say_what_the_specifiers_do(every_message: list[tuple[type[Any], int]]) -> None:
    pending = [cls for cls, _ in every_message]
    seen: set[type[Any]] = set()
    while pending:
        cls = pending.pop()
        if cls in seen:
            continue
        seen.add(cls)
        assert cls.__doc__
        assert not cls.__doc__.startswith(cls.__name__)  # what dataclasses puts in place of one
        for field in schema_of(cls).fields:
            assert field.annotation == _expected_annotation(cls, field), (cls, field.name)
            if field.kind is Kind.STRUCT:
                pending.append(struct_type(cls, field))
    assert len(seen) > 150


def test_the_repr_shows_every_field(generate: Callable[..., Any]) -> None:
    value = generate(OneArray, 1)
    assert repr(value) == f"OneArray(names={value.names!r}, data={value.data!r})"
    assert value != object()
