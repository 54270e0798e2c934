"""Configs and modes: what is set where, and what is in force for a subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .compatibility import CompatibilityLevel, Policy
from .contracts import read_metadata, read_rule_set
from .entities import CONFIG_MEMBERS, Config
from .errors import RegistryError, invalid_level, invalid_mode, not_permitted
from .records import ClearSubjectKey, ModeKey, Record, encode_json
from .schemas.json_text import Json
from .state import State
from .subjects import (
    QualifiedSubject,
    checked_subject,
    context_of,
    in_context,
    is_within,
    plain,
    scopes_of,
)

READ_WRITE = "READWRITE"
READ_ONLY = "READONLY"
IMPORT = "IMPORT"
MODES = (READ_WRITE, READ_ONLY, IMPORT)
READ_ONLY_OVERRIDE = "READONLY_OVERRIDE"
"""Not set any more; when it lies in the topic nothing may be written whatever a subject says."""


def parse_mode(text: Json) -> str:
    """A mode in any case. Raises ``RegistryError`` 42204."""
    mode = text.upper() if isinstance(text, str) else ""
    if mode not in MODES:
        raise invalid_mode()
    return mode


class Settings:
    """Reads the settings in a ``State``; an inherited one comes from the context, then from all."""

    def __init__(self, state: State, default_level: CompatibilityLevel) -> None:
        self._state = state
        self._default_level = default_level

    def subjects_within(self, scope: str) -> Iterator[str]:
        """The subject itself, or the subjects of the context (``""``: the default one)."""
        return (one for one in sorted(self._state.subjects) if is_within(one, scope))

    # config

    def config_for(self, subject: str) -> Config:
        """What is in force. A setting that cannot be understood counts as not set."""
        members: dict[str, Json] = {"compatibilityLevel": str(self._default_level)}
        for scope in reversed(scopes_of(subject)):
            members.pop("alias", None)  # it is of one subject
            members.update(_public(self._state.config(scope) or {}))
        level, policy = members.get("compatibilityLevel"), members.get("compatibilityPolicy")
        group = members.get("compatibilityGroup")
        return Config(
            _level(level) or self._default_level,
            members.get("normalize") is True,
            group if isinstance(group, str) else None,
            Policy.LENIENT if policy == Policy.LENIENT else Policy.STRICT,
            members,
        )

    def own_config(self, scope: str) -> dict[str, Json] | None:
        """What was set here, with the level in force; the global config is never missing."""
        own = self._state.config(scope)
        if own is None:
            return None if scope else {"compatibilityLevel": str(self._default_level)}
        return {"compatibilityLevel": str(self.config_for(scope).level), **_public(own)}

    def changed_config(self, scope: str, changes: Mapping[str, Json]) -> dict[str, Json]:
        """The members to store. Raises ``RegistryError`` 42203, 42205."""
        members = _public(self._state.config(scope) or {})
        for name, value in changes.items():
            if value is None:
                members.pop(name, None)
            else:
                members[name] = _checked_member(name, value)
        return {name: members[name] for name in [*CONFIG_MEMBERS, *members] if name in members}

    def behind_alias(self, subject: str) -> str:
        """The subject that requests about ``subject`` are for: another one if it is an alias."""
        alias = (self._state.config(subject) or {}).get("alias")
        if not isinstance(alias, str) or not alias or not QualifiedSubject.parse(subject).name:
            return subject
        return plain(in_context(context_of(subject), alias))

    def aliases(self) -> dict[str, list[str]]:
        """The aliases of each subject that has any."""
        found: dict[str, list[str]] = {}
        for scope in self._state.configured:
            subject = self.behind_alias(scope)
            if subject != scope:
                found.setdefault(subject, []).append(scope)
        return found

    # mode

    def mode_in_effect(self, subject: str) -> str:
        if self._state.mode("") == READ_ONLY_OVERRIDE:
            return READ_ONLY
        for scope in scopes_of(subject):
            mode = self._state.mode(scope)
            if mode is not None:
                return mode
        return READ_WRITE

    def check_writable(self, subject: str) -> None:
        """Raises ``RegistryError`` 42205 in read-only mode."""
        if self.mode_in_effect(subject) not in (READ_WRITE, IMPORT):
            name = f"Subject {subject}" if subject else "The registry"
            raise not_permitted(f"{name} is in read-only mode")

    def mode_record(self, scope: str, mode: str) -> Record:
        value: dict[str, Json] = {"subject": scope} if scope else {}
        key = self._state.key_bytes(ModeKey(scope))[-1]
        return key, encode_json({**value, "mode": mode})

    def clear_record(self, scope: str) -> Record:
        value: dict[str, Json] = {"subject": scope} if scope else {}
        return self._state.key_bytes(ClearSubjectKey(scope))[-1], encode_json(value)


def _public(config: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in config.items() if name != "subject"}


def _level(value: Json) -> CompatibilityLevel | None:
    try:
        return CompatibilityLevel.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _checked_member(name: str, value: Json) -> Json:
    match name:
        case "compatibilityLevel":
            level = _level(value)
            if level is None:
                raise invalid_level()
            return str(level)
        case "normalize" if isinstance(value, bool):
            return value
        case "compatibilityGroup" if isinstance(value, str):
            return value
        case "alias" if isinstance(value, str):
            return checked_subject(value) if value else value
        case "defaultMetadata" | "overrideMetadata":
            return read_metadata(value)
        case "defaultRuleSet" | "overrideRuleSet":
            return read_rule_set(value)
        case "compatibilityPolicy" if isinstance(value, str):
            try:
                return str(Policy(value.upper()))
            except ValueError:
                raise RegistryError(42203, "compatibilityPolicy is STRICT or LENIENT") from None
    raise not_permitted(f"config member {name!r} cannot be set to {str(value)[:40]!r} here")
