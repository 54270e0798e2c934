"""Compiles a function that reads data of one Avro schema as values of another: schema resolution is
done once, when the function is made, and costs nothing per record. Pure.

Source: the Avro specification, "Schema Resolution"; names of named types are compared without their
namespaces, as Java's and Confluent's do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ...schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    UnionType,
    describe,
)
from ..errors import UnsupportedType
from ..models import (
    UNTYPED,
    EnumOf,
    ListOf,
    MapOf,
    Model,
    RecordOf,
    Scalar,
    Style,
    UnionOf,
    Untyped,
)
from . import values
from .binding import fits, is_zero_sized, logical_for, model_for_branch, symbol_members
from .defaults import default_value
from .logical import Logical, logical_of
from .writer import compile_writer, shared_types

UNREADABLE: Final = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error,
    RecursionError,
)  # fmt: skip
_INLINE_DEPTH: Final = 4
_MAX_EMPTY_ITEMS: Final = 1 << 20
_PROMOTIONS: Final = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}

Read = Callable[[bytes, int], Any]


def compile_reader(writer: AvroType, reader: AvroType, model: Model) -> Read:
    """A function from data and where its Avro bytes begin to a value of ``reader`` and ``model``.

    The bytes must end where the data ends. What the reader's schema cannot take is found where it
    occurs: data without it still reads. The function raises one of ``UNREADABLE``.
    """
    read = _Reading(writer, reader).compile(writer, reader, model)
    if isinstance(writer, PrimitiveType) and writer.kind == "bytes" and logical_of(writer) is None:
        # bytes as the whole schema have no length before them, as Confluent's serializers have it
        return lambda data, at: read(values.far_long(len(data) - at) + data[at:], 0)
    return read


class _Reading:
    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self._names: dict[str, Any] = {
            "SIZES": values.SIZES,
            "NUMBERS": values.NUMBERS,
            "long_at": values.long_at,
            "int_at": values.int_at,
            "size_at": values.size_at,
            "count_at": values.count_at,
            "double_at": values.double_at,
            "float_at": values.float_at,
            "unreadable": values.unreadable,
        }
        self._shared = shared_types(writer) | shared_types(reader)
        self._lines: list[str] = []
        self._indent = 1
        self._depth = 0
        self._functions: dict[tuple[int, int, int], str] = {}
        self._bodies: list[str] = []
        self._count = 0

    def compile(self, writer: AvroType, reader: AvroType, model: Model) -> Read:
        found = self._value(writer, reader, model)
        self._line("if i != len(d): unreadable(f'{len(d) - i} bytes after its end')")
        self._line(f"return {found}")
        source = "\n".join([*self._bodies, "def read(d, i):", *self._lines])
        exec(compile(source, "<avro reader>", "exec"), self._names)
        read: Read = self._names["read"]
        return read

    # lines

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(head)
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self._line("pass")
        self._indent -= 1

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _constant(self, value: Any) -> str:
        name = self._fresh("C")
        self._names[name] = value
        return name

    # values: each returns the expression that holds what was read

    def _value(self, writer: AvroType, reader: AvroType | None, model: Model) -> str:
        """``reader`` None: read past it."""
        if isinstance(writer, UnionType):
            return self._from_union(writer, reader, model)
        if isinstance(reader, UnionType):
            branch = matching_branch(writer, reader)
            if branch is None:
                return self._unreadable(writer, reader)
            return self._value(writer, branch, _member(branch, model))
        if reader is not None and not matches(writer, reader):
            return self._unreadable(writer, reader)
        if isinstance(model, UnionOf) and reader is not None:
            model = _member(reader, model)
        if reader is not None and not fits(reader, model):
            raise UnsupportedType(f"the type of the values does not fit {describe(reader)}")
        match writer:
            case RecordType():
                return self._record_or_call(writer, reader, model)
            case ArrayType():
                return self._array(writer, reader, model)
            case MapType():
                return self._map(writer, reader, model)
            case EnumType():
                return self._enum(writer, reader, model)
            case _:
                return self._scalar(writer, reader, model)

    def _unreadable(self, writer: AvroType, reader: AvroType) -> str:
        reason = f"it holds {describe(writer)}, which cannot be read as {describe(reader)}"
        self._line(f"unreadable({reason!r})")
        return "None"

    def _size(self) -> str:
        """A length or index."""
        size = self._fresh("n")
        self._line(f"{size} = SIZES[d[i]]")
        self._line(f"if {size} >= 0: i += 1")
        self._line(f"else: {size}, i = size_at(d, i)")
        return size

    def _chunk(self, size: str | int) -> str:
        """Bytes of a length; running over the end is noticed at the end."""
        end, chunk = self._fresh("e"), self._fresh("b")
        self._line(f"{end} = i + {size}")
        self._line(f"{chunk} = d[i:{end}]")
        self._line(f"i = {end}")
        return chunk

    def _scalar(
        self, writer: PrimitiveType | FixedType, reader: AvroType | None, model: Model
    ) -> str:
        raw = self._raw(writer)
        if reader is None:
            return raw
        logical = _conversion(writer, reader, model)
        if logical is not None and logical_of(writer) is logical:
            return self._converted(raw, logical)
        if writer.kind in ("int", "long") and reader.kind in ("float", "double"):
            raw = f"float({raw})"
        elif writer.kind == "string" and reader.kind == "bytes":
            raw = f"{raw}.encode()"
        elif writer.kind == "bytes" and reader.kind == "string":
            raw = f"{raw}.decode()"
        return raw if logical is None else self._converted(raw, logical)

    def _converted(self, raw: str, logical: Logical) -> str:
        value = self._fresh("x")
        self._line(f"{value} = {self._constant(logical.decode)}({raw})")
        return value

    def _raw(self, node: PrimitiveType | FixedType) -> str:
        if isinstance(node, FixedType):
            return self._chunk(node.size)
        value = self._fresh("x")
        match node.kind:
            case "null":
                return "None"
            case "boolean":
                self._line(f"{value} = (False, True)[d[i]]; i += 1")
            case "int" | "long":
                self._line(f"{value} = NUMBERS[d[i]]")
                self._line(f"if {value} is None: {value}, i = {node.kind}_at(d, i)")
                self._line("else: i += 1")
            case "float":
                self._line(f"{value}, = float_at(d, i); i += 4")
            case "double":
                self._line(f"{value}, = double_at(d, i); i += 8")
            case "string":
                self._line(f"{value} = {self._chunk(self._size())}.decode()")
            case _:
                return self._chunk(self._size())
        return value

    def _enum(self, writer: EnumType, reader: AvroType | None, model: Model) -> str:
        index = self._size()
        if not isinstance(reader, EnumType):
            return "None"
        members = symbol_members(model) if isinstance(model, EnumOf) else {}
        found: list[Any] = []
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.default
            found.append(members.get(known, None if members else known) if known else None)
        value = self._fresh("x")
        self._line(f"{value} = {self._constant(tuple(found))}[{index}]")
        if None in found:
            symbols = self._constant(tuple(writer.symbols))
            reason = f" is no symbol of {reader.name.full}"
            self._line(f"if {value} is None: unreadable({symbols}[{index}] + {reason!r})")
        return value

    def _items(self, item: AvroType) -> str:
        """The head of a loop over blocks; what follows reads one item."""
        count = self._fresh("n")
        bound = str(_MAX_EMPTY_ITEMS) if is_zero_sized(item) else "len(d) - i"
        self._line(f"{count} = SIZES[d[i]]")
        self._line(f"if {count} >= 0: i += 1")
        self._line(f"else: {count}, i = count_at(d, i, {bound})")
        return count

    def _array(self, writer: ArrayType, reader: AvroType | None, model: Model) -> str:
        found, add = self._fresh("x"), self._fresh("a")
        item = model.item if isinstance(model, ListOf) else UNTYPED
        self._line(f"{found} = []")
        self._line(f"{add} = {found}.append")
        count = self._items(writer.items)
        with self._block(f"while {count}:"):
            with self._block(f"for _ in range({count}):"):
                inner = reader.items if isinstance(reader, ArrayType) else None
                each = self._value(writer.items, inner, item)
                if reader is not None:
                    self._line(f"{add}({each})")
            again = self._items(writer.items)
            self._line(f"{count} = {again}")
        if isinstance(model, ListOf) and model.make is not list:
            return f"{model.make.__name__}({found})"
        return found

    def _map(self, writer: MapType, reader: AvroType | None, model: Model) -> str:
        found, key = self._fresh("x"), self._fresh("k")
        inner_model = model.value if isinstance(model, MapOf) else UNTYPED
        self._line(f"{found} = {{}}")
        text = PrimitiveType("string", {})
        count = self._items(text)
        with self._block(f"while {count}:"):
            with self._block(f"for _ in range({count}):"):
                self._line(f"{key} = {self._chunk(self._size())}.decode()")
                inner = reader.values if isinstance(reader, MapType) else None
                each = self._value(writer.values, inner, inner_model)
                if reader is not None:
                    self._line(f"{found}[{key}] = {each}")
            again = self._items(text)
            self._line(f"{count} = {again}")
        return found

    def _from_union(self, writer: UnionType, reader: AvroType | None, model: Model) -> str:
        index, value = self._size(), self._fresh("u")
        word = "if"
        for at, branch in enumerate(writer.branches):
            with self._block(f"{word} {index} == {at}:"):
                self._line(f"{value} = {self._value(branch, reader, model)}")
            word = "elif"
        with self._block("else:"):
            self._line(f"unreadable(f'branch {{{index}}} of a union of {len(writer.branches)}')")
        return value

    # records

    def _record_or_call(self, writer: RecordType, reader: AvroType | None, model: Model) -> str:
        if self._depth < _INLINE_DEPTH and id(writer) not in self._shared:
            return self._record(writer, reader, model)
        key = id(writer), id(reader), id(model) if isinstance(model, RecordOf) else 0
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = self._fresh("read_record")
            saved = self._lines, self._indent, self._depth
            self._lines, self._indent, self._depth = [], 1, 0
            found = self._record(writer, reader, model)
            self._line(f"return {found}, i")
            self._bodies.append("\n".join([f"def {name}(d, i):", *self._lines]))
            self._lines, self._indent, self._depth = saved
        value = self._fresh("x")
        self._line(f"{value}, i = {name}(d, i)")
        return value

    def _record(self, writer: RecordType, reader: AvroType | None, model: Model) -> str:
        self._depth += 1
        given: dict[str, str] = {}
        for field in writer.fields:
            target = field_for(field, reader) if isinstance(reader, RecordType) else None
            if target is None:
                self._value(field.type, None, UNTYPED)
                continue
            inner = _field_model(target, model)
            found = self._value(
                field.type, target.type if inner is not None else None, inner or UNTYPED
            )
            if inner is not None:
                given[target.name] = self._kept(found)
        self._depth -= 1
        if not isinstance(reader, RecordType):
            return "None"
        return self._made(reader, model, given)

    def _kept(self, expression: str) -> str:
        """In a name of its own: expressions may make something anew each time."""
        if expression.isidentifier():
            return expression
        name = self._fresh("x")
        self._line(f"{name} = {expression}")
        return name

    def _made(self, reader: RecordType, model: Model, given: dict[str, str]) -> str:
        for field in reader.fields:
            inner = _field_model(field, model)
            if field.name not in given and inner is not None:
                given[field.name] = self._default(reader, field, inner)
        names = {field.name: field.name for field in reader.fields}
        if isinstance(model, RecordOf):
            names = {field.name: field.attribute for field in model.fields}
            missing = [f for f in model.fields if f.name not in given and f.make_default is None]
            for one in missing:
                if not one.may_miss:
                    raise UnsupportedType(
                        f"{model.name}.{one.attribute} is no field of {describe(reader)} and has "
                        "no default"
                    )
        value = self._fresh("r")
        shown = [(names[name], found) for name, found in given.items()]
        if isinstance(model, RecordOf) and model.style is not Style.ITEMS:
            cls = self._constant(model.cls)
            arguments = ", ".join(f"{name}={found}" for name, found in shown)
            if model.style is Style.VALIDATED:
                arguments = ", ".join(f"{name!r}: {found}" for name, found in shown)
                self._line(f"{value} = {cls}.model_validate({{{arguments}}})")
            else:
                self._line(f"{value} = {cls}({arguments})")
            return value
        pairs = ", ".join(f"{name!r}: {found}" for name, found in shown)
        self._line(f"{value} = {{{pairs}}}")
        for mine in model.fields if isinstance(model, RecordOf) else ():
            if mine.may_miss and mine.name in given:
                name = mine.attribute
                self._line(f"if {value}[{name!r}] is None: del {value}[{name!r}]")
        return value

    def _default(self, reader: RecordType, field: Field, model: Model) -> str:
        """A default goes through the reader itself, so that it is what any other value is."""
        if not field.has_default:
            reason = f"it has no {field.name!r}, for which {describe(reader)} has no default"
            self._line(f"unreadable({reason!r})")
            return "None"
        data = compile_writer(field.type, UNTYPED, b"")(default_value(field.type, field.default))
        read = compile_reader(field.type, field.type, model)
        value = read(data, 0)
        if isinstance(value, str | int | float | bytes | bool | None):
            return self._constant(value)
        return f"{self._constant(read)}({self._constant(data)}, 0)"


def _conversion(
    writer: PrimitiveType | FixedType, reader: AvroType, model: Model
) -> Logical | None:
    """The logical type that says what the number means: the writer's, which knows its unit, where
    both stand for the same class, else the reader's."""
    mine = logical_of(reader) if isinstance(model, Untyped) else logical_for(reader, model)
    theirs = logical_of(writer)
    if isinstance(model, Untyped) and mine is None:
        return theirs if writer.kind == reader.kind else None
    if mine is None:
        return None
    return theirs if theirs is not None and theirs.cls is mine.cls else mine


