"""From the rows of a source to the keys and values of records, a chunk in one call. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .rows import BadRow, Row, Rows

if TYPE_CHECKING:
    from ..topic import Topic

KeyOf = Callable[[Any], Any]


class Encoded(NamedTuple):
    """Records in the order of their rows. ``kept`` are the rows' indexes, None: all of them."""

    keys: list[bytes | None]
    values: list[bytes | None]
    kept: list[int] | None
    bad: list[BadRow]


class RowEncoder:
    """Encodes as ``topic`` says. ``key``: a field's name or a function of the value, for rows that
    bring no key."""

    def __init__(self, topic: Topic, key: str | KeyOf | None) -> None:
        self._encode_key = topic.encode_key
        self._encode_value = topic.encode_value
        self._key_of = key if callable(key) else None
        self._field = key if isinstance(key, str) else None
        encoder = json_encoder_of(topic)
        self._encode_lines = None if encoder is None else encoder.encode_lines

    def row(self, row: Row) -> tuple[bytes | None, bytes | None]:
        """Key and value. Raises what encoding raises."""
        value = row.value
        key = self._key(value) if row.key is None else self._encode_key(row.key)
        return key, None if value is None else self._encode_value(value)

    def rows(self, rows: Rows) -> Encoded:
        """A chunk; a row that cannot be encoded is among the bad ones."""
        try:
            keys = self._keys(rows)
            return Encoded(keys, self._values(rows), None, rows.bad)
        except Exception:  # noqa: BLE001 - codecs and key functions are user code
            return self._one_by_one(rows)

    def _values(self, rows: Rows) -> list[bytes | None]:
        if rows.encoded is not None:
            return list(rows.encoded)
        values = rows.values
        if self._encode_lines is not None and None not in values:
            lines: list[bytes | None] = [*self._encode_lines(values).split(b"\n")]
            lines.pop()  # every line ends with a newline
            if len(lines) == len(values):
                return lines
        encode = self._encode_value
        return [None if value is None else encode(value) for value in values]

    def _keys(self, rows: Rows) -> list[bytes | None]:
        encode, values = self._encode_key, rows.values
        if rows.keys is not None:
            return [None if key is None else encode(key) for key in rows.keys]
        field = self._field
        if field is None and self._key_of is None:
            return [None] * len(values)
        if field is None or not all(type(value) is dict for value in values):
            return [self._key(value) for value in values]
        found = [value[field] for value in values]
        return [None if key is None else encode(key) for key in found]

    def _key(self, value: Any) -> bytes | None:
        """The encoded key of a row that brings none."""
        if value is None:
            return None
        if self._key_of is not None:
            key = self._key_of(value)
        elif self._field is None:
            return None
        else:
            is_mapping = isinstance(value, Mapping)
            key = value[self._field] if is_mapping else getattr(value, self._field)
        return None if key is None else self._encode_key(key)

    def _one_by_one(self, rows: Rows) -> Encoded:
        kept: list[int] = []
        found = Encoded([], [], kept, list(rows.bad))
        encoded: Sequence[bytes] | None = rows.encoded
        for index, value in enumerate(rows.values):
            given = None if rows.keys is None else rows.keys[index]
            try:
                key = self._key(value) if given is None else self._encode_key(given)
                if encoded is not None:
                    data: bytes | None = encoded[index]
                else:
                    data = None if value is None else self._encode_value(value)
            except Exception as error:  # noqa: BLE001 - as above
                raw = shown(value) if encoded is None else encoded[index]
                found.bad.append(BadRow(rows.place_of(index), reason_of(error), raw))
                continue
            found.keys.append(key)
            found.values.append(data)
            kept.append(index)
        return found


def json_encoder_of(topic: Topic) -> msgspec.json.Encoder | None:
    """What encodes the values of a topic whose serializer is JSON."""
    encoder = getattr(topic.encode_value, "__self__", None)
    return encoder if isinstance(encoder, msgspec.json.Encoder) else None


def reason_of(error: BaseException) -> str:
    """An exception as a reason; a KeyError's text alone would only be a name."""
    if isinstance(error, KeyError):
        return f"it has no field {error.args[0]!r}"
    return f"{type(error).__name__}: {error}"


def reason_of_row(error: BaseException) -> str:
    """``reason_of`` for the conversion of a list with one row in it: paths begin at the row."""
    return reason_of(error).replace("`$[0]", "`$")


def shown(value: Any) -> bytes:
    """A value that is no record, as bytes for the dead letter topic."""
    if isinstance(value, bytes):
        return value
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return repr(value).encode("utf-8", "replace")
