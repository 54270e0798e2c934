"""Whether data written with one Avro schema can be read with another.

Source: the Avro specification, "Schema Resolution", and Java's ``SchemaCompatibility`` 1.12: names
of records, enums and fixed are compared without their namespace, and logical types, docs and other
attributes do not count.
"""

from __future__ import annotations

from ..schemas.avro.schema import AvroSchema
from ..schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    UnionType,
    branch_name,
    describe,
)
from ..schemas.path import Path
from .verdict import MAX_REASONS, Found, Incompatibility, Judging, Pair, PairGuard

_PROMOTIONS: dict[str, frozenset[str]] = {  # reader's type -> writer's types it takes besides
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def compare_avro(reader: AvroSchema, writer: AvroSchema) -> tuple[Incompatibility, ...]:
    """All reasons why ``reader`` cannot read ``writer``'s data; none when it can.

    Paths are those of Java's checker: ``/fields/0/type/items``. Raises ``ComparisonTooComplex``.
    """
    return tuple(PairGuard().run(_pair(reader.root, writer.root, Path(""))))


def _pair(reader: AvroType, writer: AvroType, path: Path) -> Pair:
    return Pair((id(reader), id(writer)), path, lambda: _types(reader, writer, path))


def _types(reader: AvroType, writer: AvroType, path: Path) -> Judging:
    match reader, writer:
        case _, UnionType():
            found: Found = []
            for index, branch in enumerate(writer.branches):
                found += yield _pair(reader, branch, path / index)
            return found
        case UnionType(), _:
            return (yield from _reader_union(reader, writer, path))
        case ArrayType(), ArrayType():
            return (yield _pair(reader.items, writer.items, path / "items"))
        case MapType(), MapType():
            return (yield _pair(reader.values, writer.values, path / "values"))
        case FixedType(), FixedType():
            return _names(reader, writer, path) + _sizes(reader, writer, path)
        case EnumType(), EnumType():
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        case RecordType(), RecordType():
            return _names(reader, writer, path) or (yield from _fields(reader, writer, path))
    if _promotes(reader, writer):
        return []
    description = f"{writer.kind} cannot be read as {reader.kind}"
    return _one("TYPE_MISMATCH", path, reader, writer, description)


def _promotes(reader: AvroType, writer: AvroType) -> bool:
    return reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ())


def _reader_union(reader: UnionType, writer: AvroType, path: Path) -> Judging:
    reasons: Found = []
    for branch in reader.branches:
        if isinstance(branch, PrimitiveType) and isinstance(writer, PrimitiveType):
            if _promotes(branch, writer):
                return []
            continue
        found = yield _pair(branch, writer, path)
        if not found:
            return []
        if _short_name(branch) == _short_name(writer):  # the branch that was meant says why
            reasons = found
    description = f"no branch of the reader union reads {describe(writer)}"
    if reasons:
        shown = "; ".join(f"{reason.rule} at {reason.path}" for reason in reasons[:5])
        description = f"{description} ({shown})"
    return _one("MISSING_UNION_BRANCH", path, reader, writer, description)


def _fields(reader: RecordType, writer: RecordType, path: Path) -> Judging:
    written = {field.name: field for field in writer.fields}
    found: Found = []
    for index, field in enumerate(reader.fields):
        if len(found) >= MAX_REASONS:
            break
        here = path / "fields" / index
        names = dict.fromkeys([field.name, *field.aliases])
        sources = [written[name] for name in names if name in written]
        if len(sources) > 1:
            found.append(_ambiguous(field, sources, here))
        elif sources:
            found += yield _pair(field.type, sources[0].type, here / "type")
        elif not field.has_default:
            description = (
                f"field {field.name} of {reader.name.full} is missing in the writer "
                "and has no default value"
            )
            shown = f"{field.name}: {describe(field.type)}"
            rule = "READER_FIELD_MISSING_DEFAULT_VALUE"
            found.append(Incompatibility(rule, str(here), shown, "", description))
    return found


def _ambiguous(field: Field, sources: list[Field], path: Path) -> Incompatibility:
    names = ", ".join(source.name for source in sources)
    return Incompatibility(
        "READER_FIELD_AMBIGUOUS",
        str(path),
        f"{field.name}, aliases {', '.join(field.aliases)}",
        names,
        f"field {field.name} stands for more than one field of the writer: {names}",
    )


def _short_name(node: AvroType) -> str:
    return branch_name(node).rpartition(".")[2]


def _names(reader: NamedType, writer: NamedType, path: Path) -> Found:
    if reader.name.short == writer.name.short or writer.name in reader.aliases:
        return []
    description = f"{writer.name.full} is neither the name nor an alias of {reader.name.full}"
    return _one("NAME_MISMATCH", path / "name", reader, writer, description)


def _sizes(reader: FixedType, writer: FixedType, path: Path) -> Found:
    if reader.size == writer.size:
        return []
    description = f"fixed of {writer.size} bytes cannot be read as one of {reader.size}"
    sizes = str(reader.size), str(writer.size)
    return [Incompatibility("FIXED_SIZE_MISMATCH", str(path / "size"), *sizes, description)]


def _symbols(reader: EnumType, writer: EnumType, path: Path) -> Found:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    description = f"enum {reader.name.full} lacks {', '.join(missing)} and has no default"
    symbols = ", ".join(reader.symbols), ", ".join(writer.symbols)
    return [Incompatibility("MISSING_ENUM_SYMBOLS", str(path / "symbols"), *symbols, description)]


def _one(rule: str, path: Path, reader: AvroType, writer: AvroType, description: str) -> Found:
    sides = describe(reader), describe(writer)
    return [Incompatibility(rule, str(path) or "/", *sides, description)]
