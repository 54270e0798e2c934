"""A parsed Protobuf schema."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ..json_text import check_size
from ..schema import (
    InvalidSchema,
    Limits,
    ParsedSchema,
    Reference,
    ResolvedReference,
    SchemaType,
    sorted_references,
)
from .checks import check_file
from .custom_options import with_readable_options
from .linker import linked, symbols_of, visible_files
from .normalization import normalized_file
from .parser import EnumProto, FileProto, MessageProto, parse_proto
from .printer import print_proto
from .serialized_options import has_custom_options, with_serialized_options
from .well_known import well_known_file

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_FILE_NAME = "default"


class ProtobufSchema(ParsedSchema):
    """``file`` has full names and types, ``files`` is it and all it imports, by import path."""

    schema_type: ClassVar[SchemaType] = SchemaType.PROTOBUF

    def __init__(
        self,
        written: FileProto,
        file: FileProto,
        files: Mapping[str, FileProto],
        references: tuple[Reference, ...],
    ) -> None:
        super().__init__(print_proto(written), references)
        self.file = file
        self.files = files

    @classmethod
    def parse(
        cls,
        text: str,
        references: tuple[Reference, ...] = (),
        resolved: Sequence[ResolvedReference] = (),
        *,
        strict: bool = True,
        limits: Limits | None = None,
    ) -> Self:
        """``text`` is ``.proto`` text or a base64 ``FileDescriptorProto``, as clients send it.

        ``resolved`` comes from ``resolve_references``. Raises ``InvalidSchema``.
        """
        limits = limits or Limits()
        files: dict[str, FileProto] = {}
        for one in resolved:
            if one.schema_type is not SchemaType.PROTOBUF:
                raise InvalidSchema(f"reference {one.name!r} is no Protobuf schema")
            imported = _read(one.text, limits, files)
            _add_well_known(imported.dependency, files)
            imported.name = one.name
            files[one.name] = linked(imported, symbols_of(visible_files(imported, files)))
        written = _read(text, limits, files)
        _add_well_known(written.dependency, files)
        visible = visible_files(written, files)
        file = linked(written, symbols_of(visible))
        file.name = _FILE_NAME
        if strict:
            enums = {
                f".{name}": enum for one in visible for name, (enum, _) in enums_of(one).items()
            }
            check_file(file, enums)
            build_pool([*files.values(), file])
        return cls(written, file, {**files, _FILE_NAME: file}, references)

    @property
    def name(self) -> str | None:
        if not self.file.message_type:
            return None
        first = self.file.message_type[0].name
        return f"{self.file.package}.{first}" if self.file.package else first

    def normalized(self) -> Self:
        """Full names everywhere, the syntax always given, everything in order that can be."""
        file = normalized_file(self.file)
        return type(self)(file, self.file, self.files, sorted_references(self.references))

    def formatted(self, output_format: str) -> str:
        """``serialized`` gives the ``FileDescriptorProto`` in base64."""
        return self.serialized() if output_format == "serialized" else self.canonical

    def serialized(self) -> str:
        """Custom options are fields of the options, as protoc writes them."""
        file = self.file
        if has_custom_options(file):
            file = with_serialized_options(file, self.pool())
        return base64.b64encode(file.SerializeToString(deterministic=True)).decode()

    def pool(self) -> DescriptorPool:
        """The schema and its imports as descriptors, to make message classes of."""
        return build_pool(self.files.values())


def build_pool(files: Iterable[FileProto]) -> DescriptorPool:
    """Raises ``InvalidSchema`` when google.protobuf refuses a file."""
    pool = DescriptorPool()
    waiting = {file.name: file for file in files}
    added: set[str] = set()
    while waiting:
        ready = [file for file in waiting.values() if added.issuperset(file.dependency)]
        if not ready:
            raise InvalidSchema(f"imports go round in a circle: {', '.join(sorted(waiting))}")
        for file in ready:
            try:
                pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, DecodeError) as error:
                raise InvalidSchema(f"{file.name}: {error}") from None
            added.add(file.name)
            del waiting[file.name]
    return pool


def messages_of(file: FileProto) -> dict[str, MessageProto]:
    """Every message of a file by its full name."""
    found: dict[str, MessageProto] = {}
    stack = [(file.package, message) for message in file.message_type]
    while stack:
        scope, message = stack.pop()
        name = f"{scope}.{message.name}" if scope else message.name
        found[name] = message
        stack += [(name, nested) for nested in message.nested_type]
    return found


def enums_of(file: FileProto) -> dict[str, tuple[EnumProto, str]]:
    """Every enum of a file by its full name, with the scope it is in."""
    scopes = [(file.package, enum) for enum in file.enum_type]
    for name, message in messages_of(file).items():
        scopes += [(name, enum) for enum in message.enum_type]
    return {f"{scope}.{enum.name}" if scope else enum.name: (enum, scope) for scope, enum in scopes}


def _read(text: str, limits: Limits, files: Mapping[str, FileProto]) -> FileProto:
    check_size(text, limits)
    packed = _from_base64(text)
    if packed is None:
        return parse_proto(text)
    packed.syntax = packed.syntax or "proto2"
    imports = dict(files)
    _add_well_known(packed.dependency, imports)
    # by way of the text, so that a schema is the same however it was sent
    return parse_proto(print_proto(with_readable_options(packed, imports.values())))


def _from_base64(text: str) -> FileProto | None:
    compact = "".join(text.split())
    if not compact or not _BASE64.fullmatch(compact):
        return None
    try:
        data = base64.b64decode(compact, validate=True)
        return FileProto.FromString(data)
    except (binascii.Error, DecodeError):
        return None


def _add_well_known(names: Iterable[str], files: dict[str, FileProto]) -> None:
    for name in names:
        file = None if name in files else well_known_file(name)
        if file is not None:
            _add_well_known(file.dependency, files)
            files[name] = linked(file, symbols_of(visible_files(file, files)))
