"""Names in a ``FileDescriptorProto`` to full names, and the kind of type each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import TypeAlias

from ..schema import InvalidSchema
from .parser import EnumProto, Field, FileProto, MessageProto


class Symbol(Enum):
    MESSAGE = auto()
    ENUM = auto()
    PACKAGE = auto()


Symbols: TypeAlias = dict[str, Symbol]


def visible_files(file: FileProto, files: Mapping[str, FileProto]) -> list[FileProto]:
    """``file`` and what it imports, with what those import publicly.

    Raises ``InvalidSchema`` for an import that is not in ``files``.
    """
    found: dict[str, FileProto] = {}
    wanted = list(file.dependency)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        imported = files.get(name)
        if imported is None:
            raise InvalidSchema(f"import {name!r} is not among the references")
        found[name] = imported
        wanted += [imported.dependency[index] for index in imported.public_dependency]
    return [file, *found.values()]


def symbols_of(files: Iterable[FileProto]) -> Symbols:
    """Full name, without a leading dot, of every type and package."""
    symbols: Symbols = {}
    for file in files:
        parts = file.package.split(".") if file.package else []
        for end in range(1, len(parts) + 1):
            symbols.setdefault(".".join(parts[:end]), Symbol.PACKAGE)
        _collect(symbols, file.package, file.message_type, file.enum_type)
    return symbols


def _collect(
    symbols: Symbols,
    scope: str,
    messages: Iterable[MessageProto],
    enums: Iterable[EnumProto],
) -> None:
    for enum in enums:
        symbols[_inside(scope, enum.name)] = Symbol.ENUM
    for message in messages:
        name = _inside(scope, message.name)
        symbols[name] = Symbol.MESSAGE
        _collect(symbols, name, message.nested_type, message.enum_type)


def _inside(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def linked(file: FileProto, symbols: Symbols) -> FileProto:
    """A copy of ``file`` in which every type name is full and every field has its type.

    Raises ``InvalidSchema`` for a name that is no type.
    """
    copy = FileProto()
    copy.CopyFrom(file)
    linker = _Linker(symbols)
    for message in copy.message_type:
        linker.message(message, copy.package)
    for field in copy.extension:
        linker.field(field, copy.package)
    for service in copy.service:
        for method in service.method:
            method.input_type = linker.name(method.input_type, copy.package, method.name)
            method.output_type = linker.name(method.output_type, copy.package, method.name)
    return copy


class _Linker:
    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def message(self, message: MessageProto, scope: str) -> None:
        full = _inside(scope, message.name)
        for field in message.field:
            self.field(field, full)
        for field in message.extension:
            self.field(field, full)
        for nested in message.nested_type:
            self.message(nested, full)

    def field(self, field: Field, scope: str) -> None:
        if field.extendee:
            field.extendee = self.name(field.extendee, scope, field.name)
        if field.type_name:
            where = _inside(scope, field.name)
            field.type_name = self.name(field.type_name, scope, where)
            is_enum = self._symbols[field.type_name[1:]] is Symbol.ENUM
            if is_enum:
                field.type = Field.TYPE_ENUM
            elif field.type != Field.TYPE_GROUP:
                field.type = Field.TYPE_MESSAGE

    def name(self, name: str, scope: str, where: str) -> str:
        """The full name, with a leading dot, of what ``name`` means inside ``scope``.

        The innermost scope that knows the first part decides, as in C++.
        """
        if name.startswith("."):
            if self._symbols.get(name[1:]) in (Symbol.MESSAGE, Symbol.ENUM):
                return name
            raise InvalidSchema(f"type {name!r} is not defined", where)
        first = name.partition(".")[0]
        while True:
            candidate = _inside(scope, first)
            known = self._symbols.get(candidate)
            # a type whose name has one part must be a type; a package only leads further
            if known is not None and (first != name or known is not Symbol.PACKAGE):
                full = _inside(scope, name)
                if self._symbols.get(full) in (Symbol.MESSAGE, Symbol.ENUM):
                    return f".{full}"
                if known is not Symbol.PACKAGE:
                    raise InvalidSchema(f"type {name!r} is not defined in {candidate}", where)
            if not scope:
                raise InvalidSchema(f"type {name!r} is not defined", where)
            scope = scope.rpartition(".")[0]
