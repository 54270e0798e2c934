"""A registry in this process, for tests and simulations: ``registry="memory://name"``.

The schemas are parsed, compared and numbered as by the real one; nothing is kept on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..client import Registered, SchemaText
from ..compatibility import CompatibilityLevel, Version, check
from ..errors import (
    RegistryError,
    incompatible,
    invalid_schema,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from ..schemas import (
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    parse_schema,
    resolve_references,
    schema_guid,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Version:
    id: int
    schema: SchemaText
    parsed: ParsedSchema
    is_deleted: bool = False


@dataclass(slots=True)
class _Subject:
    versions: dict[int, _Version] = field(default_factory=dict)
    level: CompatibilityLevel | None = None

    def live(self) -> dict[int, _Version]:
        return {number: one for number, one in self.versions.items() if not one.is_deleted}


class MemoryRegistry:
    """The interface of ``RegistryClient``; every coroutine ends without waiting."""

    is_local = True

    def __init__(self, name: str = "", level: str = "BACKWARD") -> None:
        self.address = f"memory://{name}"
        self._subjects: dict[str, _Subject] = {}
        self._ids: dict[SchemaText, int] = {}
        self._level = CompatibilityLevel.parse(level)
        self.requests: list[tuple[str, str]] = []
        """What was asked, in order: method and subject or id."""

    def __repr__(self) -> str:
        return f"MemoryRegistry({self.address!r})"

    def now(self, asking: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that does not wait."""
        try:
            asking.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        asking.close()
        raise RuntimeError("a request to a registry in memory waited for something")

    async def register(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> Registered:
        self.requests.append(("register", subject))
        parsed, text = self._canonical(schema, normalize)
        found = self._subjects.setdefault(subject, _Subject())
        for number, one in found.live().items():
            if one.parsed.matches(parsed):
                return self._registered(subject, number)
        before = [Version(number, one.parsed) for number, one in found.live().items()]
        verdict = check(found.level or self._level, parsed, before)
        if not verdict.is_compatible:
            raise incompatible(subject, verdict.messages())
        schema_id = self._ids.setdefault(text, len(self._ids) + 1)
        number = max(found.versions, default=0) + 1
        found.versions[number] = _Version(schema_id, text, parsed)
        return self._registered(subject, number)

    async def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> Registered:
        self.requests.append(("lookup", subject))
        parsed, _ = self._canonical(schema, normalize)
        live = self._subject(subject).live()
        for number, one in reversed(live.items()):
            if one.parsed.matches(parsed):
                return self._registered(subject, number)
        raise schema_not_found()

    async def by_id(self, schema_id: int, subject: str | None = None) -> SchemaText:
        self.requests.append(("by_id", str(schema_id)))
        for schema, number in self._ids.items():
            if number == schema_id:
                return schema
        raise schema_not_found(str(schema_id))

    async def by_guid(self, guid: str) -> SchemaText:
        self.requests.append(("by_guid", guid))
        for schema in self._ids:
            if schema_guid(schema.text, schema.references) == guid:
                return schema
        raise schema_not_found(guid)

    async def latest(self, subject: str) -> Registered:
        live = self._subject(subject).live()
        return self._registered(subject, max(live))

    async def version(self, subject: str, version: int, *, deleted: bool = True) -> Registered:
        if version < 0:
            return await self.latest(subject)
        found = self._subject(subject, deleted=deleted)
        if version not in (found.versions if deleted else found.live()):
            raise version_not_found(version)
        return self._registered(subject, version)

    async def versions(self, subject: str, *, deleted: bool = True) -> list[int]:
        self.requests.append(("versions", subject))
        found = self._subjects.get(subject, _Subject())
        return list(found.versions if deleted else found.live())

    def registered(self) -> list[Registered]:
        """Every version there is, in the order of the ids."""
        found = [
            self._registered(name, number)
            for name, subject in self._subjects.items()
            for number in subject.live()
        ]
        return sorted(found, key=lambda one: one.id)

    async def subjects(self) -> list[str]:
        return sorted(name for name, found in self._subjects.items() if found.live())

    async def is_compatible(
        self, subject: str, schema: SchemaText, version: int | str = "latest"
    ) -> tuple[bool, list[str]]:
        parsed, _ = self._canonical(schema, normalize=False)
        found = self._subjects.get(subject, _Subject())
        live = found.live()
        if version not in ("latest", -1):
            live = {int(version): live[int(version)]}
        before = [Version(number, one.parsed) for number, one in live.items()]
        verdict = check(found.level or self._level, parsed, before)
        return verdict.is_compatible, verdict.messages()

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        parsed = CompatibilityLevel.parse(level)
        if subject is None:
            self._level = parsed
        else:
            self._subjects.setdefault(subject, _Subject()).level = parsed

    async def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        found = self._subject(subject, deleted=permanent)
        numbers = list(found.versions if permanent else found.live())
        if permanent:
            del self._subjects[subject]
        for one in found.versions.values():
            one.is_deleted = True
        return numbers

    def _subject(self, subject: str, *, deleted: bool = False) -> _Subject:
        found = self._subjects.get(subject)
        if found is None or not (found.versions if deleted else found.live()):
            raise subject_not_found(subject)
        return found

    def _registered(self, subject: str, number: int) -> Registered:
        one = self._subjects[subject].versions[number]
        guid = schema_guid(one.schema.text, one.schema.references)
        return Registered(subject, one.id, number, guid, one.schema)

    def _canonical(self, schema: SchemaText, normalize: bool) -> tuple[ParsedSchema, SchemaText]:
        """Raises RegistryError (42201)."""
        try:
            resolved = resolve_references(schema.references, self._resolve)
            parsed = parse_schema(schema.schema_type, schema.text, schema.references, resolved)
        except InvalidSchema as error:
            raise invalid_schema(str(error)) from None
        if normalize:
            parsed = parsed.normalized()
        return parsed, SchemaText(schema.schema_type, parsed.canonical, parsed.references)

    def _resolve(self, reference: Reference) -> ResolvedReference | None:
        try:
            found = self._subject(reference.subject, deleted=True)
        except RegistryError:
            return None
        number = max(found.versions) if reference.version < 0 else reference.version
        one = found.versions.get(number)
        if one is None:
            return None
        schema = one.schema
        return ResolvedReference(reference, schema.schema_type, schema.text, schema.references)


@functools.lru_cache(maxsize=256)
def memory_registry(name: str) -> MemoryRegistry:
    """The registry of that name in this process: whoever says the name gets the same one."""
    return MemoryRegistry(name)
