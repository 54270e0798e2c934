"""Keys and values of the topic ``_schemas``, byte for byte as Confluent's registry writes them.

Compaction compares keys by bytes, so members have one order and no spaces. What is read may look
different: old versions had other orders, ``magic`` 0 and ``"subject":null``.

Key types beside Confluent's own: ``ID_LIMIT`` keeps the highest id of a context when the last
schema that had it is deleted for good; other registries skip what they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from .schemas.json_text import Json

Record = tuple[bytes, bytes | None]
"""Key and value; None is a tombstone."""

TENANT = "default"


class SchemaKey(NamedTuple):
    """One version of a subject."""

    subject: str
    version: int


class ConfigKey(NamedTuple):
    """The config of a subject or context; of all when the subject is empty."""

    subject: str


class ModeKey(NamedTuple):
    """The mode of a subject or context; of all when the subject is empty."""

    subject: str


class DeleteSubjectKey(NamedTuple):
    """Marks versions up to a number as soft-deleted."""

    subject: str


class ClearSubjectKey(NamedTuple):
    """Forgets the soft-deleted versions of a subject or context (empty: the default one)."""

    subject: str


class ContextKey(NamedTuple):
    """A context that exists."""

    tenant: str
    context: str


class IdLimitKey(NamedTuple):
    """The highest id that was ever given in a context."""

    context: str


class NoopKey(NamedTuple):
    """Only moves the end of the topic."""


Key = (
    SchemaKey
    | ConfigKey
    | ModeKey
    | DeleteSubjectKey
    | ClearSubjectKey
    | ContextKey
    | IdLimitKey
    | NoopKey
)


class BadRecord(ValueError):
    """A record that cannot be understood; it is skipped."""


def encode_json(value: Json | Mapping[str, Json]) -> bytes:
    """Compact, in the order of the members. Raises UnicodeEncodeError for half a surrogate pair."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode_key(key: Key) -> bytes:
    match key:
        case SchemaKey(subject, version):
            return encode_json(
                {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
            )
        case ConfigKey(subject):
            return _scope_key("CONFIG", subject)
        case ModeKey(subject):
            return _scope_key("MODE", subject)
        case DeleteSubjectKey(subject):
            return encode_json({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0})
        case ClearSubjectKey(subject):
            return _scope_key("CLEAR_SUBJECT", subject)
        case ContextKey(tenant, context):
            return encode_json(
                {"keytype": "CONTEXT", "tenant": tenant, "context": context, "magic": 0}
            )
        case IdLimitKey(context):
            return encode_json({"keytype": "ID_LIMIT", "context": context, "magic": 0})
        case NoopKey():
            return encode_json({"keytype": "NOOP", "magic": 0})


def _scope_key(keytype: str, subject: str) -> bytes:
    if not subject:
        return encode_json({"keytype": keytype, "magic": 0})
    return encode_json({"keytype": keytype, "subject": subject, "magic": 0})


def decode_key(data: bytes) -> Key | None:
    """None for a key type that is not known. Raises ``BadRecord``."""
    members = decode_object(data)
    keytype = members.get("keytype")
    match keytype:
        case "SCHEMA":
            version = members.get("version")
            if not isinstance(version, int) or isinstance(version, bool) or version < 1:
                raise BadRecord(f"version {version!r} in a SCHEMA key")
            return SchemaKey(_text(members, "subject"), version)
        case "CONFIG":
            return ConfigKey(_optional_text(members, "subject"))
        case "MODE":
            return ModeKey(_optional_text(members, "subject"))
        case "DELETE_SUBJECT":
            return DeleteSubjectKey(_text(members, "subject"))
        case "CLEAR_SUBJECT":
            return ClearSubjectKey(_optional_text(members, "subject"))
        case "CONTEXT":
            return ContextKey(_optional_text(members, "tenant"), _text(members, "context"))
        case "ID_LIMIT":
            return IdLimitKey(_text(members, "context"))
        case "NOOP":
            return NoopKey()
    return None


def decode_object(data: bytes) -> dict[str, Json]:
    """Raises ``BadRecord`` for what is no JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRecord("not a JSON object")
    return value


def _text(members: Mapping[str, Json], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not value:
        raise BadRecord(f"no {name} in the key")
    return value


def _optional_text(members: Mapping[str, Json], name: str) -> str:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRecord(f"{name} {value!r} in the key")
    return value or ""
