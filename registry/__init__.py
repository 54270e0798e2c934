"""The schema registry: its service, its client, and serializers that use it.

Names are loaded when they are first used: a program that needs one format does not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .client import Registered, RegistryClient, RegistryUnavailable, SchemaText
    from .errors import RegistryError
    from .schemas import Reference
    from .serializers.avro.serializer import Avro
    from .serializers.errors import DoesNotFit, SchemasUnavailable, Undecodable, UnsupportedType
    from .serializers.json_schema.serializer import JsonSchema
    from .serializers.memory import MemoryRegistry
    from .serializers.models import Aliases, Digits
    from .serializers.protobuf import Protobuf

_HOMES: Final = {
    "Aliases": ".serializers.models",
    "Avro": ".serializers.avro.serializer",
    "Digits": ".serializers.models",
    "DoesNotFit": ".serializers.errors",
    "JsonSchema": ".serializers.json_schema.serializer",
    "MemoryRegistry": ".serializers.memory",
    "Protobuf": ".serializers.protobuf",
    "Reference": ".schemas",
    "Registered": ".client",
    "RegistryClient": ".client",
    "RegistryError": ".errors",
    "RegistryUnavailable": ".client",
    "SchemaText": ".client",
    "SchemasUnavailable": ".serializers.errors",
    "Undecodable": ".serializers.errors",
    "UnsupportedType": ".serializers.errors",
}

__all__ = [
    "Aliases",
    "Avro",
    "Digits",
    "DoesNotFit",
    "JsonSchema",
    "MemoryRegistry",
    "Protobuf",
    "Reference",
    "Registered",
    "RegistryClient",
    "RegistryError",
    "RegistryUnavailable",
    "SchemaText",
    "SchemasUnavailable",
    "Undecodable",
    "UnsupportedType",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home, __name__), name)