def _field_model(field: Field, model: Model) -> Model | None:
    """The model of a record's field; None when the type has no such field."""
    if not isinstance(model, RecordOf):
        return UNTYPED
    mine = model.field(field.name)
    if mine is None:
        return None
    if mine.may_miss:
        return UnionOf((Scalar(type(None)), mine.model))
    return mine.model


def _member(branch: AvroType, model: Model) -> Model:
    member = model_for_branch(branch, model)
    if member is None:
        raise UnsupportedType(f"the type of the values has nothing for {describe(branch)}")
    return member


def field_for(field: Field, reader: RecordType) -> Field | None:
    """The reader's field that a writer's field is for, by name first, then by alias."""
    for target in reader.fields:
        if target.name == field.name:
            return target
    written = field.name
    return next((target for target in reader.fields if written in target.aliases), None)


def matches(writer: AvroType, reader: AvroType) -> bool:
    """Whether data of ``writer`` is read as ``reader``, looking at kinds and names only."""
    if isinstance(writer, RecordType | EnumType | FixedType):
        if type(writer) is not type(reader) or not _same_name(writer, reader):
            return False
        return not isinstance(writer, FixedType) or writer.size == reader.size  # type: ignore[union-attr]
    return writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())


def _same_name(writer: NamedType, reader: AvroType) -> bool:
    if not isinstance(reader, RecordType | EnumType | FixedType):
        return False
    if writer.name.short == reader.name.short:
        return True
    return any(alias.full == writer.name.full for alias in reader.aliases)


def matching_branch(writer: AvroType, reader: UnionType) -> AvroType | None:
    """The branch of ``reader`` that data of ``writer`` is read as: one of its own kind and name
    before those it is promoted to."""
    candidates = [branch for branch in reader.branches if matches(writer, branch)]
    exact = [branch for branch in candidates if branch.kind == writer.kind]
    if len(exact) > 1 and isinstance(writer, RecordType | EnumType | FixedType):
        named = [
            branch
            for branch in exact
            if isinstance(branch, RecordType | EnumType | FixedType)
            and branch.name.full == writer.name.full
        ]
        exact = [*named] or exact
    return next(iter(exact or candidates), None)
