"""Parsing, canonical text, references and identity of Avro, JSON Schema and Protobuf schemas.

Pure: texts in, values out. ``google.protobuf`` is imported when the first Protobuf schema is parsed
and comes with the extra ``onceward[registry]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .avro.schema import AvroSchema
from .identity import schema_guid
from .json_schema.schema import JsonSchema
from .references import Lookup, resolve_references
from .schema import (
    InvalidSchema,
    Limits,
    ParsedSchema,
    Reference,
    ResolvedReference,
    SchemaTooLarge,
    SchemaType,
)

__all__ = [
    "InvalidSchema",
    "Limits",
    "Lookup",
    "ParsedSchema",
    "Reference",
    "ResolvedReference",
    "SchemaTooLarge",
    "SchemaType",
    "parse_schema",
    "resolve_references",
    "schema_guid",
    "schema_type_of",
]


def schema_type_of(text: str | None) -> SchemaType:
    """The ``schemaType`` of a request; none means AVRO. Raises ``InvalidSchema``."""
    if text is None or not text:
        return SchemaType.AVRO
    try:
        return SchemaType(text)
    except ValueError:
        raise InvalidSchema(f"schema type {text[:40]!r} is not known") from None


def parse_schema(
    schema_type: SchemaType,
    text: str,
    references: Iterable[Reference] = (),
    resolved: Sequence[ResolvedReference] = (),
    *,
    strict: bool = True,
    limits: Limits | None = None,
) -> ParsedSchema:
    """Parses one schema; ``resolved`` is what ``resolve_references`` found for ``references``.

    ``strict`` is for schemas that are being registered; those already stored are read without the
    checks older registries did not make. Raises ``InvalidSchema`` and ``SchemaTooLarge``.
    """
    kept = tuple(references)
    match schema_type:
        case SchemaType.AVRO:
            return AvroSchema.parse(text, kept, resolved, strict=strict, limits=limits)
        case SchemaType.JSON:
            return JsonSchema.parse(text, kept, resolved, strict=strict, limits=limits)
        case SchemaType.PROTOBUF:
            from .protobuf.schema import ProtobufSchema

            return ProtobufSchema.parse(text, kept, resolved, strict=strict, limits=limits)
