"""Compressions: interoperable, and bounded whatever the bytes claim."""

from __future__ import annotations

import gzip
import random
import struct

import cramjam
import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.records.compression import Compression, compress, decompress

CODECS = [c for c in Compression if c is not Compression.NONE]
TEXT = b"".join(b'{"user": "u%d", "amount": %d}' % (i % 97, i * i) for i in range(20_000))


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 32 * 1024 + 1, len(TEXT)])
def test_data_survives_the_round_trip(codec: Compression, size: int) -> None:
    data = TEXT[:size]
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_noise_survives_the_round_trip(codec: Compression) -> None:
    data = random.Random(3).randbytes(200_000)
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_an_expansion_stops_at_the_limit(codec: Compression) -> None:
    data = bytes(300_000)
    small = compress(codec, data)
    assert bytes(decompress(codec, small, max_size=300_000)) == data
    with pytest.raises(KafkaError) as error:
        decompress(codec, small, max_size=299_999)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_corrupt(codec: Compression) -> None:
    small = compress(codec, TEXT[:3000])
    for size in range(len(small)):
        if codec is Compression.SNAPPY and size == 16:
            continue  # the framing alone is a stream of no blocks
        with pytest.raises(KafkaError) as error:
            decompress(codec, small[:size])
        assert error.value.code == ErrorCode.CORRUPT_MESSAGE, size


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_behind_the_data_are_corrupt(codec: Compression) -> None:
    with pytest.raises(KafkaError) as error:
        decompress(codec, compress(codec, TEXT[:3000]) + b"\0\0\0\1\2\3")
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_changed_bytes_never_do_worse_than_a_kafka_error(codec: Compression) -> None:
    rng = random.Random(codec)
    small = compress(codec, TEXT[:2000])
    for _ in range(2000):
        changed = bytearray(small)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            expanded = decompress(codec, bytes(changed), max_size=1 << 20)
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
        else:
            assert len(expanded) <= 1 << 20


def test_snappy_is_written_in_xerial_framing() -> None:
    framed = compress(Compression.SNAPPY, TEXT[:100_000])
    assert framed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def test_raw_snappy_is_read_as_librdkafka_sends_it() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw) == TEXT


def test_snappy_that_claims_more_than_its_bytes_can_hold_is_refused_before_memory_is_taken() -> (
    None
):
    claim = b"\xff\xff\xff\x7f" + b"\0a"  # 256 MiB - 1
    with pytest.raises(KafkaError) as error:
        decompress(Compression.SNAPPY, claim)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def test_lz4_blocks_are_independent_as_kafka_requires() -> None:
    assert compress(Compression.LZ4, TEXT)[4] & 0x20


def test_linked_lz4_blocks_are_read() -> None:
    assert bytes(decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT)))) == TEXT


def test_several_gzip_members_are_one_stream() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"ab") + gzip.compress(b"c")) == b"abc"


def test_zstd_frames_may_follow_each_other_and_be_skippable() -> None:
    skippable = b"\x5f\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"xyz"
    frames = compress(Compression.ZSTD, b"ab") + skippable + compress(Compression.ZSTD, TEXT)
    assert bytes(decompress(Compression.ZSTD, frames)) == b"ab" + TEXT


def test_zstd_without_a_declared_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(TEXT)
    assert bytes(decompress(Compression.ZSTD, bytes(compressor.finish()))) == TEXT


def test_a_zstd_bomb_gets_no_more_memory_than_the_limit() -> None:
    block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"x"  # 128 KiB of one byte
    last = (1 << 17 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    bomb = b"\x28\xb5\x2f\xfd\x00\x58" + block * 100_000 + last  # 12 GiB
    with pytest.raises(KafkaError) as error:
        decompress(Compression.ZSTD, bomb, max_size=1 << 20)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_id_kafka_does_not_define_is_unsupported() -> None:
    for value in (5, 6, 7, -1):
        with pytest.raises(KafkaError) as error:
            Compression.from_id(value)
        assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
