"""JSON Lines: one JSON value per line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .encoding import json_encoder_of, reason_of
from .files import Parser, Place, Text, TextFiles
from .filesystem import InputFile
from .rows import BadRow, Rows
from .source import Source, Split

_UNTYPED = (None, Any, object, dict)


class JsonLines(TextFiles):
    """Files of JSON Lines; see ``files`` for ``pattern``, ``watch`` and ``grows``.

    Lines are checked against the topic's ``value_type`` and, where the topic is JSON, become the
    values of records as they are. Blank lines are skipped. The source's ``key=`` says the key.
    """

    def parser(self, file: InputFile, split: Split) -> tuple[Parser, Place]:
        return _Lines(split.source), Place()


class _Lines:
    """``Parser``. Decodes of a line what must be, given the topic and the key of the source."""

    def __init__(self, source: Source) -> None:
        topic, key = source.topic, source.key
        self._is_json = json_encoder_of(topic) is not None
        self._key_only = False
        self._decode: Callable[[bytes], Any]
        if not self._is_json:
            self._decode = _decoder_for(topic.value_type)
        elif topic.value_type not in _UNTYPED:
            self._decode = topic.decode_value
        elif callable(key):
            self._decode = msgspec.json.Decoder().decode
        elif key is None:
            self._decode = msgspec.json.Decoder(msgspec.Raw).decode  # checked, and no more
        else:
            keyed = msgspec.defstruct("Keyed", [("key", Any)], rename={"key": key})
            self._decode = msgspec.json.Decoder(keyed).decode
            self._key_only = True

    def parse(self, text: Text) -> tuple[Rows, int]:
        lines = text.data.split(b"\n")
        numbers: list[int] | None = None
        if b"\r" in text.data:
            lines = [line.removesuffix(b"\r") for line in lines]
        if not lines[-1]:
            lines.pop()
        if not all(lines) or any(map(bytes.isspace, lines)):
            numbers = [at for at, line in enumerate(lines) if line.strip()]
            lines = [lines[at] for at in numbers]
        bad: list[BadRow] = []
        try:
            text.data.decode()
            decode = self._decode
            values = [decode(line) for line in lines]
        except Exception:  # noqa: BLE001 - value types are user code
            kept = range(len(lines)) if numbers is None else numbers
            values, lines, numbers, bad = self._one_by_one(text, lines, kept)

        def place(index: int) -> str:
            return text.place(index if numbers is None else numbers[index])

        keys = [value.key for value in values] if self._key_only else None
        encoded = lines if self._is_json else None
        return Rows(None, values, keys, encoded=encoded, bad=bad, place=place), 0

    def _one_by_one(
        self, text: Text, lines: list[bytes], numbers: range | list[int]
    ) -> tuple[list[Any], list[bytes], list[int], list[BadRow]]:
        """Values, lines and line numbers of the good ones, and the bad ones."""
        values: list[Any] = []
        good: list[bytes] = []
        kept: list[int] = []
        bad: list[BadRow] = []
        for number, line in zip(numbers, lines, strict=True):
            try:
                line.decode()
                values.append(self._decode(line))
            except Exception as error:  # noqa: BLE001 - as above
                bad.append(BadRow(text.place(number), reason_of(error), line))
                continue
            good.append(line)
            kept.append(number)
        return values, good, kept, bad


def _decoder_for(value_type: Any) -> Callable[[bytes], Any]:
    """For topics that are not JSON themselves: values as their serializer takes them."""
    if value_type in _UNTYPED:
        return msgspec.json.Decoder().decode
    try:
        return msgspec.json.Decoder(value_type).decode
    except TypeError:  # another library's model: its serializer knows what to do with a dict
        return msgspec.json.Decoder().decode
