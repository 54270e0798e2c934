"""What a serializer puts before a payload, or into a header: magic byte, schema id, message path.

Source: Confluent's wire format. In front byte 0 and a 4-byte id, or in a header byte 1 and a GUID
of 16 bytes; for Protobuf then the path of the message in its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .errors import Undecodable

PREFIX_SIZE: Final = 5
GUID_SIZE: Final = 17
KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
_MAX_INDEXES: Final = 100_000
_MAX_SHIFT: Final = 63

Headers = Iterable[tuple[str, bytes | None]]


def id_prefix(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def guid_prefix(guid: str) -> bytes:
    return b"\1" + bytes.fromhex(guid.replace("-", ""))


def prefix_of(data: bytes) -> bytes:
    """The part of a record that says which schema it has. Raises Undecodable."""
    magic = data[:1]
    if magic == b"\0" and len(data) >= PREFIX_SIZE:
        return data[:PREFIX_SIZE]
    if magic == b"\1" and len(data) >= GUID_SIZE:
        return data[:GUID_SIZE]
    if magic in (b"\0", b"\1", b""):
        raise Undecodable(f"a record of {len(data)} bytes is too short to name its schema")
    raise Undecodable(
        f"the first byte is {data[0]:#04x}, not 0x00 or 0x01: the record was not written with a "
        "schema registry serializer"
    )


def schema_key(prefix: bytes) -> int | str:
    """The id or GUID a prefix names."""
    if prefix[0] == 0:
        return int.from_bytes(prefix[1:], "big")
    plain = prefix[1:].hex()
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def with_header_ids(
    data: Sequence[bytes | None], headers: Sequence[Headers], name: str
) -> list[bytes | None]:
    """Records whose ids are in header ``name`` as if they were in front; others as they are."""
    joined: list[bytes | None] = []
    for value, pairs in zip(data, headers, strict=True):
        found = None
        if value is not None:
            found = next((text for key, text in pairs if key == name and text), None)
        joined.append(value if found is None or value is None else found + value)
    return joined


def pack_indexes(indexes: Sequence[int]) -> bytes:
    """The path of a message in its file; ``[0]``, the first message, is one byte 0."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def unpack_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """A path and where it ends; the long form of ``[0]`` is taken too. Raises Undecodable."""
    try:
        count, at = _unzigzag(data, at)
        if count == 0:
            return (0,), at
        if not 0 < count <= min(_MAX_INDEXES, len(data)):
            raise Undecodable(f"a message path of {count} indexes")
        path = []
        for _ in range(count):
            index, at = _unzigzag(data, at)
            path.append(index)
    except IndexError:
        raise Undecodable("the record ends within its message path") from None
    return tuple(path), at


def _zigzag(number: int) -> bytes:
    rest = number << 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _unzigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > _MAX_SHIFT:
            raise Undecodable("a message index of more than ten bytes")
