"""Whether messages written with one Protobuf schema can be read with another.

Fields are matched by number, messages by name. Source: the rules of Confluent's registry, which
follow "Updating A Message Type" of the language guide and are stricter in two ways: a removed
message and a changed package count as incompatible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ..schemas.path import Path
from ..schemas.protobuf.parser import Field, FileProto, MessageProto
from ..schemas.protobuf.schema import ProtobufSchema, messages_of
from .verdict import MAX_REASONS, Found, Incompatibility, Judging, Pair, PairGuard

_GROUPS: dict[str, str] = {
    **dict.fromkeys(["int32", "int64", "uint32", "uint64", "bool", "enum"], "integer"),
    **dict.fromkeys(["sint32", "sint64"], "zigzag integer"),
    **dict.fromkeys(["string", "bytes"], "string or bytes"),
    **dict.fromkeys(["fixed32", "sfixed32"], "fixed 32 bits"),
    **dict.fromkeys(["fixed64", "sfixed64"], "fixed 64 bits"),
    "float": "float",
    "double": "double",
}
"""Scalar types whose encodings can be read as each other's."""


_Entries: TypeAlias = dict[str, MessageProto]


def compare_protobuf(reader: ProtobufSchema, writer: ProtobufSchema) -> tuple[Incompatibility, ...]:
    """All reasons why ``reader`` cannot read ``writer``'s messages; none when it can.

    Paths look like ``#/Order/Line/3``: messages, then the field's number. Raises
    ``ComparisonTooComplex``.
    """
    new, old = _Side(reader), _Side(writer)
    found: Found = []
    if reader.file.package != writer.file.package:
        packages = reader.file.package, writer.file.package
        why = f"package {packages[1]!r} became {packages[0]!r}"
        found.append(Incompatibility("PACKAGE_CHANGED", "#/", *packages, why))
    comparison = _Comparison(new, old)
    scope = _Scope(Path("#"), reader.file.package, writer.file.package)
    return tuple(found + comparison.run(reader.file, writer.file, scope))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a comparison is: its path, and the full name of the message on each side."""

    path: Path
    reader: str
    writer: str

    def inside(self, name: str) -> _Scope:
        return _Scope(self.path / name, _join(self.reader, name), _join(self.writer, name))


@dataclass(frozen=True)
class _Side:
    schema: ProtobufSchema

    @cached_property
    def types(self) -> dict[str, tuple[MessageProto, FileProto]]:
        """Every message of the schema and its imports by full name, with its file."""
        return {
            f".{name}": (message, file)
            for file in self.schema.files.values()
            for name, message in messages_of(file).items()
        }

    def is_local(self, name: str) -> bool:
        return self.types[name][1] is self.schema.file

    def label(self, field: Field, owner: str) -> str:
        """The label that is written; empty where none is, as for most fields of proto3."""
        if field.label == Field.LABEL_REPEATED:
            return "repeated"
        if field.label == Field.LABEL_REQUIRED:
            return "required"
        is_proto2 = self.types[f".{owner}"][1].syntax in ("", "proto2")
        if field.proto3_optional or (is_proto2 and not field.HasField("oneof_index")):
            return "optional"
        return ""

    def relative(self, name: str) -> str:
        """A full name without the package of the file it is defined in."""
        package = self.types[name][1].package
        return name[1:].removeprefix(f"{package}.") if package else name[1:]


class _Comparison:
    def __init__(self, reader: _Side, writer: _Side) -> None:
        self._reader = reader
        self._writer = writer
        self._guard = PairGuard()

    def run(self, reader: FileProto, writer: FileProto, scope: _Scope) -> Found:
        def judge() -> Judging:
            return (yield from self._types(reader.message_type, writer.message_type, scope))

        return self._guard.run(Pair("file", scope.path, judge))

    def _types(
        self, reader: Iterable[MessageProto], writer: Iterable[MessageProto], scope: _Scope
    ) -> Judging:
        new = {message.name: message for message in reader}
        found: Found = []
        for message in writer:
            if message.options.map_entry or len(found) >= MAX_REASONS:
                continue  # an entry is compared as the map field it belongs to
            here = scope.inside(message.name)
            if message.name in new:
                found += yield self._pair(new[message.name], message, here)
            else:
                why = f"message {message.name} was removed"
                shown = f"message {message.name}"
                found.append(Incompatibility("MESSAGE_REMOVED", str(here.path), "", shown, why))
        return found

    def _pair(self, reader: MessageProto, writer: MessageProto, scope: _Scope) -> Pair:
        key = scope.reader, scope.writer
        return Pair(key, scope.path, lambda: self._messages(reader, writer, scope))

    def _messages(self, reader: MessageProto, writer: MessageProto, scope: _Scope) -> Judging:
        new = {field.number: field for field in reader.field}
        old = {field.number: field for field in writer.field}
        self._guard.count(len(new) + len(old))
        entries = _map_entries(reader), _map_entries(writer)
        found = _oneofs(reader, writer, scope.path)
        for number, field in old.items():
            here = scope.path / number
            if len(found) >= MAX_REASONS:
                return found
            if number in new:
                found += yield from self._field(new[number], field, entries, scope, here)
            elif field.label == Field.LABEL_REQUIRED:
                why = f"required field {field.name} was removed"
                rule = "REQUIRED_FIELD_REMOVED"
                found.append(Incompatibility(rule, str(here), "", _shown(field), why))
        for number, field in new.items():
            if number not in old and field.label == Field.LABEL_REQUIRED:
                why = f"required field {field.name} was added"
                here = scope.path / number
                rule = "REQUIRED_FIELD_ADDED"
                found.append(Incompatibility(rule, str(here), _shown(field), "", why))
        nested = yield from self._types(reader.nested_type, writer.nested_type, scope)
        return found + nested

    def _field(
        self,
        reader: Field,
        writer: Field,
        entries: tuple[_Entries, _Entries],
        scope: _Scope,
        path: Path,
    ) -> Judging:
        new_entry, old_entry = entries[0].get(reader.type_name), entries[1].get(writer.type_name)
        kinds = _kind(reader, new_entry), _kind(writer, old_entry)
        if kinds[0] != kinds[1]:
            why = f"{kinds[1]} became {kinds[0]}"
            return [Incompatibility("FIELD_KIND_CHANGED", str(path), *_both(reader, writer), why)]
        if new_entry is not None and old_entry is not None:
            found: Found = []
            for new, old in zip(new_entry.field, old_entry.field, strict=True):
                if _kind(new, None) == _kind(old, None) == "scalar":
                    found += _scalars(new, old, path / new.name, ("", ""))
                else:
                    found += yield from self._field(new, old, ({}, {}), scope, path / new.name)
            return found
        if kinds[0] == "scalar":
            labels = (
                self._reader.label(reader, scope.reader),
                self._writer.label(writer, scope.writer),
            )
            return _scalars(reader, writer, path, labels)
        return (yield from self._message_types(reader, writer, path))

    def _message_types(self, reader: Field, writer: Field, path: Path) -> Judging:
        names = self._reader.relative(reader.type_name), self._writer.relative(writer.type_name)
        rule = "FIELD_NAMED_TYPE_CHANGED"
        if names[0] != names[1]:
            why = f"message {names[1]} became {names[0]}"
            return [Incompatibility(rule, str(path), *names, why)]
        if self._reader.is_local(reader.type_name) and self._writer.is_local(writer.type_name):
            return []  # both are compared where they are defined
        new, old = self._reader.types[reader.type_name], self._writer.types[writer.type_name]
        inner = _Scope(path / names[0], reader.type_name[1:], writer.type_name[1:])
        found = yield self._pair(new[0], old[0], inner)
        if not found:
            return found
        why = f"message {names[0]} of an import can no longer be read"
        return [*found, Incompatibility(rule, str(path), *names, why)]


def _oneofs(reader: MessageProto, writer: MessageProto, path: Path) -> Found:
    """Fields that became exclusive, and members a surviving oneof lost."""
    new = {field.number: _oneof(field, reader) for field in reader.field}
    old = {field.number: _oneof(field, writer) for field in writer.field}
    survivors = {name for name in new.values() if name}
    survivors |= {name for number, name in old.items() if name and number in new}
    found: Found = []
    for field in writer.field:
        name = old[field.number]
        if name and field.number not in new and name in survivors:
            why = f"field {field.name} of oneof {name} was removed"
            here = str(path / name / field.number)
            found.append(Incompatibility("ONEOF_FIELD_REMOVED", here, "", _shown(field), why))
    members: dict[str, list[Field]] = {}
    for field in reader.field:
        if new[field.number] and field.number in old:
            members.setdefault(new[field.number], []).append(field)
    for name, fields in members.items():
        plain = [field for field in fields if not old[field.number]]
        origins = {old[field.number] for field in fields} - {""}
        if len(plain) + len(origins) < 2:
            continue
        several = len(plain) > 1
        rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF"
        moved = ", ".join(field.name for field in plain or fields)
        why = f"fields that could be set together now exclude each other: {moved}"
        before = ", ".join(sorted(origins)) or "no oneof"
        found.append(Incompatibility(rule, str(path / name), f"oneof {name}", before, why))
    return found


def _oneof(field: Field, owner: MessageProto) -> str:
    """The name of the oneof a field is in; empty for none, the one of ``optional`` included."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return owner.oneof_decl[field.oneof_index].name


