"""JSON for every kind of model: msgspec does the work, pydantic and Faust models are asked to help.

Neither pydantic nor faust is imported: their classes are recognised by the methods they have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import ConfigurationError

_UNTYPED = (None, Any, object)


def json_codec(value_type: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """``(encode, decode)`` for values declared as ``value_type``.

    msgspec types (Struct, Record, dataclass, TypedDict, builtin, generic) are checked while
    decoding. Raises ConfigurationError for a type that has no JSON form.
    """
    encode = msgspec.json.Encoder(enc_hook=_represent).encode
    if value_type in _UNTYPED:
        return encode, msgspec.json.Decoder().decode
    if is_pydantic(value_type):
        return encode, value_type.model_validate_json
    if is_faust_record(value_type):
        return encode, _faust_decoder(value_type)
    try:
        return encode, msgspec.json.Decoder(value_type, dec_hook=_revive).decode
    except TypeError as error:
        raise ConfigurationError(f"type {value_type!r} has no JSON form: {error}") from None


def is_pydantic(value_type: Any) -> bool:
    """A pydantic v2 model class."""
    return isinstance(value_type, type) and hasattr(value_type, "model_validate_json")


def is_faust_record(value_type: Any) -> bool:
    """A ``faust.Record`` class (or anything with its methods that msgspec does not know itself)."""
    return (
        isinstance(value_type, type)
        and not issubclass(value_type, msgspec.Struct)
        and hasattr(value_type, "from_data")
        and hasattr(value_type, "to_representation")
    )


def _faust_decoder(value_type: Any) -> Callable[[bytes], Any]:
    decode = msgspec.json.Decoder().decode

    def decode_record(data: bytes) -> Any:
        fields = decode(data)
        if not isinstance(fields, dict):
            raise ValueError(f"expected a JSON object, got {type(fields).__name__}")
        return _from_data(value_type, fields)

    return decode_record


def _from_data(value_type: Any, fields: Any) -> Any:
    """A model from builtin types.

    A Faust record carries the name of its class, which for a declared type is a hint and no order:
    without ``preferred_type`` a record written by a module of another name could not be read.
    """
    if hasattr(value_type, "__is_model__"):
        return value_type.from_data(fields, preferred_type=value_type)
    return value_type.from_data(fields)


def _represent(value: Any) -> Any:
    """msgspec's hook for types it does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "to_representation"):
        return value.to_representation()
    if hasattr(value, "__json__"):
        return value.__json__()
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")


def _revive(value_type: type, value: Any) -> Any:
    """msgspec's hook for nested pydantic and Faust models."""
    if hasattr(value_type, "model_validate"):
        return value_type.model_validate(value)
    if hasattr(value_type, "from_data"):
        return _from_data(value_type, value)
    raise ValueError(f"{value_type.__name__} cannot be made from JSON")
