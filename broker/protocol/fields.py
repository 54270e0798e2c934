"""How a message is declared: one line per field, with the versions that carry it.

A class decorated with ``@message(versions, flexible)`` is a dataclass with slots that covers *all*
versions of one Kafka message; the structs inside it are nested classes decorated with ``@nested``::

    @message("0-4", flexible="3+")
    class FindCoordinatorRequest:
        key: str = string("0-3")
        key_type: int = int8("1+")
        coordinator_keys: list[str] = strings("4+")

Fields stand in wire order (tagged ones anywhere). A specifier takes

``versions``   the versions that have the field: ``"3"``, ``"0-3"`` or ``"4+"``
``default``    the value when a version lacks it (0, "", b"", False, an empty list if not stated)
``nullable``   the versions in which the value may be None
``tag``        the tag number, when the field is tagged (flexible versions only)
``ignorable``  whether a non-default value may be dropped silently in a version without the field

Type checkers see plain dataclass fields whose defaults make every constructor argument optional.
Coordinators declare the keys and values of their own records in the same way. Nothing is compiled
here: see ``schema``.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from ..types import ZERO_UUID, Buffer

Records = Buffer | list[Buffer] | None
"""Record batches: a view of the frame when decoded; a list is written by reference, unjoined."""

T = TypeVar("T")

ENDLESS = 32767
"""The highest version an int16 can name: the end of an open range."""


class Versions(NamedTuple):
    """An inclusive range of versions; empty when ``first > last``."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSIONS = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """``"3"``, ``"0-3"``, ``"4+"`` or ``""`` (none) as a range."""
    if not text:
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), ENDLESS)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Kind(enum.Enum):
    """Wire types; the value of a fixed-size one is its ``struct`` code."""

    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    BOOLEAN = "?"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"


FIXED_SIZES = {
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.UINT16: 2,
    Kind.INT32: 4,
    Kind.INT64: 8,
    Kind.BOOLEAN: 1,
    Kind.UUID: 16,
}

LENGTH_CODES = {Kind.STRING: "h", Kind.BYTES: "i", Kind.RECORDS: "i"}
"""``struct`` codes of the length in front of the other types, in versions that are not flexible."""


class Field(NamedTuple):
    """One declared field. ``name`` and ``annotation`` are filled in by the class decorator."""

    kind: Kind
    is_array: bool
    versions: Versions
    default: Any
    nullable: Versions
    tag: int | None
    ignorable: bool
    name: str = ""
    annotation: str = ""

    @property
    def has_list_default(self) -> bool:
        return self.is_array and self.default is not None


class Schema(NamedTuple):
    """What the decorator learned about a class. ``versions`` is NO_VERSIONS for nested structs."""

    fields: tuple[Field, ...]
    versions: Versions
    flexible: Versions


def schema_of(cls: type) -> Schema:
    """The schema of a class declared here; TypeError for any other class."""
    schema = cls.__dict__.get("__schema__")
    if not isinstance(schema, Schema):
        raise TypeError(f"{cls.__qualname__} is not a declared message or struct")
    return schema


def struct_type(owner: type, field: Field) -> type:
    """The class a struct field holds, found through its annotation in the module of ``owner``."""
    path = field.annotation.removeprefix("list[").replace("]", "").removesuffix(" | None")
    found: Any = sys.modules[owner.__module__]
    for part in path.split("."):
        found = getattr(found, part)
    schema_of(found)
    return found  # type: ignore[no-any-return]


# Field specifiers.
# They return Any because what they stand for is the value of the annotated type.


def _field(
    kind: Kind,
    versions: str,
    default: Any,
    *,
    nullable: str = "",
    tag: int | None = None,
    ignorable: bool = False,
    is_array: bool = False,
) -> Any:
    may_be_null = parse_versions(nullable)
    return Field(kind, is_array, parse_versions(versions), default, may_be_null, tag, ignorable)


def int8(versions: str, *, default: int = 0, ignorable: bool = False) -> Any:
    return _field(Kind.INT8, versions, default, ignorable=ignorable)


def int16(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> Any:
    return _field(Kind.INT16, versions, default, tag=tag, ignorable=ignorable)


def uint16(versions: str) -> Any:
    return _field(Kind.UINT16, versions, 0)


def int32(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> Any:
    return _field(Kind.INT32, versions, default, tag=tag, ignorable=ignorable)


def int64(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> Any:
    return _field(Kind.INT64, versions, default, tag=tag, ignorable=ignorable)


def boolean(
    versions: str, *, default: bool = False, tag: int | None = None, ignorable: bool = False
) -> Any:
    return _field(Kind.BOOLEAN, versions, default, tag=tag, ignorable=ignorable)


def uuid(versions: str, *, tag: int | None = None, ignorable: bool = False) -> Any:
    """A UUID as its 16 bytes."""
    return _field(Kind.UUID, versions, ZERO_UUID, tag=tag, ignorable=ignorable)


def string(
    versions: str,
    *,
    default: str | None = "",
    nullable: str = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    return _field(Kind.STRING, versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def bytes_(
    versions: str, *, default: bytes | None = b"", nullable: str = "", ignorable: bool = False
) -> Any:
    return _field(Kind.BYTES, versions, default, nullable=nullable, ignorable=ignorable)


def record_set(versions: str, *, nullable: str = "") -> Any:
    """Record batches, by reference in both directions; annotate it as ``Records``."""
    return _field(Kind.RECORDS, versions, None, nullable=nullable)


def struct(
    versions: str, *, nullable: str = "", tag: int | None = None, ignorable: bool = False
) -> Any:
    """One nested struct. None is the default: the null of a nullable struct, or the absent tag."""
    return _field(Kind.STRUCT, versions, None, nullable=nullable, tag=tag, ignorable=ignorable)


def _array(kind: Kind) -> Callable[..., Any]:
    def specifier(
        versions: str,
        *,
        default: list[Any] | None = [],  # noqa: B006 - stands for a new empty list per instance
        nullable: str = "",
        tag: int | None = None,
        ignorable: bool = False,
    ) -> Any:
        return _field(
            kind,
            versions,
            default,
            nullable=nullable,
            tag=tag,
            ignorable=ignorable,
            is_array=True,
        )

    return specifier


int8s = _array(Kind.INT8)
int32s = _array(Kind.INT32)
int64s = _array(Kind.INT64)
strings = _array(Kind.STRING)
uuids = _array(Kind.UUID)
structs = _array(Kind.STRUCT)


@dataclass_transform()
def nested(cls: type[T]) -> type[T]:
    """Declares a struct nested in a message: it has the versions of whatever contains it."""
    return _declare(cls, NO_VERSIONS, NO_VERSIONS)


@dataclass_transform()
def message(versions: str, *, flexible: str = "") -> Callable[[type[T]], type[T]]:
    """Declares a message, or a coordinator's record, with its valid and its flexible versions."""

    def decorate(cls: type[T]) -> type[T]:
        return _declare(cls, parse_versions(versions), parse_versions(flexible))

    return decorate


def _declare(cls: type[T], versions: Versions, flexible: Versions) -> type[T]:
    fields = []
    for name, annotation in inspect.get_annotations(cls).items():
        declared: Field = cls.__dict__[name]._replace(name=name, annotation=annotation)
        fields.append(declared)
        default: Any = (
            dataclasses.field(default_factory=list)
            if declared.has_list_default
            else dataclasses.field(default=declared.default)
        )
        setattr(cls, name, default)
    namespace: Any = cls
    namespace.__schema__ = Schema(tuple(fields), versions, flexible)
    namespace.__eq__ = _equal
    namespace.__hash__ = None
    namespace.__repr__ = _represent
    return dataclasses.dataclass(slots=True, eq=False, repr=False)(cls)


# One function for every class instead of one generated per class: it keeps the import cheap.


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _represent(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__qualname__}({values})"
