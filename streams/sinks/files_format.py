"""Rows as the bytes of a whole file: JSON lines, CSV, Parquet. Pure."""

from __future__ import annotations

import csv
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from ..errors import ConfigurationError
from .rows import Row, columns_of

_BAD_VALUE: Final = (ValueError, TypeError, OverflowError)


class Encoded(NamedTuple):
    """The content of a file, and which rows are not in it and why."""

    data: bytes
    bad: list[tuple[int, str]]


class Format(ABC):
    """``takes``: types of values that need no ``adapt``."""

    suffix: ClassVar[str]
    takes: frozenset[type] = frozenset({int, str, float, bool, type(None)})

    def adapt(self, value: Any) -> Any:
        """A value of another type as rows keep it until they are encoded. Raises TypeError."""
        return msgspec.to_builtins(value, str_keys=True)

    @abstractmethod
    def encode(self, rows: Sequence[Row]) -> Encoded: ...


class JsonLinesFormat(Format):
    """One JSON object per line: times in ISO 8601, bytes in base64."""

    suffix = "jsonl"

    def encode(self, rows: Sequence[Row]) -> Encoded:
        try:
            return Encoded(msgspec.json.Encoder().encode_lines(rows), [])
        except _BAD_VALUE:
            return _one_by_one(
                rows, lambda row: msgspec.json.encode(row) + b"\n", msgspec.json.encode
            )


class CsvFormat(Format):
    """Comma-separated in UTF-8, a header in every file, lists and dicts as JSON, None as nothing.

    ``columns``: these, in this order, and a row with another one is refused; otherwise those of the
    file's rows, as they come.
    """

    suffix = "csv"

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = None if columns is None else tuple(columns)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        columns = self.columns or tuple(dict.fromkeys(name for row in rows for name in row))
        known = frozenset(columns)
        write = csv.writer(_Echo(), lineterminator="\n").writerow

        def line(row: Row) -> bytes:
            if not known.issuperset(row):
                raise ValueError(_unknown(row, known))
            return str(write([_field(row.get(name)) for name in columns])).encode()

        body, bad = _one_by_one(rows, line, lambda value: str(write([_field(value)])).encode())
        return Encoded(str(write(columns)).encode() + body, bad)


class ParquetFormat(Format):
    """Parquet by pyarrow. ``schema``: a ``pyarrow.Schema``, or a type as of other sinks'
    ``value_type``, whose fields but ``without`` are the columns. A row with another column or a
    value of another type is refused. Raises ConfigurationError."""

    suffix = "parquet"
    takes = frozenset(
        {int, str, float, bool, bytes, type(None), datetime, date, time, timedelta, Decimal}
    )

    def __init__(self, schema: Any, without: Sequence[str] = ()) -> None:
        try:
            import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
            from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            raise ConfigurationError(
                "Parquet files need pyarrow: pip install 'onceward[parquet]'"
            ) from None
        self._arrow: Any = pyarrow
        self._parquet: Any = parquet
        self._invalid: Any = (pyarrow.ArrowException, *_BAD_VALUE)
        if not isinstance(schema, pyarrow.Schema):
            schema = self._schema_of(schema)
        fields = [field for field in schema if field.name not in without]
        self.schema: Any = pyarrow.schema(fields, metadata=schema.metadata)
        self._known = frozenset(self.schema.names)

    def adapt(self, value: Any) -> Any:
        kept = (bytes, datetime, date, time, timedelta, Decimal)
        return msgspec.to_builtins(value, builtin_types=kept)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        bad = [
            (at, _unknown(row, self._known))
            for at, row in enumerate(rows)
            if not self._known.issuperset(row)
        ]
        refused = {at for at, _ in bad}
        try:
            data = self._data([row for at, row in enumerate(rows) if at not in refused])
        except self._invalid:
            bad += [
                (at, why)
                for at, row in enumerate(rows)
                if at not in refused and (why := self._complaint(row)) is not None
            ]
            refused = {at for at, _ in bad}
            data = self._data([row for at, row in enumerate(rows) if at not in refused])
        return Encoded(data, sorted(bad))

    def _data(self, rows: Sequence[Row]) -> bytes:
        buffer = self._arrow.BufferOutputStream()
        self._parquet.write_table(self._arrow.Table.from_pylist(rows, schema=self.schema), buffer)
        return bytes(buffer.getvalue().to_pybytes())

    def _complaint(self, row: Row) -> str | None:
        for field in self.schema:
            if row.get(field.name) is None and not field.nullable:
                return f"column {field.name!r}: there must be a value"
            try:
                self._arrow.array([row.get(field.name)], type=field.type)
            except self._invalid as error:
                return f"column {field.name!r}: {error}"
        return None

    def _schema_of(self, value_type: Any) -> Any:
        kinds: dict[str, Any] = {}

        def name_of(hint: Any) -> str:
            kind = self._type_of(hint)
            kinds[str(kind)] = kind
            return str(kind)

        arrow = self._arrow
        columns = columns_of(value_type, name_of)
        try:
            return arrow.schema(
                [
                    (name, kinds[kind] if kind in kinds else arrow.type_for_alias(kind))
                    for name, kind in columns.items()
                ]
            )
        except ValueError as error:
            raise ConfigurationError(f"Parquet: {error}") from None

    def _type_of(self, hint: Any) -> Any:
        arrow = self._arrow
        simple = {
            int: arrow.int64(),
            str: arrow.string(),
            float: arrow.float64(),
            bool: arrow.bool_(),
            bytes: arrow.binary(),
            datetime: arrow.timestamp("us", tz="UTC"),
            date: arrow.date32(),
            time: arrow.time64("us"),
            timedelta: arrow.duration("us"),
        }
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is list or (origin is tuple and arguments[1:] == (...,)):
            return arrow.list_(self._type_of(_without_none(arguments[0])))
        if hint in simple:
            return simple[hint]
        shown = getattr(hint, "__name__", hint)
        raise ConfigurationError(
            f"Parquet: {shown} can be kept in several ways; give schema=, a pyarrow.Schema"
        )


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(hint) if each is not type(None)]
        return members[0] if len(members) == 1 else object
    return hint


def _one_by_one(
    rows: Sequence[Row], encode: Callable[[Row], bytes], encode_value: Callable[[Any], bytes]
) -> Encoded:
    parts: list[bytes] = []
    bad: list[tuple[int, str]] = []
    for index, row in enumerate(rows):
        try:
            parts.append(encode(row))
        except _BAD_VALUE as error:
            bad.append((index, f"{_at_fault(row, encode_value)}{error}"))
    return Encoded(b"".join(parts), bad)


def _at_fault(row: Row, encode_value: Callable[[Any], bytes]) -> str:
    """Names the column whose value cannot be encoded, if it is one."""
    for name, value in row.items():
        try:
            encode_value(value)
        except _BAD_VALUE:
            return f"column {name!r}: "
    return ""


def _unknown(row: Row, known: frozenset[str]) -> str:
    name = next(name for name in row if name not in known)
    return f"the files have no column {name!r}"


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value).decode()
    return value


class _Echo:
    """A file for ``csv.writer``, whose ``writerow`` returns what ``write`` does."""

    def write(self, text: str) -> str:
        return text
