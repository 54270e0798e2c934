"""Rows in COPY's binary format, made by the compiled extension where there is one. Pure.

It takes what ``postgres_types.transfer`` would send in binary, and makes the same bytes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from .postgres_types import SMALL, TEXTS, Column, JsonText
from .rows import Row
from .rows_kernel import encode

if TYPE_CHECKING:
    from .rows_pure import Encode

BLOCK_BYTES: Final = 96 * 1024
"""psycopg cuts what is over 128 KiB; a block is also what other threads wait for."""
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_KINDS: Final[Mapping[str, bytes]] = {
    "int2": b"h",
    "int4": b"i",
    "int8": b"q",
    "float8": b"d",
    "numeric": b"n",
    "bool": b"?",
    "date": b"D",
    "timestamptz": b"T",
    "timestamp": b"t",
    "uuid": b"u",
    "bytea": b"b",
    "json": b"s",
    "jsonb": b"j",
    **dict.fromkeys(TEXTS, b"s"),
}
"""Letters of ``_rows.c``."""


class Misfit(Exception):
    """A row behind the first block does not fit, when that may have been sent."""


def blocks(columns: Sequence[Column], rows: list[Row]) -> Iterator[bytes] | None:
    """COPY's input for ``rows``, whose fields are ``columns`` in this order, bit by bit: the server
    reads one while the next one is made.

    None where it is for ``transfer`` to say what becomes of them: few rows, types that do not fit,
    text that is no text, no compiled extension. The iterator raises Misfit.
    """
    if encode is None or len(rows) < SMALL:
        return None
    letters = [_KINDS.get(column.kind) for column in columns]
    if None in letters:
        return None
    kinds = b"".join(letter for letter in letters if letter is not None)
    names = tuple(column.name for column in columns)
    first = encode(kinds, names, rows, 0, BLOCK_BYTES, JsonText)
    return None if first is None else _blocks(encode, kinds, names, rows, first)


def _blocks(
    encode: Encode, kinds: bytes, names: tuple[str, ...], rows: list[Row], first: tuple[bytes, int]
) -> Iterator[bytes]:
    block, at = first
    yield _HEADER + block
    while at < len(rows):
        encoded = encode(kinds, names, rows, at, BLOCK_BYTES, JsonText)
        if encoded is None:
            raise Misfit
        block, at = encoded
        yield block
    yield _TRAILER
