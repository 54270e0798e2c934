"""Avro's logical types: which Python class each stands for, and how values are converted. Pure."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

from ...schemas.avro.types import AvroType, FixedType, PrimitiveType
from . import values


class Logical(NamedTuple):
    """``encode`` gives what the type below holds, ``decode`` takes it. Both raise TypeError,
    ValueError or OverflowError."""

    cls: type
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_MOMENT: Final = datetime.datetime
_KNOWN: Final = {
    ("long", "timestamp-millis"): Logical(
        _MOMENT, lambda value: values.micros(value) // 1000, lambda n: values.moment(n * 1000)
    ),
    ("long", "timestamp-micros"): Logical(_MOMENT, values.micros, values.moment),
    ("long", "timestamp-nanos"): Logical(
        _MOMENT, lambda value: values.micros(value) * 1000, lambda n: values.moment(n // 1000)
    ),
    ("long", "local-timestamp-millis"): Logical(
        _MOMENT,
        lambda value: values.local_micros(value) // 1000,
        lambda n: values.local_moment(n * 1000),
    ),
    ("long", "local-timestamp-micros"): Logical(_MOMENT, values.local_micros, values.local_moment),
    ("long", "local-timestamp-nanos"): Logical(
        _MOMENT,
        lambda value: values.local_micros(value) * 1000,
        lambda n: values.local_moment(n // 1000),
    ),
    ("int", "date"): Logical(datetime.date, values.day_number, values.day),
    ("int", "time-millis"): Logical(
        datetime.time,
        lambda value: values.micros_of_day(value) // 1000,
        lambda n: values.time_of_day(n * 1000),
    ),
    ("long", "time-micros"): Logical(datetime.time, values.micros_of_day, values.time_of_day),
    ("string", "uuid"): Logical(uuid.UUID, values.uuid_text, uuid.UUID),
}


def logical_of(node: AvroType) -> Logical | None:
    """None for a type without a logical type, or with one that is not known or not allowed here:
    then the type below counts, as the specification says."""
    if not isinstance(node, PrimitiveType | FixedType):
        return None
    name = node.props.get("logicalType")
    if name is None:
        return None
    if name == "decimal":
        return _decimal(node)
    if name == "uuid" and isinstance(node, FixedType) and node.size == 16:
        return Logical(uuid.UUID, values.uuid_bytes, values.uuid_of)
    return _KNOWN.get((node.kind, str(name)))


def _decimal(node: PrimitiveType | FixedType) -> Logical | None:
    precision, scale = node.props.get("precision"), node.props.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 0 <= scale <= precision or precision < 1:
        return None
    decode = partial(values.decimal_of, scale=scale)
    if isinstance(node, FixedType):
        encode = partial(values.decimal_fixed, precision=precision, scale=scale, size=node.size)
        return Logical(Decimal, encode, decode)
    if node.kind != "bytes":
        return None
    encode = partial(values.decimal_bytes, precision=precision, scale=scale)
    return Logical(Decimal, encode, decode)
