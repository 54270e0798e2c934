"""``Protobuf``: records as Protobuf messages, their schemas in a registry."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ..client import Registered, SchemaText
from ..schemas.protobuf.parser import FileProto, MessageProto
from ..schemas.protobuf.schema import ProtobufSchema
from ..schemas.protobuf.well_known import well_known_file
from ..schemas.schema import InvalidSchema, Reference, ResolvedReference, SchemaType
from .codec import Part, Read, RegistryCodec, Write
from .errors import DoesNotFit, Undecodable, UnsupportedType, shown
from .serializer import GivenRegistry, RegistrySerializer
from .subjects import SubjectStrategy
from .wire import GUID_SIZE, pack_indexes, unpack_indexes

_FIELD = re.compile(r"Failed to parse (\w+) field: ")

Path_ = tuple[int, ...]
Parse = Callable[[bytes], Any]


class Protobuf(RegistrySerializer):
    """``app.topic("orders", value_serializer=Protobuf(Order, registry="http://..."))``.

    ``message``: a generated message class, or ``.proto`` text (or a Path) with ``name`` the full
    name of the message in it, by default the first. With neither, records are read as messages of
    whatever they were written as. Messages may be sent as dicts. ``as_dict``: they are read as
    dicts, too. Imports of a generated class are registered under their paths, those of the text are
    ``references``. Other options: RegistrySerializer. Raises UnsupportedType, InvalidSchema,
    ValueError.
    """

    def __init__(
        self,
        message: type[Message] | str | Path | None = None,
        *,
        registry: GivenRegistry,
        name: str | None = None,
        references: Sequence[Reference] = (),
        as_dict: bool = False,
        subject_name_strategy: str | SubjectStrategy = "topic",
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        header_ids: bool = False,
    ) -> None:
        if isinstance(message, Path):
            message = message.read_text(encoding="utf-8")
        if isinstance(message, type) and not issubclass(message, Message):
            raise UnsupportedType(f"{message.__name__} is no generated Protobuf message class")
        super().__init__(
            None if isinstance(message, str) else message,
            registry=registry,
            subject_name_strategy=subject_name_strategy,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            header_ids=header_ids,
        )
        self.text = message if isinstance(message, str) else None
        self.name = name
        self.references = tuple(references)
        self.as_dict = as_dict

    def bind(self, value_type: Any, topic: str | None, *, is_key: bool) -> ProtobufCodec:
        chosen = self.value_type
        is_message = isinstance(value_type, type) and issubclass(value_type, Message)
        if chosen is None and self.text is None and is_message:
            chosen = value_type
        codec = ProtobufCodec(self, topic or "", is_key, chosen)
        return codec.made_by(partial(self.bind, value_type))


class ProtobufCodec(RegistryCodec):
    """See RegistryCodec."""

    def __init__(
        self, serializer: Protobuf, topic: str, is_key: bool, cls: type[Message] | None
    ) -> None:
        self._text = serializer.text
        self._references = serializer.references
        self._as_dict = serializer.as_dict
        self._name = serializer.name
        self._class = cls
        if cls is not None:
            self._name = cls.DESCRIPTOR.full_name
        elif self._text is not None and not self._references:
            parsed = ProtobufSchema.parse(self._text)
            self._name = _name_in(parsed, self._name)
            self._class = _class_of(parsed, self._name)
        writes = cls is not None or self._text is not None
        super().__init__(
            serializer.registry,
            serializer.options,
            topic,
            is_key=is_key,
            parts=[Part(self._name)] if writes else [],
        )

    # writing

    async def _schema_text(self, part: Part) -> SchemaText:
        if self._text is not None:
            return SchemaText(SchemaType.PROTOBUF, self._text, self._references)
        assert self._class is not None
        return await self._file_schema(self._class.DESCRIPTOR.file)

    async def _file_schema(self, file: Any) -> SchemaText:
        """The file (a FileDescriptor) of a generated class, what it imports registered first."""
        references = []
        for imported in file.dependencies:
            if well_known_file(imported.name) is not None:
                continue
            schema = await self._file_schema(imported)
            found = await self._imported(imported.name, schema)
            references.append(Reference(imported.name, imported.name, found))
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        text = base64.b64encode(proto.SerializeToString(deterministic=True)).decode()
        return SchemaText(SchemaType.PROTOBUF, text, tuple(references))

    async def _imported(self, subject: str, schema: SchemaText) -> int:
        """The version of an import. Raises RegistryError."""
        if self.options.auto_register:
            found = await self.registry.register(subject, schema, normalize=self.options.normalize)
            if found.version is not None:
                return found.version
        found = await self.registry.lookup(subject, schema, normalize=self.options.normalize)
        if found.version is None:
            raise InvalidSchema(f"the registry does not tell the version of {subject!r}")
        return found.version

    def _writer(
        self,
        part: Part,
        registered: Registered,
        references: tuple[ResolvedReference, ...],
        prefix: bytes,
    ) -> Write:
        if self._class is None:
            parsed = _parsed(registered.schema, references)
            self._name = part.record_name = _name_in(parsed, self._name)
            self._class = _class_of(parsed, self._name)
        elif self.options.use_latest_version:
            files = dict(_messages(_parsed(registered.schema, references).file))
            if self._name not in files.values():
                raise InvalidSchema(f"it has no message {self._name}")
        cls = self._class
        start = prefix + pack_indexes(index_path(cls.DESCRIPTOR))
        place = _place(cls)

        def write(value: Any) -> bytes:
            message = value if type(value) is cls else _message(cls, value, place)
            try:
                return start + message.SerializeToString()
            except EncodeError:
                missing = message.FindInitializationErrors()  # type: ignore[attr-defined]
                raise DoesNotFit(f"{place}.{missing[0]}", "is required and missing") from None

        return write

    def _header_size(self, data: bytes) -> int:
        return unpack_indexes(data, GUID_SIZE)[1]

    # reading

    def _reader(
        self, schema: SchemaText, references: tuple[ResolvedReference, ...], size: int
    ) -> Read:
        parsed = _parsed(schema, references)
        parsers = self._parsers(parsed)
        first = parsers.get((0,))

        def read(data: bytes) -> Any:
            if data[size] == 0:
                path: Path_ = (0,)
                at, parse = size + 1, first
            else:
                path, at = unpack_indexes(data, size)
                parse = parsers.get(path)
            if parse is None:
                raise Undecodable(f"its schema has no message at {list(path)}")
            try:
                return parse(data[at:])
            except DecodeError as error:
                raise Undecodable(f"it is no such message: {error}") from None

        return read

    def _parsers(self, schema: ProtobufSchema) -> dict[Path_, Parse]:
        """What reads each message of a file."""
        parsers: dict[Path_, Parse] = {}
        names = dict(_messages(schema.file))
        mine = self._class
        if mine is None:
            pool = schema.pool()
            for path, name in names.items():
                parsers[path] = self._parse_as(GetMessageClass(pool.FindMessageTypeByName(name)))
            return parsers
        for path, name in names.items():
            parsers[path] = self._parse_as(mine) if name == self._name else _other(name, self._name)
        if self._name in names.values():
            # the place in the file the class was made from, whatever a registry made of its text
            parsers[index_path(mine.DESCRIPTOR)] = self._parse_as(mine)
        return parsers

    def _parse_as(self, cls: type[Message]) -> Parse:
        if not self._as_dict:
            return cls.FromString
        to_dict = partial(json_format.MessageToDict, preserving_proto_field_name=True)
        return lambda data: to_dict(cls.FromString(data))


def index_path(message: Any) -> Path_:
    """Where a message (a Descriptor) is in its file, outermost first."""
    path: list[int] = []
    inner = message
    while inner.containing_type is not None:
        outer = inner.containing_type
        path.append([one.name for one in outer.nested_types].index(inner.name))
        inner = outer
    proto = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(proto)
    path.append([one.name for one in proto.message_type].index(inner.name))
    return tuple(reversed(path))


def _messages(file: FileProto) -> Iterator[tuple[Path_, str]]:
    """Every message of a file: its path and full name."""
    pending: list[tuple[Path_, str, MessageProto]] = [
        ((at,), file.package, message) for at, message in enumerate(file.message_type)
    ]
    while pending:
        path, scope, message = pending.pop()
        name = f"{scope}.{message.name}" if scope else message.name
        yield path, name
        pending += [((*path, at), name, one) for at, one in enumerate(message.nested_type)]


def _parsed(schema: SchemaText, references: tuple[ResolvedReference, ...]) -> ProtobufSchema:
    if schema.schema_type is not SchemaType.PROTOBUF:
        raise InvalidSchema(f"it is a {schema.schema_type} schema, not PROTOBUF")
    return ProtobufSchema.parse(schema.text, schema.references, references, strict=False)


def _name_in(schema: ProtobufSchema, name: str | None) -> str:
    names = sorted(full for _, full in _messages(schema.file))
    if name is None and schema.name is not None:
        return schema.name
    if name not in names:
        raise UnsupportedType(f"there is no message {name!r}; messages are: {', '.join(names)}")
    return name


def _class_of(schema: ProtobufSchema, name: str) -> type[Message]:
    return GetMessageClass(schema.pool().FindMessageTypeByName(name))


def _message(cls: type[Message], value: Any, place: str) -> Message:
    """The message a dict, or a message of another class of the same name, stands for."""
    if isinstance(value, dict):
        try:
            return json_format.ParseDict(value, cls())
        except json_format.ParseError as error:
            text = " ".join(str(error).split())
            names = _FIELD.findall(text)
            reason = _FIELD.sub("", text).rstrip(".")
            raise DoesNotFit(".".join((place, *names)), reason) from None
    if isinstance(value, Message) and value.DESCRIPTOR.full_name == cls.DESCRIPTOR.full_name:
        return cls.FromString(value.SerializeToString())
    name = cls.DESCRIPTOR.full_name
    raise DoesNotFit(place, f"expected message {name}, got {shown(value)}")


def _other(found: str, wanted: str | None) -> Parse:
    def refuse(_: bytes) -> Any:
        raise Undecodable(f"it holds message {found}, not {wanted}")

    return refuse


def _place(cls: type[Message]) -> str:
    name = cls.DESCRIPTOR.name
    return name[:1].lower() + name[1:]
