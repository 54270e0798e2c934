"""``option`` statements and bracketed option lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from .cursor import Cursor, number_of
from .lexer import Kind, Token
from .printer import quoted

_INT_LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_MAX_AGGREGATE_DEPTH = 50

UninterpretedOption = descriptor_pb2.UninterpretedOption


Assignment = tuple[Token, UninterpretedOption]
"""An option as read, with the token it begins at."""


def read_assignment(cursor: Cursor) -> Assignment:
    """Reads ``name = value`` without looking into it; an aggregate value is kept as text."""
    start = cursor.token
    option = UninterpretedOption()
    _read_name(cursor, option)
    cursor.expect("=")
    if cursor.sees("{"):
        option.aggregate_value = _aggregate(cursor)
    else:
        _read_constant(cursor, option)
    return start, option


def read_bracketed(cursor: Cursor) -> list[Assignment]:
    """Reads ``[a = 1, (b).c = "x"]``, if it comes next."""
    found: list[Assignment] = []
    if cursor.take("["):
        found.append(read_assignment(cursor))
        while not cursor.take("]"):
            cursor.expect(",")
            found.append(read_assignment(cursor))
    return found


def apply_options(cursor: Cursor, options: Message, found: Iterable[Assignment]) -> None:
    """Sets the options ``descriptor.proto`` knows; custom ones become ``uninterpreted_option``."""
    for start, option in found:
        if not _interpret(option, options, cursor, start):
            kept: Message = options.uninterpreted_option.add()  # type: ignore[attr-defined]
            kept.CopyFrom(option)


def plain_name(option: UninterpretedOption) -> str:
    """The name of an option that is no extension: ``default``, ``features.field_presence``."""
    if any(part.is_extension for part in option.name):
        return ""
    return ".".join(part.name_part for part in option.name)


def _read_name(cursor: Cursor, option: UninterpretedOption) -> None:
    while True:
        if cursor.take("("):
            option.name.add(name_part=cursor.dotted(), is_extension=True)
            cursor.expect(")")
        else:
            option.name.add(name_part=cursor.ident(), is_extension=False)
        if not cursor.take("."):
            return


def _read_constant(cursor: Cursor, option: UninterpretedOption) -> None:
    negative = cursor.take("-")
    if not negative:
        cursor.take("+")
    token = cursor.token
    if token.kind is Kind.INT:
        value = number_of(cursor.next(), cursor)
        if value >= 1 << 64 or (negative and value > 1 << 63):
            raise cursor.fail("number is too large", token)
        if negative:
            option.negative_int_value = -value
        else:
            option.positive_int_value = value
    elif token.kind is Kind.FLOAT:
        value_ = float(cursor.next().text.rstrip("fF"))
        option.double_value = -value_ if negative else value_
    elif token.kind is Kind.IDENT and negative and token.text in ("inf", "nan"):
        option.double_value = -float(cursor.next().text)
    elif token.kind is Kind.IDENT and not negative:
        option.identifier_value = cursor.ident()
    elif token.kind is Kind.STRING and not negative:
        option.string_value = cursor.string()
    else:
        raise cursor.fail("an option needs a value")


def _aggregate(cursor: Cursor) -> str:
    """The text between braces, tokens separated by single spaces."""
    parts: list[str] = []
    depth = 0
    while True:
        token = cursor.next()
        depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind is Kind.SYMBOL else 0
        if depth > _MAX_AGGREGATE_DEPTH:
            raise cursor.fail("option nests too deep", token)
        if depth == 0:
            return " ".join(parts[1:])
        parts.append(quoted(token.value) if token.kind is Kind.STRING else token.text)


def _interpret(option: UninterpretedOption, options: Message, cursor: Cursor, at: Token) -> bool:
    """Sets a field of ``options``; False for a custom option. Raises for a value that is wrong."""
    if any(part.is_extension for part in option.name):
        return False
    target = options
    *path, last = (part.name_part for part in option.name)
    for name in path:
        field = _field(target, name)
        if field is None or field.message_type is None or field.is_repeated:
            raise cursor.fail(f"option {name} is not known", at)
        target = getattr(target, name)
    field = _field(target, last)
    if field is None:
        raise cursor.fail(f"option {last} is not known", at)
    if field.message_type is not None or option.HasField("aggregate_value"):
        return False
    value = _value(field, option)
    if value is None:
        raise cursor.fail(f"option {last} cannot have this value", at)
    if field.is_repeated:
        getattr(target, last).append(value)
    else:
        setattr(target, last, value)
    return True


def _field(options: Message, name: str) -> FieldDescriptor | None:
    if name == "uninterpreted_option":
        return None
    # the stubs have two classes of this name
    return cast("FieldDescriptor | None", options.DESCRIPTOR.fields_by_name.get(name))


def _value(
    field: FieldDescriptor, option: UninterpretedOption
) -> bool | int | float | str | bytes | None:
    kind = field.cpp_type
    if field.enum_type is not None:
        number = field.enum_type.values_by_name.get(option.identifier_value)
        return None if number is None else number.number
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return {"true": True, "false": False}.get(option.identifier_value)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if not option.HasField("string_value"):
            return None
        try:
            return option.string_value.decode()
        except UnicodeDecodeError:
            return None
    if kind in _INT_LIMITS:
        low, high = _INT_LIMITS[kind]
        for member in ("positive_int_value", "negative_int_value"):
            if option.HasField(member) and low <= int(getattr(option, member)) <= high:
                return int(getattr(option, member))
    return None
