"""Byte-exact equality with kio, an independent implementation made from Kafka's message files.

kio has one class per version. Its fields stand in the same order as ours, so they are matched by
position; only the Python types of times, error codes and uuids differ.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import random
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from onceward.broker.protocol.api import APIS
from onceward.broker.protocol.fields import Field, schema_of, struct_type
from onceward.broker.protocol.schema import decode_struct, encode_struct
from onceward.broker.types import ZERO_UUID

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
OUR_OWN = {"connection_grace_ms"}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ["", "topic-1", "naïve 数据", "x" * 127, "y" * 200]


def draw(rng: random.Random, kind: str, nullable: bool) -> tuple[Any, Any]:
    """A value as kio wants it and as we want it."""
    if kind in BITS:
        limit = 2 ** (BITS[kind] - 1)
        value: Any = rng.choice([-limit, -1, 0, limit - 1, rng.randrange(limit)])
        return value, value
    if kind == "uint16":
        return (value := rng.choice([0, 1, 2**15, 2**16 - 1])), value
    if kind == "bool":
        return (value := rng.random() < 0.5), value
    if kind == "string":
        return (value := rng.choice(TEXTS)), value
    if kind in ("bytes", "records"):
        return (value := rng.randbytes(rng.choice([0, 1, 127, 1500]))), value
    if kind == "uuid":
        raw = rng.choice([ZERO_UUID, rng.randbytes(16)])
        return (None if raw == ZERO_UUID else uuid.UUID(bytes=raw)), raw
    if kind == "error_code":
        code = rng.choice(list(ErrorCode))
        return code, code.value
    if kind.startswith("timedelta"):
        ms = rng.randrange(2**31)
        return datetime.timedelta(milliseconds=ms), ms
    assert kind == "datetime_i64", kind
    ms = rng.choice([-1 if nullable else 1, 0, rng.randrange(2**41)])
    return (None if ms < 0 else EPOCH + datetime.timedelta(milliseconds=ms)), ms


def draw_field(rng: random.Random, theirs: Any, owner: type[Any], ours: Field) -> tuple[Any, Any]:
    shape = classify_field(theirs)
    nullable = is_optional(theirs) and ours.nullable.last >= 0
    if nullable and rng.random() < 0.25:
        return None, None
    if isinstance(shape, PrimitiveField):
        return draw(rng, get_schema_field_type(theirs), is_optional(theirs))
    if isinstance(shape, EntityField):
        return draw_entity(rng, shape.type_, struct_type(owner, ours))
    pairs = []
    for _ in range(rng.choice([0, 1, 2, 3])):
        if isinstance(shape, EntityTupleField):
            pairs.append(draw_entity(rng, shape.type_, struct_type(owner, ours)))
        else:
            pairs.append(draw(rng, get_schema_field_type(theirs), nullable=False))
    return tuple(pair[0] for pair in pairs), [pair[1] for pair in pairs]


def draw_entity(rng: random.Random, theirs: Any, ours: type[Any]) -> tuple[Any, Any]:
    """The same random message as an instance of both classes."""
    version = theirs.__version__
    our_fields = [
        field
        for field in schema_of(ours).fields
        if version in field.versions and field.name not in OUR_OWN
    ]
    kio_values, our_values = {}, {}
    for their_field, our_field in zip(dataclasses.fields(theirs), our_fields, strict=True):
        same = our_field.name.removesuffix("_ms").replace("_", "")
        assert their_field.name.removesuffix("_ms").replace("_", "") == same
        tag = get_field_tag(their_field)
        assert tag == our_field.tag
        if tag is not None and rng.random() < 0.5:
            continue
        theirs_value, ours_value = draw_field(rng, their_field, ours, our_field)
        is_struct = isinstance(classify_field(their_field), EntityField)
        if tag is not None and is_struct and theirs_value == their_field.default:
            continue  # we write a tagged struct of defaults, kio does not: both are right
        kio_values[their_field.name] = theirs_value
        our_values[our_field.name] = ours_value
    return theirs(**kio_values), ours(**our_values)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name.lower())
def test_bytes_are_those_of_kio_in_both_directions(api: Any) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for side, ours in (("request", api.request), ("response", api.response)):
            module = importlib.import_module(f"kio.schema.{api.key.name.lower()}.v{version}.{side}")
            theirs = getattr(module, ours.__name__)
            write, read = entity_writer(theirs), entity_reader(theirs)
            rng = random.Random(f"{ours.__name__} {version}")
            for _ in range(25):
                kio_value, our_value = draw_entity(rng, theirs, ours)
                buffer = io.BytesIO()
                write(buffer, kio_value)
                data = buffer.getvalue()
                assert encode_struct(ours, version, our_value) == data
                assert decode_struct(ours, version, data) == our_value
                assert read(data, 0) == (kio_value, len(data))
