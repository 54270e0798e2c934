"""Serializers: what turns a key or value of a given type into bytes and back.

A codec is a pair of plain functions bound once per topic, so that a record costs two calls.
``None`` never reaches a codec: a null key or value is null on both sides (a tombstone).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from ..errors import ConfigurationError
from .json import json_codec

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


class SchemaCodec(Protocol):
    """A codec whose schemas are in a registry, for the keys or values of one topic.

    What awaits raises ValueError (or TypeError) with a sentence for the user when the registry does
    not answer or refuses. ``encode`` raises RuntimeError before ``prepare``, if it would have to
    wait.
    """

    header_name: str
    """The header that names the schema of a record whose payload does not."""
    writes_headers: bool
    """Whether ``split`` moves what names the schema from the payload to that header."""
    is_prepared: bool
    is_fixed: bool
    """Set where a second schema would make what is there unfindable: ``prepare`` refuses one."""
    encode: Encode
    decode: Decode

    async def prepare(self) -> None:
        """Find or register the schemas that are written."""

    def unknown(self, data: Iterable[bytes | None]) -> set[bytes]:
        """What ``learn`` must be given before these can be decoded."""

    async def learn(self, unknown: Iterable[bytes]) -> None:
        """Fetch schemas; one that does not exist makes its records undecodable, no more."""

    async def learn_versions(self) -> None:
        """Fetch every schema that was ever written here."""

    def joined(
        self, data: Sequence[bytes | None], headers: Sequence[Iterable[tuple[str, bytes | None]]]
    ) -> list[bytes | None]:
        """Payloads with what their headers say of their schemas in front."""

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """The header's value and the payload."""

    def use_url(self, url: str) -> None:
        """Ask the registry there, unless the present one is in memory."""

    def bound_to(self, topic: str, *, is_key: bool) -> SchemaCodec:
        """The same for another topic."""

    def stand_in(self, registries: dict[str, Any]) -> Callable[[], None]:
        """Use a registry in memory, of ``registries`` by address; the result undoes it."""


class Codec(NamedTuple):
    """``encode`` raises TypeError or ValueError (msgspec's errors are such), ``decode``
    likewise. ``schemas``: where they come from, when a registry has them."""

    encode: Encode
    decode: Decode
    schemas: SchemaCodec | None = None


@runtime_checkable
class CustomCodec(Protocol):
    """A serializer object of the user's own: ``key_serializer=`` or ``value_serializer=``."""

    def dumps(self, value: Any) -> bytes: ...
    def loads(self, data: bytes) -> Any: ...


@runtime_checkable
class TypedCodec(Protocol):
    """A serializer that wants to know the declared type and topic (schema registry serializers)."""

    def bind(self, value_type: Any, topic: str | None, *, is_key: bool) -> Codec | SchemaCodec: ...


def codec_for(serializer: Any, value_type: Any, *, topic: str | None, is_key: bool) -> Codec:
    """The codec for a serializer (name or object) and a declared type.

    Names: ``json``, ``raw`` (bytes as they are; text as UTF-8), ``str``, ``int`` (decimal text),
    ``int32``, ``int64``, ``float64`` (big endian, as Kafka's Java serializers). Raises
    ConfigurationError for an unknown one.
    """
    if isinstance(serializer, Codec):
        if serializer.schemas is None or topic is None:
            return serializer
        return _with_schemas(serializer.schemas.bound_to(topic, is_key=is_key))
    if isinstance(serializer, TypedCodec):
        try:
            bound = serializer.bind(value_type, topic, is_key=is_key)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"topic {topic!r}: {error}") from error
        return bound if isinstance(bound, Codec) else _with_schemas(bound)
    if isinstance(serializer, CustomCodec):
        return Codec(serializer.dumps, serializer.loads)
    if serializer == "json":
        return Codec(*json_codec(value_type))
    if serializer == "raw":
        return _raw_codec(value_type)
    codecs = {
        "str": Codec(str.encode, bytes.decode),
        "int": Codec(_encode_int, int),
        "int32": _packed(">i"),
        "int64": _packed(">q"),
        "float64": _packed(">d"),
    }
    if not isinstance(serializer, str) or serializer not in codecs:
        known = ", ".join(["json", "raw", *codecs])
        raise ConfigurationError(
            f"serializer {serializer!r} is unknown: use one of {known}, "
            "or an object with dumps(value) and loads(bytes)"
        )
    return codecs[serializer]


def payload_of(codec: Codec, data: bytes, headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """What to decode of a record: with the schema in front that a header names."""
    if codec.schemas is None or not headers:
        return data
    return codec.schemas.joined([data], [headers])[0] or data


def _with_schemas(codec: SchemaCodec) -> Codec:
    return Codec(codec.encode, codec.decode, codec)


def default_key_codec(
    serializer: Any, key_type: Any, app_default: Any, topic: str | None = None
) -> Codec:
    """Keys: text and bytes raw, untyped keys raw (decoded as bytes), other types as JSON."""
    if serializer is None:
        serializer = "raw" if key_type in (None, str, bytes) else "json"
        if key_type is None and app_default is not None:
            serializer = app_default
    return codec_for(serializer, key_type, topic=topic, is_key=True)


def default_value_codec(
    serializer: Any, value_type: Any, app_default: Any, topic: str | None = None
) -> Codec:
    """Values: text and bytes raw, everything else the app's default (JSON)."""
    if serializer is None:
        serializer = "raw" if value_type in (str, bytes) else app_default or "json"
    return codec_for(serializer, value_type, topic=topic, is_key=False)


def _raw_codec(value_type: Any) -> Codec:
    if value_type is str:
        return Codec(str.encode, bytes.decode)
    if value_type in (None, bytes):
        return Codec(encode_raw, bytes)
    raise ConfigurationError(
        f"serializer 'raw' carries bytes or str, not {value_type!r}: use 'json' for it"
    )


def encode_raw(value: Any) -> bytes:
    """Bytes and text as they are; other keys become JSON, so that an int key needs no key_type."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return msgspec.json.encode(value)


def _encode_int(value: Any) -> bytes:
    if not isinstance(value, int):
        raise TypeError(f"expected int, got {type(value).__name__}: {value!r}")
    return b"%d" % value


def _packed(layout: str) -> Codec:
    packer = struct.Struct(layout)

    def encode(value: Any) -> bytes:
        try:
            return packer.pack(value)
        except struct.error as error:
            raise ValueError(f"{value!r}: {error}") from None

    def decode(data: bytes) -> Any:
        if len(data) != packer.size:
            raise ValueError(f"expected {packer.size} bytes, got {len(data)}")
        return packer.unpack(data)[0]

    return Codec(encode, decode)
