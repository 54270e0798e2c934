"""The registry's decisions: what may be registered, deleted and set, as records to append.

Pure. An operation reads the state and returns a ``Decision``: records and the answer that holds
once they are written; ``replay`` takes written records in, the registry's own and those of others,
and is the only mutator. The rules are Confluent's (``KafkaSchemaRegistry``, 8.x).

Registering takes two looks at the state with work between them that may run elsewhere: ``source``
gathers what parsing needs, ``candidates`` what has to be compared, ``register`` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from .compatibility import CompatibilityLevel
from .contracts import merge_metadata, merge_rule_sets, with_version
from .entities import (
    LATEST,
    MAX_ID,
    Config,
    Content,
    SchemaRequest,
    SchemaVersion,
    contract_text,
)
from .errors import (
    RegistryError,
    id_does_not_match,
    invalid_schema,
    not_permitted,
    still_referenced,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from .records import (
    TENANT,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdLimitKey,
    Key,
    ModeKey,
    NoopKey,
    Record,
    SchemaKey,
    encode_json,
    encode_key,
)
from .schemas import (
    InvalidSchema,
    Limits,
    Reference,
    ResolvedReference,
    SchemaTooLarge,
    SchemaType,
    resolve_references,
    schema_type_of,
)
from .schemas.json_text import Json
from .settings import IMPORT, READ_WRITE, Settings
from .sources import Source
from .state import State
from .subjects import DEFAULT_CONTEXT, context_of, in_context, plain

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to append in one transaction, and the answer once they are replayed."""

    response: R
    records: list[Record] = field(default_factory=list)


