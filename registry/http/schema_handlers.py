"""``/schemas`` and ``/contexts``: by id, by GUID, all of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..entities import SchemaVersion
from ..errors import schema_not_found
from ..schemas.json_text import Json
from ..service import RegistryService
from ..state import IdEntry
from ..subjects import EVERY_CONTEXT, QualifiedSubject
from .answers import content_members, subject_version, version_object
from .call import Call
from .subject_handlers import formatted, has_prefix
from .text import Text

MAX_SCHEMAS = 1_000
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Found(NamedTuple):
    context: str
    entry: IdEntry
    version: SchemaVersion
    """One that has the id: of the subject that was asked for, if it is there."""


def _find(service: RegistryService, call: Call) -> _Found:
    """The schema of the id, from the context of the subject in the query, else from another
    context that has it under this subject name. Raises ``RegistryError`` 40403, 404."""
    state, schema_id, wanted = service.machine.state, call.schema_id, call.subject_filter
    entry = state.entry(wanted.context, schema_id)
    if entry is not None:
        return _Found(wanted.context, entry, _version_with(service, entry, str(wanted)))
    for context in state.contexts if wanted.name else ():
        entry = state.entry(context, schema_id)
        subject = str(QualifiedSubject(context, wanted.name))
        if entry is not None and any(key.subject == subject for key in entry.uses):
            return _Found(context, entry, _version_with(service, entry, subject))
    raise schema_not_found(str(schema_id))


def _version_with(service: RegistryService, entry: IdEntry, subject: str) -> SchemaVersion:
    """A live version of that subject before all others."""
    versions = [version for key in entry.uses if (version := service.machine.state.version(*key))]
    return min(versions, key=lambda one: (one.subject != subject, one.deleted))


async def get_schema(service: RegistryService, call: Call) -> Json:
    found = _find(service, call)
    qualified = call.text("referenceFormat").lower() == "qualified"
    answer = content_members(
        found.entry.content,
        await formatted(service, call, found.version),
        context=found.context if qualified else None,
    )
    if call.text("subject"):
        answer.update(subject_version(found.version))
    if call.flag("fetchMaxId"):
        answer["maxId"] = service.machine.state.highest_id(found.context)
    return answer


async def get_schema_text(service: RegistryService, call: Call) -> Text:
    found = _find(service, call)
    text = await formatted(service, call, found.version)
    return Text(found.entry.content.text if text is None else text)


def _uses(service: RegistryService, call: Call) -> list[SchemaVersion]:
    found, wanted = _find(service, call), call.subject_filter
    versions = (service.machine.state.version(*key) for key in sorted(found.entry.uses))
    return [
        version
        for version in versions
        if version is not None
        and (call.flag("deleted") or not version.deleted)
        and (not wanted.name or version.subject == str(wanted))
    ]


async def versions_of_id(service: RegistryService, call: Call) -> Json:
    return [*call.page([subject_version(version) for version in _uses(service, call)])]


async def subjects_of_id(service: RegistryService, call: Call) -> Json:
    return [*call.page(sorted({version.subject for version in _uses(service, call)}))]


async def get_by_guid(service: RegistryService, call: Call) -> Json:
    for context, schema_id in _ids_of_guid(service, call):
        entry = service.machine.state.entry(context, schema_id)
        if entry is not None:
            version = _version_with(service, entry, "")
            return content_members(entry.content, await formatted(service, call, version))
    raise schema_not_found(call.parameters["guid"][:40])


async def ids_of_guid(service: RegistryService, call: Call) -> Json:
    return [
        {"context": context, "id": schema_id} for context, schema_id in _ids_of_guid(service, call)
    ]


def _ids_of_guid(service: RegistryService, call: Call) -> list[tuple[str, int]]:
    guid = call.parameters["guid"].lower()
    found = service.machine.state.ids_of_guid(guid) if _GUID.fullmatch(guid) else []
    if not found:
        raise schema_not_found(guid[:40])
    return found


async def list_schemas(service: RegistryService, call: Call) -> Json:
    own = EVERY_CONTEXT if call.context == "." else str(QualifiedSubject(call.context, ""))
    prefix, state = call.text("subjectPrefix", own), service.machine.state
    aliases = service.machine.settings.aliases() if call.flag("aliases") else {}
    found: list[SchemaVersion] = []
    for subject in sorted(state.subjects):
        if any(has_prefix(name, prefix) for name in (subject, *aliases.get(subject, ()))):
            versions = state.versions(subject, deleted=call.flag("deleted"))
            found += versions[-1:] if call.flag("latestOnly") else versions
    return [
        version_object(version, aliases=aliases.get(version.subject, ()))
        for version in call.page(found, MAX_SCHEMAS)
    ]


async def schema_types(service: RegistryService, call: Call) -> Json:
    return ["JSON", "PROTOBUF", "AVRO"]


async def list_contexts(service: RegistryService, call: Call) -> Json:
    prefix = call.text("contextPrefix")
    found = [one for one in service.machine.state.contexts if one.startswith(prefix)]
    return [*call.page(found)]
