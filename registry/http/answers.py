"""Bodies of answers: the members Confluent's clients know, in its order, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..compatibility import LevelVerdict
from ..entities import Content, SchemaVersion
from ..schema_registry import reference_object
from ..schemas import Reference
from ..schemas.json_text import Json
from ..subjects import context_of, in_context


def version_object(
    version: SchemaVersion,
    text: str | None = None,
    *,
    qualified: bool = False,
    aliases: Sequence[str] = (),
) -> dict[str, Json]:
    """A version in full; ``text`` replaces the stored one (``format``)."""
    answer: dict[str, Json] = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
    }
    context = context_of(version.subject) if qualified else None
    answer.update(content_members(version.content, text, context=context))
    if version.deleted:
        answer["deleted"] = True
    if aliases:
        answer["aliases"] = [*aliases]
    return answer


def content_members(
    content: Content, text: str | None = None, *, context: str | None = None
) -> dict[str, Json]:
    """With ``context`` subjects of references say which context they are in."""
    answer: dict[str, Json] = {
        "guid": content.guid,
        "schemaType": content.schema_type,
    }
    if content.references:
        answer["references"] = [
            reference_object(_qualified(one, context)) for one in content.references
        ]
    if content.metadata is not None:
        answer["metadata"] = content.metadata_object
    if content.rule_set is not None:
        answer["ruleSet"] = content.rule_set_object
    answer["schema"] = content.text if text is None else text
    return answer


def _qualified(reference: Reference, context: str | None) -> Reference:
    if context is None:
        return reference
    return Reference(reference.name, in_context(context, reference.subject), reference.version)


def registered_object(version: SchemaVersion, text: str | None = None) -> dict[str, Json]:
    """The answer to a registration. With ``text`` the schema is part of it.

    Clients keep a schema that is in the answer in place of the one they sent, in their own
    spelling: so it is only there when they did not send it, when it got metadata or rules they did
    not send, or when they asked for a format.
    """
    answer: dict[str, Json] = {
        "id": version.id,
        "version": version.version,
        "guid": version.content.guid,
    }
    if text is not None:
        answer.update(content_members(version.content, text))
    return answer


def subject_version(version: SchemaVersion) -> dict[str, Json]:
    return {"subject": version.subject, "version": version.version}


def verdict_object(verdict: LevelVerdict, *, verbose: bool) -> dict[str, Json]:
    answer: dict[str, Json] = {"is_compatible": verdict.is_compatible}
    if verbose:
        answer["messages"] = list(verdict.messages())
    return answer


def config_echo(changes: Mapping[str, Json]) -> dict[str, Json]:
    """The answer to a change of the config: the level is called ``compatibility`` there."""
    return {
        "compatibility" if name == "compatibilityLevel" else name: value
        for name, value in changes.items()
        if value is not None
    }
