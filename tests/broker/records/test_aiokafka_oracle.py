"""aiokafka's codec reads what ours writes, and ours reads what aiokafka's writes."""

from __future__ import annotations

import random

import pytest
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from onceward.broker.records.codec import Compression, Headers, decode, encode

pytestmark = pytest.mark.usefixtures("implementation")

BASE = 1_700_000_000_000


def make(count: int, seed: int) -> tuple[list[bytes | None], list[bytes | None], list[int]]:
    rng = random.Random(seed)
    keys = [
        rng.randbytes(rng.choice((0, 5, 70))) if rng.random() < 0.8 else None for _ in range(count)
    ]
    values = [
        bytes(rng.choice((0, 40, 9000))) if rng.random() < 0.9 else None for _ in range(count)
    ]
    return keys, values, [BASE + rng.randrange(-100_000, 100_000) for _ in range(count)]


def make_headers(count: int) -> list[Headers]:
    return [[("trace", b"%d" % i), ("é", b"")] if i % 2 else [] for i in range(count)]


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("with_headers", [False, True])
def test_aiokafka_reads_our_batches(compression: Compression, with_headers: bool) -> None:
    keys, values, times = make(200, seed=1)
    headers = make_headers(200) if with_headers else None
    batch = encode(
        keys,
        values,
        timestamps=times,
        headers=headers,
        compression=compression,
        producer_id=5,
        producer_epoch=2,
        base_sequence=70,
        transactional=True,
        base_offset=900,
    )
    memory = MemoryRecords(batch + batch)
    for _ in range(2):
        theirs = memory.next_batch()
        assert theirs.validate_crc()
        assert theirs.is_transactional
        assert not theirs.is_control_batch
        assert (theirs.producer_id, theirs.next_offset) == (5, 1100)
        read = list(theirs)
        assert [record.key for record in read] == keys
        assert [record.value for record in read] == values
        assert [record.timestamp for record in read] == times
        assert [record.offset for record in read] == list(range(900, 1100))
        if headers is not None:
            assert [list(record.headers) for record in read] == headers
    assert not memory.has_next()


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("with_headers", [False, True])
def test_we_read_aiokafkas_batches(compression: Compression, with_headers: bool) -> None:
    keys, values, times = make(200, seed=2)
    headers = make_headers(200) if with_headers else None
    builder = DefaultRecordBatchBuilder(2, compression, True, 5, 2, 70, 1 << 24)
    for i in range(200):
        own = list(headers[i]) if headers is not None else []
        assert builder.append(i, times[i], keys[i], values[i], own) is not None
    batch = bytes(builder.build())
    records = decode(batch + batch)
    assert records.keys == keys * 2
    assert records.values == values * 2
    assert records.timestamps == times * 2
    assert records.offsets == list(range(200)) * 2
    if headers is None:
        assert records.headers is None
    else:
        assert records.headers == [tuple(own) for own in headers] * 2


@pytest.mark.parametrize("with_headers", [False, True])
def test_uncompressed_batches_are_the_same_bytes(with_headers: bool) -> None:
    keys, values, times = make(100, seed=3)
    headers = make_headers(100) if with_headers else None
    builder = DefaultRecordBatchBuilder(2, 0, True, 5, 2, 70, 1 << 24)
    for i in range(100):
        builder.append(i, times[i], keys[i], values[i], list(headers[i]) if headers else [])
    ours = encode(
        keys,
        values,
        timestamps=times,
        headers=headers,
        producer_id=5,
        producer_epoch=2,
        base_sequence=70,
        transactional=True,
    )
    theirs = bytes(builder.build())
    assert ours[:12] == theirs[:12]
    assert ours[16:] == theirs[16:]  # the leader epoch between is the broker's
