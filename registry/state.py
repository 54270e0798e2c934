"""Everything the records of ``_schemas`` say, in the order in which they were written.

``replay`` is the only mutator. It never raises for a record somebody else wrote badly: such a
record is skipped and what was wrong with it is returned, because a registry must start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from .contracts import read_metadata, read_rule_set
from .entities import MAX_ID, Content, SchemaVersion, contract_text
from .errors import RegistryError
from .records import (
    BadRecord,
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdLimitKey,
    Key,
    ModeKey,
    SchemaKey,
    decode_key,
    decode_object,
    encode_key,
)
from .schemas import Reference
from .schemas.json_text import Json
from .subjects import context_of, in_context, is_within, plain


@dataclass(slots=True)
class IdEntry:
    """A schema id: what it stands for and which versions have it, soft-deleted ones included."""

    content: Content
    uses: dict[SchemaKey, None] = field(default_factory=dict)


@dataclass(slots=True)
class ContextState:
    """The ids of one context. ``highest_id`` never goes down, so no id is given twice."""

    ids: dict[int, IdEntry] = field(default_factory=dict)
    by_content: dict[Content, int] = field(default_factory=dict)
    highest_id: int = 0


class State:
    """Subjects, ids, references, settings. Read it freely, change it by ``replay`` only."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, SchemaVersion]] = {}
        self._contexts: dict[str, ContextState] = {}
        self._declared_contexts: set[str] = set()
        self._referrers: defaultdict[SchemaKey, dict[SchemaKey, None]] = defaultdict(dict)
        self._configs: dict[str, dict[str, Json]] = {}
        self._modes: dict[str, str] = {}
        self._odd_keys: defaultdict[Key, dict[bytes, None]] = defaultdict(dict)
        self._guids: defaultdict[str, dict[tuple[str, int], None]] = defaultdict(dict)

    # reading

    @property
    def subjects(self) -> Iterable[str]:
        """Every subject with at least one version, soft-deleted ones included."""
        return self._versions.keys()

    @property
    def contexts(self) -> list[str]:
        used = {context_of(subject) for subject in self._versions}
        return sorted({".", *used, *self._declared_contexts})

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Oldest first; soft-deleted ones only with ``deleted``."""
        found = self._versions.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def version(self, subject: str, number: int) -> SchemaVersion | None:
        """Soft-deleted ones too."""
        return self._versions.get(subject, {}).get(number)

    def highest_version(self, subject: str) -> int:
        """0 when there is none."""
        return max(self._versions.get(subject, {}), default=0)

    def entry(self, context: str, schema_id: int) -> IdEntry | None:
        known = self._contexts.get(context)
        return None if known is None else known.ids.get(schema_id)

    def id_of(self, context: str, content: Content) -> int | None:
        known = self._contexts.get(context)
        return None if known is None else known.by_content.get(content)

    def highest_id(self, context: str) -> int:
        """The highest id ever given in the context, 0 for none."""
        known = self._contexts.get(context)
        return 0 if known is None else known.highest_id

    def ids(self, context: str) -> Iterable[int]:
        known = self._contexts.get(context)
        return () if known is None else known.ids.keys()

    def is_context(self, context: str) -> bool:
        return context in self._declared_contexts

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """(context, id) of the schemas with this GUID."""
        return sorted(self._guids.get(guid, ()))

    def referrers(self, key: SchemaKey) -> list[SchemaVersion]:
        """The versions that refer to this one, soft-deleted ones included."""
        found = (self.version(*referrer) for referrer in self._referrers.get(key, ()))
        return [version for version in found if version is not None]

    def config(self, scope: str) -> Mapping[str, Json] | None:
        """What was set for exactly this subject or context; ``""`` is global."""
        return self._configs.get(scope)

    @property
    def configured(self) -> list[str]:
        """The subjects and contexts that have a config of their own."""
        return sorted(self._configs)

    def mode(self, scope: str) -> str | None:
        """What was set for exactly this subject or context; ``""`` is global."""
        return self._modes.get(scope)

    def modes_within(self, scope: str) -> list[str]:
        """The subjects and contexts below ``scope`` that have a mode of their own."""
        return sorted(one for one in self._modes if one != scope and is_within(one, scope))

    def key_bytes(self, key: Key) -> list[bytes]:
        """The key as it lies in the topic, in every spelling: a tombstone is needed for each.

        Ours alone when the topic has no other. The last one is the newest.
        """
        odd = self._odd_keys.get(key)
        return list(odd) if odd else [encode_key(key)]

    # replay

    def replay(self, key: bytes, value: bytes | None, timestamp_ms: int = -1) -> str | None:
        """Take one record in; returns what is wrong with a record that was skipped."""
        value = value or None  # Karapace deletes with an empty value
        try:
            known = decode_key(key)
            if known is None:
                return "its key type is not known"
            known = _plain_key(known)
            self._apply(known, None if value is None else decode_object(value), timestamp_ms)
        except (BadRecord, RegistryError, UnicodeEncodeError) as error:
            return str(error)
        self._remember_spelling(known, key, gone=value is None)
        return None

    def _remember_spelling(self, key: Key, data: bytes, *, gone: bool) -> None:
        odd = self._odd_keys.get(key)
        if odd is None:
            if gone or data == encode_key(key):
                return
            # One in our spelling may lie in the topic before this one.
            odd = self._odd_keys[key]
            odd[encode_key(key)] = None
        odd.pop(data, None)
        if not gone:
            odd[data] = None
        if not odd:
            del self._odd_keys[key]

    def _apply(self, key: Key, value: dict[str, Json] | None, timestamp_ms: int) -> None:
        match key:
            case SchemaKey():
                if value is None:
                    self._remove(key)
                else:
                    self._put(_version_of(key, value, timestamp_ms))
            case ConfigKey(scope):
                _set_or_drop(self._configs, scope, value)
            case ModeKey(scope):
                mode = None if value is None else value.get("mode")
                _set_or_drop(self._modes, scope, mode if isinstance(mode, str) else None)
            case DeleteSubjectKey(subject):
                if value is not None:
                    self._soft_delete(subject, value.get("version"))
            case ClearSubjectKey(scope):
                if value is not None:
                    self._clear(scope)
            case ContextKey(_, context):
                if value is None:
                    self._declared_contexts.discard(context)
                else:
                    self._declared_contexts.add(context)
            case IdLimitKey(context):
                highest = None if value is None else value.get("highestId")
                if isinstance(highest, int):
                    self._raise_highest(context, highest)

    def _raise_highest(self, context: str, schema_id: int) -> ContextState:
        known = self._contexts.setdefault(context, ContextState())
        known.highest_id = max(known.highest_id, schema_id)
        return known

    def _put(self, version: SchemaVersion) -> None:
        key = SchemaKey(version.subject, version.version)
        context = context_of(version.subject)
        ids = self._raise_highest(context, version.id)
        entry = ids.ids.get(version.id)
        if entry is not None and entry.content != version.content:
            if entry.uses.keys() - {key}:
                raise BadRecord(f"id {version.id} already stands for another schema")
            entry = None
        old = self.version(*key)
        if old is not None:
            if old.id == version.id and entry is not None:
                self._versions[version.subject][version.version] = version
                return
            self._remove(key)
        if entry is None or version.id not in ids.ids:
            entry = ids.ids[version.id] = IdEntry(version.content)
            ids.by_content.setdefault(version.content, version.id)
            self._guids[version.content.guid][context, version.id] = None
        entry.uses[key] = None
        self._versions.setdefault(version.subject, {})[version.version] = version
        for target in self.targets(version):
            self._referrers[target][key] = None

    def targets(self, version: SchemaVersion) -> Iterator[SchemaKey]:
        """What a version refers to."""
        context = context_of(version.subject)
        for reference in version.content.references:
            subject = plain(in_context(context, reference.subject))
            yield SchemaKey(subject, reference.version)

    def _remove(self, key: SchemaKey) -> None:
        version = self._versions.get(key.subject, {}).pop(key.version, None)
        if version is None:
            return
        if not self._versions[key.subject]:
            del self._versions[key.subject]
        for target in self.targets(version):
            self._referrers[target].pop(key, None)
            if not self._referrers[target]:
                del self._referrers[target]
        context = context_of(key.subject)
        ids = self._contexts[context]
        entry = ids.ids[version.id]
        del entry.uses[key]
        if not entry.uses:
            self._forget_id(context, version.id, entry.content)

    def _forget_id(self, context: str, schema_id: int, content: Content) -> None:
        ids = self._contexts[context]
        del ids.ids[schema_id]
        guid = content.guid
        self._guids[guid].pop((context, schema_id), None)
        if not self._guids[guid]:
            del self._guids[guid]
        if ids.by_content.get(content) == schema_id:
            del ids.by_content[content]
            for other, entry in ids.ids.items():  # imports may give one content two ids
                if entry.content == content:
                    ids.by_content[content] = other
                    break

    def _soft_delete(self, subject: str, up_to: Json) -> None:
        if not isinstance(up_to, int):
            raise BadRecord(f"version {up_to!r} in a DELETE_SUBJECT value")
        found = self._versions.get(subject, {})
        for number, version in found.items():
            if number <= up_to:
                found[number] = replace(version, deleted=True)

    def _clear(self, scope: str) -> None:
        gone = [
            SchemaKey(subject, version.version)
            for subject, versions in self._versions.items()
            if is_within(subject, scope)
            for version in versions.values()
            if version.deleted
        ]
        for key in gone:
            self._remove(key)


def _plain_key(key: Key) -> Key:
    """The key with its subject in the one spelling."""
    if isinstance(key, SchemaKey):
        return SchemaKey(plain(key.subject), key.version)
    if isinstance(key, ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey):
        return type(key)(plain(key.subject))
    return key


V = TypeVar("V")


def _set_or_drop(settings: dict[str, V], scope: str, value: V | None) -> None:
    if value is None:
        settings.pop(scope, None)
    else:
        settings[scope] = value


def _version_of(key: SchemaKey, value: Mapping[str, Json], timestamp_ms: int) -> SchemaVersion:
    """Raises ``BadRecord`` and ``RegistryError``."""
    schema_id, text = value.get("id"), value.get("schema")
    if not isinstance(schema_id, int) or isinstance(schema_id, bool):
        raise BadRecord(f"id {schema_id!r} in a SCHEMA value")
    if not 0 < schema_id <= MAX_ID:
        raise BadRecord(f"id {schema_id} in a SCHEMA value")
    if not isinstance(text, str):
        raise BadRecord("a SCHEMA value without schema")
    schema_type = value.get("schemaType")
    content = Content(
        schema_type if isinstance(schema_type, str) else "AVRO",
        text,
        tuple(_references(value.get("references"))),
        contract_text(read_metadata(value.get("metadata"))),
        contract_text(read_rule_set(value.get("ruleSet"))),
    )
    deleted = value.get("deleted") is True
    return SchemaVersion(key.subject, key.version, schema_id, content, deleted, timestamp_ms)


def _references(value: Json) -> Iterator[Reference]:
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, dict):
            raise BadRecord("a reference that is no object")
        name, subject, version = one.get("name"), one.get("subject"), one.get("version")
        if not (isinstance(name, str) and isinstance(subject, str) and isinstance(version, int)):
            raise BadRecord("a reference without name, subject or version")
        yield Reference(name, subject, version)
