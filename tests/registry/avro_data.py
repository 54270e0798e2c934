"""Random data for an Avro schema, in the form fastavro takes."""

from __future__ import annotations

from random import Random
from typing import Any

from onceward.registry.schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    RecordType,
    UnionType,
    branch_name,
)


class NoData(Exception):
    """Nothing fits the schema: it contains itself without end."""


def avro_datum(node: AvroType, random: Random, depth: int = 8) -> Any:
    """Raises ``NoData``."""
    if depth < -20:
        raise NoData
    match node:
        case RecordType():
            return {field.name: avro_datum(field.type, random, depth - 1) for field in node.fields}
        case UnionType():
            branches = node.branches
            if depth <= 0:  # the branch that ends soonest
                branches = [b for b in branches if not isinstance(b, RecordType)] or branches
            branch = random.choice(branches)
            return (branch_name(branch), avro_datum(branch, random, depth - 1))
        case ArrayType():
            count = random.randint(0, 2) if depth > 0 else 0
            return [avro_datum(node.items, random, depth - 1) for _ in range(count)]
        case MapType():
            count = random.randint(0, 2) if depth > 0 else 0
            return {str(n): avro_datum(node.values, random, depth - 1) for n in range(count)}
        case EnumType():
            return random.choice(node.symbols)
        case FixedType():
            return bytes(node.size)
    values: dict[str, Any] = {
        "null": None,
        "boolean": True,
        "int": random.randint(-(2**31), 2**31 - 1),
        "long": random.randint(-(2**63), 2**63 - 1),
        "float": 1.5,
        "double": 2.5,
        "bytes": b"text",
        "string": "text",
    }
    return values[node.kind]
