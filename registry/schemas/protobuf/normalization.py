"""One order for what may stand in any order in a ``.proto`` file.

Source: Confluent's ``ProtobufSchemaUtils``, whose normalised text this follows. Messages and enums
keep their order: serialized records name a message by its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from .parser import EnumProto, Field, FileProto, MessageProto
from .printer import option_texts
from .serialized_options import options_of

UninterpretedOption = descriptor_pb2.UninterpretedOption


def normalized_file(file: FileProto) -> FileProto:
    """A copy of a linked file, to be printed and for nothing else."""
    copy = FileProto()
    copy.CopyFrom(file)
    copy.ClearField("name")
    copy.syntax = copy.syntax or "proto2"
    _sort_imports(copy)
    for message in copy.message_type:
        _sort_message(message)
    for enum in copy.enum_type:
        _sort_enum(enum)
    for options, _ in options_of(copy):
        _sort_options(options)
    return copy


def _sort_imports(file: FileProto) -> None:
    names = list(file.dependency)
    public = sorted(names[index] for index in file.public_dependency)
    weak = sorted(names[index] for index in file.weak_dependency)
    plain = sorted(set(names) - set(public) - set(weak))
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend([*plain, *public, *weak])
    file.public_dependency.extend(range(len(plain), len(plain) + len(public)))
    file.weak_dependency.extend(range(len(plain) + len(public), len(file.dependency)))


def _sort_message(message: MessageProto) -> None:
    made = {nested.name for nested in message.nested_type if nested.options.map_entry}
    made |= {_short(field) for field in message.field if field.type == Field.TYPE_GROUP}
    fields = sorted(message.field, key=lambda field: field.number)
    if _types_made(fields, made) == _types_made(message.field, made):
        # else nested messages, which these fields make some of, would change places
        kept = [Field.FromString(field.SerializeToString()) for field in fields]
        del message.field[:]
        message.field.extend(kept)
        _sort_oneofs(message)
    message.reserved_range.sort(key=lambda one: one.start)
    message.reserved_name.sort()
    message.extension_range.sort(key=lambda one: one.start)
    for nested in message.nested_type:
        _sort_message(nested)
    for enum in message.enum_type:
        _sort_enum(enum)


def _types_made(fields: Iterable[Field], made: set[str]) -> list[str]:
    return [_short(field) for field in fields if _short(field) in made]


def _short(field: Field) -> str:
    return field.type_name.rpartition(".")[2]


def _sort_oneofs(message: MessageProto) -> None:
    """By the lowest number of their members; those that an ``optional`` makes come last."""
    first: dict[int, tuple[bool, int]] = {}
    for field in message.field:
        if field.HasField("oneof_index"):
            first.setdefault(field.oneof_index, (field.proto3_optional, field.number))
    order = sorted(first, key=lambda index: first[index])
    kept = [
        descriptor_pb2.OneofDescriptorProto.FromString(
            message.oneof_decl[index].SerializeToString()
        )
        for index in order
    ]
    del message.oneof_decl[:]
    message.oneof_decl.extend(kept)
    place = {index: number for number, index in enumerate(order)}
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = place[field.oneof_index]


def _sort_enum(enum: EnumProto) -> None:
    enum.value.sort(key=lambda value: (value.number, value.name))
    enum.reserved_range.sort(key=lambda one: one.start)
    enum.reserved_name.sort()


def _sort_options(options: Message) -> None:
    """By name, those of ``descriptor.proto`` and custom ones alike.

    Repeated ones keep their order among themselves, which means something.
    """
    if isinstance(options, descriptor_pb2.MessageOptions) and options.map_entry:
        return
    pairs = [text.partition(" = ") for text in option_texts(options)]
    options.Clear()
    for name, _, value in sorted(pairs, key=lambda pair: pair[0].replace("(", "")):
        option: UninterpretedOption = options.uninterpreted_option.add()  # type: ignore[attr-defined]
        option.name.add(name_part=name, is_extension=False)
        option.identifier_value = value
