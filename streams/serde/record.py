"""``Record``: the model class of this framework, a ``msgspec.Struct`` that knows Faust's
options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec

if TYPE_CHECKING:
    from msgspec import StructMeta as _StructMeta
else:
    _StructMeta = type(msgspec.Struct)  # older msgspec does not export it

_FAUST_OPTIONS = frozenset(
    {
        "serializer",
        "namespace",
        "include_metadata",
        "allow_blessed_key",
        "polymorphic_fields",
        "isodates",
        "decimals",
        "coerce",
        "coercions",
        "date_parser",
        "validation",
        "abstract",
        "lazy_creation",
    }
)


class _RecordMeta(_StructMeta):
    """Drops Faust's class options: types are always checked here, ISO dates always parsed."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> type:
        known = {key: value for key, value in options.items() if key not in _FAUST_OPTIONS}
        return super().__new__(cls, name, bases, namespace, **known)


class Record(msgspec.Struct, metaclass=_RecordMeta):
    """A typed value: ``class Order(Record): id: str; amount: int = 0``.

    Fields are given by position or keyword. JSON decoding checks types and raises on a mismatch;
    unknown fields are ignored.
    """

    def asdict(self) -> dict[str, Any]:
        """Field names and values, one level deep."""
        return msgspec.structs.asdict(self)

    def derive(self, *others: msgspec.Struct, **fields: Any) -> Self:
        """A copy with the fields of ``others`` and then ``fields`` replaced."""
        changed = {name: value for other in others for name, value in _items(other)}
        return msgspec.structs.replace(self, **{**changed, **fields})

    def dumps(self) -> bytes:
        """JSON bytes."""
        return msgspec.json.encode(self)

    def to_representation(self) -> Any:
        """Builtin types only, as they appear in JSON."""
        return msgspec.to_builtins(self)

    @classmethod
    def loads(cls, data: bytes | str) -> Self:
        """From JSON. Raises msgspec.DecodeError or msgspec.ValidationError."""
        return msgspec.json.decode(data, type=cls)

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """From builtin types. Raises msgspec.ValidationError."""
        return msgspec.convert(data, cls)


def _items(struct: msgspec.Struct) -> list[tuple[str, Any]]:
    return list(msgspec.structs.asdict(struct).items())
