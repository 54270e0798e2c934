"""The seven compatibility levels: which versions a new schema is compared with, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..schemas.avro.schema import AvroSchema
from ..schemas.json_schema.schema import JsonSchema
from ..schemas.schema import ParsedSchema, SchemaType
from .avro import compare_avro
from .json_schema import compare_json
from .verdict import ComparisonTooComplex, Incompatibility, Policy

_SHOWN_SCHEMA = 10 * 1024


class CompatibilityLevel(StrEnum):
    """BACKWARD: the new schema reads the old data. FORWARD: the old schema reads the new data.

    FULL is both. Without ``_TRANSITIVE`` only the newest version counts, with it all of them.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @classmethod
    def parse(cls, text: str) -> CompatibilityLevel:
        """A level in any case. Raises ``ValueError`` for what is none (error 42203)."""
        return cls(text.upper())

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def checks_backward(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def checks_forward(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class Version:
    """A live version of a subject."""

    number: int
    schema: ParsedSchema


@dataclass(frozen=True, slots=True)
class LevelVerdict:
    """Whether a schema may follow the versions of its subject; if not, ``against`` which and why.

    ``backward`` are reasons why the new schema cannot read the old data, ``forward`` why the old
    one cannot read the new.
    """

    level: CompatibilityLevel
    backward: tuple[Incompatibility, ...] = ()
    forward: tuple[Incompatibility, ...] = ()
    against: Version | None = None

    @property
    def is_compatible(self) -> bool:
        return self.against is None

    def messages(self) -> list[str]:
        """What the REST interface answers to a verbose check: one entry per reason, then the
        version and schema it failed against, and the level. Empty when compatible."""
        if self.against is None:
            return []
        text = self.against.schema.canonical
        if len(text) > _SHOWN_SCHEMA:
            text = text[:_SHOWN_SCHEMA] + "..."
        return [
            *(f"the new schema cannot read the old data: {reason}" for reason in self.backward),
            *(f"the old schema cannot read the new data: {reason}" for reason in self.forward),
            f"{{oldSchemaVersion: {self.against.number}}}",
            f"{{oldSchema: '{text}'}}",
            f"{{compatibility: '{self.level}'}}",
        ]


def can_read(
    reader: ParsedSchema, writer: ParsedSchema, policy: Policy = Policy.STRICT
) -> tuple[Incompatibility, ...]:
    """All reasons why ``reader`` cannot read data written with ``writer``; none when it can.

    Schemas that cannot be compared in bounded work count as incompatible, with that reason.
    """
    if reader.schema_type is not writer.schema_type:
        types = reader.schema_type.value, writer.schema_type.value
        why = f"a {types[1]} schema cannot be followed by a {types[0]} schema"
        return (Incompatibility("SCHEMA_TYPE_CHANGED", "/", *types, why),)
    try:
        found = _compare(reader, writer, policy)
    except ComparisonTooComplex as error:
        return (Incompatibility("TOO_COMPLEX", "/", "", "", str(error)),)
    return tuple(dict.fromkeys(found))


def _compare(
    reader: ParsedSchema, writer: ParsedSchema, policy: Policy
) -> Iterable[Incompatibility]:
    if isinstance(reader, AvroSchema) and isinstance(writer, AvroSchema):
        return compare_avro(reader, writer)
    if isinstance(reader, JsonSchema) and isinstance(writer, JsonSchema):
        return compare_json(reader, writer, policy)
    assert reader.schema_type is SchemaType.PROTOBUF
    from ..schemas.protobuf.schema import ProtobufSchema
    from .protobuf import compare_protobuf

    assert isinstance(reader, ProtobufSchema) and isinstance(writer, ProtobufSchema)
    return compare_protobuf(reader, writer)


def check(
    level: CompatibilityLevel,
    new: ParsedSchema,
    versions: Sequence[Version],
    policy: Policy = Policy.STRICT,
) -> LevelVerdict:
    """Whether ``new`` may follow ``versions``, the live ones of the subject, oldest first.

    Deleted versions are not passed, nor those of another compatibility group. The newest is
    compared first; the first that does not fit decides.
    """
    if level is CompatibilityLevel.NONE:
        return LevelVerdict(level)
    for version in reversed(versions if level.is_transitive else versions[-1:]):
        old = version.schema
        backward = can_read(new, old, policy) if level.checks_backward else ()
        forward = can_read(old, new, policy) if level.checks_forward else ()
        if backward or forward:
            return LevelVerdict(level, backward, forward, version)
    return LevelVerdict(level)
