"""What the compiled Avro functions write and read, against fastavro and Apache's own package."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.registry.compatibility import can_read
from onceward.registry.schemas import InvalidSchema
from onceward.registry.schemas.avro.schema import AvroSchema
from onceward.registry.serializers.avro.faults import find_fault
from onceward.registry.serializers.avro.reader import UNREADABLE, compile_reader
from onceward.registry.serializers.avro.writer import REFUSALS, compile_writer
from onceward.registry.serializers.models import UNTYPED

from ..avro_data import NoData, avro_datum
from ..avro_generation import AvroGenerator

SEEDS = st.integers(0, 2**32 - 1)


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, derandomize=True)


def schema_pair(seed: int) -> tuple[Any, Any, AvroSchema, AvroSchema] | None:
    random = Random(seed)
    generator = AvroGenerator(random)
    writer = generator.schema()
    reader = generator.changed(writer)
    try:
        parsed = [AvroSchema.parse(json.dumps(schema)) for schema in (writer, reader)]
    except InvalidSchema:
        return None
    return writer, reader, parsed[0], parsed[1]


def data_of(schema: AvroSchema, random: Random) -> list[Any]:
    try:
        return [avro_datum(schema.root, random) for _ in range(4)]
    except NoData:
        return []


def plain(value: Any) -> Any:
    """Without the hints that say which branch of a union is meant."""
    if isinstance(value, tuple):
        return plain(value[1])
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def promoted(value: Any, like: Any) -> Any:
    """The oracle leaves a long that is read as a double an int."""
    if isinstance(like, float) and isinstance(value, int):
        return float(value)
    if isinstance(like, list):
        return [promoted(each, one) for each, one in zip(value, like, strict=True)]
    if isinstance(like, dict):
        return {key: promoted(each, like.get(key)) for key, each in value.items()}
    return value


@examples(500)
@given(SEEDS)
def test_bytes_are_those_of_fastavro_and_read_back(seed: int) -> None:
    pair = schema_pair(seed)
    if pair is None:
        return
    schema, _, parsed, _ = pair
    if schema == "bytes":  # has no length before it, unlike anywhere else
        return
    random = Random(seed)
    write = compile_writer(parsed.root, UNTYPED, b"")
    read = compile_reader(parsed.root, parsed.root, UNTYPED)
    theirs = fastavro.parse_schema(schema, {})
    for datum in data_of(parsed, random):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, theirs, datum)
        data = write(datum)
        assert data == buffer.getvalue()
        assert read(b"12345" + data, 5) == plain(datum)


@examples(500)
@given(SEEDS)
def test_data_is_read_as_another_schema_as_apache_avro_reads_it(seed: int) -> None:
    oracle = pytest.importorskip("avro.io")
    parse = pytest.importorskip("avro.schema").parse
    pair = schema_pair(seed)
    if pair is None or pair[0] == "bytes":
        return
    writer, reader, parsed_writer, parsed_reader = pair
    if can_read(parsed_reader, parsed_writer):
        return
    random = Random(seed)
    write = compile_writer(parsed_writer.root, UNTYPED, b"")
    read = compile_reader(parsed_writer.root, parsed_reader.root, UNTYPED)
    theirs = oracle.DatumReader(parse(json.dumps(writer)), parse(json.dumps(reader)))
    for datum in data_of(parsed_writer, random):
        data = write(datum)
        mine = read(data, 0)
        try:
            expected = theirs.read(oracle.BinaryDecoder(io.BytesIO(data)))
        except Exception:  # noqa: BLE001 - what it cannot do is not what is tested
            continue
        assert mine == promoted(expected, mine)


@examples(300)
@given(SEEDS, st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_in_bounded_work(seed: int, data: bytes) -> None:
    pair = schema_pair(seed)
    if pair is None:
        return
    read = compile_reader(pair[2].root, pair[3].root, UNTYPED)
    try:
        read(data, 0)
    except UNREADABLE:
        pass


ODD: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=5,
)


@examples(500)
@given(SEEDS, ODD)
def test_a_value_is_written_exactly_if_no_fault_is_found(seed: int, value: Any) -> None:
    pair = schema_pair(seed)
    if pair is None:
        return
    root = pair[2].root
    write = compile_writer(root, UNTYPED, b"")
    fault = find_fault(root, UNTYPED, value, "value")
    try:
        write(value)
    except REFUSALS:
        assert fault is not None
    else:
        assert fault is None
