"""What Python types are made of, for schemas derived from them and code compiled for them. Pure.

Record and other ``msgspec.Struct``, dataclass, pydantic model and TypedDict are records; builtin
scalars, ``datetime``, ``Decimal``, ``UUID``, enums, lists, mappings and unions are what the fields
of records are made of. pydantic is not imported: its classes are known by what they have.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from .errors import UnsupportedType


@dataclasses.dataclass(frozen=True, slots=True)
class Aliases:
    """Former names of a field: ``amount: Annotated[int, Aliases("total")]``."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclasses.dataclass(frozen=True, slots=True)
class Digits:
    """What a ``Decimal`` field holds: ``Annotated[Decimal, Digits(12, 2)]`` is up to
    9999999999.99."""

    precision: int
    scale: int = 0


DEFAULT_DIGITS: Final = Digits(38, 9)


@dataclasses.dataclass(frozen=True, slots=True)
class Untyped:
    """Anything: builtin data as it comes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts; ``cls`` is its class (NoneType for None)."""

    cls: type
    digits: Digits = DEFAULT_DIGITS


@dataclasses.dataclass(frozen=True, slots=True)
class EnumOf:
    cls: type[enum.Enum]


@dataclasses.dataclass(frozen=True, slots=True)
class ListOf:
    """``make`` is list, tuple, set or frozenset."""

    item: Model
    make: type


@dataclasses.dataclass(frozen=True, slots=True)
class MapOf:
    value: Model


@dataclasses.dataclass(frozen=True, slots=True)
class UnionOf:
    members: tuple[Model, ...]


class Style(enum.Enum):
    """How a record is taken apart and made: ATTRIBUTES ``v.a`` and ``cls(a=...)``, ITEMS ``v["a"]``
    and a dict, VALIDATED as ATTRIBUTES, but made by the class's ``model_validate``."""

    ATTRIBUTES = "attributes"
    ITEMS = "items"
    VALIDATED = "validated"


@dataclasses.dataclass(frozen=True, slots=True)
class FieldOf:
    """``name`` is the one in the schema, ``attribute`` the one in Python. ``make_default`` is None
    for a field that must be given; ``may_miss``: a TypedDict's key that need not be there."""

    name: str
    attribute: str
    model: Model
    make_default: Callable[[], Any] | None = None
    aliases: tuple[str, ...] = ()
    may_miss: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class RecordOf:
    """Shared where a type is met again, so a recursive type is a cycle."""

    cls: type
    style: Style
    fields: tuple[FieldOf, ...] = ()

    @property
    def name(self) -> str:
        return self.cls.__name__.split("[")[0]

    def field(self, name: str) -> FieldOf | None:
        return next((field for field in self.fields if field.name == name), None)


Model: TypeAlias = Untyped | Scalar | EnumOf | ListOf | MapOf | UnionOf | RecordOf

UNTYPED: Final = Untyped()
SCALARS: Final = frozenset(
    {
        bool, int, float, str, bytes, type(None), datetime.datetime, datetime.date,
        datetime.time, decimal.Decimal, uuid.UUID,
    }
)  # fmt: skip
_LISTS: Final[dict[Any, type]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: set,
}
_MAPS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def model_of(hint: Any) -> Model:
    """The model of a type. Raises UnsupportedType."""
    return _Reading().model(hint, getattr(hint, "__name__", str(hint)))


