"""What compiled Avro code calls: numbers to bytes and back, logical types, checks. Pure.

Each function raises TypeError or ValueError for a value that is not what it is for.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from collections.abc import Mapping
from decimal import MAX_PREC, Context, Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - local-timestamp has no zone
_EPOCH_DAY: Final = datetime.date(1970, 1, 1)
_MICRO: Final = datetime.timedelta(microseconds=1)
_EXACT: Final = Context(prec=MAX_PREC)
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_MAX_VARINT_BITS: Final = 63
NEAR: Final = 8192
"""Numbers from -NEAR to NEAR - 1 have their bytes in ``VARINTS``."""


def _varint(number: int) -> bytes:
    """Zig-zag, then seven bits a byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


VARINTS: Final = [_varint(n) for n in [*range(NEAR), *range(-NEAR, 0)]]
"""By number; negative ones count from the end, as Python's indexes do."""

_PAIRS: Final = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]
_ENDS: Final = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1 << 14)]

SIZES: Final = [n >> 1 if n < 128 and not n & 1 else -1 for n in range(256)]
"""By first byte: a length or index of one byte, -1 for all others."""
NUMBERS: Final = [(n >> 1) ^ -(n & 1) if n < 128 else None for n in range(256)]
"""By first byte: a number of one byte, None for longer ones."""

pack_float = struct.Struct("<f").pack
pack_double = struct.Struct("<d").pack
float_at = struct.Struct("<f").unpack_from
double_at = struct.Struct("<d").unpack_from


# encoding


def far_long(number: int) -> bytes:
    """A 64-bit number of any size."""
    if not -_INT64 <= number < _INT64:
        raise ValueError("out of range")
    rest = (number << 1) ^ (number >> 63)
    out = b""
    while rest >= 1 << 14:
        out += _PAIRS[rest & 16383]
        rest >>= 14
    return out + _ENDS[rest]


def far_int(number: int) -> bytes:
    if not -_INT32 <= number < _INT32:
        raise ValueError("out of range")
    return far_long(number)


def as_int(value: Any) -> int:
    """Of a subclass of int that is no bool (IntEnum), or numpy's integers."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError("not an integer")
    return int(value.__index__())


def as_float(value: Any) -> float:
    if isinstance(value, bool) or not (isinstance(value, int | float) or hasattr(value, "dtype")):
        raise TypeError("not a number")
    return float(value)


def as_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("not bytes")
    return bytes(value)


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError("not a list")
    return list(value)


def as_dict(value: Any) -> dict[str, Any]:
    """A record's fields from any kind of record."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__, value.__struct_encode_fields__
        return {name: getattr(value, attribute) for attribute, name in zip(*fields, strict=True)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "model_fields"):
        return {name: getattr(value, name) for name in type(value).model_fields}
    raise TypeError("not a record")


def as_map(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("not a mapping")
    return dict(value)


def micros(value: Any) -> int:
    """Of a datetime with a zone, since 1970."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise TypeError("not a datetime with a time zone")
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def local_micros(value: Any) -> int:
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        raise TypeError("not a datetime without a time zone")
    return (value - _LOCAL_EPOCH) // _MICRO


def day_number(value: Any) -> int:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise TypeError("not a date")
    return (value - _EPOCH_DAY).days


def micros_of_day(value: Any) -> int:
    if not isinstance(value, datetime.time):
        raise TypeError("not a time")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def unscaled(value: Any, precision: int, scale: int) -> int:
    """The digits of a decimal without the point."""
    if not isinstance(value, Decimal) or not value.is_finite():
        raise TypeError("not a finite Decimal")
    scaled = value.scaleb(scale, _EXACT)
    number = int(scaled)
    if number != scaled:
        raise ValueError(f"more than {scale} decimal places")
    if abs(number) >= 10**precision:
        raise ValueError(f"more than {precision} digits")
    return number


def decimal_bytes(value: Any, precision: int, scale: int) -> bytes:
    number = unscaled(value, precision, scale)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def decimal_fixed(value: Any, precision: int, scale: int, size: int) -> bytes:
    return unscaled(value, precision, scale).to_bytes(size, "big", signed=True)


def uuid_text(value: Any) -> str:
    if not isinstance(value, UUID):
        raise TypeError("not a UUID")
    return str(value)


def uuid_bytes(value: Any) -> bytes:
    if not isinstance(value, UUID):
        raise TypeError("not a UUID")
    return value.bytes


def uuid_of(data: bytes) -> UUID:
    return UUID(bytes=data)


# decoding


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends."""
    byte = data[at]
    at += 1
    number, shift = byte & 127, 7
    while byte > 127:
        if shift > _MAX_VARINT_BITS:
            raise ValueError("a number of more than ten bytes")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
    number = (number >> 1) ^ -(number & 1)
    if not -_INT64 <= number < _INT64:
        raise ValueError("a number out of range")
    return number, at


def int_at(data: bytes, at: int) -> tuple[int, int]:
    number, at = long_at(data, at)
    if not -_INT32 <= number < _INT32:
        raise ValueError("an int out of range")
    return number, at


def size_at(data: bytes, at: int) -> tuple[int, int]:
    """A length or index: never negative, and no longer than what is left of the data."""
    number, at = long_at(data, at)
    if not 0 <= number <= len(data):
        raise ValueError("a length out of range")
    return number, at


def count_at(data: bytes, at: int, bound: int) -> tuple[int, int]:
    """Items of the next block of an array or map, at most ``bound``."""
    number, at = long_at(data, at)
    if number < 0:
        number = -number
        _, at = long_at(data, at)  # the block's size in bytes: only for those who skip it
    if number > bound:
        raise ValueError("more items than there is data")
    return number, at


def bad_branch(index: int) -> Any:
    raise ValueError(f"branch {index} of a union that has fewer")


def unreadable(reason: str) -> Any:
    raise ValueError(reason)


def moment(number: int) -> datetime.datetime:
    """From microseconds since 1970. Raises OverflowError outside of the years 1 to 9999."""
    return _EPOCH + datetime.timedelta(microseconds=number)


def local_moment(number: int) -> datetime.datetime:
    return _LOCAL_EPOCH + datetime.timedelta(microseconds=number)


def day(number: int) -> datetime.date:
    return _EPOCH_DAY + datetime.timedelta(days=number)


def time_of_day(number: int) -> datetime.time:
    seconds, fraction = divmod(number, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return datetime.time(hour, minute, second, fraction)


def decimal_of(data: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)
