"""The wire types that are not plain ``struct`` codes: varints, tagged sections, by-reference bytes.

The compiled code in ``encoder`` and ``decoder`` calls these off its fast path; coordinators and
tests may call them directly. Readers take the whole buffer and a position and never look past it:
a short buffer ends in IndexError (turned into ProtocolError at the edge, see ``schema``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ProtocolError
from ..types import Buffer

MAX_UVARINT = 2**31 - 1
"""Lengths, counts and tags are Java ints on the other side."""

INLINE_LIMIT = 1024
"""Record sets up to this many bytes are copied: cheaper than one more buffer to the socket."""


def uvarint(value: int) -> bytes:
    """An unsigned varint, least significant seven bits first."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buf: bytes, position: int) -> tuple[int, int]:
    """The value and the position after it."""
    first = buf[position]
    return uvarint_tail(buf, position + 1, first) if first > 127 else (first, position + 1)


def uvarint_tail(buf: bytes, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose ``first`` byte, already read, has the continuation bit."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buf[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > MAX_UVARINT:
                break
            return value, position
    raise ProtocolError("a varint is longer than 31 bits")


def skip_tags(buf: bytes, position: int, count: int, end: int) -> int:
    """Steps over a tagged section; ``count`` is the first byte of its count, already read."""
    if count > 127:
        count, position = uvarint_tail(buf, position, count)
    for _ in range(count):
        _, position = read_uvarint(buf, position)
        size, position = read_uvarint(buf, position)
        position += size
        if position > end:
            raise ProtocolError("a tagged field is longer than its message")
    return position


def append_records(
    buffer: bytearray, out: list[Buffer], parts: Sequence[Buffer], size: int
) -> bytearray:
    """Puts ``parts`` behind ``buffer``, by reference when large; returns the buffer to use next."""
    if size <= INLINE_LIMIT:
        for part in parts:
            buffer += part
        return buffer
    out.append(buffer)
    out.extend(parts)
    return bytearray()


def too_short(what: str) -> ProtocolError:
    """The error for a length or count that the remaining bytes cannot hold."""
    return ProtocolError(f"{what} is longer than its message")


def is_null(what: str) -> ProtocolError:
    """The error for a null that this version does not allow."""
    return ProtocolError(f"{what} must not be null")
