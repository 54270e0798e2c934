"""Schemas before and after parsing: the work between two looks at the registry's state.

Pure, and given everything it needs, so that it may run on another thread: parsing and comparing
what strangers send is the one thing here that can take long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .compatibility import LevelVerdict, Version, check
from .entities import Config, Content
from .errors import RegistryError, invalid_schema, schema_too_large
from .schemas import (
    InvalidSchema,
    Limits,
    ParsedSchema,
    Reference,
    ResolvedReference,
    SchemaTooLarge,
    SchemaType,
    parse_schema,
)


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one schema with the texts of all it refers to."""

    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    resolved: tuple[ResolvedReference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None


@dataclass(frozen=True, slots=True)
class OldVersion:
    """A stored version to compare with; ``parsed`` when that was done before."""

    number: int
    source: Source
    parsed: ParsedSchema | None = None


def parse(source: Source, *, strict: bool, normalize: bool = False, limits: Limits) -> ParsedSchema:
    """``strict`` for what is being registered, not for what is stored.

    Raises ``RegistryError`` 42201, 42209.
    """
    try:
        parsed = parse_schema(
            source.schema_type,
            source.text,
            source.references,
            source.resolved,
            strict=strict,
            limits=limits,
        )
        return parsed.normalized() if normalize else parsed
    except SchemaTooLarge as error:
        raise schema_too_large(str(error)) from None
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from None


def content_of(source: Source, parsed: ParsedSchema) -> Content:
    """What the registry would store."""
    return Content(
        source.schema_type,
        parsed.canonical,
        parsed.references,
        source.metadata,
        source.rule_set,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict, and the stored schemas that were parsed for it by their version number."""

    verdict: LevelVerdict
    parsed: dict[int, ParsedSchema]


def compare(
    config: Config,
    new: ParsedSchema,
    versions: Sequence[OldVersion],
    *,
    limits: Limits,
    expired: Callable[[], bool],
) -> Comparison:
    """Whether ``new`` may follow ``versions``, oldest first; stops at the first that it may not.

    Raises ``RegistryError`` 42201 when a stored version cannot be parsed, or when ``expired``.
    """
    parsed: dict[int, ParsedSchema] = {}
    verdict = LevelVerdict(config.level)
    for version in reversed(versions):
        if expired():
            raise too_slow()
        old = version.parsed
        if old is None:
            try:
                old = parse(version.source, strict=False, limits=limits)
            except RegistryError as error:
                raise RegistryError(
                    error.code, f"version {version.number} cannot be compared: {error.message}"
                ) from None
            parsed[version.number] = old
        verdict = check(config.level, new, [Version(version.number, old)], config.policy)
        if not verdict.is_compatible:
            break
    return Comparison(verdict, parsed)


def too_slow() -> RegistryError:
    """Checking a schema took longer than one request may."""
    return schema_too_large("it takes too long to parse and compare")
