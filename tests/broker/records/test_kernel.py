"""The compiled codec and the pure one give the same results and the same errors, on any bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.records import pure
from onceward.broker.records.codec import Compression, Headers, encode
from onceward.broker.records.compression import decompress
from onceward.broker.records.control import encode_end_marker
from onceward.broker.types import Buffer

_codec = pytest.importorskip("onceward.broker.records._codec", exc_type=ImportError)

BLOBS = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=12), BLOBS), max_size=3)
TIMES = st.integers(-1, 2**63 - 2) | st.integers(1_600_000_000_000, 1_600_000_100_000)


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, ...]:
    rows = draw(st.lists(st.tuples(BLOBS, BLOBS, TIMES, HEADERS), min_size=1, max_size=90))
    keys, values, times, headers = (list(column) for column in zip(*rows, strict=True))
    one_time = draw(st.booleans())
    return keys, values, times[0] if one_time else times, draw(st.sampled_from([None, headers]))


def expand(compression: int, data: bytes) -> Buffer:
    return decompress(Compression.from_id(compression), data, max_size=1 << 20)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except KafkaError as error:
        return error.code


@given(records(), st.integers(0, 2**40), st.integers(-1, 2**31 - 1))
def test_both_encode_the_same_bytes_and_decode_them_again(
    given_records: tuple[Any, ...], base_offset: int, sequence: int
) -> None:
    args = (*given_records, 0x10, 2**62, 2**15 - 1, sequence, base_offset)
    batch = _codec.encode(*args)
    assert batch == pure.encode(*args)
    keys, values, times, headers = given_records
    decoded = _codec.decode(batch, 0, True, False, expand)
    assert decoded == pure.decode(batch, 0, True, False, expand)
    assert decoded[:2] == (keys, values)
    assert decoded[3] == ([times] * len(keys) if isinstance(times, int) else times)
    assert decoded[4] == ([tuple(h) for h in headers] if headers and any(headers) else None)
    size = _codec.estimate_size(keys, values, headers)
    assert size == pure.estimate_size(keys, values, headers)
    assert size <= len(batch)
    start = base_offset + len(keys) // 2
    assert _codec.decode(batch, start, True, False, expand) == pure.decode(
        batch, start, True, False, expand
    )


@given(records(), st.integers(0, 2000) | st.integers(2000, 10**6))
def test_both_cut_chunks_at_the_same_places(given_records: tuple[Any, ...], limit: int) -> None:
    assert outcome(_codec.chunk_ends, *given_records, limit) == outcome(
        pure.chunk_ends, *given_records, limit
    )


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(1, 2**31 - 1))
def test_both_partition_alike(keys: list[bytes | None], partitions: int) -> None:
    assert _codec.partition_keys(keys, partitions) == pure.partition_keys(keys, partitions)
    for key in keys:
        if key is not None:
            assert _codec.murmur2(key) == pure.murmur2(key)


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_every_form_of_the_crc_agrees(data: bytes, value: int) -> None:
    expected = pure.crc32c(data, value)
    assert _codec.crc32c(data, value) == expected
    assert _codec.crc32c(data, value, True) == expected


@settings(max_examples=300)
@given(st.binary(max_size=120), st.integers(0, 12), st.booleans())
def test_both_judge_arbitrary_record_bytes_alike(section: bytes, count: int, late: bool) -> None:
    batch = bytearray(_codec.encode([None], [None], 5, None, 0, -1, -1, -1, 0)[:61]) + section
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (1000).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    args = (bytes(batch), 3 if late else 0, False, False, expand)
    assert outcome(_codec.decode, *args) == outcome(pure.decode, *args)


def seeds() -> list[bytes]:
    keys: list[bytes | None] = [b"key-%d" % i if i % 4 else None for i in range(12)]
    values: list[bytes | None] = [b"v" * (i * 9) if i % 5 else None for i in range(12)]
    times = [1_700_000_000_000 + i * i for i in range(12)]
    headers: list[Headers] = [[("h", b"x"), ("é", None)] if i % 3 else () for i in range(12)]
    batches = [
        encode(keys, values, timestamps=times, headers=own, compression=c, base_offset=i * 12)
        for i, (c, own) in enumerate((c, own) for c in Compression for own in (None, headers))
    ]
    batches.append(encode_end_marker(True, 1, 0, 0, 5, base_offset=200))
    return [*batches, b"".join(batches), encode([None], [b""], timestamps=0)]


def mutate(rng: random.Random, batch: bytes) -> bytes:
    """Some bytes changed, cut out or put in; half of the time the length and CRC are made right."""
    changed = bytearray(batch)
    for _ in range(rng.choice((1, 1, 2, 4))):
        position = rng.randrange(len(changed))
        match rng.randrange(6):
            case 0:
                del changed[position : position + rng.randrange(1, 4)]
            case 1:
                changed[position:position] = rng.randbytes(rng.randrange(1, 4))
            case 2:
                changed[position] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 3:
                changed[position] ^= 1 << rng.randrange(8)
            case _:
                changed[position] = rng.randrange(256)
        changed = changed or bytearray(b"\0")
    if rng.random() < 0.5 and len(changed) >= 61:
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
        changed[16] = 2
        changed[17:21] = pure.crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_batches_are_judged_alike_and_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    batches = seeds()
    valid = 0
    for _ in range(1500):
        batch = mutate(rng, rng.choice(batches))
        args = (batch, rng.choice((0, 0, 5, 30)), rng.random() < 0.5, rng.random() < 0.3, expand)
        compiled = outcome(_codec.decode, *args)
        assert compiled == outcome(pure.decode, *args), batch.hex()
        if isinstance(compiled, ErrorCode):
            assert compiled in (
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        else:
            valid += 1
    assert valid > 50  # the mutations are small enough to leave some batches whole


def test_an_error_inside_decompress_passes_through() -> None:
    batch = encode([None], [b"v"], timestamps=0, compression=Compression.GZIP)

    def fail(compression: int, data: bytes) -> bytes:
        raise LookupError(compression)

    for kernel in (_codec, pure):
        with pytest.raises(LookupError):
            kernel.decode(batch, 0, True, False, fail)
    with pytest.raises(TypeError):
        _codec.decode(batch, 0, True, False, lambda compression, data: 5)
