"""What the three formats have in common: a codec bound to a topic, which knows its schemas.

Nothing here waits for the registry while a record is encoded or decoded. What is written is
registered by ``prepare``, before the first record; schemas met while reading are fetched by
``learn``, for a whole block of records, once ``unknown`` has said that some are missing. Outside of
event loops, and with a registry in memory, both happen by themselves.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

from ..client import Registered, RegistryClient, SchemaText
from ..errors import RegistryError
from ..schemas import InvalidSchema, Reference, ResolvedReference, resolve_references
from ..schemas.identity import schema_guid
from .errors import (
    DoesNotFit,
    NotPrepared,
    SchemasUnavailable,
    SchemasWanted,
    Undecodable,
    UnsupportedType,
    shown,
)
from .subjects import SubjectStrategy
from .wire import (
    GUID_SIZE,
    KEY_HEADER,
    VALUE_HEADER,
    Headers,
    guid_prefix,
    id_prefix,
    prefix_of,
    schema_key,
    with_header_ids,
)

MISFITS: Final = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error,
    RecursionError,
)  # fmt: skip
"""What encoding or decoding raises for a record that is at fault."""

_PARALLEL: Final = 8
"""Requests to the registry at a time."""
_MAX_REFUSED: Final = 10_000
_REFUSED_S: Final = 5.0
"""A schema the registry does not have is asked for again after this time."""

Write = Callable[[Any], bytes]
Read = Callable[[bytes], Any]
T = TypeVar("T")


class Registry(Protocol):
    """What a codec asks: RegistryClient, MemoryRegistry, or a stand-in."""

    @property
    def address(self) -> str: ...
    @property
    def is_local(self) -> bool:
        """Whether the coroutines end without waiting."""

    def now(self, asking: Any) -> Any: ...
    async def register(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> Registered: ...
    async def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> Registered: ...
    async def by_id(self, schema_id: int, subject: str | None = None) -> SchemaText: ...
    async def by_guid(self, guid: str) -> SchemaText: ...
    async def latest(self, subject: str) -> Registered: ...
    async def version(self, subject: str, version: int, *, deleted: bool = True) -> Registered: ...
    async def versions(self, subject: str, *, deleted: bool = True) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """How schemas are found; see ``RegistrySerializer``."""

    auto_register: bool
    use_latest_version: bool
    normalize: bool
    header_ids: bool
    strategy: SubjectStrategy


@dataclass(slots=True, eq=False)
class Part:
    """One schema a codec writes. ``cls`` are the values it is for, where there are several."""

    record_name: str | None
    cls: type | None = None
    registered: Registered | None = None


class RegistryCodec(ABC):
    """Keys or values of one topic. ``encode`` raises DoesNotFit, ``decode`` Undecodable.

    With ``header_ids`` what ``encode`` gives begins with the 17 bytes that belong into the header
    ``header_name``: ``split`` takes them off. Where there are no headers they may stay.
    ``is_fixed``: what is written may have no second version (the keys of a table).
    """

    def __init__(
        self, registry: Registry, options: Options, topic: str, *, is_key: bool, parts: list[Part]
    ) -> None:
        self.registry = registry
        self.options = options
        self.topic = topic
        self.is_key = is_key
        self.is_prepared = False
        self.is_fixed = False
        self.header_name = KEY_HEADER if is_key else VALUE_HEADER
        self._parts = parts
        self._write: Write = self._write_first
        self._readers: dict[bytes, Read] = {}
        self._refused: dict[bytes, tuple[str, float]] = {}
        self._for_topic: Callable[..., RegistryCodec] | None = None

    @property
    def place(self) -> str:
        """What errors are about."""
        return f"{'keys' if self.is_key else 'values'} of topic {self.topic!r}"

    @property
    def writes_headers(self) -> bool:
        return self.options.header_ids

    def use(self, registry: Registry) -> None:
        """Another registry from here on; nothing is prepared then."""
        self.registry = registry
        self.is_prepared = False
        self._write = self._write_first
        self._readers.clear()
        self._refused.clear()

    def use_url(self, url: str) -> None:
        """Ask the registry there, unless the present one is in memory."""
        if not self.registry.is_local:
            self.use(RegistryClient(url))

    def stand_in(self, registries: dict[str, Any]) -> Callable[[], None]:
        """Use a registry in memory, the one of ``registries`` for this address, unless it is in
        memory already; the result undoes it."""
        from .memory import MemoryRegistry  # compares schemas: much to load for those who do not

        before = self.registry
        if before.is_local:
            return lambda: None
        self.use(registries.setdefault(before.address, MemoryRegistry(before.address)))
        return lambda: self.use(before)

    def bound_to(self, topic: str, *, is_key: bool) -> RegistryCodec:
        """The same serializer for another topic."""
        if self._for_topic is None or (topic, is_key) == (self.topic, self.is_key):
            return self
        other = self._for_topic(topic, is_key=is_key)
        other.use(self.registry)
        return other

    def made_by(self, bind: Callable[..., RegistryCodec]) -> Self:
        """Remember what makes the codec of another topic."""
        self._for_topic = bind
        return self

    # values and bytes

    def encode(self, value: Any) -> bytes:
        """One record. Raises DoesNotFit with the path of the fault, NotPrepared."""
        try:
            return self._write(value)
        except (DoesNotFit, SchemasUnavailable):
            raise
        except MISFITS as error:
            return self._encode_otherwise(value, error)

    def encode_many(self, values: Iterable[Any]) -> list[bytes | None]:
        """Records in, records out; None stays None. Raises as ``encode`` for the first fault."""
        given = list(values)
        if self._write == self._write_first:
            self._prepare_now()
        write = self._write
        try:
            return [None if value is None else write(value) for value in given]
        except MISFITS:
            return [None if value is None else self.encode(value) for value in given]

    def decode(self, data: bytes) -> Any:
        """One record. Raises Undecodable, SchemasWanted."""
        try:
            return (self._readers.get(data[:5]) or self._reader_for(data))(data)
        except (Undecodable, SchemasUnavailable):
            raise
        except MISFITS as error:
            raise Undecodable(f"it is not what its schema says: {_reason(error)}") from None

    def decode_many(
        self, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Records in, values out; None stays None. ``headers`` may hold their schema ids."""
        given = data if headers is None else with_header_ids(data, headers, self.header_name)
        readers = self._readers
        try:
            return [None if one is None else readers[one[:5]](one) for one in given]
        except MISFITS:
            return [None if one is None else self.decode(one) for one in given]

    def joined(
        self, data: Sequence[bytes | None], headers: Sequence[Headers]
    ) -> list[bytes | None]:
        """Records with the ids of their headers in front, where they have one there."""
        return with_header_ids(data, headers, self.header_name)

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """What ``encode`` gave, as header value and payload. Raises Undecodable."""
        size = self._header_size(data)
        return data[:size], data[size:]

    # writing

    async def prepare(self) -> None:
        """Find or register the schemas that are written. Raises SchemasUnavailable."""
        writers: dict[type | None, Write] = {}
        for part in self._parts:
            part.registered = registered = await self._find(part)
            prefix = id_prefix(registered.id)
            if self.options.header_ids:
                prefix = _guid_prefix(registered)
            try:
                references = await self._resolved(registered.schema)
                writers[part.cls] = self._writer(part, registered, references, prefix)
            except (InvalidSchema, UnsupportedType) as error:
                raise SchemasUnavailable(
                    f"{self.place}: the type does not fit version {registered.version} of subject "
                    f"{registered.subject!r}: {error}"
                ) from None
        if not writers:
            self._write = self._write_nothing
        elif len(writers) == 1:
            self._write = next(iter(writers.values()))
        else:
            self._write = lambda value: writers[type(value)](value)
        self.is_prepared = True

    async def _find(self, part: Part) -> Registered:
        options = self.options
        try:
            subject = options.strategy(self.topic, self.is_key, part.record_name)
        except ValueError as error:
            raise SchemasUnavailable(f"{self.place}: {error}") from None
        try:
            if options.use_latest_version:
                return await self.registry.latest(subject)
            schema = await self._schema_text(part)
            if self.is_fixed and await self.registry.versions(subject):
                return await self._find_fixed(subject, schema)
            if options.auto_register:
                return await self.registry.register(subject, schema, normalize=options.normalize)
            return await self.registry.lookup(subject, schema, normalize=options.normalize)
        except RegistryError as error:
            raise SchemasUnavailable(
                f"{self.place}: subject {subject!r} in the schema registry at "
                f"{self.registry.address}: {error}"
            ) from error

    async def _find_fixed(self, subject: str, schema: SchemaText) -> Registered:
        """Raises RegistryError, SchemasUnavailable."""
        try:
            return await self.registry.lookup(subject, schema, normalize=self.options.normalize)
        except RegistryError as error:
            if error.status != 404:
                raise
            raise SchemasUnavailable(
                f"{self.place}: the schema changed, subject {subject!r} has another one. The keys "
                "of a table are found by their bytes, in which the schema's id is, so the old ones "
                "would be lost: keep the type, or use a new table name"
            ) from None

    def _write_first(self, value: Any) -> bytes:
        self._prepare_now()
        return self._write(value)

    def _write_nothing(self, value: Any) -> bytes:
        raise SchemasUnavailable(
            f"{self.place} have no schema to be written with: give the serializer, or the topic, a "
            "type or a schema"
        )

    def _prepare_now(self) -> None:
        """Raises NotPrepared where that would block an event loop."""
        if not self._may_wait():
            raise NotPrepared(
                f"{self.place} are sent before their schema is registered: name the topic in the "
                "agent's function, give it as sink=, or await topic.prepare() first"
            )
        self.registry.now(self.prepare())

    def _may_wait(self) -> bool:
        if self.registry.is_local:
            return True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return True
        return False

    # reading

    def unknown(self, data: Iterable[bytes | None]) -> set[bytes]:
        """What must be learned before these can be decoded: prefixes with ids or GUIDs."""
        heads = {one[:5] for one in data if one} - self._readers.keys()
        if not heads or self.registry.is_local:
            return set()
        found = set()
        for one in data:
            if one and one[:5] in heads:
                try:
                    prefix = prefix_of(one)
                except Undecodable:
                    continue
                if prefix not in self._readers and not self._is_refused(prefix):
                    found.add(prefix)
        return found

    async def learn(self, prefixes: Iterable[bytes]) -> None:
        """Fetch schemas. One the registry does not have is noted: its records are undecodable.
        Raises SchemasUnavailable when the registry does not answer."""
        if self.registry.is_local:
            for prefix in prefixes:
                await self._learn(prefix)
            return
        limit = asyncio.Semaphore(_PARALLEL)
        async with asyncio.TaskGroup() as group:
            learning = [group.create_task(self._settled(each, limit)) for each in prefixes]
        for done in learning:
            if (error := done.result()) is not None:
                raise error

    async def learn_versions(self) -> None:
        """Fetch every schema the topic's subjects have or had: what a state store may hold."""
        for part in self._parts:
            subject = self.options.strategy(self.topic, self.is_key, part.record_name)
            try:
                for number in await self.registry.versions(subject):
                    found = await self.registry.version(subject, number)
                    await self._add_reader(id_prefix(found.id), found.schema)
                    if self.options.header_ids:
                        await self._add_reader(_guid_prefix(found), found.schema)
            except RegistryError as error:
                raise SchemasUnavailable(
                    f"{self.place}: versions of subject {subject!r}: {error}"
                ) from error

    async def _settled(self, prefix: bytes, limit: asyncio.Semaphore) -> SchemasUnavailable | None:
        """A task group would bundle what its tasks raise."""
        try:
            async with limit:
                await self._learn(prefix)
        except SchemasUnavailable as error:
            return error
        return None

    async def _learn(self, prefix: bytes) -> None:
        key = schema_key(prefix)
        try:
            if isinstance(key, int):
                schema = await self.registry.by_id(key)
            else:
                schema = await self.registry.by_guid(key)
            await self._add_reader(prefix, schema)
        except RegistryError as error:
            if error.status != 404:
                raise SchemasUnavailable(f"{self.place}: schema {key}: {error}") from error
            self._refuse(prefix, f"schema {key} is not in the registry at {self.registry.address}")

    async def _add_reader(self, prefix: bytes, schema: SchemaText) -> None:
        if prefix in self._readers:
            return
        try:
            references = await self._resolved(schema)
            self._readers[prefix] = self._reader(schema, references, len(prefix))
            self._refused.pop(prefix, None)
        except (InvalidSchema, UnsupportedType) as error:
            self._refuse(prefix, f"schema {schema_key(prefix)}: {error}")

    def _reader_for(self, data: bytes) -> Read:
        """Raises Undecodable, SchemasWanted."""
        prefix = prefix_of(data)
        if prefix not in self._readers:
            refused = self._refused.get(prefix)
            if refused is None and self._may_wait():
                self.registry.now(self.learn([prefix]))
                refused = self._refused.pop(prefix, None)
            if refused is not None:
                raise Undecodable(refused[0])
            if prefix not in self._readers:
                raise SchemasWanted(f"schema {schema_key(prefix)} was not fetched yet")
        return self._readers[prefix]

    def _refuse(self, prefix: bytes, reason: str) -> None:
        until = 0.0
        if not self.registry.is_local:
            until = asyncio.get_running_loop().time() + _REFUSED_S
        if len(self._refused) >= _MAX_REFUSED:
            self._refused.clear()
        self._refused[prefix] = reason, until

    def _is_refused(self, prefix: bytes) -> bool:
        refused = self._refused.get(prefix)
        return refused is not None and asyncio.get_running_loop().time() < refused[1]

    async def _resolved(self, schema: SchemaText) -> tuple[ResolvedReference, ...]:
        """Everything a schema refers to. Raises RegistryError, InvalidSchema."""
        found: dict[Reference, ResolvedReference] = {}
        pending = list(schema.references)
        while pending:
            reference = pending.pop()
            if reference in found:
                continue
            one = (await self.registry.version(reference.subject, reference.version)).schema
            found[reference] = ResolvedReference(
                reference, one.schema_type, one.text, one.references
            )
            pending += one.references
        return resolve_references(schema.references, found.get)

    # what a format adds

    @abstractmethod
    async def _schema_text(self, part: Part) -> SchemaText:
        """What is registered for a part, its references registered before it."""

    @abstractmethod
    def _writer(
        self,
        part: Part,
        registered: Registered,
        references: tuple[ResolvedReference, ...],
        prefix: bytes,
    ) -> Write:
        """Raises UnsupportedType, InvalidSchema."""

    @abstractmethod
    def _reader(
        self, schema: SchemaText, references: tuple[ResolvedReference, ...], size: int
    ) -> Read:
        """For records whose payload begins after ``size`` bytes. Raises UnsupportedType,
        InvalidSchema."""

    def _header_size(self, data: bytes) -> int:
        """How much of a record with a GUID goes into its header."""
        return GUID_SIZE

    def _encode_otherwise(self, value: Any, error: Exception) -> bytes:
        """Another way to write the value, or DoesNotFit with the place of the fault."""
        raise DoesNotFit("value", f"{_reason(error)} in {shown(value)}") from None


def _guid_prefix(registered: Registered) -> bytes:
    """Registries before 8.0 tell no GUID; it follows from the text."""
    schema = registered.schema
    return guid_prefix(registered.guid or schema_guid(schema.text, schema.references))


def _reason(error: Exception) -> str:
    if isinstance(error, IndexError | struct.error):
        return "it ends too early"
    return str(error) or type(error).__name__
