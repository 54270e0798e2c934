"""A ``FileDescriptorProto`` to ``.proto`` text: the canonical form of a Protobuf schema.

Comments are gone; what stands where, and the indentation, are those of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Field: TypeAlias = descriptor_pb2.FieldDescriptorProto
MessageProto: TypeAlias = descriptor_pb2.DescriptorProto
EnumProto: TypeAlias = descriptor_pb2.EnumDescriptorProto
FileProto: TypeAlias = descriptor_pb2.FileDescriptorProto

_MAX_FIELD_END = 1 << 29
_MAX_ENUM_NUMBER = (1 << 31) - 1
_INDENT = "  "


def print_proto(file: FileProto) -> str:
    """Parsing the text gives the same descriptor again."""
    return "".join(f"{line}\n" for line in _file(file)).lstrip("\n")


def quoted(value: bytes) -> str:
    """A string literal; what is UTF-8 stays readable."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
        return (
            '"'
            + "".join(c if " " <= c < "\x7f" and c not in '"\\' else _octal(c) for c in text)
            + '"'
        )
    return '"' + "".join(_ESCAPES.get(char) or _printable(char) for char in text) + '"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _octal(char: str) -> str:
    return f"\\{ord(char):03o}"


def _printable(char: str) -> str:
    return char if char >= " " and char != "\x7f" else _octal(char)


def _file(file: FileProto) -> Iterator[str]:
    if file.syntax == "editions":
        name = descriptor_pb2.Edition.Name(file.edition)
        yield f'edition = "{name.removeprefix("EDITION_")}";'
    elif file.syntax:
        yield f'syntax = "{file.syntax}";'
    if file.package:
        yield f"package {file.package};"
    imports = list(_imports(file))
    yield from _section(imports)
    yield from _section([f"option {option};" for option in option_texts(file.options)])
    groups = _group_types(file.extension, file.message_type)
    messages = [message for message in file.message_type if message.name not in groups]
    types = [line for message in messages for line in _message(message, file)]
    types += [line for enum in file.enum_type for line in _enum(enum, file)]
    yield from _section(types)
    yield from _section(list(_extends(file.extension, file, file.message_type)))
    for service in file.service:
        yield from _section(list(_service(service)))


def _section(lines: Sequence[str]) -> Iterator[str]:
    """A part of a file or message: an empty line before it, if there is anything."""
    if lines:
        yield ""
        yield from lines


def _imports(file: FileProto) -> Iterator[str]:
    for index, name in enumerate(file.dependency):
        kind = ""
        if index in file.public_dependency:
            kind = "public "
        elif index in file.weak_dependency:
            kind = "weak "
        yield f"import {kind}{quoted(name.encode())};"


def _message(message: MessageProto, file: FileProto) -> Iterator[str]:
    yield from _block(f"message {message.name} {{", _message_body(message, file))


def _block(head: str, body: Iterable[str]) -> Iterator[str]:
    lines = list(body)
    if lines and not lines[0]:
        del lines[0]
    yield head if lines else head + "}"
    if lines:
        yield from (_INDENT + line if line else "" for line in lines)
        yield "}"


def _message_body(message: MessageProto, file: FileProto) -> Iterator[str]:
    yield from _reserved(message.reserved_range, message.reserved_name, _MAX_FIELD_END - 1, 1, file)
    yield from _section([f"option {option};" for option in option_texts(message.options)])
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    groups = _group_types([*message.field, *message.extension], message.nested_type)
    made = entries | groups
    place = {nested.name: index for index, nested in enumerate(message.nested_type)}
    rest = [nested for nested in message.nested_type if nested.name not in made]

    def before(field: Field) -> Iterator[str]:
        """Messages that come before the one this field makes: message indexes count them all."""
        name = _short(field)
        while name in made and rest and place[rest[0].name] < place[name]:
            yield from _message(rest.pop(0), file)

    lines: list[str] = []
    for field in message.field:
        if not _in_oneof(field):
            lines += before(field)
            lines += _field(field, file, entries, groups)
    yield from _section(lines)
    members_of: dict[int, list[Field]] = {}
    for field in message.field:
        if _in_oneof(field):
            members_of.setdefault(field.oneof_index, []).append(field)
    for index, oneof in enumerate(message.oneof_decl):
        members = members_of.get(index)
        if members:
            body = [f"option {option};" for option in option_texts(oneof.options)]
            for field in members:
                yield from before(field)
                body += _field(field, file, entries, groups)
            yield from _section(list(_block(f"oneof {oneof.name} {{", body)))
    yield from _section(list(_extension_ranges(message)))
    yield from _section(list(_extends(message.extension, file, message.nested_type)))
    types = [line for nested in rest for line in _message(nested, file)]
    types += [line for enum in message.enum_type for line in _enum(enum, file)]
    yield from _section(types)


