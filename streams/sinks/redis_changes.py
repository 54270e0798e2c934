"""What a batch does to each key, packed for the script that does it. Pure."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from .rows import Row

_PIECE_FIELDS: Final = 500
"""Arguments of one command: Lua's stack takes 8,000."""
_ENTRY_FIELDS: Final = 3_000
_PIECE_BYTES: Final = 256 * 1024
_ARGUMENT_BYTES: Final = 1024 * 1024
_OVERHEAD_BYTES: Final = 64

_TRUE: Final = b"\xc3"
_FALSE: Final = b"\xc2"
_SHORT: Final = [bytes([0xA0 | n]) if n < 32 else bytes([0xD9, n]) for n in range(256)]


def packed(number: int, is_deleted: bool, set_: list[bytes], gone: list[bytes]) -> bytes:
    """MessagePack of the key's number, whether it is deleted first, what is set (of a hash and a
    stream fields and values), and fields of a hash to delete.

    Not msgspec's: Redis reads no ``bin``, only ``str``, with any bytes in it.
    """
    parts = [b"\x94", struct.pack(">BI", 0xCE, number), _TRUE if is_deleted else _FALSE]
    for texts in (set_, gone):
        parts.append(struct.pack(">BI", 0xDD, len(texts)))
        for each in texts:
            size = len(each)
            parts.append(_SHORT[size] if size < 256 else struct.pack(">BI", 0xDB, size))
            parts.append(each)
    return b"".join(parts)


class Kind(enum.StrEnum):
    """What a row becomes: a hash, a JSON document, a value as it is, an element of a list, an entry
    of a stream."""

    HASH = "hash"
    JSON = "json"
    STRING = "string"
    LIST = "list"
    STREAM = "stream"

    @property
    def stored_as(self) -> str:
        """What Redis's TYPE says."""
        return "string" if self is Kind.JSON else str(self)

    @property
    def appends(self) -> bool:
        return self in (Kind.LIST, Kind.STREAM)


def text(value: Any) -> bytes:
    """A plain value as Redis keeps it. Raises ValueError, TypeError."""
    if type(value) is str:
        return value.encode()
    if type(value) is bytes:
        return value
    if isinstance(value, int | float):
        return repr(value).encode()
    raise TypeError(f"{type(value).__name__} is no text or number: {value!r}")


def joined(parts: Sequence[Any]) -> bytes:
    """One key from the values of several columns; a ``:`` within one of them is ``%3A``."""
    texts = list(map(text, parts))
    if len(texts) > 1:
        texts = [each.replace(b"%", b"%25").replace(b":", b"%3A") for each in texts]
    return b":".join(texts)


def fields_of(row: Row) -> dict[bytes, bytes | None]:
    """Raises ValueError, TypeError."""
    return {text(name): None if value is None else text(value) for name, value in row.items()}


@dataclass(slots=True)
class Change:
    """What happens to one key. ``effects``: their indexes in the batch."""

    effects: list[int] = field(default_factory=list)
    is_deleted: bool = False
    fields: dict[bytes, bytes | None] = field(default_factory=dict)
    values: list[list[bytes]] = field(default_factory=list)

    def pieces(self, number: int) -> Iterator[bytes]:
        """Each is for one command; ``number`` is the key's."""
        is_first = self.is_deleted
        if is_first and not self.fields and not self.values:
            yield packed(number, True, [], [])
        for values in self.values:
            yield packed(number, is_first, values, [])
            is_first = False
        for names in _cut(self.fields):
            present = [(name, value) for name in names if (value := self.fields[name]) is not None]
            gone = [name for name in names if self.fields[name] is None]
            yield packed(number, is_first, [each for pair in present for each in pair], gone)
            is_first = False


def _cut(fields: Mapping[bytes, bytes | None]) -> Iterator[list[bytes]]:
    """Names of fields that go in one command."""
    names: list[bytes] = []
    size = 0
    for name, value in fields.items():
        size += len(name) + len(value or b"")
        if names and (len(names) >= _PIECE_FIELDS or size > _PIECE_BYTES):
            yield names
            names, size = [], len(name) + len(value or b"")
        names.append(name)
    if names:
        yield names


class Changes:
    """By key, in the order they were first written to. Several of one key add up, as they would one
    after the other.

    ``max_bytes``: what the server takes in one piece.
    """

    def __init__(self, kind: Kind, max_bytes: int) -> None:
        self.kind = kind
        self.by_key: dict[bytes, Change] = {}
        self._max_bytes = max_bytes

    def __bool__(self) -> bool:
        return bool(self.by_key)

    @property
    def keys(self) -> list[bytes]:
        return list(self.by_key)

    def delete(self, index: int, key: bytes) -> None:
        """Raises ValueError."""
        change = self._change(index, key)
        change.is_deleted = True
        change.fields.clear()
        change.values.clear()

    def write(self, index: int, key: bytes, value: Any) -> None:
        """``value``: a row, or of the kind ``string`` a value. Raises ValueError, TypeError,
        OverflowError."""
        if self.kind is Kind.HASH:
            fields = fields_of(value)
            for name, field_value in fields.items():
                self._check(len(name) + len(field_value or b""))
            self._change(index, key).fields.update(fields)
            return
        made = self._value(value)
        self._check(sum(map(len, made)) + _OVERHEAD_BYTES * len(made))
        change = self._change(index, key)
        if not self.kind.appends:
            change.values.clear()
            change.is_deleted = False
        change.values.append(made)

    def take_back(self, key: bytes) -> list[int]:
        """Nothing happens to ``key``; returns the effects that were to."""
        return self.by_key.pop(key).effects

    def arguments(self) -> list[bytes]:
        """All pieces, several in each, one after the other."""
        arguments: list[bytes] = []
        waiting = bytearray()
        limit = min(_ARGUMENT_BYTES, self._max_bytes)
        for number, change in enumerate(self.by_key.values()):
            for piece in change.pieces(number):
                if waiting and len(waiting) + len(piece) > limit:
                    arguments.append(bytes(waiting))
                    waiting.clear()
                waiting += piece
        if waiting:
            arguments.append(bytes(waiting))
        return arguments

    def _value(self, value: Any) -> list[bytes]:
        if self.kind is Kind.STRING:
            return [text(value)]
        if self.kind is not Kind.STREAM:
            return [msgspec.json.encode(value)]
        fields = [pair for pair in fields_of(value).items() if pair[1] is not None]
        if not 0 < len(fields) <= _ENTRY_FIELDS:
            raise ValueError(
                f"an entry of a stream has 1 to {_ENTRY_FIELDS} fields that are not None, "
                f"not {len(fields)}"
            )
        return [each for pair in fields for each in pair if each is not None]

    def _change(self, index: int, key: bytes) -> Change:
        change = self.by_key.get(key)
        if change is None:
            self._check(len(key))
            change = self.by_key[key] = Change()
        change.effects.append(index)
        return change

    def _check(self, size: int) -> None:
        if size + _OVERHEAD_BYTES > self._max_bytes:
            raise ValueError(
                f"{size} bytes are more than the server takes in one piece (proto-max-bulk-len "
                f"{self._max_bytes})"
            )
