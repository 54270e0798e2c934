"""What the registry holds: the content of schemas, versions of subjects, configs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from .compatibility import CompatibilityLevel, Policy
from .contracts import without_version
from .schemas import Reference, schema_guid
from .schemas.json_text import Json

MAX_ID = 2**31 - 1
LATEST = -1


@dataclass(frozen=True, slots=True)
class Content:
    """What a schema id stands for: equal content in one context has one id.

    ``text`` is canonical; ``metadata`` and ``rule_set`` are compact JSON texts in one spelling
    (see ``contracts``), so that equality is that of the content.
    """

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None

    @property
    def guid(self) -> str:
        return schema_guid(self.text, self.references, self.metadata_object, self.rule_set_object)

    @property
    def metadata_object(self) -> dict[str, Json] | None:
        return _object(self.metadata)

    @property
    def rule_set_object(self) -> dict[str, Json] | None:
        return _object(self.rule_set)

    def is_same_as(self, other: Content) -> bool:
        """Equal but for what the metadata says about the version."""
        if self.text != other.text or self.schema_type != other.schema_type:
            return False
        if self.references != other.references or self.rule_set != other.rule_set:
            return False
        return self.metadata == other.metadata or without_version(
            self.metadata_object
        ) == without_version(other.metadata_object)

    def property_value(self, name: str) -> str | None:
        """A metadata property."""
        properties = (self.metadata_object or {}).get("properties")
        value = properties.get(name) if isinstance(properties, dict) else None
        return value if isinstance(value, str) else None


def _object(text: str | None) -> dict[str, Json] | None:
    value = None if text is None else json.loads(text)
    return value if isinstance(value, dict) else None


def contract_text(value: Mapping[str, Json] | None) -> str | None:
    """The text ``Content`` keeps of a metadata or rule set object."""
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a subject. ``timestamp_ms`` is that of its record, -1 when unknown."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema as a client sends it: to register, look up or check.

    ``id`` and ``version`` are -1 unless the client gave them (import).
    """

    schema: str = ""
    schema_type: str | None = None
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    id: int = -1
    version: int = -1


CONFIG_MEMBERS = (
    "alias",
    "normalize",
    "compatibilityLevel",
    "compatibilityPolicy",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""Config members that have an effect here, in the order in which they are written."""
CONTRACT_MEMBERS = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")


@dataclass(frozen=True, slots=True)
class Config:
    """The effective settings for one subject."""

    level: CompatibilityLevel
    normalize: bool = False
    group: str | None = None
    policy: Policy = Policy.STRICT
    members: Mapping[str, Json] = field(default_factory=dict)
    """As the REST interface gives them, ``compatibilityLevel`` included."""

    @property
    def has_contracts(self) -> bool:
        """Whether schemas get metadata or rules from here."""
        return any(name in self.members for name in CONTRACT_MEMBERS)

    def contract(self, name: str) -> Mapping[str, Json] | None:
        """One of ``CONTRACT_MEMBERS``."""
        found = self.members.get(name)
        return found if isinstance(found, Mapping) else None
