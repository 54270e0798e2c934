"""The registry as operations: decide on the leader, write, answer once it is read back.

Reads are answered from memory by every instance. Who misses something there, or is refused, gets
that answer only from an instance that has read what is in the topic now: what a client was told is
there, is there everywhere. That is so for the leader as well, which may have been deposed without
having heard of it. A write it makes then is refused; what takes no write, since it is there
already, has to be looked up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from .checking import Checker
from .compatibility import LevelVerdict
from .contracts import without_version
from .entities import Config, Content, SchemaRequest, SchemaVersion
from .errors import (
    NotLeader,
    RegistryError,
    StoreTimeout,
    incompatible,
    schema_not_found,
    subject_not_found,
)
from .leadership import Leadership
from .records import Record
from .schema_registry import Decision, SchemaRegistry
from .schemas import ParsedSchema
from .sources import OldVersion, Source, content_of

R = TypeVar("R")


class Store(Protocol):
    """The log that decisions go to: ``SchemaStore``, or a list in memory."""

    @property
    def position(self) -> int:
        """Everything below this offset is replayed."""

    async def lead(self) -> None:
        """Be the only one who can write, with everything read that was written before."""

    async def resign(self) -> None:
        """Stop being able to write."""

    async def write(self, records: Sequence[Record]) -> None:
        """Append all or nothing; returns when they are replayed."""

    async def catch_up(self) -> None:
        """Until everything is replayed that is written now."""


class RegistryService:
    """``write_timeout_s`` bounds one write as its caller sees it; the write itself runs on."""

    def __init__(
        self,
        machine: SchemaRegistry,
        store: Store,
        leadership: Leadership,
        checker: Checker,
        *,
        write_timeout_s: float = 20.0,
    ) -> None:
        self.machine = machine
        self.store = store
        self.leadership = leadership
        self.checker = checker
        self._write_timeout = write_timeout_s
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[object]] = set()

    async def close(self) -> None:
        """Wait for the writes that are under way."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    # writing

    async def change(self, decide: Callable[[], Decision[R]]) -> R:
        """Run one decision as the leader; raises what it raises, ``NotLeader``, ``StoreFailed``."""

        async def work() -> Decision[R]:
            return decide()

        return await self._exclusively(work)

    async def _exclusively(self, work: Callable[[], Awaitable[Decision[R]]]) -> R:
        """Make and write one decision at a time, with everything read that was written. A caller
        that goes away does not interrupt a write."""
        if not self.leadership.is_self:
            raise self._not_leader()
        task = asyncio.create_task(self._as_leader(work))
        self._writes.add(task)
        task.add_done_callback(self._written)
        try:
            async with asyncio.timeout(self._write_timeout):
                return await asyncio.shield(task)
        except TimeoutError:
            raise StoreTimeout("the write took too long") from None

    def _written(self, task: asyncio.Task[R]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may be gone

    async def _as_leader(self, work: Callable[[], Awaitable[Decision[R]]]) -> R:
        async with self._writing:
            if not self.leadership.is_self:
                raise self._not_leader()
            try:
                await self.store.lead()
                position = self.store.position
                decision = await work()
                if not decision.records and await self._has_moved_from(position):
                    decision = await work()
                if decision.records:
                    await self.store.write(decision.records)
            except NotLeader:
                self.leadership.deposed()
                raise
            return decision.response

    async def _has_moved_from(self, position: int) -> bool:
        """Whether more is known now, with all that was written before, than at ``position``."""
        await self.store.catch_up()
        return self.store.position != position

    async def change_role(self) -> None:
        """Begin to lead now instead of with the first write, or stop being able to.

        Raises ``RegistryError``.
        """

        async def nothing() -> Decision[None]:
            return Decision(None)

        if self.leadership.is_self:
            await self._exclusively(nothing)
            return
        async with self._writing:
            if not self.leadership.is_self:
                await self.store.resign()

    def _not_leader(self) -> NotLeader:
        leader = self.leadership.leader
        return NotLeader(None if leader is None or self.leadership.is_self else leader.url)

    # schemas

    async def parsed(
        self, source: Source, *, strict: bool = False, normalize: bool = False
    ) -> ParsedSchema:
        return await self.checker.parse(source, strict=strict, normalize=normalize)

    async def parsed_version(self, version: SchemaVersion) -> ParsedSchema:
        """A stored schema, parsed. Raises ``RegistryError`` when it cannot be."""
        return await self.parsed(self.machine.source_of(version))

    async def register(
        self, subject: str, request: SchemaRequest, *, normalize: bool
    ) -> SchemaVersion:
        """The version the schema is registered as, the old one if it was. Raises
        ``RegistryError``."""
        position = self.store.position
        config = self.machine.settings.config_for(subject)
        importing = self.machine.check_may_register(subject, request)
        source = self.machine.source(subject, request)
        parsed = await self.parsed(
            source, strict=not importing, normalize=normalize or config.normalize
        )
        content = content_of(source, parsed)
        existing = self.machine.registered(subject, content, request.id)
        if existing is not None and not await self._has_moved_from(position):
            return existing

        async def work() -> Decision[SchemaVersion]:
            if self.machine.registered(subject, content, request.id) is None and not importing:
                await self._check_fits(subject, content, parsed)
            return self.machine.register(subject, request, content)

        version = await self._exclusively(work)
        return self.machine.state.version(subject, version.version) or version

    async def _check_fits(self, subject: str, content: Content, parsed: ParsedSchema) -> None:
        config = self.machine.settings.config_for(subject)
        versions = self.machine.candidates(subject, content, config)
        verdict = await self.compare(config, parsed, versions)
        if not verdict.is_compatible:
            raise incompatible(subject, verdict.messages())

    async def compare(
        self, config: Config, parsed: ParsedSchema, versions: Sequence[SchemaVersion]
    ) -> LevelVerdict:
        """Raises ``RegistryError``."""
        old = [OldVersion(one.version, self.machine.source_of(one)) for one in versions]
        return await self.checker.compare(config, parsed, old)

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool
    ) -> SchemaVersion:
        """The newest version with this schema. Raises ``RegistryError`` 40401, 40403, 42201."""
        versions = self.machine.state.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        config = self.machine.settings.config_for(subject)
        source = self.machine.source(subject, request)
        parsed = await self.parsed(source, normalize=normalize or config.normalize)
        sent = content_of(source, parsed)
        for content in (sent, self.machine.filled(subject, sent)):
            for version in reversed(versions):
                if version.content == content:
                    return version
            for version in reversed(versions):
                if await self._matches(version, content, parsed, normalize=normalize):
                    return version
        raise schema_not_found()

    async def _matches(
        self, version: SchemaVersion, content: Content, parsed: ParsedSchema, *, normalize: bool
    ) -> bool:
        """Whether they differ only in what a lookup does not mind: references written out, the
        version property of the metadata, with ``normalize`` the spelling."""
        stored = version.content
        if stored.schema_type != content.schema_type:
            return False
        if _unversioned(stored) != _unversioned(content):
            return False
        written_out = bool(stored.references) != bool(content.references)
        if not (normalize or written_out):
            return stored.text == content.text and stored.references == content.references
        try:
            other = await self.parsed(self.machine.source_of(version), normalize=normalize)
        except RegistryError:
            return False  # stored by another registry, and not understood here
        return other.matches(parsed)


def _unversioned(content: Content) -> tuple[object, str | None]:
    return without_version(content.metadata_object), content.rule_set
