"""Writes, for one class and version, the Python source of a straight-line decoder.

The generated function is ``decode(buf, p, end) -> (object, p)`` over a ``bytes`` of length ``end``.
Fixed-size fields and the length of whatever follows them are read by one ``struct`` call; counts
and lengths are checked against the bytes that are left before anything is allocated. What it
raises on short or malformed input: ProtocolError, struct.error, IndexError, UnicodeDecodeError.
"""

from __future__ import annotations

import struct
from typing import Any

from ..errors import ProtocolError
from .fields import FIXED_SIZES, LENGTH_CODES, Field, Kind, schema_of, struct_type
from .primitives import is_null, skip_tags, too_short, uvarint_tail

CODE_SIZES = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "q": 8, "?": 1, "16s": 16}


class DecoderSource:
    """Collects source lines and the names they use. One per compiled (class, version)."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._lines: list[str] = []
        self._indent = "    "
        self._run: list[tuple[str, str]] = []
        self._names = 0
        self._reads_records = False
        self.namespace: dict[str, Any] = {
            "ProtocolError": ProtocolError,
            "uvarint_tail": uvarint_tail,
            "skip_tags": skip_tags,
            "too_short": too_short,
            "is_null": is_null,
            "unpack_from": struct.unpack_from,
        }

    def build(self, cls: type) -> str:
        """The source of ``decode`` for ``cls``; run it in ``namespace``."""
        result = self._struct(cls)
        head = ["def decode(buf, p, end):"]
        if self._reads_records:
            head.append("    view = memoryview(buf)")
        return "\n".join([*head, *self._lines, f"    return {result}, p", ""])

    def _struct(self, cls: type) -> str:
        """Reads one struct; returns the expression that constructs it."""
        values: list[str] = []
        tagged: list[tuple[Field, str]] = []
        for field in schema_of(cls).fields:
            if self._version not in field.versions:
                values.append(_default(field))
            elif field.tag is not None and self._flexible:
                name = self._name("v")
                tagged.append((field, name))
                values.append(name)
            else:
                values.append(self._field(cls, field))
        if self._flexible:
            self._tags(cls, tagged)
        self._flush()
        name = self._name(cls.__name__)
        self.namespace[name] = cls
        return f"{name}({', '.join(values)})"

    # Statements. A run is read before anything that depends on the position after it.

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _flush(self) -> None:
        if not self._run:
            return
        if len(self._run) == 1 and self._run[0][0] == "B":
            self._line(f"{self._run[0][1]} = buf[p]; p += 1")
        else:
            name = self._name("unpack")
            codes = "".join(code for code, _ in self._run)
            self.namespace[name] = struct.Struct(">" + codes).unpack_from
            targets = ", ".join(target for _, target in self._run)
            size = sum(CODE_SIZES[code] for code, _ in self._run)
            self._line(f"{targets}, = {name}(buf, p); p += {size}")
        self._run = []

    def _uvarint(self, name: str) -> None:
        """Reads an unsigned varint; its first byte joins the pending run."""
        self._run.append(("B", name))
        self._flush()
        self._line(f"if {name} > 127: {name}, p = uvarint_tail(buf, p, {name})")

    def _length(self, code: str) -> str:
        """Reads a length or count into a variable; below 0 is null."""
        name = self._name("n")
        if self._flexible:
            self._uvarint(name)
            self._line(f"{name} -= 1")
        else:
            self._run.append((code, name))
            self._flush()
        return name

    def _field(self, cls: type, field: Field) -> str:
        """Reads a value and returns the variable that holds it."""
        label = f"{cls.__qualname__}.{field.name}"
        nullable = self._version in field.nullable
        if field.is_array:
            return self._array(cls, field, label, nullable)
        if field.kind is Kind.STRUCT:
            return self._nested(cls, field, nullable)
        if field.kind in LENGTH_CODES:
            return self._sized(field.kind, label, nullable)
        name = self._name("v")
        self._run.append((field.kind.value, name))
        return name

    def _nested(self, cls: type, field: Field, nullable: bool) -> str:
        target = struct_type(cls, field)
        if not nullable:
            value = self._struct(target)
            name = self._name("v")
            self._line(f"{name} = {value}")
            return name
        present, name = self._name("n"), self._name("v")
        self._run.append(("b", present))
        self._flush()
        self._line(f"{name} = None")
        self._line(f"if {present} >= 0:")
        self._indent += "    "
        self._line(f"{name} = {self._struct(target)}")
        self._indent = self._indent[:-4]
        return name

    def _sized(self, kind: Kind, label: str, nullable: bool) -> str:
        size, name = self._length(LENGTH_CODES[kind]), self._name("v")
        source = "buf[p:q].decode()" if kind is Kind.STRING else "buf[p:q]"
        if kind is Kind.RECORDS:
            self._reads_records = True
            source = "view[p:q]"
        self._line(f"if {size} >= 0:")
        self._line(f"    q = p + {size}")
        self._line(f"    if q > end: raise too_short({label!r})")
        self._line(f"    {name} = {source}; p = q")
        self._line(f"else: {name} = None" if nullable else f"else: raise is_null({label!r})")
        return name

    def _array(self, cls: type, field: Field, label: str, nullable: bool) -> str:
        count, name = self._length("i"), self._name("v")
        item_size = self._item_size(cls, field)
        self._line(f"if {count} * {item_size} > end - p: raise too_short({label!r})")
        self._line(
            f"if {count} < 0: " + (f"{name} = None" if nullable else f"raise is_null({label!r})")
        )
        self._line("else:")
        self._indent += "    "
        if field.kind is Kind.STRUCT or field.kind in LENGTH_CODES:
            self._line(f"{name} = []")
            self._line(f"for _ in range({count}):")
            self._indent += "    "
            item = (
                self._struct(struct_type(cls, field))
                if field.kind is Kind.STRUCT
                else self._sized(field.kind, label, nullable=False)
            )
            self._line(f"{name}.append({item})")
            self._indent = self._indent[:-4]
        elif field.kind is Kind.UUID:
            self._line(f"q = p + {count} * 16")
            self._line(f"{name} = [buf[i:i + 16] for i in range(p, q, 16)]; p = q")
        else:
            code = field.kind.value
            self._line(f"{name} = list(unpack_from(f'>{{{count}}}{code}', buf, p))")
            self._line(f"p += {count} * {item_size}")
        self._indent = self._indent[:-4]
        return name

    def _item_size(self, cls: type, field: Field) -> int:
        """The fewest bytes an array item can take; never 0, which would leave counts unbounded."""
        if field.kind is Kind.STRUCT:
            return max(1, self._struct_size(struct_type(cls, field)))
        return self._scalar_size(field.kind)

    def _struct_size(self, cls: type) -> int:
        size = 1 if self._flexible else 0
        for field in schema_of(cls).fields:
            tagged = field.tag is not None and self._flexible
            if self._version not in field.versions or tagged:
                continue
            if field.is_array:
                size += 1 if self._flexible else 4
            elif field.kind is not Kind.STRUCT:
                size += self._scalar_size(field.kind)
            elif self._version in field.nullable:
                size += 1
            else:
                size += self._struct_size(struct_type(cls, field))
        return size

    def _scalar_size(self, kind: Kind) -> int:
        if kind in LENGTH_CODES:
            return 1 if self._flexible else CODE_SIZES[LENGTH_CODES[kind]]
        return FIXED_SIZES[kind]

    def _tags(self, cls: type, tagged: list[tuple[Field, str]]) -> None:
        """Reads known tags into their variables and steps over all others (KIP-482)."""
        count = self._name("n")
        if not tagged:
            self._run.append(("B", count))
            self._flush()
            self._line(f"if {count}: p = skip_tags(buf, p, {count}, end)")
            return
        self._uvarint(count)
        for field, name in tagged:
            self._line(f"{name} = {_default(field)}")
        tag, size, stop = self._name("k"), self._name("n"), self._name("q")
        self._line(f"for _ in range({count}):")
        self._indent += "    "
        self._uvarint(tag)
        self._uvarint(size)
        self._line(f"{stop} = p + {size}")
        self._line(f"if {stop} > end: raise too_short({cls.__qualname__!r})")
        for index, (field, name) in enumerate(tagged):
            self._line(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self._indent += "    "
            value = self._field(cls, field)
            self._flush()
            self._line(f"{name} = {value}")
            self._indent = self._indent[:-4]
        self._line(f"else: p = {stop}")
        self._line(f"if p != {stop}: raise ProtocolError('a tagged field has the wrong size')")
        self._indent = self._indent[:-4]


def _default(field: Field) -> str:
    return "[]" if field.has_list_default else repr(field.default)
