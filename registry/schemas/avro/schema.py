"""A parsed Avro schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from ..json_text import load_json
from ..schema import (
    InvalidSchema,
    Limits,
    ParsedSchema,
    Reference,
    ResolvedReference,
    SchemaType,
    sorted_references,
)
from .parser import AvroParser
from .text import canonical_text, normalized_text
from .types import AvroType, EnumType, FixedType, RecordType


class AvroSchema(ParsedSchema):
    """``root`` is the tree; types of referenced schemas are part of it, but not of its text."""

    schema_type: ClassVar[SchemaType] = SchemaType.AVRO

    def __init__(
        self,
        root: AvroType,
        references: tuple[Reference, ...],
        referenced_names: frozenset[str],
        text: str | None = None,
    ) -> None:
        super().__init__(text or canonical_text(root, referenced_names), references)
        self.root = root
        self._referenced_names = referenced_names

    @classmethod
    def parse(
        cls,
        text: str,
        references: tuple[Reference, ...] = (),
        resolved: Sequence[ResolvedReference] = (),
        *,
        strict: bool = True,
        limits: Limits | None = None,
    ) -> Self:
        """``resolved`` comes from ``resolve_references``. Raises ``InvalidSchema``."""
        limits = limits or Limits()
        document = load_json(text, limits)
        names = AvroParser(strict=False)
        for one in resolved:
            if one.schema_type is not SchemaType.AVRO:
                raise InvalidSchema(f"reference {one.name!r} is no Avro schema")
            names.parse(load_json(one.text, limits))
        parser = AvroParser(strict)
        parser.names.update(names.names)
        root = parser.parse(document)
        return cls(root, references, frozenset(names.names))

    @property
    def name(self) -> str | None:
        if isinstance(self.root, RecordType | EnumType | FixedType):
            return self.root.name.full
        return None

    def normalized(self) -> Self:
        text = normalized_text(self.root, self._referenced_names)
        references = sorted_references(self.references)
        return type(self)(self.root, references, self._referenced_names, text)

    def formatted(self, output_format: str) -> str:
        """``resolved`` writes the referenced types out."""
        return self.inlined() if output_format == "resolved" else self.canonical

    def inlined(self) -> str:
        return canonical_text(self.root)
