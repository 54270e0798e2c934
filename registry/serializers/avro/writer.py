"""Compiles a function that writes values of an Avro schema: Python source made from the schema and
the type of the values, so that a record costs a few operations a field and no look-ups. Pure.

The functions raise one of ``REFUSALS`` for a value that does not fit; ``faults.find_fault`` says
where.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ...schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from ..errors import UnsupportedType
from ..models import EnumOf, ListOf, MapOf, Model, RecordOf, Scalar, Style, UnionOf, Untyped
from . import values
from .binding import branches_of, fits, logical_for, mismatch, symbol_members
from .defaults import default_value
from .faults import choose_branch, without_hint
from .logical import logical_of

REFUSALS: Final = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error,
    RecursionError,
)  # fmt: skip
_INLINE_DEPTH: Final = 6

Write = Callable[[Any], bytes]


def compile_writer(root: AvroType, model: Model, prefix: bytes) -> Write:
    """A function from a value to ``prefix`` and its Avro bytes.

    ``bytes`` as the whole schema has no length before it, as Confluent's serializers have it.
    Raises UnsupportedType when values of ``model`` do not fit the schema.
    """
    writing = _Writing(root)
    if isinstance(root, PrimitiveType) and root.kind == "bytes" and logical_of(root) is None:
        return lambda value: prefix + values.as_bytes(value)
    return writing.compile(root, model, prefix)


class _Writing:
    def __init__(self, root: AvroType) -> None:
        self._names: dict[str, Any] = {
            "L": values.VARINTS,
            "far_long": values.far_long,
            "far_int": values.far_int,
            "double": values.pack_double,
            "float4": values.pack_float,
            "as_int": values.as_int,
            "as_float": values.as_float,
            "as_bytes": values.as_bytes,
            "as_list": values.as_list,
            "as_dict": values.as_dict,
            "as_map": values.as_map,
            "refuse": _refuse,
            "join": b"".join,
        }
        self._lines: list[str] = []
        self._indent = 1
        self._pending: list[str] = []
        self._functions: dict[tuple[int, int], str] = {}
        self._bodies: list[str] = []
        self._shared = shared_types(root)
        self._count = 0
        self._depth = 0

    def compile(self, root: AvroType, model: Model, prefix: bytes) -> Write:
        self._pending.append(self._constant(prefix))
        self._node(root, model, "v", "value")
        if self._lines and any(line.lstrip().startswith("p +=") for line in self._lines):
            self._flush()
            self._line("return join(p)")
            self._lines.insert(0, "    p = []")
        else:
            self._line(f"return join(({', '.join(self._pending)},))")
        source = "\n".join([*self._bodies, "def write(v):", *self._lines])
        exec(compile(source, "<avro writer>", "exec"), self._names)
        write: Write = self._names["write"]
        return write

    # lines

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """What is written inside comes in its own time: nothing may wait across the edges."""
        self._flush()
        self._line(head)
        self._indent += 1
        before = len(self._lines)
        yield
        self._flush()
        if len(self._lines) == before:
            self._line("pass")
        self._indent -= 1

    def _part(self, expression: str) -> None:
        self._pending.append(expression)

    def _flush(self) -> None:
        if self._pending:
            self._line(f"p += ({', '.join(self._pending)},)")
            self._pending = []

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _constant(self, value: Any) -> str:
        name = self._fresh("C")
        self._names[name] = value
        return name

    # types

    def _node(self, node: AvroType, model: Model, var: str, place: str) -> None:
        """Writes ``var``. Raises UnsupportedType."""
        if isinstance(model, UnionOf) and not isinstance(node, UnionType):
            raise mismatch(node, model, place)
        if not isinstance(node, UnionType) and not fits(node, model):
            raise mismatch(node, model, place)
        match node:
            case UnionType():
                self._union(node, model, var, place)
            case RecordType():
                self._record_or_call(node, model, var, place)
            case ArrayType():
                self._array(node, model, var, place)
            case MapType():
                self._map(node, model, var, place)
            case EnumType():
                self._enum(node, model, var)
            case _:
                self._scalar(node, model, var)

    def _scalar(self, node: PrimitiveType | FixedType, model: Model, var: str) -> None:
        logical = logical_for(node, model)
        raw = var
        if logical is not None:
            raw = self._fresh("y")
            self._line(f"{raw} = {self._constant(logical.encode)}({var})")
        elif isinstance(model, Untyped) and (logical := logical_of(node)) is not None:
            raw = self._fresh("y")
            cls, encode = self._constant(logical.cls), self._constant(logical.encode)
            self._line(f"{raw} = {encode}({var}) if isinstance({var}, {cls}) else {var}")
        if isinstance(node, FixedType):
            self._bytes(raw)
            self._line(f"if len({raw}) != {node.size}: refuse({var})")
            self._part(raw)
            return
        match node.kind:
            case "null":
                self._line(f"if {raw} is not None: refuse({var})")
            case "boolean":
                self._line(f"if {raw} is not True and {raw} is not False: refuse({var})")
                self._part(f"b'\\1' if {raw} else b'\\0'")
            case "int" | "long":
                raw = self._checked("int", raw)
                far = f"far_{node.kind}"
                self._part(f"L[{raw}] if -8192 <= {raw} < 8192 else {far}({raw})")
            case "float" | "double":
                raw = self._checked("float", raw)
                self._part(f"{'float4' if node.kind == 'float' else 'double'}({raw})")
            case "string":
                if isinstance(model, EnumOf):
                    self._line(f"{raw}_ = {raw}.value")
                    raw = f"{raw}_"
                text = self._fresh("s")
                self._line(f"{text} = {raw}.encode()")
                self._sized(text)
            case _:
                self._bytes(raw)
                self._sized(raw)

    def _checked(self, kind: str, var: str) -> str:
        """The value as an int or float exactly."""
        self._line(f"if type({var}) is not {kind}: {var} = as_{kind}({var})")
        return var

    def _bytes(self, var: str) -> None:
        self._line(f"if type({var}) is not bytes: {var} = as_bytes({var})")

    def _sized(self, var: str) -> None:
        size = self._fresh("n")
        self._line(f"{size} = len({var})")
        self._part(f"L[{size}] if {size} < 8192 else far_long({size})")
        self._part(var)

    def _enum(self, node: EnumType, model: Model, var: str) -> None:
        indexes: dict[Any, bytes] = {
            symbol: values.VARINTS[at] for at, symbol in enumerate(node.symbols)
        }
        if isinstance(model, EnumOf):
            members = symbol_members(model)
            indexes = {members[s]: data for s, data in indexes.items() if s in members}
        self._part(f"{self._constant(indexes)}[{var}]")

    def _array(self, node: ArrayType, model: Model, var: str, place: str) -> None:
        item = model.item if isinstance(model, ListOf) else Untyped()
        kind = model.make.__name__ if isinstance(model, ListOf) else "list"
        self._line(f"if type({var}) is not {kind}: {var} = as_list({var})")
        size = self._fresh("n")
        self._line(f"{size} = len({var})")
        with self._block(f"if {size}:"):
            self._part(f"L[{size}] if {size} < 8192 else far_long({size})")
            each = self._fresh("x")
            with self._block(f"for {each} in {var}:"):
                self._node(node.items, item, each, f"{place}[]")
        self._part("b'\\0'")

    def _map(self, node: MapType, model: Model, var: str, place: str) -> None:
        inner = model.value if isinstance(model, MapOf) else Untyped()
        self._line(f"if type({var}) is not dict: {var} = as_map({var})")
        size = self._fresh("n")
        self._line(f"{size} = len({var})")
        with self._block(f"if {size}:"):
            self._part(f"L[{size}] if {size} < 8192 else far_long({size})")
            key, each = self._fresh("k"), self._fresh("x")
            with self._block(f"for {key}, {each} in {var}.items():"):
                text = self._fresh("s")
                self._line(f"{text} = {key}.encode()")
                self._sized(text)
                self._node(node.values, inner, each, f"{place}{{}}")
        self._part("b'\\0'")

    # records

    def _record_or_call(self, node: RecordType, model: Model, var: str, place: str) -> None:
        """Inline, or in a function of its own when it is recursive, used twice or nested deep."""
        if id(node) not in self._shared and self._depth < _INLINE_DEPTH:
            self._record(node, model, var, place)
            return
        key = id(node), id(model) if isinstance(model, RecordOf) else 0
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = self._fresh("write_record")
            saved = self._lines, self._indent, self._pending, self._depth
            self._lines, self._indent, self._pending, self._depth = [], 1, [], 0
            self._record(node, model, "v", place)
            self._flush()
            body = self._lines or ["    pass"]
            self._bodies.append("\n".join([f"def {name}(v, p):", *body]))
            self._lines, self._indent, self._pending, self._depth = saved
        self._flush()
        self._line(f"{name}({var}, p)")

    def _record(self, node: RecordType, model: Model, var: str, place: str) -> None:
        self._depth += 1
        if isinstance(model, RecordOf):
            self._typed(node, model, var, place)
        else:
            self._mapping(node, var, place)
        self._depth -= 1

    def _typed(self, node: RecordType, model: RecordOf, var: str, place: str) -> None:
        for field in node.fields:
            mine = model.field(field.name)
            where = f"{place}.{field.name}"
            each = self._fresh("x")
            if mine is None:
                if not field.has_default:
                    raise UnsupportedType(
                        f"{where}: {model.name} has no such field, and the schema no default"
                    )
                default = self._constant(default_value(field.type, field.default))
                self._line(f"{each} = {default}")
                self._node(field.type, Untyped(), each, where)
                continue
            if model.style is not Style.ITEMS:
                self._line(f"{each} = {var}.{mine.attribute}")
            elif mine.may_miss:
                self._line(f"{each} = {var}.get({mine.attribute!r})")
            else:
                self._line(f"{each} = {var}[{mine.attribute!r}]")
            self._node(
                field.type, _or_none(mine.model) if mine.may_miss else mine.model, each, where
            )

    def _mapping(self, node: RecordType, var: str, place: str) -> None:
        self._line(f"if type({var}) is not dict: {var} = as_dict({var})")
        names = frozenset(field.name for field in node.fields)
        if any(field.has_default for field in node.fields):
            self._line(f"if not {self._constant(names)} >= {var}.keys(): refuse({var})")
        else:
            self._line(f"if len({var}) != {len(names)}: refuse({var})")
        for field in node.fields:
            each = self._fresh("x")
            if field.has_default:
                default = self._constant(default_value(field.type, field.default))
                self._line(f"{each} = {var}.get({field.name!r}, {default})")
            else:
                self._line(f"{each} = {var}[{field.name!r}]")
            self._node(field.type, Untyped(), each, f"{place}.{field.name}")

    # unions

    def _union(self, node: UnionType, model: Model, var: str, place: str) -> None:
        choices = branches_of(node, model)
        others = [choice for choice in choices if choice[1].kind != "null"]
        null = next((at for at, branch, _ in choices if branch.kind == "null"), None)
        if isinstance(model, Untyped):
            without = self._constant(without_hint)
            self._line(f"if type({var}) is tuple: {var} = {without}({self._constant(node)}, {var})")
        if null is not None and len(others) == 1:
            at, branch, member = others[0]
            with self._block(f"if {var} is None:"):
                self._part(repr(values.VARINTS[null]))
            with self._block("else:"):
                self._part(repr(values.VARINTS[at]))
                self._node(branch, member, var, place)
            return
        if len(choices) == 1:
            at, branch, member = choices[0]
            self._part(repr(values.VARINTS[at]))
            self._node(branch, member, var, place)
            return
        index = self._fresh("k")
        quick = self._constant(_by_class(choices))
        self._line(f"{index} = {quick}.get(type({var}), -1)")
        if isinstance(model, Untyped):
            choose = self._constant(choose_branch)
            self._line(f"if {index} < 0: {index}, {var} = {choose}({self._constant(node)}, {var})")
        word = "if"
        for at, branch, member in choices:
            with self._block(f"{word} {index} == {at}:"):
                self._part(repr(values.VARINTS[at]))
                self._node(branch, member, var, place)
            word = "elif"
        with self._block("else:"):
            self._line(f"refuse({var})")


def _by_class(choices: list[tuple[int, AvroType, Model]]) -> dict[type, int]:
    """The branch for values of a class, where the class decides."""
    found: dict[type, list[int]] = {}
    for at, branch, member in choices:
        for cls in _classes(branch, member):
            found.setdefault(cls, []).append(at)
    return {cls: places[0] for cls, places in found.items() if len(set(places)) == 1}


def _classes(branch: AvroType, model: Model) -> list[type]:
    match model:
        case Scalar() | EnumOf() | RecordOf():
            return [model.cls]
        case ListOf():
            return [list, tuple, set, frozenset]
        case MapOf():
            return [dict]
    logical = logical_of(branch)
    also = [logical.cls] if logical is not None else []
    by_kind: dict[str, list[type]] = {
        "null": [type(None)],
        "boolean": [bool],
        "int": [int],
        "long": [int],
        "float": [float, int],
        "double": [float, int],
        "string": [str],
        "enum": [str],
        "bytes": [bytes],
        "fixed": [bytes],
        "array": [list],
        "map": [dict],
        "record": [dict],
    }
    return by_kind[branch.kind] + also


def _or_none(model: Model) -> Model:
    return UnionOf((Scalar(type(None)), model))


def _refuse(value: Any) -> None:
    raise TypeError(value)


def shared_types(root: AvroType) -> set[int]:
    """Ids of the record types that are met more than once: they are recursive, or used twice."""
    counts: Counter[int] = Counter()
    pending: list[AvroType] = [root]
    while pending:
        node = pending.pop()
        match node:
            case RecordType():
                counts[id(node)] += 1
                if counts[id(node)] == 1:
                    pending += [field.type for field in node.fields]
            case ArrayType():
                pending.append(node.items)
            case MapType():
                pending.append(node.values)
            case UnionType():
                pending += node.branches
            case _:
                continue
    return {number for number, count in counts.items() if count > 1}
