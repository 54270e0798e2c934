"""Custom options of a parsed file, written as protoc writes them into a descriptor.

The reverse of ``custom_options``: the parser keeps a custom option as it was read; whoever loads
the descriptor expects it as a field of the options message, by the extension that defines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from google.protobuf import descriptor_pb2, message_factory, text_encoding, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from .parser import EnumProto, Field, FileProto, MessageProto

UninterpretedOption = descriptor_pb2.UninterpretedOption
Scoped: TypeAlias = tuple[Message, str]
"""An options message, and the scope in which the names of its options are looked for."""


def with_serialized_options(file: FileProto, pool: DescriptorPool) -> FileProto:
    """A copy of ``file``; ``pool`` knows it and what it imports.

    An option that nobody defines, or whose value does not fit its definition, is left out.
    """
    copy = FileProto()
    copy.CopyFrom(file)
    writer = _Writer(pool)
    for options, scope in options_of(copy):
        writer.write(options, scope)
    return copy


def has_custom_options(file: FileProto) -> bool:
    return any(_uninterpreted(options) for options, _ in options_of(file))


def _uninterpreted(options: Message) -> list[UninterpretedOption]:
    return list(options.uninterpreted_option)  # type: ignore[attr-defined]


def options_of(file: FileProto) -> Iterator[Scoped]:
    """Every options message of a file, those of map entries included."""
    scope = file.package
    yield file.options, scope
    yield from _of_fields(file.extension, scope)
    for message in file.message_type:
        yield from _of_message(message, scope)
    for enum in file.enum_type:
        yield from _of_enum(enum, scope)
    for service in file.service:
        inner = _join(scope, service.name)
        yield service.options, inner
        for method in service.method:
            yield method.options, inner


def _of_message(message: MessageProto, scope: str) -> Iterator[Scoped]:
    inner = _join(scope, message.name)
    yield message.options, inner
    yield from _of_fields(message.field, inner)
    yield from _of_fields(message.extension, inner)
    for oneof in message.oneof_decl:
        yield oneof.options, inner
    for extension_range in message.extension_range:
        yield extension_range.options, inner
    for enum in message.enum_type:
        yield from _of_enum(enum, inner)
    for nested in message.nested_type:
        yield from _of_message(nested, inner)


def _of_fields(fields: Iterable[Field], scope: str) -> Iterator[Scoped]:
    for field in fields:
        yield field.options, scope


def _of_enum(enum: EnumProto, scope: str) -> Iterator[Scoped]:
    inner = _join(scope, enum.name)
    yield enum.options, inner
    for value in enum.value:
        yield value.options, inner


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


class _Writer:
    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def write(self, options: Message, scope: str) -> None:
        found = [UninterpretedOption.FromString(o.SerializeToString()) for o in
                 _uninterpreted(options)]  # fmt: skip
        if not found:
            return
        options.ClearField("uninterpreted_option")
        try:
            known = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        except KeyError:
            return  # nothing can extend options where descriptor.proto is not imported
        filled = message_factory.GetMessageClass(known).FromString(options.SerializeToString())
        for option in found:
            text = self._text(option, known, scope)
            if text is not None:
                self._merge(text, filled)
        options.ParseFromString(filled.SerializeToString(deterministic=True))

    def _merge(self, text: str, options: Message) -> None:
        one = type(options)()
        try:
            text_format.Merge(text, one, descriptor_pool=self._pool)
        except text_format.ParseError:
            return
        options.MergeFrom(one)

    def _text(
        self, option: UninterpretedOption, descriptor: Descriptor | None, scope: str
    ) -> str | None:
        """The option in the text format of the message it belongs to; None when not defined."""
        names: list[str] = []
        for part in option.name:
            if descriptor is None:
                return None
            field: FieldDescriptor | None
            if part.is_extension:
                field = self._extension(part.name_part, scope)
                names.append("" if field is None else f"[{field.full_name}]")
            else:
                field = descriptor.fields_by_name.get(part.name_part)
                names.append(part.name_part)
            if field is None:
                return None
            descriptor = field.message_type
        inner = names[-1] + _value(option)
        return " { ".join([*names[:-1], inner]) + " }" * (len(names) - 1)

    def _extension(self, name: str, scope: str) -> FieldDescriptor | None:
        """The innermost definition that ``name`` can mean inside ``scope``."""
        if name.startswith("."):
            scope, name = "", name[1:]
        while True:
            try:
                return self._pool.FindExtensionByName(_join(scope, name))
            except KeyError:
                if not scope:
                    return None
                scope = scope.rpartition(".")[0]


def _value(option: UninterpretedOption) -> str:
    if option.HasField("aggregate_value"):
        return f" {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f': "{text_encoding.CEscape(option.string_value, False)}"'
    if option.HasField("identifier_value"):
        return f": {option.identifier_value}"
    if option.HasField("positive_int_value"):
        return f": {option.positive_int_value}"
    if option.HasField("negative_int_value"):
        return f": {option.negative_int_value}"
    return f": {option.double_value!r}"