def _map_entries(owner: MessageProto) -> _Entries:
    """The entry messages of the map fields of a message, by the type name its fields have."""
    names = {nested.name: nested for nested in owner.nested_type if nested.options.map_entry}
    return {
        field.type_name: names[field.type_name.rpartition(".")[2]]
        for field in owner.field
        if field.label == Field.LABEL_REPEATED and field.type_name.rpartition(".")[2] in names
    }


def _kind(field: Field, entry: MessageProto | None) -> str:
    if entry is not None:
        return "map"
    if field.type == Field.TYPE_GROUP:
        return "group"
    return "message" if field.type == Field.TYPE_MESSAGE else "scalar"


def _scalars(reader: Field, writer: Field, path: Path, labels: tuple[str, str]) -> Found:
    new, old = _GROUPS[_type(reader)], _GROUPS[_type(writer)]
    if new != old:
        why = f"{_type(writer)} cannot be read as {_type(reader)}"
        return [
            Incompatibility("FIELD_SCALAR_KIND_CHANGED", str(path), *_both(reader, writer), why)
        ]
    if new == "string or bytes" or not all(labels) or labels[0] == labels[1]:
        return []
    why = f"{labels[1]} became {labels[0]}"
    return [Incompatibility("FIELD_NUMERIC_LABEL_CHANGED", str(path), *_both(reader, writer), why)]


def _type(field: Field) -> str:
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def _both(reader: Field, writer: Field) -> tuple[str, str]:
    return _shown(reader), _shown(writer)


def _shown(field: Field) -> str:
    kind = field.type_name.removeprefix(".") or _type(field)
    label = "repeated " if field.label == Field.LABEL_REPEATED else ""
    return f"{label}{kind} {field.name} = {field.number}"


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