class _Reading:
    def __init__(self) -> None:
        self._records: dict[type, RecordOf] = {}

    def model(self, hint: Any, place: str) -> Model:
        """Raises UnsupportedType, naming ``place``."""
        if hint in (Any, object):
            return UNTYPED
        if hint is None:
            return Scalar(type(None))
        if isinstance(hint, typing.NewType):
            return self.model(hint.__supertype__, place)
        origin = typing.get_origin(hint)
        if origin is not None:
            return self._generic(hint, origin, place)
        if not isinstance(hint, type):
            raise UnsupportedType(f"{place}: {hint!r} has no schema; give the schema instead")
        if hint in SCALARS:
            return Scalar(hint)
        if hint in _LISTS:
            return ListOf(UNTYPED, _LISTS[hint])
        if hint in _MAPS:
            return MapOf(UNTYPED)
        if issubclass(hint, enum.Enum):
            return EnumOf(hint)
        return self._record(hint, place)

    def _generic(self, hint: Any, origin: Any, place: str) -> Model:
        arguments = typing.get_args(hint)
        if origin is typing.Annotated:
            model = self.model(arguments[0], place)
            digits = next((one for one in arguments[1:] if isinstance(one, Digits)), None)
            if digits is not None and isinstance(model, Scalar):
                return Scalar(model.cls, digits)
            return model
        if origin in (typing.Union, types.UnionType):
            return UnionOf(tuple(self.model(each, place) for each in arguments))
        if origin in (typing.Required, typing.NotRequired):
            return self.model(arguments[0], place)
        if origin is typing.Literal:
            kinds = {type(each): Scalar(type(each)) for each in arguments}
            models = tuple(kinds.values())
            return models[0] if len(models) == 1 else UnionOf(models)
        if origin in _LISTS:
            items = [each for each in arguments if each is not Ellipsis]
            if len(set(items)) > 1:
                raise UnsupportedType(f"{place}: a tuple of different types has no schema")
            return ListOf(self.model(items[0], f"{place}[]"), _LISTS[origin])
        if origin in _MAPS:
            if arguments[0] is not str:
                raise UnsupportedType(f"{place}: keys of a mapping must be str")
            return MapOf(self.model(arguments[1], f"{place}{{}}"))
        raise UnsupportedType(f"{place}: {hint!r} has no schema; give the schema instead")

    def _record(self, cls: type, place: str) -> RecordOf:
        known = self._records.get(cls)
        if known is not None:
            return known
        style = _style(cls)
        if style is None:
            raise UnsupportedType(
                f"{place}: {cls.__name__} has no schema: use a Record, dataclass, pydantic model "
                "or TypedDict, or give the schema"
            )
        record = self._records[cls] = RecordOf(cls, style)
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except NameError as error:
            raise UnsupportedType(
                f"the fields of {cls.__name__} cannot be looked at: {error}; define it, and what "
                "it names, at the top of a module"
            ) from None
        record.fields = tuple(self._fields(cls, hints))
        return record

    def _fields(self, cls: type, hints: dict[str, Any]) -> typing.Iterator[FieldOf]:
        for name, attribute, default in _declared(cls):
            hint = hints[attribute]
            model = self.model(hint, f"{cls.__name__}.{attribute}")
            yield FieldOf(
                name,
                attribute,
                model,
                default,
                _aliases(hint),
                typing.is_typeddict(cls) and _may_miss(cls, attribute, hint),
            )


def _may_miss(cls: Any, attribute: str, hint: Any) -> bool:
    """Whether a TypedDict's key need not be there; what Python says of it is wrong where
    annotations are text."""
    origin = typing.get_origin(hint)
    if origin in (typing.NotRequired, typing.Required):
        return origin is typing.NotRequired
    return attribute not in cls.__required_keys__


def _style(cls: type) -> Style | None:
    if issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls):
        return Style.ATTRIBUTES
    if typing.is_typeddict(cls):
        return Style.ITEMS
    if hasattr(cls, "model_validate") and hasattr(cls, "model_fields"):
        return Style.VALIDATED
    return None


Declared: TypeAlias = tuple[str, str, Callable[[], Any] | None]


def _declared(cls: Any) -> list[Declared]:
    """Name in the schema, attribute and default of every field."""
    if issubclass(cls, msgspec.Struct):
        return [
            (field.encode_name, field.name, _struct_default(field))
            for field in msgspec.structs.fields(cls)
        ]
    if dataclasses.is_dataclass(cls):
        return [
            (field.name, field.name, _dataclass_default(field))
            for field in dataclasses.fields(cls)
            if field.init
        ]
    if typing.is_typeddict(cls):
        return [(name, name, None) for name in cls.__annotations__]
    return [
        (name, name, None if field.is_required() else _pydantic_default(field))
        for name, field in cls.model_fields.items()
    ]


def _struct_default(field: Any) -> Callable[[], Any] | None:
    if field.default is not msgspec.NODEFAULT:
        return _giving(field.default)
    return None if field.default_factory is msgspec.NODEFAULT else _made(field.default_factory)


def _dataclass_default(field: Any) -> Callable[[], Any] | None:
    if field.default is not dataclasses.MISSING:
        return _giving(field.default)
    return None if field.default_factory is dataclasses.MISSING else _made(field.default_factory)


def _pydantic_default(field: Any) -> Callable[[], Any] | None:
    return _giving(field.default) if field.default_factory is None else _made(field.default_factory)


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _made(factory: Any) -> Callable[[], Any] | None:
    """Only plain classes: a function may give something else each time, which is no default of a
    schema."""
    return factory if inspect.isclass(factory) else None


def _aliases(hint: Any) -> tuple[str, ...]:
    if typing.get_origin(hint) is not typing.Annotated:
        return ()
    given = [one.names for one in typing.get_args(hint)[1:] if isinstance(one, Aliases)]
    return tuple(name for names in given for name in names)