def _in_oneof(field: Field) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _group_types(fields: Iterable[Field], types: Iterable[MessageProto]) -> dict[str, MessageProto]:
    """The message types that are written as the body of a group."""
    names = {_short(field) for field in fields if field.type == Field.TYPE_GROUP}
    return {message.name: message for message in types if message.name in names}


def _field(
    field: Field,
    file: FileProto,
    entries: dict[str, MessageProto],
    groups: dict[str, MessageProto],
) -> Iterator[str]:
    short = _short(field)
    options = list(_field_options(field))
    tail = f" = {field.number}" + (f" [{', '.join(options)}]" if options else "")
    if field.label == Field.LABEL_REPEATED and short in entries:
        key, value = (_type(part) for part in entries[short].field)
        yield f"map<{key}, {value}> {field.name}{tail};"
        return
    label = _label(field, file)
    if field.type == Field.TYPE_GROUP and short in groups:
        head = f"{label}group {short}{tail} {{"
        yield from _block(head, _message_body(groups[short], file))
        return
    yield f"{label}{_type(field)} {field.name}{tail};"


def _short(field: Field) -> str:
    return field.type_name.rpartition(".")[2]


def _label(field: Field, file: FileProto) -> str:
    if field.label == Field.LABEL_REPEATED:
        return "repeated "
    if field.label == Field.LABEL_REQUIRED:
        return "required "
    if field.proto3_optional:
        return "optional "
    if file.syntax in ("proto3", "editions") or field.HasField("oneof_index"):
        return ""
    return "optional "


def _type(field: Field) -> str:
    if field.type_name:
        return field.type_name
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def _field_options(field: Field) -> Iterator[str]:
    if field.HasField("default_value"):
        value = field.default_value
        if field.type == Field.TYPE_STRING:
            value = quoted(value.encode())
        elif field.type == Field.TYPE_BYTES:
            value = f'"{value}"'
        yield f"default = {value}"
    if field.HasField("json_name") and field.json_name != json_name(field.name):
        yield f"json_name = {quoted(field.json_name.encode())}"
    yield from option_texts(field.options)


