"""Random input records for an app, made from the types of its topics.

Keys are few, so that records meet in tables. In a model the texts follow the record's key (the
record with key ``k3`` has the account ``account-3``): whatever an app groups by then comes from one
partition, in one order, and its results can be compared record by record.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import inspect as types

from ..errors import ConfigurationError
from ..serde.json import is_faust_record, is_pydantic
from ..topic import Topic
from .written import input_topics

if TYPE_CHECKING:
    from random import Random

    from ..app import App

KEYS = 5
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
_EPOCH = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
_MAX_DEPTH = 4
_SPAN = 20
"""Numbers are between 0 and this, so that they meet, too."""


def generate_inputs(app: App, rng: Random, n: int) -> dict[str, list[tuple[Any, Any]]]:
    """About ``n`` records, spread over the app's input topics: topic -> (key, value) pairs.

    Raises ConfigurationError for a topic whose type says too little.
    """
    topics = input_topics(app)
    if not topics and app.sources:
        return {}
    if not topics:
        raise ConfigurationError(f"app {app.id!r} reads no topic: there is nothing to feed")
    share, extra = divmod(n, len(topics))
    return {
        name: [generate_record(topic, rng) for _ in range(share + (number < extra))]
        for number, (name, topic) in enumerate(topics.items())
    }


def generate_value(kind: Any, rng: Random) -> Any:
    """A random value of a type. Raises ConfigurationError."""
    return _Maker(rng, rng.randrange(KEYS), "?").make(kind, None)


def generate_record(topic: Topic, rng: Random) -> tuple[Any, Any]:
    """A random (key, value) of a topic. Raises ConfigurationError."""
    number = rng.randrange(KEYS)
    maker = _Maker(rng, number, topic.name)
    key = f"k{number}".encode() if topic.key_type is None else maker.make(topic.key_type, "k")
    if topic.value_type in (None, Any, object, dict):
        raise ConfigurationError(
            f"values of topic {topic.name!r} cannot be made up: declare value_type=..., or give "
            "the input"
        )
    return key, maker.make(topic.value_type, None)


class _At(NamedTuple):
    """Where a value goes: the name of its field (None: it is the record's value) and how deep."""

    field: str | None
    depth: int

    def inside(self, field: str | None = None) -> _At:
        return _At(self.field if field is None else field, self.depth + 1)


class _Maker:
    """Values of one record; ``number`` is that of its key."""

    def __init__(self, rng: Random, number: int, topic: str) -> None:
        self._rng = rng
        self._number = number
        self._topic = topic

    def make(self, kind: Any, field: str | None) -> Any:
        """A value of a declared type. Raises ConfigurationError."""
        return self._declared(kind, _At(field, 0))

    def _declared(self, kind: Any, at: _At) -> Any:
        if is_pydantic(kind):
            fields = {
                name: self._declared(_constrained(info), at.inside(name))
                for name, info in kind.model_fields.items()
            }
            return self._construct(kind, fields, kind.model_validate)
        if is_faust_record(kind):
            hints = typing.get_type_hints(kind)
            public = [name for name in hints if not name.startswith("_")]
            return kind(**{name: self._declared(hints[name], at.inside(name)) for name in public})
        try:
            return self._typed(types.type_info(kind), at)
        except TypeError as error:
            raise self._cannot(f"{kind!r}: {error}") from None

    def _construct(self, kind: Any, fields: Mapping[str, Any], make: Callable[[Any], Any]) -> Any:
        try:
            return make(fields)
        except (TypeError, ValueError) as error:
            raise self._cannot(f"{kind.__name__} refuses {dict(fields)!r}: {error}") from error

    def _cannot(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"records of topic {self._topic!r} cannot be made up ({reason}): give the input"
        )

    def _typed(self, kind: types.Type, at: _At) -> Any:
        if isinstance(kind, types.Metadata):
            return self._typed(kind.type, at)
        make = _MAKERS.get(type(kind))
        if make is None:
            raise self._cannot(f"{type(kind).__name__} of {at.field or 'the value'}")
        return make(self, kind, at)

    # one method per kind of type

    def _none(self, kind: Any, at: _At) -> None:
        return None

    def _bool(self, kind: Any, at: _At) -> bool:
        return self._rng.random() < 0.5

    def _int(self, kind: types.IntType, at: _At) -> int:
        if at.field == "k":
            return self._number
        step = int(kind.multiple_of or 1)
        low, high = _bounds(kind, 1)
        first, last = -(-low // step), high // step
        if last < first:
            raise self._cannot(f"{at.field or 'the value'} has no whole number it may be")
        return self._rng.randint(int(first), int(last)) * step

    def _float(self, kind: types.FloatType, at: _At) -> float:
        low, high = _bounds(kind, 0.25)
        quarters = self._rng.randint(0, int((high - low) * 4))  # exact in binary
        return float(low) + quarters / 4

    def _decimal(self, kind: Any, at: _At) -> decimal.Decimal:
        return decimal.Decimal(self._rng.randint(0, 100 * _SPAN)) / 100

    def _str(self, kind: types.StrType, at: _At) -> str:
        if kind.pattern is not None:
            raise self._cannot(f"{at.field or 'the value'} has a pattern")
        if at.field is None:
            text = " ".join(self._rng.choice(WORDS) for _ in range(self._rng.randint(1, 5)))
        elif at.field == "k":
            text = f"k{self._number}"
        else:
            text = f"{at.field}-{self._number}"
        text = text.ljust(kind.min_length or 0, "x")
        return text if kind.max_length is None else text[-kind.max_length :]

    def _bytes(self, kind: Any, at: _At) -> bytes:
        return self._str(types.StrType(None, None, None), at).encode()

    def _uuid(self, kind: Any, at: _At) -> uuid.UUID:
        return uuid.UUID(int=self._number + 1)

    def _datetime(self, kind: types.DateTimeType, at: _At) -> datetime.datetime:
        moment = _EPOCH + datetime.timedelta(seconds=self._rng.randrange(3600))
        return moment.replace(tzinfo=None) if kind.tz is False else moment

    def _date(self, kind: Any, at: _At) -> datetime.date:
        return (_EPOCH + datetime.timedelta(days=self._rng.randrange(30))).date()

    def _time(self, kind: types.TimeType, at: _At) -> datetime.time:
        zone = datetime.UTC if kind.tz else None
        return datetime.time(self._rng.randrange(24), self._rng.randrange(60), tzinfo=zone)

    def _timedelta(self, kind: Any, at: _At) -> datetime.timedelta:
        return datetime.timedelta(seconds=self._rng.randrange(3600))

    def _enum(self, kind: types.EnumType, at: _At) -> Any:
        return self._rng.choice(list(kind.cls))

    def _literal(self, kind: types.LiteralType, at: _At) -> Any:
        return self._rng.choice(kind.values)

    def _union(self, kind: types.UnionType, at: _At) -> Any:
        options: Sequence[types.Type] = kind.types
        if at.depth >= _MAX_DEPTH and kind.includes_none:
            return None
        return self._typed(self._rng.choice(list(options)), at)

    def _custom(self, kind: types.CustomType, at: _At) -> Any:
        if is_pydantic(kind.cls) or is_faust_record(kind.cls):
            return self._declared(kind.cls, at)
        raise self._cannot(f"{kind.cls.__name__} of {at.field or 'the value'}")

    def _items(self, kind: Any, at: _At) -> list[Any]:
        low = kind.min_length or 0
        high = low if at.depth >= _MAX_DEPTH else max(low, min(kind.max_length or 3, low + 3))
        count = self._rng.randint(low, high)
        return [self._typed(kind.item_type, at.inside()) for _ in range(count)]

    def _set(self, kind: Any, at: _At) -> set[Any]:
        return set(self._items(kind, at))

    def _frozenset(self, kind: Any, at: _At) -> frozenset[Any]:
        return frozenset(self._items(kind, at))

    def _var_tuple(self, kind: Any, at: _At) -> tuple[Any, ...]:
        return tuple(self._items(kind, at))

    def _tuple(self, kind: types.TupleType, at: _At) -> tuple[Any, ...]:
        return tuple(self._typed(item, at.inside()) for item in kind.item_types)

    def _dict(self, kind: types.DictType, at: _At) -> dict[Any, Any]:
        if isinstance(kind.value_type, types.AnyType):
            raise self._cannot(f"dict of {at.field or 'the value'} may hold anything")
        count = 0 if at.depth >= _MAX_DEPTH else self._rng.randint(1, 3)
        return {
            self._typed(kind.key_type, at.inside()): self._typed(kind.value_type, at.inside())
            for _ in range(max(count, kind.min_length or 0))
        }

    def _fields(self, kind: Any, at: _At) -> dict[str, Any]:
        return {
            field.name: self._typed(field.type, at.inside(field.name))
            for field in kind.fields
            if field.required or self._is_filled(at)
        }

    def _is_filled(self, at: _At) -> bool:
        """Whether a field with a default gets a value of its own."""
        return at.depth < _MAX_DEPTH and self._rng.random() < 0.8

    def _typed_dict(self, kind: types.TypedDictType, at: _At) -> dict[str, Any]:
        return self._fields(kind, at)

    def _object(self, kind: Any, at: _At) -> Any:
        cls = kind.cls
        fields = self._fields(kind, at)
        if dataclasses.is_dataclass(cls):  # those that __init__ does not take come from it
            taken = {field.name for field in dataclasses.fields(cls) if field.init}
            fields = {name: value for name, value in fields.items() if name in taken}
        return self._construct(cls, fields, lambda given: cls(**given))


_LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length")


def _constrained(info: Any) -> Any:
    """The annotation of a pydantic field with its limits, as msgspec writes them."""
    limits = {
        name: getattr(each, name)
        for each in info.metadata
        for name in _LIMITS
        if getattr(each, name, None) is not None
    }
    return Annotated[info.annotation, msgspec.Meta(**limits)] if limits else info.annotation


def _bounds(kind: types.IntType | types.FloatType, step: float) -> tuple[Any, Any]:
    low: Any = kind.ge if kind.ge is not None else None
    high: Any = kind.le if kind.le is not None else None
    if kind.gt is not None:
        low = kind.gt + step
    if kind.lt is not None:
        high = kind.lt - step
    if low is None:
        low = 0 if high is None or high >= 0 else high - _SPAN
    return low, low + _SPAN if high is None else min(high, low + _SPAN)


_MAKERS: Mapping[type[types.Type], Callable[[_Maker, Any, _At], Any]] = {
    types.NoneType: _Maker._none,
    types.BoolType: _Maker._bool,
    types.IntType: _Maker._int,
    types.FloatType: _Maker._float,
    types.DecimalType: _Maker._decimal,
    types.StrType: _Maker._str,
    types.BytesType: _Maker._bytes,
    types.UUIDType: _Maker._uuid,
    types.DateTimeType: _Maker._datetime,
    types.DateType: _Maker._date,
    types.TimeType: _Maker._time,
    types.TimeDeltaType: _Maker._timedelta,
    types.EnumType: _Maker._enum,
    types.LiteralType: _Maker._literal,
    types.UnionType: _Maker._union,
    types.CustomType: _Maker._custom,
    types.ListType: _Maker._items,
    types.SetType: _Maker._set,
    types.FrozenSetType: _Maker._frozenset,
    types.VarTupleType: _Maker._var_tuple,
    types.TupleType: _Maker._tuple,
    types.DictType: _Maker._dict,
    types.TypedDictType: _Maker._typed_dict,
    types.NamedTupleType: _Maker._object,
    types.DataclassType: _Maker._object,
    types.StructType: _Maker._object,
}
