"""The reader/writer pairs of ``vectors/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onceward.registry.schemas import Reference, ResolvedReference, SchemaType

_FOLDER = Path(__file__).parent / "vectors"


def vectors(name: str) -> list[Any]:
    """The entries of ``avro``, ``json`` or ``proto``."""
    loaded: list[Any] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def imports(vector: Any, side: str) -> list[ResolvedReference]:
    """The files a Protobuf pair's ``reader`` or ``writer`` imports."""
    return [
        ResolvedReference(Reference(name, name, 1), SchemaType.PROTOBUF, text)
        for name, text in vector.get(f"{side}_deps", {}).items()
    ]
