"""CSV as RFC 4180 has it: quoted fields may hold delimiters, quotes (doubled) and newlines."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, starmap
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as types

from ..errors import ConfigurationError
from ..topic import Topic
from .encoding import json_encoder_of, reason_of_row
from .errors import SourceError
from .files import Parser, Place, Text, TextFiles
from .filesystem import InputFile
from .rows import BadRow, Rows
from .source import Source, Split

_UNTYPED = (None, Any, object, dict)
_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which some programs write before UTF-8."""
_HEADER_BYTES = 256 * 1024


class CsvFiles(TextFiles):
    """CSV files; see ``files`` for ``pattern``, ``watch`` and ``grows``.

    Rows are dicts of text by column, or of the topic's ``value_type`` where it is a model: numbers,
    dates and so on are made from the text, and an empty field is left to the model's default where
    text would be wrong; ``missing`` are the texts that count as empty, such as ``NA``. ``columns``:
    their names, for files without a header line. Blank lines are skipped. ``encoding`` must be one
    that has ASCII in it. Raises ConfigurationError.
    """

    def __init__(
        self,
        pattern: str | Path,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        quotechar: str = '"',
        encoding: str = "utf-8",
        missing: Sequence[str] = ("",),
        watch: float | None = 1.0,
        grows: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(pattern, watch=watch, grows=grows, storage_options=storage_options)
        if isinstance(missing, str):
            raise ConfigurationError(f"CsvFiles {pattern}: missing must be a list of texts")
        self.missing = tuple(missing)
        self.columns = None if columns is None else list(columns)
        self.encoding = encoding
        self._dialect: dict[str, Any] = {
            "delimiter": delimiter,
            "quotechar": quotechar,
            "strict": True,
        }
        try:
            is_ascii = "\n,".encode(encoding) == b"\n,"
            csv.reader([], **self._dialect)
        except (LookupError, TypeError) as error:
            raise ConfigurationError(f"CsvFiles {pattern}: {error}") from None
        if not is_ascii:
            raise ConfigurationError(f"CsvFiles {pattern}: encoding {encoding} has no ASCII in it")

    def parser(self, file: InputFile, split: Split) -> tuple[Parser, Place] | None:
        """Reads the header."""
        file.seek(0)
        data = file.read(_HEADER_BYTES)
        skipped = len(_MARK) if data.startswith(_MARK) else 0
        if self.columns is not None:
            columns, start = self.columns, Place(skipped)
        else:
            found = self._header(data[skipped:], file.path)
            if found is None:
                return None
            columns, length, lines = found
            start = Place(skipped + length, lines)
        if len(set(columns)) < len(columns) or not all(columns):
            raise SourceError(
                f"{file.path}: the columns {', '.join(map(repr, columns))} need different names: "
                "correct the header, or give columns= for files without one"
            )
        model = _Model(split.source, columns, file.path, self.missing)
        return _Lines(len(columns), self._dialect, self.encoding, model), start

    def _header(self, data: bytes, path: str) -> tuple[list[str], int, int] | None:
        """Columns, bytes and lines of the first row; None while it is not whole."""
        lines = data.splitlines(keepends=True)
        try:
            reader = csv.reader((line.decode(self.encoding) for line in lines), **self._dialect)
            columns = next(reader, None)
        except (csv.Error, UnicodeDecodeError) as error:
            raise SourceError(f"{path} line 1: the header cannot be read: {error}") from error
        length = sum(map(len, lines[: reader.line_num]))
        if columns is None or (self.grows and not data[:length].endswith(b"\n")):
            return None
        return columns, length, reader.line_num


class _Parsed(NamedTuple):
    """Rows with the (first, behind the last) lines each has; ``rest`` is the first line of what is
    not whole yet."""

    rows: list[list[str]]
    spans: list[tuple[int, int]] | None
    bad: list[tuple[int, int, str]]
    rest: int | None = None


class _Lines:
    """``Parser``."""

    def __init__(self, size: int, dialect: Mapping[str, Any], encoding: str, model: _Model) -> None:
        self._size = size
        self._dialect = dialect
        self._encoding = encoding
        self._model = model

    def parse(self, text: Text) -> tuple[Rows, int]:
        try:
            lines = io.StringIO(text.data.decode(self._encoding), newline="").readlines()
            rows = list(csv.reader(lines, **self._dialect))
            parsed = _Parsed(rows, None, [])
        except (csv.Error, UnicodeDecodeError):
            parsed = self._carefully(text)
        size = self._size
        if set(map(len, parsed.rows)) != {size}:
            parsed = self._of_size(text, parsed)
        raw = text.data.splitlines(keepends=True) if parsed.bad or parsed.rest is not None else []
        bad = [
            BadRow(text.place(first), reason, b"".join(raw[first:behind]))
            for first, behind, reason in parsed.bad
        ]
        unfinished = 0 if parsed.rest is None else sum(map(len, raw[parsed.rest :]))
        spans = parsed.spans

        def place(index: int) -> str:
            known = self._spans(text) if spans is None else spans
            return text.place(known[index][0])

        return self._model.rows(parsed.rows, bad, place), unfinished

    def _spans(self, text: Text) -> list[tuple[int, int]]:
        return self._carefully(text).spans or []

    def _carefully(self, text: Text) -> _Parsed:
        """Row by row: with lines, and going on behind a bad one."""
        raw = text.data.splitlines(keepends=True)
        parsed = _Parsed([], [], [])
        spans: list[tuple[int, int]] = parsed.spans or []
        at = 0
        while at < len(raw):
            start = at
            reader = csv.reader(
                (line.decode(self._encoding) for line in islice(raw, start, None)), **self._dialect
            )
            try:
                for row in reader:
                    parsed.rows.append(row)
                    spans.append((at, start + reader.line_num))
                    at = start + reader.line_num
            except (csv.Error, UnicodeDecodeError) as error:
                behind = start + reader.line_num
                if isinstance(error, UnicodeDecodeError):
                    behind += 1
                elif behind == len(raw) and "unexpected end" in str(error):
                    if not text.is_last:
                        return parsed._replace(spans=spans, rest=at)
                    parsed.bad.append((at, behind, "a quote is never closed"))
                    break
                parsed.bad.append((at, behind, str(error)))
                at = behind
        return parsed._replace(spans=spans)

    def _of_size(self, text: Text, parsed: _Parsed) -> _Parsed:
        """Rows with the right number of columns only; blank lines are none."""
        spans = self._spans(text) if parsed.spans is None else parsed.spans
        size = self._size
        kept = [at for at, row in enumerate(parsed.rows) if len(row) == size]
        bad = parsed.bad + [
            (*spans[at], f"it has {len(row)} columns, not {size}")
            for at, row in enumerate(parsed.rows)
            if row and len(row) != size
        ]
        rows = [parsed.rows[at] for at in kept]
        return _Parsed(rows, [spans[at] for at in kept], sorted(bad), parsed.rest)


class _Model:
    """Makes values of the topic's type from rows of text.

    Where nobody can see the difference rows are not made dicts but structs with these columns,
    which cost a fraction.
    """

    def __init__(
        self, source: Source, columns: Sequence[str], path: str, missing: tuple[str, ...]
    ) -> None:
        topic, key = source.topic, source.key
        self._missing = missing
        self._columns = columns
        self._type = topic.value_type
        self._is_typed = self._type not in _UNTYPED
        self._key_at: int | None = None
        self._decode: Any = None
        self._no_text: frozenset[str] = frozenset()
        self._struct: Any = None
        if self._is_typed:
            self._look_at_type(topic, columns, path)
        elif key is None or isinstance(key, str):
            if isinstance(key, str):
                if key not in columns:
                    raise _missing(path, [key], columns, f"the key of source {source.name!r}")
                self._key_at = columns.index(key)
            if json_encoder_of(topic) is not None:
                self._struct = _struct_of([f"column_{at}" for at in range(len(columns))], columns)

    def _look_at_type(self, topic: Topic, columns: Sequence[str], path: str) -> None:
        try:
            info = types.type_info(self._type)
        except TypeError:
            info = types.CustomType(self._type)
        if isinstance(info, types.CustomType):
            self._decode = topic.decode_value  # another library's model
            return
        fields = getattr(info, "fields", ())
        missing = {field.encode_name for field in fields if field.required} - set(columns)
        if missing:
            raise _missing(path, sorted(missing), columns, f"values of topic {topic.name}")
        self._no_text = frozenset(
            field.encode_name for field in fields if not _takes_text(field.type)
        ) & set(columns)
        is_plain = all(field.name == field.encode_name for field in fields)
        if fields and is_plain and all(map(str.isidentifier, columns)):
            self._struct = _struct_of(columns, columns)

    def rows(self, rows: list[list[str]], bad: list[BadRow], place: Callable[[int], str]) -> Rows:
        """With values of the type; those that cannot become one are bad."""
        at = self._key_at
        keys = None if at is None else [row[at] for row in rows]
        if not self._is_typed:
            return Rows(None, self._untyped(rows), keys, bad=bad, place=place)
        try:
            return Rows(None, self._typed(rows), bad=bad, place=place)
        except Exception:  # noqa: BLE001 - models are user code
            return self._one_by_one(rows, bad, place)

    def _untyped(self, rows: list[list[str]]) -> list[Any]:
        if self._struct is not None:
            return list(starmap(self._struct, rows))
        return [dict(zip(self._columns, row, strict=True)) for row in rows]

    def _typed(self, rows: list[list[str]]) -> list[Any]:
        has_blanks = bool(self._no_text) and any(
            text in row for text in self._missing for row in rows
        )
        if self._struct is not None and not has_blanks:
            return self._converted(list(starmap(self._struct, rows)))
        values = [dict(zip(self._columns, row, strict=True)) for row in rows]
        if has_blanks:
            values = [self._without_blanks(value) for value in values]
        if self._decode is None:
            return self._converted(values)
        return [self._decode(msgspec.json.encode(value)) for value in values]

    def _converted(self, values: list[Any]) -> list[Any]:
        kind: Any = list[self._type]  # type: ignore[name-defined]
        made: list[Any] = msgspec.convert(values, kind, strict=False, from_attributes=True)
        return made

    def _without_blanks(self, value: dict[str, str]) -> dict[str, str]:
        missing, no_text = self._missing, self._no_text
        return {
            name: text for name, text in value.items() if text not in missing or name not in no_text
        }

    def _one_by_one(
        self, rows: list[list[str]], bad: list[BadRow], place: Callable[[int], str]
    ) -> Rows:
        made: list[Any] = []
        kept: list[int] = []
        for index, row in enumerate(rows):
            try:
                made += self._typed([row])
            except Exception as error:  # noqa: BLE001 - as above
                raw = msgspec.json.encode(dict(zip(self._columns, row, strict=True)))
                bad.append(BadRow(place(index), reason_of_row(error), raw))
                continue
            kept.append(index)
        return Rows(None, made, bad=bad, place=lambda index: place(kept[index]))


def _struct_of(names: Sequence[str], columns: Sequence[str]) -> Any:
    fields = [(name, Any) for name in names]
    rename = dict(zip(names, columns, strict=True))
    return msgspec.defstruct("CsvRow", fields, rename=rename, gc=False)


def _missing(path: str, names: list[str], columns: Sequence[str], what: str) -> SourceError:
    return SourceError(
        f"{path} has no column {', '.join(names)}, which {what} must have; it has "
        f"{', '.join(columns)}"
    )


def _takes_text(kind: types.Type) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_takes_text(each) for each in kind.types)
    return isinstance(kind, types.StrType | types.AnyType | types.RawType | types.CustomType)