class SchemaRegistry:
    """The machine. ``state`` may be read by anybody."""

    def __init__(
        self,
        *,
        default_level: CompatibilityLevel = CompatibilityLevel.BACKWARD,
        limits: Limits | None = None,
    ) -> None:
        self.state = State()
        self.settings = Settings(self.state, default_level)
        self.limits = limits or Limits()

    def replay(self, key: bytes, value: bytes | None, timestamp_ms: int = -1) -> str | None:
        """Take one record of the topic in; returns why it was skipped, if it was."""
        return self.state.replay(key, value, timestamp_ms)

    def noop(self) -> list[Record]:
        """A record that says nothing: whoever has read it has read all before."""
        return [(encode_key(NoopKey()), None)]

    # what has to be parsed

    def source(self, subject: str, request: SchemaRequest) -> Source:
        """The schema of a request with all it refers to; ``subject`` decides the context.

        A request without schema takes that of the newest version. Raises ``RegistryError`` 42201,
        42209.
        """
        text, references, kind = request.schema, request.references, request.schema_type
        if not text:
            versions = self.state.versions(subject)
            if not versions:
                raise RegistryError(42201, "Empty schema")
            newest = versions[-1].content
            text, references, kind = newest.text, newest.references, newest.schema_type
        try:
            schema_type = schema_type_of(kind)
        except InvalidSchema as error:
            raise invalid_schema(str(error)) from None
        fixed = tuple(self._fixed(context_of(subject), one) for one in references)
        resolved = self.resolve(context_of(subject), fixed)
        return Source(schema_type, text, fixed, resolved, request.metadata, request.rule_set)

    def source_of(self, version: SchemaVersion) -> Source:
        """A stored schema with all it refers to. Raises ``RegistryError`` 42201, 42209."""
        content = version.content
        try:
            schema_type = SchemaType(content.schema_type)
        except ValueError:
            raise invalid_schema(f"schema type {content.schema_type!r} is not known") from None
        resolved = self.resolve(context_of(version.subject), content.references)
        return Source(
            schema_type,
            content.text,
            content.references,
            resolved,
            content.metadata,
            content.rule_set,
        )

    def _fixed(self, context: str, reference: Reference) -> Reference:
        """Version -1 of a reference is the newest one now."""
        if reference.version != LATEST:
            return reference
        versions = self.state.versions(plain(in_context(context, reference.subject)))
        if not versions:
            raise _no_reference(reference)
        return Reference(reference.name, reference.subject, versions[-1].version)

    def resolve(
        self, context: str, references: Sequence[Reference]
    ) -> tuple[ResolvedReference, ...]:
        """Everything the references lead to. Raises ``RegistryError`` 42201, 42209."""
        try:
            return resolve_references(
                [_within(context, one) for one in references], self._referred, self.limits
            )
        except SchemaTooLarge as error:
            raise RegistryError(42209, str(error)) from None
        except InvalidSchema as error:
            raise invalid_schema(str(error)) from None

    def _referred(self, reference: Reference) -> ResolvedReference | None:
        subject = plain(reference.subject)
        found = self.state.version(subject, reference.version)
        if found is None:
            return None
        context = context_of(subject)
        try:
            schema_type = SchemaType(found.content.schema_type)
        except ValueError:
            return None
        inner = tuple(_within(context, one) for one in found.content.references)
        return ResolvedReference(reference, schema_type, found.content.text, inner)

    # registering

    def registered(self, subject: str, content: Content, wanted_id: int) -> SchemaVersion | None:
        """The live version of ``subject`` with this content, if there is one.

        ``wanted_id`` is what the request says, -1 for nothing. Raises ``RegistryError`` 42207.
        """
        versions = self.state.versions(subject)
        if not versions:
            return None
        importing = self.settings.mode_in_effect(subject) == IMPORT
        filled = content if importing else self.filled(subject, content)
        config = self.settings.config_for(subject)
        for wanted in [filled] if config.has_contracts else [content, filled]:
            for version in reversed(versions):
                if version.content.is_same_as(wanted):
                    if wanted_id >= 0 and version.id != wanted_id:
                        raise id_does_not_match(version.id, wanted_id)
                    return version
        return None

    def filled(self, subject: str, content: Content) -> Content:
        """With the metadata and rules it gets when it is registered: those of the newest version
        if it brings none of its own, on top of the defaults of the config, below its overrides."""
        config = self.settings.config_for(subject)
        newest = self.state.versions(subject)[-1:]
        if not newest and not config.has_contracts:
            return content
        metadata, rules = content.metadata_object, content.rule_set_object
        for version in newest:
            metadata = version.content.metadata_object if metadata is None else metadata
            rules = version.content.rule_set_object if rules is None else rules
        merged = merge_metadata(
            config.contract("defaultMetadata"), metadata, config.contract("overrideMetadata")
        )
        if merged is not None:
            merged = with_version(merged, self.state.highest_version(subject) + 1)
        merged_rules = merge_rule_sets(
            config.contract("defaultRuleSet"), rules, config.contract("overrideRuleSet")
        )
        return replace(
            content, metadata=contract_text(merged), rule_set=contract_text(merged_rules)
        )

    def candidates(self, subject: str, content: Content, config: Config) -> list[SchemaVersion]:
        """The live versions a new one has to get along with, oldest first."""
        versions = self.state.versions(subject)
        if config.group is not None:
            content = self.filled(subject, content)
            own = content.property_value(config.group)
            versions = [v for v in versions if v.content.property_value(config.group) == own]
        if config.level is CompatibilityLevel.NONE:
            return []
        return versions if config.level.is_transitive else versions[-1:]

    def check_may_register(self, subject: str, request: SchemaRequest) -> bool:
        """Raises ``RegistryError`` 42205 when the mode does not allow it; True for an import."""
        mode = self.settings.mode_in_effect(subject)
        self.settings.check_writable(subject)
        if request.id >= 0:
            if mode != IMPORT:
                raise not_permitted(f"Subject {subject} is not in import mode")
            if not 0 < request.id <= MAX_ID:
                raise not_permitted(f"Schema id {request.id} is not in [1, 2^31-1]")
            return True
        if mode != READ_WRITE:
            raise not_permitted(f"Subject {subject} is not in read-write mode")
        return False

    def register(
        self, subject: str, request: SchemaRequest, content: Content
    ) -> Decision[SchemaVersion]:
        """A new version, unless the content is there already; compatibility was checked before.

        Raises ``RegistryError``.
        """
        importing = self.check_may_register(subject, request)
        existing = self.registered(subject, content, request.id)
        if existing is not None:
            return Decision(existing)
        if not importing:
            content = self.filled(subject, content)
        context = context_of(subject)
        self.resolve(context, content.references)  # one may have been deleted since
        schema_id = self._id_for(context, request, content)
        number = self._version_for(subject, request, importing)
        version = SchemaVersion(subject, number, schema_id, content)
        records = [self._schema_record(version)]
        if context != DEFAULT_CONTEXT and not self.state.is_context(context):
            value: dict[str, Json] = {"tenant": TENANT, "context": context}
            records.insert(0, (encode_key(ContextKey(TENANT, context)), encode_json(value)))
        for old in self.state.versions(subject, deleted=True):
            key = SchemaKey(subject, old.version)
            superseded = old.deleted and old.id == schema_id and old.version != number
            if superseded and not self.state.referrers(key):
                records += self._tombstones(key)
        return Decision(version, records)

    def _id_for(self, context: str, request: SchemaRequest, content: Content) -> int:
        if request.id >= 0:
            entry = self.state.entry(context, request.id)
            if entry is not None and entry.content != content:
                raise not_permitted(f"Overwrite new schema with id {request.id} is not permitted.")
            return request.id
        known = self.state.id_of(context, content)
        schema_id = self.state.highest_id(context) + 1 if known is None else known
        if schema_id > MAX_ID:
            raise RegistryError(50001, f"there are no schema ids left in context {context}")
        return schema_id

    def _version_for(self, subject: str, request: SchemaRequest, importing: bool) -> int:
        following = self.state.highest_version(subject) + 1
        given = request.version
        if given <= 0 or given == following:
            return following
        if not importing:
            raise invalid_schema(f"version {given} is not one more than the newest version")
        if self.state.version(subject, given) is not None:
            raise not_permitted(f"Version {given} of subject {subject} exists already")
        if given > MAX_ID:
            raise invalid_schema(f"version {given} is over 2^31-1")
        return given

    # deleting

    def delete_subject(self, subject: str, *, permanent: bool) -> Decision[list[int]]:
        """The versions that are deleted now. Raises ``RegistryError``."""
        self.settings.check_writable(subject)
        every = self.state.versions(subject, deleted=True)
        live = [version for version in every if not version.deleted]
        if not every:
            raise subject_not_found(subject)
        if permanent and live:
            raise subject_not_soft_deleted(subject)
        if not permanent and not live:
            raise subject_soft_deleted(subject)
        for version in every if permanent else live:
            self._check_unreferenced(version, permanent=permanent, whole_subject=True)
        if permanent:
            newest_first = list(reversed(every))
            records = self._erase(newest_first)
            return Decision([version.version for version in every], records)
        numbers = [version.version for version in live]
        value: dict[str, Json] = {"subject": subject, "version": numbers[-1]}
        key = self.state.key_bytes(DeleteSubjectKey(subject))[-1]
        return Decision(numbers, [(key, encode_json(value))])

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> Decision[int]:
        """``number`` -1 is the newest live version. Raises ``RegistryError``."""
        self.settings.check_writable(subject)
        every = self.state.versions(subject, deleted=True)
        if not every:
            raise subject_not_found(subject)
        if number == LATEST:
            live = self.state.versions(subject)
            version = live[-1] if live else None
        else:
            version = self.state.version(subject, number)
        if version is None:
            raise version_not_found(number)
        if permanent and not version.deleted:
            raise version_not_soft_deleted(subject, version.version)
        if not permanent and version.deleted:
            raise version_soft_deleted(subject, version.version)
        self._check_unreferenced(version, permanent=permanent)
        if permanent:
            return Decision(version.version, self._erase([version]))
        return Decision(version.version, [self._schema_record(replace(version, deleted=True))])

    def _check_unreferenced(
        self, version: SchemaVersion, *, permanent: bool, whole_subject: bool = False
    ) -> None:
        """What is gone for good may not be missed by soft-deleted schemas either: they can still be
        read by id."""
        for referrer in self.state.referrers(SchemaKey(version.subject, version.version)):
            if whole_subject and referrer.subject == version.subject:
                continue
            if permanent or not referrer.deleted:
                raise still_referenced(version.subject, version.version)

    def _erase(self, versions: Sequence[SchemaVersion]) -> list[Record]:
        """Tombstones for versions of one subject, with what goes along with the last of them."""
        subject = versions[0].subject
        records: list[Record] = []
        for version in versions:
            records += self._tombstones(SchemaKey(subject, version.version))
        if len(versions) == len(self.state.versions(subject, deleted=True)):
            if self.state.config(subject) is not None:
                records += self._tombstones(ConfigKey(subject))
            if self.state.mode(subject) is not None:
                records += self._tombstones(ModeKey(subject))
        context = context_of(subject)
        highest = self.state.highest_id(context)
        if any(version.id == highest for version in versions):
            # Compaction removes the last trace of the highest id; it must not be given again.
            value: dict[str, Json] = {"context": context, "highestId": highest}
            records.insert(0, (encode_key(IdLimitKey(context)), encode_json(value)))
        return records

    def clear_deleted(self, scope: str) -> list[Record]:
        """Tombstones for every soft-deleted version of a subject or context."""
        records: list[Record] = []
        for subject in self.settings.subjects_within(scope):
            gone = [v for v in self.state.versions(subject, deleted=True) if v.deleted]
            if gone:
                records += self._erase(list(reversed(gone)))
        return records

    # records

    def _schema_record(self, version: SchemaVersion) -> Record:
        content = version.content
        value: dict[str, Json] = {
            "subject": version.subject,
            "version": version.version,
            "id": version.id,
        }
        if content.schema_type != SchemaType.AVRO:
            value["schemaType"] = str(content.schema_type)
        if content.references:
            value["references"] = [reference_object(one) for one in content.references]
        if content.metadata is not None:
            value["metadata"] = content.metadata_object
        if content.rule_set is not None:
            value["ruleSet"] = content.rule_set_object
        value["schema"] = content.text
        value["deleted"] = version.deleted
        key = self.state.key_bytes(SchemaKey(version.subject, version.version))[-1]
        return key, encode_json(value)

    def _tombstones(self, key: Key) -> list[Record]:
        return [(data, None) for data in self.state.key_bytes(key)]

    # settings

    def set_config(self, scope: str, changes: Mapping[str, Json]) -> Decision[Mapping[str, Json]]:
        """Members of ``changes`` replace those set, null removes one. Raises ``RegistryError``."""
        self.settings.check_writable(scope)
        members = self.settings.changed_config(scope, changes)
        key = self.state.key_bytes(ConfigKey(scope))[-1]
        value: dict[str, Json] = {"subject": scope} if scope else {}
        return Decision(members, [(key, encode_json({**value, **members}))])

    def delete_config(self, scope: str) -> Decision[Mapping[str, Json]]:
        """The config that was in force. Raises ``RegistryError``."""
        self.settings.check_writable(scope)
        old = self.settings.own_config(scope)
        if old is None:
            raise subject_not_found(scope)
        return Decision(old, self._tombstones(ConfigKey(scope)))

    def set_mode(self, scope: str, mode: str, *, force: bool) -> Decision[str]:
        """Raises ``RegistryError``."""
        records: list[Record] = []
        if mode == IMPORT and self.settings.mode_in_effect(scope) != IMPORT:
            if not force and any(
                self.state.versions(one) for one in self.settings.subjects_within(scope)
            ):
                raise not_permitted("Cannot import since found existing subjects")
            records = [*self.clear_deleted(scope), self.settings.clear_record(scope)]
        return Decision(mode, [*records, self.settings.mode_record(scope, mode)])

    def delete_mode(self, scope: str, *, recursive: bool) -> Decision[str]:
        """The mode that was set. Raises ``RegistryError``."""
        old = self.state.mode(scope)
        if old is None:
            if scope:
                raise subject_not_found(scope)
            old = READ_WRITE
        records = self._tombstones(ModeKey(scope))
        if recursive:
            for inner in self.state.modes_within(scope):
                records += self._tombstones(ModeKey(inner))
        return Decision(old, records)


def _within(context: str, reference: Reference) -> Reference:
    subject = in_context(context, reference.subject)
    return Reference(reference.name, subject, reference.version)


def _no_reference(reference: Reference) -> RegistryError:
    return invalid_schema(
        f"no schema for reference {reference.name!r}: subject {reference.subject!r}"
    )


def reference_object(reference: Reference) -> dict[str, Json]:
    return {
        "name": reference.name,
        "subject": reference.subject,
        "version": reference.version,
    }
