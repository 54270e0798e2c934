"""What every kind of schema offers once it is parsed, and what a bad one raises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self


class SchemaType(StrEnum):
    """The ``schemaType`` of the REST interface; a request without one means ``AVRO``."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class InvalidSchema(ValueError):
    """The text is no schema of its type, or a reference in it leads nowhere (error 42201).

    ``path`` says where, as a JSON pointer or ``line:column``; it is empty when the text as a whole
    is at fault.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} (at {path})" if path else message)
        self.path = path


class SchemaTooLarge(InvalidSchema):
    """The schema with its references is over a limit of ``Limits`` (error 42209)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one schema, its references included, may cost. Everything beyond is refused."""

    max_bytes: int = 1_000_000
    """UTF-8 bytes of the text and of all it refers to, together."""

    max_depth: int = 200
    """Levels of nesting: JSON brackets, Protobuf braces."""

    max_references: int = 1_000
    """Schemas referred to, directly and through others."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One entry of a schema's ``references``.

    ``name`` is how the schema says it: Avro full name, JSON Schema ``$ref`` URI, Protobuf import
    path. ``version`` -1 is the newest at the time of registration.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A schema another one refers to, with its text."""

    reference: Reference
    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.reference.name


class ParsedSchema(ABC):
    """A schema that was understood. Immutable; equal content has equal ``canonical`` text."""

    schema_type: ClassVar[SchemaType]

    canonical: str
    """The text the registry stores and compares by; parsing it again gives the same text."""

    references: tuple[Reference, ...]

    def __init__(self, canonical: str, references: tuple[Reference, ...]) -> None:
        self.canonical = canonical
        self.references = references

    @property
    @abstractmethod
    def name(self) -> str | None:
        """The record name of the subject name strategies: Avro full name, JSON Schema ``title``,
        full name of the first Protobuf message. None when the schema has none."""

    @abstractmethod
    def normalized(self) -> Self:
        """The schema in the form ``normalize=true`` asks for: same meaning, fewer spellings."""

    def formatted(self, output_format: str) -> str:
        """The text as the ``format`` query parameter asks; an unknown format is the stored text."""
        return self.canonical

    def inlined(self) -> str | None:
        """One text without references, for the lookup of a schema sent with them written out.

        None when this type of schema has no such form.
        """
        return self.canonical if not self.references else None

    def matches(self, other: ParsedSchema) -> bool:
        """Whether a lookup with ``other`` finds this one: same text and references, or one of the
        two has the other's references written out."""
        if self.schema_type is not other.schema_type:
            return False
        if self.references == other.references:
            return self.canonical == other.canonical
        if self.references and other.references:
            return False
        mine = self.inlined()
        return mine is not None and mine == other.inlined()


def sorted_references(references: tuple[Reference, ...]) -> tuple[Reference, ...]:
    """References as normalisation leaves them: in order of name, each once."""
    return tuple(sorted(set(references), key=lambda ref: (ref.name, ref.subject, ref.version)))
