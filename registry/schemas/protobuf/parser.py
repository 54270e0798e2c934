"""``.proto`` text to a ``FileDescriptorProto``, names as written (see ``linker``).

Source: the language specifications of proto2, proto3 and editions on protobuf.dev.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from google.protobuf import descriptor_pb2

from .cursor import Cursor
from .lexer import Kind
from .options import Assignment, apply_options, plain_name, read_assignment, read_bracketed

MAX_NESTING = 32
"""Messages inside each other, as in protoc."""

MAX_PACKAGE = 511
"""Characters of a package's name, as in protoc."""

MAX_FIELD_NUMBER = (1 << 29) - 1
_MAX_ENUM_NUMBER = (1 << 31) - 1
_EDITION = re.compile(r"\d{4}")

Field: TypeAlias = descriptor_pb2.FieldDescriptorProto
FileProto: TypeAlias = descriptor_pb2.FileDescriptorProto
MessageProto: TypeAlias = descriptor_pb2.DescriptorProto
EnumProto: TypeAlias = descriptor_pb2.EnumDescriptorProto

SCALARS: Final[dict[str, Field.Type.ValueType]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in Field.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS: Final[dict[str, Field.Label.ValueType]] = {
    "optional": Field.LABEL_OPTIONAL,
    "required": Field.LABEL_REQUIRED,
    "repeated": Field.LABEL_REPEATED,
}


def parse_proto(text: str) -> FileProto:
    """Raises ``InvalidSchema`` with ``line:column`` for text that is no ``.proto`` file."""
    return _Parser(Cursor(text)).file()


class _Parser:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._file = FileProto()
        self._imports: set[str] = set()

    def file(self) -> FileProto:
        cursor = self._cursor
        self._syntax()
        has_package = False
        while not cursor.at_end:
            if cursor.take(";"):
                continue
            if cursor.take("package"):
                if has_package:
                    raise cursor.fail("package is given twice")
                has_package = True
                start = cursor.token
                self._file.package = cursor.dotted()
                if len(self._file.package) > MAX_PACKAGE:
                    raise cursor.fail("the name of the package is too long", start)
                cursor.expect(";")
            elif cursor.take("import"):
                self._import()
            elif cursor.take("option"):
                self._option(self._file.options)
            elif cursor.take("message"):
                self._message(self._file.message_type.add(), 1)
            elif cursor.take("enum"):
                self._enum(self._file.enum_type.add())
            elif cursor.take("extend"):
                self._extend(self._file.extension.add, self._file.message_type.add, 0)
            elif cursor.take("service"):
                self._service(self._file.service.add())
            else:
                raise cursor.fail(f"unexpected {cursor.token.text[:40]!r}")
        return self._file

    def _syntax(self) -> None:
        cursor = self._cursor
        while cursor.take(";"):
            pass
        if cursor.take("syntax"):
            cursor.expect("=")
            start = cursor.token
            self._file.syntax = cursor.text_string()
            if self._file.syntax not in ("proto2", "proto3"):
                raise cursor.fail(f"syntax {self._file.syntax[:40]!r} is not known", start)
            cursor.expect(";")
        elif cursor.take("edition"):
            cursor.expect("=")
            start = cursor.token
            edition = cursor.text_string()
            number = descriptor_pb2.Edition.DESCRIPTOR.values_by_name.get(f"EDITION_{edition}")
            if number is None or not _EDITION.fullmatch(edition):
                raise cursor.fail(f"edition {edition[:40]!r} is not known", start)
            self._file.syntax = "editions"
            self._file.edition = descriptor_pb2.Edition.Value(f"EDITION_{edition}")
            cursor.expect(";")

    def _import(self) -> None:
        cursor, file = self._cursor, self._file
        indexes = None
        if cursor.take("public"):
            indexes = file.public_dependency
        elif cursor.take("weak"):
            indexes = file.weak_dependency
        start = cursor.token
        name = cursor.text_string()
        if name in self._imports:
            raise cursor.fail(f"{name[:100]!r} is imported twice", start)
        self._imports.add(name)
        if indexes is not None:
            indexes.append(len(file.dependency))
        file.dependency.append(name)
        cursor.expect(";")

    def _option(self, options: descriptor_pb2.FileOptions | _Options) -> None:
        assignment = read_assignment(self._cursor)
        self._cursor.expect(";")
        apply_options(self._cursor, options, [assignment])

    def _message(self, message: MessageProto, depth: int) -> None:
        message.name = self._cursor.ident()
        self._message_body(message, depth)

    def _message_body(self, message: MessageProto, depth: int) -> None:
        cursor = self._cursor
        if depth > MAX_NESTING:
            raise cursor.fail(f"messages nest deeper than {MAX_NESTING} levels")
        cursor.expect("{")
        optional: list[Field] = []
        while not cursor.take("}"):
            if cursor.take(";"):
                continue
            if cursor.take("message"):
                self._message(message.nested_type.add(), depth + 1)
            elif cursor.take("enum"):
                self._enum(message.enum_type.add())
            elif cursor.take("oneof"):
                self._oneof(message, depth)
            elif cursor.take("extend"):
                self._extend(message.extension.add, message.nested_type.add, depth)
            elif cursor.take("option"):
                self._option(message.options)
            elif cursor.take("extensions"):
                self._extensions(message)
            elif cursor.take("reserved"):
                self._reserved(message, MAX_FIELD_NUMBER, exclusive=True)
            else:
                field = self._field(message.field.add, message.nested_type.add, depth)
                if field.proto3_optional:
                    optional.append(field)
        self._synthetic_oneofs(message, optional)

    def _synthetic_oneofs(self, message: MessageProto, optional: list[Field]) -> None:
        """``optional`` of proto3 is a oneof of its own, after the ones that were written."""
        taken = {field.name for field in message.field} | {one.name for one in message.oneof_decl}
        for field in optional:
            name = f"_{field.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)

    def _field(
        self,
        add: Callable[[], Field],
        add_type: Callable[[], MessageProto],
        depth: int,
        in_oneof: bool = False,
    ) -> Field:
        cursor = self._cursor
        start = cursor.token
        label = None
        if cursor.sees_one_of(_LABELS):
            label = cursor.next().text
        if label in ("optional", "required") and self._file.edition:
            raise cursor.fail(f"editions have no {label}", start)
        if label is not None and in_oneof:
            raise cursor.fail("a field of a oneof has no label", start)
        field = add()
        field.label = _LABELS[label or "optional"]
        if cursor.sees("map", "<"):
            if label is not None or in_oneof:
                raise cursor.fail("a map field has no label and is in no oneof", start)
            self._map(field, add_type())
            return field
        if cursor.sees("group"):
            self._group(field, add_type(), depth)
            return field
        name = cursor.dotted()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name
        field.name = cursor.ident()
        self._number_and_options(field)
        cursor.expect(";")
        is_proto3 = self._file.syntax == "proto3"
        if label == "optional" and is_proto3:
            field.proto3_optional = True
        if label is None and not is_proto3 and not self._file.edition and not in_oneof:
            raise cursor.fail("a proto2 field needs optional, required or repeated", start)
        return field

    def _number_and_options(self, field: Field) -> None:
        cursor = self._cursor
        cursor.expect("=")
        start = cursor.token
        number = cursor.integer()
        if not 0 < number <= MAX_FIELD_NUMBER:
            raise cursor.fail(f"field number {number} is out of range", start)
        field.number = number
        self._field_options(field, read_bracketed(cursor))

    def _field_options(self, field: Field, assignments: list[Assignment]) -> None:
        others: list[Assignment] = []
        for start, option in assignments:
            name = plain_name(option)
            if name == "json_name":
                if not option.HasField("string_value"):
                    raise self._cursor.fail("json_name is a string", start)
                field.json_name = option.string_value.decode(errors="replace")
            elif name == "default":
                field.default_value = _default_text(field, option)
            else:
                others.append((start, option))
        if others:
            apply_options(self._cursor, field.options, others)

    def _map(self, field: Field, entry: MessageProto) -> None:
        cursor = self._cursor
        cursor.expect("map")
        cursor.expect("<")
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            kind = cursor.dotted()
            cursor.expect("," if number == 1 else ">")
            part = entry.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
            if kind in SCALARS:
                part.type = SCALARS[kind]
            else:
                part.type_name = kind
        field.name = cursor.ident()
        entry.name = map_entry_name(field.name)
        field.label = Field.LABEL_REPEATED
        field.type_name = entry.name
        self._number_and_options(field)
        cursor.expect(";")

    def _group(self, field: Field, message: MessageProto, depth: int) -> None:
        cursor = self._cursor
        cursor.expect("group")
        message.name = cursor.ident()
        if not message.name[0].isupper():
            raise cursor.fail("the name of a group begins with a capital letter")
        field.name = message.name.lower()
        field.type = Field.TYPE_GROUP
        field.type_name = message.name
        self._number_and_options(field)
        self._message_body(message, depth + 1)

    def _oneof(self, message: MessageProto, depth: int) -> None:
        cursor = self._cursor
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=cursor.ident())
        start = cursor.token
        cursor.expect("{")
        before = len(message.field)
        while not cursor.take("}"):
            if cursor.take(";"):
                continue
            if cursor.take("option"):
                self._option(oneof.options)
                continue
            field = self._field(message.field.add, message.nested_type.add, depth, in_oneof=True)
            field.oneof_index = index
        if len(message.field) == before:
            raise cursor.fail(f"oneof {oneof.name!r} has no field", start)

    def _extend(
        self, add: Callable[[], Field], add_type: Callable[[], MessageProto], depth: int
    ) -> None:
        cursor = self._cursor
        extendee = cursor.dotted()
        cursor.expect("{")
        while not cursor.take("}"):
            if not cursor.take(";"):
                self._field(add, add_type, depth).extendee = extendee

    def _extensions(self, message: MessageProto) -> None:
        cursor = self._cursor
        first = len(message.extension_range)
        for start, end in self._ranges(MAX_FIELD_NUMBER):
            message.extension_range.add(start=start, end=end + 1)
        options = read_bracketed(cursor)
        cursor.expect(";")
        if options:
            for extension_range in message.extension_range[first:]:
                apply_options(cursor, extension_range.options, options)

    def _reserved(self, owner: MessageProto | EnumProto, highest: int, *, exclusive: bool) -> None:
        cursor = self._cursor
        if cursor.token.kind is Kind.INT or cursor.sees("-"):
            for start, end in self._ranges(highest):
                owner.reserved_range.add(start=start, end=end + (1 if exclusive else 0))
        else:
            while True:
                is_text = cursor.token.kind is Kind.STRING
                owner.reserved_name.append(cursor.text_string() if is_text else cursor.ident())
                if not cursor.take(","):
                    break
        cursor.expect(";")

    def _ranges(self, highest: int) -> list[tuple[int, int]]:
        cursor = self._cursor
        found: list[tuple[int, int]] = []
        while True:
            at = cursor.token
            start = end = cursor.integer()
            if cursor.take("to"):
                end = highest if cursor.take("max") else cursor.integer()
            if not -highest - 1 <= start <= end <= highest:
                raise cursor.fail("range is empty or out of bounds", at)
            found.append((start, end))
            if not cursor.take(","):
                return found

    def _enum(self, enum: EnumProto) -> None:
        cursor = self._cursor
        enum.name = cursor.ident()
        cursor.expect("{")
        while not cursor.take("}"):
            if cursor.take(";"):
                continue
            if cursor.take("option"):
                self._option(enum.options)
            elif cursor.take("reserved"):
                self._reserved(enum, _MAX_ENUM_NUMBER, exclusive=False)
            else:
                value = enum.value.add(name=cursor.ident())
                cursor.expect("=")
                start = cursor.token
                number = cursor.integer()
                if not -_MAX_ENUM_NUMBER - 1 <= number <= _MAX_ENUM_NUMBER:
                    raise cursor.fail("enum number is out of range", start)
                value.number = number
                options = read_bracketed(cursor)
                if options:
                    apply_options(cursor, value.options, options)
                cursor.expect(";")

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto) -> None:
        cursor = self._cursor
        service.name = cursor.ident()
        cursor.expect("{")
        while not cursor.take("}"):
            if cursor.take(";"):
                continue
            if cursor.take("option"):
                self._option(service.options)
                continue
            cursor.expect("rpc")
            self._method(service.method.add(name=cursor.ident()))

    def _method(self, method: descriptor_pb2.MethodDescriptorProto) -> None:
        cursor = self._cursor
        method.input_type, is_stream = self._rpc_type()
        if is_stream:
            method.client_streaming = True
        cursor.expect("returns")
        method.output_type, is_stream = self._rpc_type()
        if is_stream:
            method.server_streaming = True
        if cursor.take("{"):
            while not cursor.take("}"):
                if not cursor.take(";"):
                    cursor.expect("option")
                    self._option(method.options)
        else:
            cursor.expect(";")

    def _rpc_type(self) -> tuple[str, bool]:
        cursor = self._cursor
        cursor.expect("(")
        is_stream = cursor.take("stream")
        name = cursor.dotted()
        cursor.expect(")")
        return name, is_stream


_Options: TypeAlias = (
    descriptor_pb2.MessageOptions
    | descriptor_pb2.EnumOptions
    | descriptor_pb2.OneofOptions
    | descriptor_pb2.ServiceOptions
    | descriptor_pb2.MethodOptions
)


def map_entry_name(field_name: str) -> str:
    """``some_field`` -> ``SomeFieldEntry``, the name protoc gives the entry message of a map."""
    parts = field_name.split("_")
    return "".join(part[:1].upper() + part[1:] for part in parts) + "Entry"


def _default_text(field: Field, option: descriptor_pb2.UninterpretedOption) -> str:
    """A default value in the spelling of ``FieldDescriptorProto.default_value``."""
    if option.HasField("string_value"):
        if field.type == Field.TYPE_BYTES:
            return "".join(
                chr(byte) if 32 <= byte < 127 and byte not in b"\\\"'" else f"\\{byte:03o}"
                for byte in option.string_value
            )
        return option.string_value.decode(errors="replace")
    if option.HasField("identifier_value"):
        return option.identifier_value
    if option.HasField("double_value"):
        value = option.double_value
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if option.HasField("negative_int_value"):
        return str(option.negative_int_value)
    return str(option.positive_int_value)
