"""``/subjects``: versions, registration, lookup, deletion."""

from __future__ import annotations

from ..entities import LATEST, SchemaVersion
from ..errors import RegistryError, schema_not_found, subject_not_found, version_not_found
from ..records import SchemaKey
from ..schemas.json_text import Json
from ..service import RegistryService
from ..subjects import EVERY_CONTEXT, QualifiedSubject, context_of
from .answers import registered_object, version_object
from .bodies import schema_request
from .call import Call
from .text import Text


async def list_subjects(service: RegistryService, call: Call) -> Json:
    deleted, only = call.flag("deleted"), call.flag("deletedOnly")
    own = EVERY_CONTEXT if call.context == "." else str(QualifiedSubject(call.context, ""))
    prefix = call.text("subjectPrefix", own)
    found = [
        subject
        for subject in sorted(service.machine.state.subjects)
        if has_prefix(subject, prefix) and _is_listed(service, subject, deleted, only)
    ]
    return [*call.page(found)]


def _is_listed(service: RegistryService, subject: str, deleted: bool, only: bool) -> bool:
    live = bool(service.machine.state.versions(subject))
    return not live if only else live or deleted


def has_prefix(subject: str, prefix: str) -> bool:
    """``:*:`` at the front of a prefix stands for every context."""
    qualified = QualifiedSubject.parse(subject)
    if prefix.startswith(EVERY_CONTEXT):
        return qualified.name.startswith(prefix.removeprefix(EVERY_CONTEXT))
    wanted = QualifiedSubject.parse(prefix)
    return qualified.context == wanted.context and qualified.name.startswith(wanted.name)


async def list_versions(service: RegistryService, call: Call) -> Json:
    only, negative = call.flag("deletedOnly"), call.flag("deletedAsNegative")
    deleted = call.flag("deleted") or only or negative
    versions = service.machine.state.versions(call.subject, deleted=deleted)
    if only:
        versions = [version for version in versions if version.deleted]
    if not versions:
        raise subject_not_found(call.subject)
    numbers = [-one.version if negative and one.deleted else one.version for one in versions]
    return [*call.page(numbers)]


def find_version(service: RegistryService, call: Call, *, deleted: bool) -> SchemaVersion:
    """The version of the path. Raises ``RegistryError`` 40401, 40402, 42202."""
    number, subject = call.version, call.subject
    versions = service.machine.state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    if number == LATEST:
        live = [version for version in versions if not version.deleted]
        found = live[-1] if live else versions[-1]
    else:
        one = service.machine.state.version(subject, number)
        if one is None or (one.deleted and not deleted):
            raise version_not_found(number)
        found = one
    return found


async def formatted(service: RegistryService, call: Call, version: SchemaVersion) -> str | None:
    """The text as the query's ``format`` asks; None for the stored one."""
    wanted = call.text("format")
    if not wanted:
        return None
    return (await service.parsed_version(version)).formatted(wanted)


async def get_version(service: RegistryService, call: Call) -> Json:
    version = find_version(service, call, deleted=call.flag("deleted"))
    qualified = call.text("referenceFormat").lower() == "qualified"
    text = await formatted(service, call, version)
    return version_object(version, text, qualified=qualified)


async def get_version_schema(service: RegistryService, call: Call) -> Text:
    version = find_version(service, call, deleted=call.flag("deleted"))
    text = await formatted(service, call, version)
    return Text(version.content.text if text is None else text)


async def referenced_by(service: RegistryService, call: Call) -> Json:
    version = find_version(service, call, deleted=True)
    referrers = service.machine.state.referrers(SchemaKey(version.subject, version.version))
    ids = {one.id for one in referrers if call.flag("deleted") or not one.deleted}
    return [*call.page(sorted(ids))]


async def register(service: RegistryService, call: Call) -> Json:
    subject = call.subject
    request = schema_request(call.json_object())
    version = await service.register(subject, request, normalize=call.flag("normalize"))
    text = await formatted(service, call, version)
    content = version.content
    is_as_sent = content.metadata == request.metadata and content.rule_set == request.rule_set
    if text is None and not (request.schema and is_as_sent):
        text = content.text
    return registered_object(version, text)


async def look_up(service: RegistryService, call: Call) -> Json:
    version = await service.look_up(
        call.subject,
        schema_request(call.json_object()),
        normalize=call.flag("normalize"),
        deleted=call.flag("deleted"),
    )
    return version_object(version, await formatted(service, call, version))


async def delete_subject(service: RegistryService, call: Call) -> Json:
    subject, permanent = call.subject, call.flag("permanent")
    machine = service.machine
    numbers = await service.change(lambda: machine.delete_subject(subject, permanent=permanent))
    return [*numbers]


async def delete_version(service: RegistryService, call: Call) -> Json:
    subject, number, permanent = call.subject, call.version, call.flag("permanent")
    machine = service.machine
    return await service.change(
        lambda: machine.delete_version(subject, number, permanent=permanent)
    )


async def find_by_metadata(service: RegistryService, call: Call) -> Json:
    """The newest version whose metadata properties hold every pair of ``key`` and ``value``."""
    subject = call.subject
    keys, values = call.texts("key"), call.texts("value")
    if len(keys) != len(values):
        raise RegistryError(400, "there have to be as many key as value parameters")
    versions = service.machine.state.versions(subject, deleted=call.flag("deleted"))
    if not versions:
        raise subject_not_found(subject)
    for version in reversed(versions):
        pairs = zip(keys, values, strict=True)
        if all(version.content.property_value(key) == value for key, value in pairs):
            return version_object(version, await formatted(service, call, version))
    raise schema_not_found(f"in context {context_of(subject)} with this metadata")
