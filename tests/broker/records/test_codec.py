"""Records to batches and back: the public functions, on both implementations."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.records.batch import crc_is_valid, iter_headers, read_header
from onceward.broker.records.codec import (
    Compression,
    Headers,
    crc32c,
    decode,
    encode,
    encode_chunks,
    estimate_size,
    murmur2,
    partition_keys,
)
from onceward.broker.records.control import encode_end_marker

pytestmark = pytest.mark.usefixtures("implementation")

KEYS: list[bytes | None] = [b"k%d" % i if i % 5 else None for i in range(300)]
VALUES: list[bytes | None] = [b"v" * (i % 200) if i % 7 else None for i in range(300)]
TIMES = [1_700_000_000_000 + (i * 37) % 1000 for i in range(300)]
HEADERS: list[Headers] = [
    [("h", b"x" * (i % 9)), ("né", None)] if i % 3 else () for i in range(300)
]


def set_crc(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize("compression", list(Compression))
def test_records_survive_the_round_trip(compression: Compression) -> None:
    batch = encode(
        KEYS, VALUES, timestamps=TIMES, headers=HEADERS, compression=compression, base_offset=1000
    )
    assert read_header(batch).compression is compression
    assert crc_is_valid(batch, 0, len(batch))
    for buf in (batch, bytearray(batch), memoryview(batch)):
        records = decode(buf)
        assert records.keys == KEYS
        assert records.values == VALUES
        assert records.timestamps == TIMES
        assert records.offsets == list(range(1000, 1300))
        assert records.headers == [tuple(own) for own in HEADERS]
        assert records.next_offset == 1300
        assert len(records) == 300


def test_headers_are_none_when_no_record_has_any() -> None:
    assert decode(encode(KEYS, VALUES, timestamps=1)).headers is None
    empty: list[Headers] = [()] * 300
    assert decode(encode(KEYS, VALUES, timestamps=1, headers=empty)).headers is None


def test_the_first_record_with_headers_gives_the_others_none() -> None:
    plain = encode([b"a"], [b"1"], timestamps=1)
    rich = encode([b"b", b"c"], [b"2", b"3"], timestamps=1, headers=[(), (("h", b""),)])
    assert decode(plain + rich + plain).headers == [(), (), (("h", b""),), ()]


def test_one_timestamp_serves_all_records() -> None:
    records = decode(encode(KEYS, VALUES, timestamps=-1))
    assert records.timestamps == [-1] * 300
    header = read_header(encode([None] * 2, [b"", None], timestamps=2**63 - 2))
    assert header.base_timestamp == header.max_timestamp == 2**63 - 2


def test_the_largest_difference_of_timestamps_survives() -> None:
    times = [-1, 2**63 - 2, 0]
    assert decode(encode([None] * 3, [b"v"] * 3, timestamps=times)).timestamps == times


def test_many_batches_are_one_list_and_an_incomplete_tail_is_ignored() -> None:
    first = encode([b"a"] * 3, [b"1"] * 3, timestamps=5)
    second = encode(
        [b"b"] * 2, [b"2"] * 2, timestamps=6, base_offset=10, compression=Compression.ZSTD
    )
    for cut in (0, 1, 11, 12, 60, 61, len(first) - 1):
        records = decode(first + second + first[:cut])
        assert records.keys == [b"a"] * 3 + [b"b"] * 2
        assert records.offsets == [0, 1, 2, 10, 11]
        assert records.timestamps == [5] * 3 + [6] * 2
        assert records.next_offset == 12
    assert decode(first[:-1], start_offset=7).next_offset == 7
    assert decode(b"", start_offset=3).next_offset == 3


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_reading_starts_inside_a_batch(compression: Compression) -> None:
    batch = encode(
        KEYS, VALUES, timestamps=TIMES, headers=HEADERS, compression=compression, base_offset=50
    )
    records = decode(batch + batch[:70], start_offset=349)
    assert records.offsets == [349]
    assert records.keys == KEYS[-1:]
    assert records.timestamps == TIMES[-1:]
    assert records.headers == [tuple(HEADERS[-1])]
    behind = decode(batch, start_offset=350)
    assert (len(behind), behind.next_offset) == (0, 350)


def test_a_batch_below_the_start_is_not_even_checked() -> None:
    broken = bytearray(encode([b"a"], [b"1"], timestamps=5, base_offset=3))
    broken[-1] ^= 1
    good = encode([b"b"], [b"2"], timestamps=5, base_offset=4)
    assert decode(bytes(broken) + good, start_offset=4).keys == [b"b"]


def test_holes_left_by_compaction_count_in_the_next_offset() -> None:
    batch = bytearray(encode([b"a"], [b"1"], timestamps=5))
    batch[23:27] = (9).to_bytes(4, "big")
    records = decode(set_crc(batch))
    assert (records.offsets, records.next_offset) == ([0], 10)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_emptied_by_compaction_only_moves_the_offset(compression: Compression) -> None:
    batch = bytearray(encode([b"a"], [b"1"], timestamps=5)[:61])
    batch[8:12] = (49).to_bytes(4, "big")
    batch[22] |= compression
    batch[57:61] = bytes(4)
    records = decode(set_crc(batch))
    assert (len(records), records.next_offset) == (0, 1)


def test_a_wrong_crc_is_corrupt_unless_nobody_checks() -> None:
    batch = bytearray(encode([b"a"], [b"1234"], timestamps=5))
    batch[-2] ^= 1
    with pytest.raises(KafkaError) as error:
        decode(batch)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    assert len(decode(batch, check_crcs=False)) == 1


def test_an_unknown_compression_is_unsupported() -> None:
    batch = bytearray(encode([b"a"], [b"1"], timestamps=5))
    batch[22] |= 6
    with pytest.raises(KafkaError) as error:
        decode(set_crc(batch))
    assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_expansion_of_a_batch_is_bounded() -> None:
    batch = encode([None], [bytes(100_000)], timestamps=5, compression=Compression.GZIP)
    assert len(decode(batch)) == 1
    with pytest.raises(KafkaError) as error:
        decode(batch, max_size=50_000)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_older_message_format_is_corrupt() -> None:
    batch = bytearray(encode([b"a"], [b"1"], timestamps=5))
    batch[16] = 1
    with pytest.raises(KafkaError) as error:
        decode(batch)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def record(body: bytes) -> bytes:
    return bytes((len(body) << 1,)) + body


@pytest.mark.parametrize(
    ("section", "count"),
    [
        pytest.param(record(b"\0\0\0\1\1\0"), 2, id="more records than bytes"),
        pytest.param(record(b"\0\0\0\1\1\0"), -1, id="negative count"),
        pytest.param(record(b"\0\0\0\1\1\0"), 0, id="bytes and no records"),
        pytest.param(record(b"\0\0\0\1\1\0") * 3, 2, id="bytes after the records"),
        pytest.param(b"\x01" + b"\0" * 20, 1, id="negative record length"),
        pytest.param(b"\x7e" + b"\0\0\0\1\1\0", 1, id="record longer than the batch"),
        pytest.param(b"\0" * 7, 1, id="empty record"),
        pytest.param(record(b"\0\0\0\3\1\0"), 1, id="key length -2"),
        pytest.param(record(b"\0\0\0\1\3\0"), 1, id="value length -2"),
        pytest.param(record(b"\0\0\0\6\1\0\0"), 1, id="key longer than the record"),
        pytest.param(record(b"\0\0\0\1\1\1\0"), 1, id="negative header count"),
        pytest.param(record(b"\0\0\0\1\1\4\0\1\0"), 1, id="more headers than bytes"),
        pytest.param(record(b"\0\0\0\1\1\2\1\1"), 1, id="header without key"),
        pytest.param(record(b"\0\0\0\1\1\2\2a"), 1, id="header without value"),
        pytest.param(record(b"\0\0\0\1\1\0\0"), 1, id="record with bytes left"),
        pytest.param(record(b"\0\0\2\1\1\0"), 1, id="offset beyond the last"),
        pytest.param(record(b"\0\0\1\1\1\0"), 1, id="negative offset delta"),
        pytest.param(record(b"\0\0\0\1\1\0") * 2, 2, id="offsets that do not ascend"),
        pytest.param(record(b"\0" + b"\x80" * 10 + b"\0\0\1\1\0"), 1, id="varlong of 11 bytes"),
        pytest.param(record(b"\0" + b"\xff" * 9 + b"\x02\0\1\1\0"), 1, id="varlong of 65 bits"),
        pytest.param(record(b"\0\0" + b"\x80" * 5 + b"\0\1\1\0"), 1, id="varint of 6 bytes"),
        pytest.param(record(b"\0\0" + b"\xff" * 4 + b"\x10\1\1\0"), 1, id="varint of 33 bits"),
        pytest.param(
            record(b"\0" + b"\xfe" + b"\xff" * 8 + b"\x01\0\1\1\0"), 1, id="time overflow"
        ),
        pytest.param(record(b"\0\0\0\1\1\x80"), 1, id="varint cut off"),
    ],
)
def test_malformed_records_are_corrupt(section: bytes, count: int) -> None:
    batch = bytearray(encode([None], [None], timestamps=5)[:61]) + section
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(KafkaError) as error:
        decode(set_crc(batch))
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def test_numbers_in_longer_than_needed_encodings_are_read() -> None:
    batch = bytearray(encode([None], [None], timestamps=5)[:61])
    batch += record(b"\0\x80\0\x80\x80\0\x81\0\x81\0\x80\0")
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    records = decode(set_crc(batch))
    assert (records.keys, records.values, records.timestamps) == ([None], [None], [5])


def test_a_header_name_that_is_not_utf8_does_not_stop_the_reader() -> None:
    batch = bytearray(encode([None], [b"v"], timestamps=5, headers=[[("ab", b"x")]]))
    position = batch.index(b"ab")
    batch[position] = 0xFF
    assert decode(set_crc(batch)).headers == [(("\N{REPLACEMENT CHARACTER}b", b"x"),)]


def test_a_batch_needs_records_and_lists_of_one_length() -> None:
    cases: list[tuple[list[bytes | None], list[bytes | None], int | list[int]]] = [
        ([], [], 0),
        ([None], [b"a", b"b"], 0),
        ([None], [b"a"], [1, 2]),
        ([None], [b"a"], -2),
        ([None], [b"a"], [2**63 - 1]),
        ([None], [b"a"], 2**70),
    ]
    for keys, values, times in cases:
        with pytest.raises(ValueError):
            encode(keys, values, timestamps=times)
    with pytest.raises(ValueError):
        encode([None], [b"a"], timestamps=0, headers=[])


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_epoch": 2**15},
        {"producer_id": 2**63},
        {"base_sequence": -2},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
    ],
)
def test_a_number_that_does_not_fit_its_field_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        encode([None], [b"a"], timestamps=0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "values", "times", "headers"),
    [
        (["a"], [b"a"], 0, None),
        ([b"a"], [1], 0, None),
        ([b"a"], [bytearray(b"a")], 0, None),
        (b"a", [b"a"], 0, None),
        ([b"a"], [b"a"], [1.5], None),
        ([b"a"], [b"a"], None, None),
        ([b"a"], [b"a"], 0, [[(b"h", b"x")]]),
        ([b"a"], [b"a"], 0, [[("h", "x")]]),
        ([b"a"], [b"a"], 0, [None]),
        ([b"a"], [b"a"], 0, [["hx"]]),
    ],
)
def test_anything_but_bytes_is_a_type_error(
    keys: object, values: object, times: object, headers: object
) -> None:
    with pytest.raises(TypeError):
        encode(keys, values, timestamps=times, headers=headers)  # type: ignore[arg-type]


def test_a_header_is_a_pair_of_text_and_bytes() -> None:
    with pytest.raises(ValueError):
        encode([b"a"], [b"a"], timestamps=0, headers=[[("h", b"x", b"y")]])  # type: ignore[list-item]
    with pytest.raises(UnicodeEncodeError):
        encode([b"a"], [b"a"], timestamps=0, headers=[[("\ud800", b"x")]])


def test_the_estimate_is_the_size_of_a_batch_with_one_timestamp() -> None:
    assert estimate_size([], []) == 61
    assert estimate_size(KEYS, VALUES) == len(encode(KEYS, VALUES, timestamps=9))
    batch = encode(KEYS, VALUES, timestamps=9, headers=HEADERS)
    assert estimate_size(KEYS, VALUES, HEADERS) == len(batch)


@pytest.mark.parametrize("max_bytes", [300, 1000, 10_000, 1 << 20])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.SNAPPY])
def test_chunks_stay_below_the_limit_and_hold_everything(
    max_bytes: int, compression: Compression
) -> None:
    chunks = list(
        encode_chunks(
            KEYS,
            VALUES,
            max_bytes=max_bytes,
            timestamps=TIMES,
            headers=HEADERS,
            compression=compression,
            producer_id=3,
            producer_epoch=0,
            base_sequence=2**31 - 100,
            transactional=True,
        )
    )
    assert max(len(batch) for batch, _ in chunks) <= max_bytes
    assert sum(count for _, count in chunks) == 300
    parts = [decode(batch) for batch, _ in chunks]
    assert [key for part in parts for key in part.keys] == KEYS
    assert [value for part in parts for value in part.values] == VALUES
    assert [time for part in parts for time in part.timestamps] == TIMES
    sequence = 2**31 - 100
    for batch, count in chunks:
        header = read_header(batch)
        assert (header.base_sequence, header.records_count) == (sequence, count)
        assert (header.base_offset, header.is_transactional) == (0, True)
        sequence = (header.last_sequence + 1) & 0x7FFFFFFF


def test_chunks_are_cut_as_late_as_possible() -> None:
    chunks = list(encode_chunks(KEYS, VALUES, max_bytes=2000, timestamps=TIMES))
    start = 0
    for batch, count in chunks[:-1]:
        end = start + count
        assert len(batch) <= 2000
        longer = encode(
            KEYS[start : end + 1], VALUES[start : end + 1], timestamps=TIMES[start : end + 1]
        )
        assert len(longer) > 2000
        start = end


def test_a_record_that_fits_exactly_is_one_chunk() -> None:
    size = estimate_size([b"k"], [b"v" * 500])
    assert [n for _, n in encode_chunks([b"k"], [b"v" * 500], max_bytes=size, timestamps=1)] == [1]


def test_a_record_that_fits_no_batch_is_too_large_and_named_with_the_limit() -> None:
    with pytest.raises(KafkaError) as error:
        list(encode_chunks([None, None], [b"a", b"v" * 500], max_bytes=200, timestamps=1))
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
    size = estimate_size([None], [b"v" * 500])
    assert str(size) in str(error.value)
    assert "200" in str(error.value)


def test_no_records_make_no_chunks() -> None:
    assert list(encode_chunks([], [], max_bytes=10, timestamps=1)) == []


def test_noise_that_compression_would_grow_is_sent_as_it_is() -> None:
    noise = random.Random(5).randbytes(1000)
    size = estimate_size([None], [noise])
    ((batch, _),) = encode_chunks(
        [None], [noise], max_bytes=size, timestamps=1, compression=Compression.GZIP
    )
    assert read_header(batch).compression is Compression.NONE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, value: int) -> None:
    assert murmur2(key) == value
    assert partition_keys([key, None], 7) == [(value & 0x7FFFFFFF) % 7, -1]


def test_keys_are_partitioned_in_one_call() -> None:
    assert partition_keys([], 3) == []
    partitions = partition_keys(KEYS, 16)
    assert [p for key, p in zip(KEYS, partitions, strict=True) if key is None] == [-1] * 60
    assert set(partitions) - {-1} == set(range(16))
    for count in (0, -1):
        with pytest.raises(ValueError):
            partition_keys(KEYS, count)
    with pytest.raises(TypeError):
        partition_keys(["a"], 3)  # type: ignore[list-item]


def test_crc32c_has_the_known_values_and_continues() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(memoryview(b"xx123456789")[6:], crc32c(b"1234")) == 0xE3069283
    assert crc32c(b"", 17) == 17


def test_markers_between_data_are_skipped() -> None:
    buf = (
        encode([b"a"], [b"1"], timestamps=5, producer_id=4, transactional=True)
        + encode_end_marker(True, 4, 0, 0, 5, base_offset=1)
        + encode([b"b"], [b"2"], timestamps=5, base_offset=2)
    )
    records = decode(buf)
    assert (records.offsets, records.next_offset) == ([0, 2], 3)
    assert len(list(iter_headers(buf))) == 3


def test_the_environment_can_ask_for_the_pure_codec() -> None:
    code = "from onceward.broker.records.codec import COMPILED; print(COMPILED)"
    environment = {**os.environ, "ONCEWARD_PURE_PYTHON": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
