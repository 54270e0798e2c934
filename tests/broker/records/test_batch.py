"""Headers of batches, and giving a batch its place in the log."""

from __future__ import annotations

import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.records.batch import (
    HEADER_SIZE,
    CorruptBatch,
    crc_is_valid,
    increment_sequence,
    iter_headers,
    read_header,
    stamp,
    stamp_log_append_time,
)
from onceward.broker.records.codec import Compression, decode, encode
from onceward.broker.records.control import encode_end_marker

pytestmark = pytest.mark.usefixtures("implementation")

BATCH = encode(
    [b"a", None, b"c"],
    [b"1", b"2", None],
    timestamps=[50, 70, 60],
    producer_id=9,
    producer_epoch=3,
    base_sequence=11,
    transactional=True,
    base_offset=100,
)


def test_a_header_says_what_the_batch_was_built_from() -> None:
    header = read_header(BATCH)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 102, 103)
    assert header.size == len(BATCH)
    assert (header.magic, header.records_count, header.partition_leader_epoch) == (2, 3, -1)
    assert (header.producer_id, header.producer_epoch) == (9, 3)
    assert (header.base_sequence, header.last_sequence) == (11, 13)
    assert (header.base_timestamp, header.max_timestamp) == (50, 70)
    assert header.compression is Compression.NONE
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.is_log_append_time


def test_a_plain_batch_has_no_producer_and_no_sequences() -> None:
    header = read_header(encode([None], [b"v"], timestamps=1))
    assert not header.has_producer_id
    assert not header.is_transactional
    assert header.last_sequence == -1


def test_sequences_wrap_from_the_largest_int_to_zero() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 3, 5) == 2
    batch = encode([None] * 4, [b"v"] * 4, timestamps=1, producer_id=1, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 1


def test_an_unknown_compression_is_told_by_its_own_error() -> None:
    changed = bytearray(BATCH)
    changed[22] |= 5
    with pytest.raises(KafkaError) as error:
        _ = read_header(changed).compression
    assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("size", [0, 12, HEADER_SIZE - 1])
def test_a_header_needs_61_bytes(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(BATCH[:size])


def test_a_batch_shorter_than_its_header_is_corrupt() -> None:
    changed = BATCH[:8] + (48).to_bytes(4, "big") + BATCH[12:]
    with pytest.raises(CorruptBatch) as error:
        read_header(changed)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(CorruptBatch):
        list(iter_headers(changed))


def test_headers_are_listed_up_to_an_incomplete_tail() -> None:
    buf = BATCH + BATCH + BATCH[:-1]
    assert [position for position, _ in iter_headers(buf)] == [0, len(BATCH)]
    assert [header.size for _, header in iter_headers(memoryview(buf))] == [len(BATCH)] * 2
    assert list(iter_headers(BATCH[:40])) == []


def test_the_crc_notices_a_changed_byte_and_not_the_place_in_the_log() -> None:
    assert crc_is_valid(b"xx" + BATCH, 2, len(BATCH))
    changed = bytearray(BATCH)
    changed[-1] ^= 1
    assert not crc_is_valid(changed, 0, len(changed))
    assert not crc_is_valid(BATCH, 0, len(BATCH) + 1)
    assert not crc_is_valid(BATCH, 0, 10)


def test_a_stamped_batch_has_its_offset_and_shares_the_rest() -> None:
    prefix, rest = stamp(BATCH, 5000, 7)
    assert len(prefix) == 16
    assert isinstance(rest, memoryview)
    assert rest.obj is BATCH
    stamped = b"".join((prefix, rest))
    header = read_header(stamped)
    assert (header.base_offset, header.partition_leader_epoch) == (5000, 7)
    assert crc_is_valid(stamped, 0, len(stamped))
    assert header[2:] == (7, *read_header(BATCH)[3:])
    assert decode(stamped).offsets == [5000, 5001, 5002]


def test_log_append_time_replaces_every_timestamp_and_keeps_the_crc_right() -> None:
    stamped = b"".join(stamp_log_append_time(BATCH, 10, 2, 999))
    header = read_header(stamped)
    assert header.is_log_append_time
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch) == (10, 2)
    assert (header.max_timestamp, header.base_timestamp) == (999, 50)
    assert crc_is_valid(stamped, 0, len(stamped))
    records = decode(stamped)
    assert records.timestamps == [999] * 3
    assert records.values == [b"1", b"2", None]


def test_a_marker_is_a_transactional_control_batch() -> None:
    header = read_header(encode_end_marker(True, 1, 2, 3, 4))
    assert header.is_control
    assert header.is_transactional
