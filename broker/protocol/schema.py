"""Encoding and decoding of declared classes: compiled once per (class, version), on first use.

Coordinators declare the keys and values of their records with the specifiers of ``fields`` (all of
them can be imported from here), and read and write them with ``decode_struct`` and
``encode_struct``; the int16 version in front of a record is theirs to handle.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from ..errors import ProtocolError
from ..types import Buffer
from .decoder import DecoderSource
from .encoder import EncoderSource
from .fields import (
    Records,
    Schema,
    Versions,
    boolean,
    bytes_,
    int8,
    int8s,
    int16,
    int32,
    int32s,
    int64,
    int64s,
    message,
    nested,
    record_set,
    schema_of,
    string,
    strings,
    struct,
    structs,
    uint16,
    uuid,
    uuids,
)

__all__ = [
    "Records",
    "Schema",
    "Versions",
    "boolean",
    "bytes_",
    "compile_decoder",
    "compile_encoder",
    "decode_at",
    "decode_struct",
    "encode_struct",
    "int8",
    "int8s",
    "int16",
    "int32",
    "int32s",
    "int64",
    "int64s",
    "message",
    "nested",
    "record_set",
    "schema_of",
    "string",
    "strings",
    "struct",
    "structs",
    "uint16",
    "uuid",
    "uuids",
]

T = TypeVar("T")
R = TypeVar("R")

Encode = Callable[[Any, bytearray, list[Buffer]], bytearray]
Decode = Callable[[bytes, int, int], tuple[Any, int]]


def _once(function: Callable[[type, int], R]) -> Callable[[type, int], R]:
    return cache(function)


@_once
def compile_encoder(cls: type, version: int) -> Encode:
    """The function described in ``encoder``. ValueError when that version does not exist."""
    source = EncoderSource(version, _is_flexible(cls, version))
    encode: Encode = _compile(source.build(cls), source.namespace, cls, version, "encode")
    return encode


@_once
def compile_decoder(cls: type, version: int) -> Decode:
    """The function described in ``decoder``. ValueError when that version does not exist."""
    source = DecoderSource(version, _is_flexible(cls, version))
    decode: Decode = _compile(source.build(cls), source.namespace, cls, version, "decode")
    return decode


def encode_struct(cls: type[T], version: int, value: T) -> bytes:
    """The bytes of ``value``. ValueError when that version does not exist or cannot carry it."""
    out: list[Buffer] = []
    last = compile_encoder(cls, version)(value, bytearray(), out)
    return b"".join([*out, last])


def decode_struct(cls: type[T], version: int, buf: Buffer) -> T:
    """The value that ``buf`` holds, all of it. ProtocolError when the bytes are malformed."""
    data = buf if isinstance(buf, bytes) else bytes(buf)
    value, position = decode_at(cls, version, data, 0)
    if position != len(data):
        raise ProtocolError(f"{len(data) - position} bytes are left after {cls.__qualname__}")
    return value


def decode_at(cls: type[T], version: int, buf: bytes, position: int) -> tuple[T, int]:
    """The value that starts at ``position`` and the position after it. Raises ProtocolError."""
    decode = compile_decoder(cls, version)
    try:
        value, after = decode(buf, position, len(buf))
    except (_struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed {cls.__qualname__} v{version}: {error}") from error
    return value, after


def _is_flexible(cls: type, version: int) -> bool:
    schema = schema_of(cls)
    if version not in schema.versions:
        raise ValueError(f"{cls.__qualname__} has no version {version}")
    return version in schema.flexible


def _compile(source: str, namespace: dict[str, Any], cls: type, version: int, name: str) -> Any:
    filename = f"<{name} {cls.__qualname__} v{version}>"
    exec(compile(source, filename, "exec"), namespace)
    return namespace[name]
