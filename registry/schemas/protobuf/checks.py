"""What makes a ``.proto`` file wrong although it can be read and all its names are known.

Source: the checks of protoc. ``google.protobuf`` repeats some of them when a descriptor is loaded,
but neither all nor with a place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise

from ..schema import InvalidSchema
from .parser import EnumProto, Field, FileProto, MessageProto

_IMPLEMENTATION_NUMBERS = range(19_000, 20_000)
_MAP_KEYS = frozenset(
    {
        Field.TYPE_INT32,
        Field.TYPE_INT64,
        Field.TYPE_UINT32,
        Field.TYPE_UINT64,
        Field.TYPE_SINT32,
        Field.TYPE_SINT64,
        Field.TYPE_FIXED32,
        Field.TYPE_FIXED64,
        Field.TYPE_SFIXED32,
        Field.TYPE_SFIXED64,
        Field.TYPE_BOOL,
        Field.TYPE_STRING,
    }
)
_NOT_PACKABLE = frozenset(
    {Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE, Field.TYPE_GROUP}
)
_PROTO3_OPTIONS = frozenset(
    f"google.protobuf.{kind}Options"
    for kind in (
        "File", "Message", "Field", "Oneof", "ExtensionRange", "Enum", "EnumValue", "Service",
        "Method",
    )
)  # fmt: skip


def check_file(file: FileProto, enums: Mapping[str, EnumProto]) -> None:
    """Raises ``InvalidSchema`` naming the message, field or enum.

    ``file`` is linked; ``enums`` are all enums its fields may have, by full name.
    """
    scope = file.package
    names: list[str] = [one.name for one in file.message_type]
    names += [value.name for enum in file.enum_type for value in enum.value]
    names += [one.name for one in file.enum_type]
    names += [one.name for one in file.service]
    names += [one.name for one in file.extension]
    _unique(names, scope or "file")
    checker = _Checker(file.syntax, enums)
    for message in file.message_type:
        checker.message(message, _join(scope, message.name))
    for enum in file.enum_type:
        checker.enum(enum, _join(scope, enum.name))
    for field in file.extension:
        checker.extension(field, scope)
    for service in file.service:
        _unique([method.name for method in service.method], _join(scope, service.name))


class _Checker:
    def __init__(self, syntax: str, enums: Mapping[str, EnumProto]) -> None:
        self._is_proto3 = syntax == "proto3"
        self._enums = enums

    def message(self, message: MessageProto, path: str) -> None:
        names = [field.name for field in message.field]
        names += [one.name for one in message.oneof_decl]
        names += [one.name for one in message.nested_type]
        names += [one.name for one in message.enum_type]
        names += [value.name for enum in message.enum_type for value in enum.value]
        names += [one.name for one in message.extension]
        _unique(names, path)
        self._numbers(message, path)
        for field in message.field:
            self._field(field, _join(path, field.name))
        for field in message.extension:
            self.extension(field, path)
        if self._is_proto3 and message.extension_range:
            raise InvalidSchema("extension ranges are not allowed in proto3", path)
        for nested in message.nested_type:
            self.message(nested, _join(path, nested.name))
            if nested.options.map_entry and nested.field[0].type not in _MAP_KEYS:
                raise InvalidSchema("a map key is an integer, a bool or a string", path)
        for enum in message.enum_type:
            self.enum(enum, _join(path, enum.name))

    def _numbers(self, message: MessageProto, path: str) -> None:
        taken: dict[int, str] = {}
        reserved = _Ranges((one.start, one.end) for one in message.reserved_range)
        extensions = _Ranges((one.start, one.end) for one in message.extension_range)
        _Ranges([*reserved.ranges, *extensions.ranges]).check(path)
        names = set(message.reserved_name)
        for field in message.field:
            where = _join(path, field.name)
            number = field.number
            if number in taken:
                raise InvalidSchema(f"number {number} is also that of {taken[number]!r}", where)
            taken[number] = field.name
            if field.name in names:
                raise InvalidSchema("name is reserved", where)
            if number in reserved:
                raise InvalidSchema(f"number {number} is reserved", where)
            if number in extensions:
                raise InvalidSchema(f"number {number} is one of an extension", where)

    def _field(self, field: Field, path: str) -> None:
        if field.options.packed and not _is_packable(field):
            raise InvalidSchema("only repeated numbers can be packed", path)
        if field.number in _IMPLEMENTATION_NUMBERS:
            raise InvalidSchema("numbers 19000 to 19999 are protobuf's own", path)
        if self._is_proto3:
            if field.label == Field.LABEL_REQUIRED:
                raise InvalidSchema("required is not allowed in proto3", path)
            if field.type == Field.TYPE_GROUP:
                raise InvalidSchema("groups are not allowed in proto3", path)
            if field.HasField("default_value"):
                raise InvalidSchema("default values are not allowed in proto3", path)
        if field.HasField("default_value"):
            self._default(field, path)

    def _default(self, field: Field, path: str) -> None:
        text = field.default_value
        if field.label == Field.LABEL_REPEATED or field.type in (
            Field.TYPE_MESSAGE,
            Field.TYPE_GROUP,
        ):
            raise InvalidSchema("this field cannot have a default value", path)
        if field.type == Field.TYPE_ENUM:
            enum = self._enums.get(field.type_name)
            if enum is not None and all(value.name != text for value in enum.value):
                raise InvalidSchema(f"default {text[:40]!r} is no value of the enum", path)
        elif field.type == Field.TYPE_BOOL and text not in ("true", "false"):
            raise InvalidSchema("default of a bool is true or false", path)

    def extension(self, field: Field, path: str) -> None:
        where = _join(path, field.name)
        if field.label == Field.LABEL_REQUIRED:
            raise InvalidSchema("an extension cannot be required", where)
        if self._is_proto3 and field.extendee.removeprefix(".") not in _PROTO3_OPTIONS:
            raise InvalidSchema("proto3 extends options only", where)
        self._field(field, where)

    def enum(self, enum: EnumProto, path: str) -> None:
        if not enum.value:
            raise InvalidSchema("enum has no value", path)
        if self._is_proto3 and enum.value[0].number != 0:
            raise InvalidSchema("the first value of a proto3 enum is 0", path)
        reserved = _Ranges((one.start, one.end + 1) for one in enum.reserved_range)
        reserved.check(path)
        names = set(enum.reserved_name)
        taken: dict[int, str] = {}
        for value in enum.value:
            where = _join(path, value.name)
            if value.number in taken and not enum.options.allow_alias:
                raise InvalidSchema(f"number is also that of {taken[value.number]!r}", where)
            taken[value.number] = value.name
            if value.name in names:
                raise InvalidSchema("name is reserved", where)
            if value.number in reserved:
                raise InvalidSchema(f"number {value.number} is reserved", where)


def _is_packable(field: Field) -> bool:
    return field.label == Field.LABEL_REPEATED and field.type not in _NOT_PACKABLE


def _unique(names: Iterable[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidSchema(f"{name!r} is defined twice", path)
        seen.add(name)


class _Ranges:
    """Ranges of numbers, ends exclusive."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges = sorted(ranges)
        self._starts = [start for start, _ in self.ranges]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self.ranges[index][1]

    def check(self, path: str) -> None:
        """Raises ``InvalidSchema`` if two of them overlap."""
        for (_, end), (start, _) in pairwise(self.ranges):
            if start < end:
                raise InvalidSchema(f"ranges overlap at {start}", path)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