def json_name(name: str) -> str:
    """The JSON name a field has without the option: ``some_field`` -> ``someField``."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _extends(
    extensions: Iterable[Field], file: FileProto, types: Iterable[MessageProto]
) -> Iterator[str]:
    by_extendee: dict[str, list[Field]] = {}
    for field in extensions:
        by_extendee.setdefault(field.extendee, []).append(field)
    for extendee, fields in by_extendee.items():
        groups = _group_types(fields, types)
        body = [line for field in fields for line in _field(field, file, {}, groups)]
        yield from _block(f"extend {extendee} {{", body)


def _extension_ranges(message: MessageProto) -> Iterator[str]:
    for one in message.extension_range:
        options = list(option_texts(one.options))
        tail = f" [{', '.join(options)}]" if options else ""
        yield f"extensions {_range(one.start, one.end - 1, _MAX_FIELD_END - 1)}{tail};"


def _reserved(
    ranges: Iterable[MessageProto.ReservedRange | EnumProto.EnumReservedRange],
    names: Iterable[str],
    highest: int,
    beyond: int,
    file: FileProto,
) -> Iterator[str]:
    """``beyond`` is 1 where the end of a range is exclusive: in messages, not in enums."""
    for one in ranges:
        yield f"reserved {_range(one.start, one.end - beyond, highest)};"
    shown = [quoted(name.encode()) for name in names]
    if file.syntax == "editions":
        shown = list(names)
    if shown:
        yield f"reserved {', '.join(shown)};"


def _range(start: int, end: int, highest: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == highest else end}"


def _enum(enum: EnumProto, file: FileProto) -> Iterator[str]:
    yield from _block(f"enum {enum.name} {{", _enum_body(enum, file))


def _enum_body(enum: EnumProto, file: FileProto) -> Iterator[str]:
    yield from _reserved(enum.reserved_range, enum.reserved_name, _MAX_ENUM_NUMBER, 0, file)
    yield from _section([f"option {option};" for option in option_texts(enum.options)])
    values: list[str] = []
    for value in enum.value:
        options = list(option_texts(value.options))
        tail = f" [{', '.join(options)}]" if options else ""
        values.append(f"{value.name} = {value.number}{tail};")
    yield from _section(values)


def _service(service: descriptor_pb2.ServiceDescriptorProto) -> Iterator[str]:
    body = [f"option {option};" for option in option_texts(service.options)]
    for method in service.method:
        takes = ("stream " if method.client_streaming else "") + method.input_type
        gives = ("stream " if method.server_streaming else "") + method.output_type
        head = f"rpc {method.name} ({takes}) returns ({gives})"
        options = [f"option {option};" for option in option_texts(method.options)]
        body += _block(head + " {", options) if options else [head + ";"]
    yield from _block(f"service {service.name} {{", body)


def option_texts(options: Message) -> Iterator[str]:
    """``name = value`` of every option that is set, custom ones last."""
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            for option in value:
                yield f"{_option_name(option)} = {_constant(option)}"
        elif field.name != "map_entry" or field.is_extension:
            name = f"({field.full_name})" if field.is_extension else field.name
            yield from _option_values(name, field, value)


def _option_values(name: str, field: FieldDescriptor, value: object) -> Iterator[str]:
    values: list[object] = list(value) if field.is_repeated else [value]  # type: ignore[call-overload]
    for one in values:
        if isinstance(one, Message):
            if field.is_extension or field.is_repeated:
                yield f"{name} = {{ {_aggregate(one)} }}"
            else:
                for inner, inner_value in one.ListFields():
                    yield from _option_values(f"{name}.{inner.name}", inner, inner_value)
        else:
            yield f"{name} = {_scalar(field, one)}"


def _aggregate(message: Message) -> str:
    parts: list[str] = []
    for field, value in message.ListFields():
        values: list[object] = list(value) if field.is_repeated else [value]
        name = f"[{field.full_name}]" if field.is_extension else field.name
        for one in values:
            if isinstance(one, Message):
                parts.append(f"{name} {{ {_aggregate(one)} }}")
            else:
                parts.append(f"{name} : {_scalar(field, one)}")
    return " ".join(parts)


def _scalar(field: FieldDescriptor, value: object) -> str:
    if field.enum_type is not None and isinstance(value, int):
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value.encode())
    return quoted(value) if isinstance(value, bytes) else str(value)


def _option_name(option: descriptor_pb2.UninterpretedOption) -> str:
    return ".".join(
        f"({part.name_part})" if part.is_extension else part.name_part for part in option.name
    )


def _constant(option: descriptor_pb2.UninterpretedOption) -> str:
    if option.HasField("identifier_value"):
        return option.identifier_value
    if option.HasField("positive_int_value"):
        return str(option.positive_int_value)
    if option.HasField("negative_int_value"):
        return str(option.negative_int_value)
    if option.HasField("double_value"):
        return repr(option.double_value)
    if option.HasField("string_value"):
        return quoted(option.string_value)
    inner = option.aggregate_value.strip()
    return f"{{ {inner} }}" if inner else "{ }"
