"""A registry without topic, loop or network: what is decided is replayed at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from onceward.registry.checking import Checker
from onceward.registry.entities import SchemaRequest, SchemaVersion, contract_text
from onceward.registry.errors import RegistryError, incompatible
from onceward.registry.leadership import Identity, SoleInstance
from onceward.registry.records import Record
from onceward.registry.schema_registry import Decision, SchemaRegistry
from onceward.registry.schemas import Reference
from onceward.registry.service import RegistryService
from onceward.registry.sources import OldVersion, compare, content_of, parse

R = TypeVar("R")


class MemoryStore:
    """A topic in a list. ``fail_next`` writes and then reports a failure, as a lost answer does."""

    def __init__(self, machine: SchemaRegistry) -> None:
        self.machine = machine
        self.log: list[Record] = []
        self.fail_next = False

    @property
    def position(self) -> int:
        return len(self.log)

    async def lead(self) -> None:
        return

    async def resign(self) -> None:
        return

    async def catch_up(self) -> None:
        return

    async def write(self, records: Sequence[Record]) -> None:
        await asyncio.sleep(0)
        for key, value in records:
            self.log.append((key, value))
            assert self.machine.replay(key, value) is None
        if self.fail_next:
            self.fail_next = False
            raise RegistryError(50001, "the answer was lost")


def memory_service(machine: SchemaRegistry | None = None) -> RegistryService:
    """A service that leads, on a memory store."""
    machine = machine or SchemaRegistry()

    async def inline(work: Callable[[], R]) -> R:
        return work()

    def offload(work: Callable[[], R]) -> Awaitable[R]:
        return inline(work)

    return RegistryService(
        machine,
        MemoryStore(machine),
        SoleInstance(Identity("registry.test", 8081)),
        Checker(offload, machine.limits),
    )


class Direct:
    """The machine driven step by step; ``log`` is everything that was written."""

    def __init__(self) -> None:
        self.machine = SchemaRegistry()
        self.log: list[Record] = []

    def apply(self, decision: Decision[R]) -> R:
        for key, value in decision.records:
            self.log.append((key, value))
            assert self.machine.replay(key, value) is None
        return decision.response

    def register(
        self,
        subject: str,
        text: str,
        *,
        kind: str = "AVRO",
        references: Sequence[Reference] = (),
        metadata: Mapping[str, Any] | None = None,
        id: int = -1,
        version: int = -1,
        normalize: bool = False,
    ) -> SchemaVersion:
        machine = self.machine
        request = SchemaRequest(
            text, kind, tuple(references), contract_text(metadata), None, id, version
        )
        importing = machine.check_may_register(subject, request)
        source = machine.source(subject, request)
        parsed = parse(source, strict=not importing, normalize=normalize, limits=machine.limits)
        content = content_of(source, parsed)
        if not importing and machine.registered(subject, content, id) is None:
            config = machine.settings.config_for(subject)
            old = [
                OldVersion(one.version, machine.source_of(one))
                for one in machine.candidates(subject, content, config)
            ]
            verdict = compare(
                config, parsed, old, limits=machine.limits, expired=lambda: False
            ).verdict
            if not verdict.is_compatible:
                raise incompatible(subject, verdict.messages())
        return self.apply(machine.register(subject, request, content))

    def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> Any:
        if version is None:
            return self.apply(self.machine.delete_subject(subject, permanent=permanent))
        return self.apply(self.machine.delete_version(subject, version, permanent=permanent))


def replayed(log: Sequence[Record]) -> SchemaRegistry:
    """What a registry knows that starts on this log."""
    machine = SchemaRegistry()
    for key, value in log:
        machine.replay(key, value)
    return machine


def compacted(log: Sequence[Record]) -> list[Record]:
    """The last record of every key, in the order of the log; tombstones are gone."""
    last = {key: index for index, (key, _) in enumerate(log)}
    return [
        record
        for index, record in enumerate(log)
        if last[record[0]] == index and record[1] is not None
    ]
