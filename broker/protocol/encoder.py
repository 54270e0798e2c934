"""Writes, for one class and version, the Python source of a straight-line encoder.

The generated function is ``encode(o, b, out) -> b``: it appends the object's bytes to the bytearray
``b`` and returns the buffer to go on with. Large record sets are not copied: the buffer so far and
the record set go to ``out`` and a new buffer starts. Runs of fixed-size fields, together with the
length of whatever follows them, are one ``struct`` call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from .fields import LENGTH_CODES, Field, Kind, Schema, schema_of, struct_type
from .primitives import append_records, uvarint


class EncoderSource:
    """Collects source lines and the names they use. One per compiled (class, version)."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._lines: list[str] = []
        self._indent = "    "
        self._run_format = ""
        self._run_values: list[str] = []
        self._names = 0
        self._buffer = "b"
        self.namespace: dict[str, Any] = {
            "uvarint": uvarint,
            "append_records": append_records,
            "pack": struct.pack,
            "lacking": _lacking,
            "null": _null,
        }

    def build(self, cls: type) -> str:
        """The source of ``encode`` for ``cls``; run it in ``namespace``."""
        self._struct(cls, "o")
        self._flush()
        return "\n".join(["def encode(o, b, out):", *self._lines, "    return b", ""])

    def _struct(self, cls: type, value: str) -> None:
        schema = schema_of(cls)
        self._check_absent(cls, schema, value)
        tagged = []
        for field in schema.fields:
            if self._version not in field.versions:
                continue
            if field.tag is not None and self._flexible:
                tagged.append(field)
            else:
                self._field(cls, field, f"{value}.{field.name}")
        if self._flexible:
            self._tags(cls, sorted(tagged, key=lambda field: field.tag or 0), value)

    def _check_absent(self, cls: type, schema: Schema, value: str) -> None:
        """A value that this version cannot carry is an error of the caller, unless ignorable."""
        conditions = [
            _is_set(field, f"{value}.{field.name}")
            for field in schema.fields
            if self._version not in field.versions and not field.ignorable
        ]
        if conditions:
            self._line(f"if {' or '.join(conditions)}:")
            self._line(f"    raise lacking({value}, {self._version})")

    # Statements. What is pending in a run is written before anything that appends to the buffer.

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _fixed(self, code: str, *values: str) -> None:
        self._run_format += code
        self._run_values.extend(values)

    def _flush(self) -> None:
        if not self._run_format:
            return
        if self._run_values:
            name = self._name("pack")
            self.namespace[name] = struct.Struct(">" + self._run_format).pack
            self._line(f"{self._buffer} += {name}({', '.join(self._run_values)})")
        else:
            self._line(f"{self._buffer} += {bytes(len(self._run_format))!r}")  # pad bytes only
        self._run_format, self._run_values = "", []

    def _length(self, code: str, length: str) -> None:
        """A length or count; ``length`` is an expression and -1 means null."""
        if not self._flexible:
            self._fixed(code, length)
            return
        self._flush()
        n = self._name("n")
        self._line(f"{n} = {length} + 1")
        self._line(f"if {n} < 128: {self._buffer}.append({n})")
        self._line(f"else: {self._buffer} += uvarint({n})")

    def _reject_null(self, cls: type, field: Field, value: str) -> None:
        """Only where other versions allow None: elsewhere None is a plain type error."""
        if field.nullable.last >= 0 and self._version not in field.nullable:
            self._line(f"if {value} is None: raise null({_label(cls, field)!r}, {self._version})")

    def _field(self, cls: type, field: Field, value: str) -> None:
        if field.is_array:
            self._array(cls, field, value)
        elif field.kind is Kind.STRUCT:
            self._nested(cls, field, value)
        elif field.kind in LENGTH_CODES:
            self._reject_null(cls, field, value)
            self._sized(field.kind, value, self._version in field.nullable)
        else:
            self._fixed(field.kind.value, value)

    def _nested(self, cls: type, field: Field, value: str) -> None:
        if self._version not in field.nullable:
            self._reject_null(cls, field, value)
            self._struct(struct_type(cls, field), value)
            return
        self._flush()
        self._line(f"if {value} is None: {self._buffer}.append(255)")
        self._line("else:")
        self._indent += "    "
        self._fixed("b", "1")
        self._struct(struct_type(cls, field), value)
        self._flush()
        self._indent = self._indent[:-4]

    def _sized(self, kind: Kind, value: str, nullable: bool) -> None:
        """A string, bytes or record set, with its length."""
        data, size = self._name("d"), self._name("s")
        if nullable or kind is Kind.RECORDS:
            self._line(f"{data} = {value}")
            value = data
        if nullable:
            self._line(f"if {data} is None: {data}, {size} = b'', -1")
            self._line("else:")
            self._indent += "    "
        if kind is Kind.RECORDS:
            self._line(f"if not isinstance({data}, list): {data} = ({data},)")
            self._line(f"{size} = sum(map(len, {data}))")
        else:
            self._line(f"{data} = {value}.encode()" if kind is Kind.STRING else f"{data} = {value}")
            self._line(f"{size} = len({data})")
        if nullable:
            self._indent = self._indent[:-4]
        self._length(LENGTH_CODES[kind], size)
        self._flush()
        if kind is Kind.RECORDS:
            buffer = self._buffer
            self._line(f"{buffer} = append_records({buffer}, out, {data}, {size})")
        else:
            self._line(f"{self._buffer} += {data}")

    def _array(self, cls: type, field: Field, value: str) -> None:
        items = self._name("l")
        self._line(f"{items} = {value}")
        if self._version in field.nullable:
            self._length("i", f"(-1 if {items} is None else len({items}))")
            self._flush()
            self._line(f"if {items}:")
            self._block(lambda: self._items(cls, field, items))
        else:
            self._reject_null(cls, field, items)
            self._length("i", f"len({items})")
            self._flush()
            self._items(cls, field, items)

    def _items(self, cls: type, field: Field, items: str) -> None:
        if field.kind is Kind.STRUCT or field.kind in LENGTH_CODES:
            item = self._name("x")
            self._line(f"for {item} in {items}:")
            if field.kind is Kind.STRUCT:
                self._block(lambda: self._struct(struct_type(cls, field), item))
            else:
                self._block(lambda: self._sized(field.kind, item, nullable=False))
        elif field.kind is Kind.UUID:
            self._line(f"{self._buffer} += b''.join({items})")
        else:
            code = field.kind.value
            self._line(f"{self._buffer} += pack(f'>{{len({items})}}{code}', *{items})")

    def _block(self, body: Callable[[], None]) -> None:
        """Runs ``body`` one level deeper; a run never crosses the border of a block."""
        start = len(self._lines)
        self._indent += "    "
        body()
        self._flush()
        if len(self._lines) == start:
            self._line("pass")
        self._indent = self._indent[:-4]

    def _tags(self, cls: type, tagged: list[Field], value: str) -> None:
        if not tagged:
            self._fixed("x")  # no tagged fields: a count of zero, as a pad byte of the run
            return
        self._flush()
        conditions = [f"({_is_set(field, f'{value}.{field.name}')})" for field in tagged]
        count = self._name("n")
        total = " + ".join(f"(1 if {condition} else 0)" for condition in conditions)
        self._line(f"if not ({' or '.join(conditions)}): {self._buffer}.append(0)")
        self._line("else:")
        self._indent += "    "
        self._line(f"{count} = {total}")
        self._line(f"{self._buffer} += uvarint({count})")
        for field, condition in zip(tagged, conditions, strict=True):
            self._line(f"if {condition}:")
            self._block(partial(self._tag, cls, field, f"{value}.{field.name}"))
        self._indent = self._indent[:-4]

    def _tag(self, cls: type, field: Field, value: str) -> None:
        """A tagged value is written aside first, because its size goes before it."""
        outer, self._buffer = self._buffer, self._name("t")
        self._line(f"{self._buffer} = bytearray()")
        self._field(cls, field, value)
        self._flush()
        inner, self._buffer = self._buffer, outer
        self._line(f"{outer} += {uvarint(field.tag or 0)!r} + uvarint(len({inner})) + {inner}")


def _label(cls: type, field: Field) -> str:
    return f"{cls.__qualname__}.{field.name}"


def _is_set(field: Field, value: str) -> str:
    """The condition that a value differs from its default. An empty list equals a None default
    only in arrays that default to the empty list."""
    if field.has_list_default or field.default is False:
        return value
    if field.default is None:
        return f"{value} is not None"
    return f"{value} != {field.default!r}"


def _lacking(value: object, version: int) -> ValueError:
    fields = schema_of(type(value)).fields
    names = [
        field.name
        for field in fields
        if version not in field.versions
        and not field.ignorable
        and getattr(value, field.name) != ([] if field.has_list_default else field.default)
    ]
    what = type(value).__qualname__
    return ValueError(f"version {version} of {what} cannot carry {', '.join(names)}")


def _null(what: str, version: int) -> ValueError:
    return ValueError(f"{what} must not be None in version {version}")
