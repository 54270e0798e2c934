"""End markers of transactions."""

from __future__ import annotations

import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.records.batch import CorruptBatch, crc_is_valid, read_header
from onceward.broker.records.codec import decode, encode
from onceward.broker.records.control import (
    ControlType,
    EndMarker,
    encode_end_marker,
    parse_end_marker,
    read_control_type,
)
from onceward.broker.records.kernel import Kernel


def control_batch(kernel: Kernel, key: bytes | None, value: bytes | None) -> bytes:
    return kernel.encode([key], [value], 1, None, 0x30, 5, 0, -1, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_survives_the_round_trip(implementation: Kernel, commit: bool) -> None:
    marker = encode_end_marker(commit, 77, 4, 12, 1000, base_offset=40)
    assert parse_end_marker(marker) == EndMarker(commit, 12)
    assert read_control_type(marker) == (ControlType.COMMIT if commit else ControlType.ABORT)
    header = read_header(marker)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 4, -1)
    assert (header.base_offset, header.records_count, header.max_timestamp) == (40, 1, 1000)
    assert crc_is_valid(marker, 0, len(marker))


def test_a_marker_has_the_bytes_kafka_writes(implementation: Kernel) -> None:
    keys, values, *_ = implementation.decode(
        encode_end_marker(True, 1, 2, 3, 4), 0, True, True, lambda compression, data: data
    )
    assert keys == [bytes.fromhex("00000001")]
    assert values == [bytes.fromhex("000000000003")]


def test_readers_never_see_a_marker_and_go_on_after_it(implementation: Kernel) -> None:
    records = decode(encode_end_marker(False, 1, 2, 3, 4, base_offset=10), start_offset=10)
    assert len(records) == 0
    assert records.next_offset == 11


def test_a_later_version_with_more_fields_is_read(implementation: Kernel) -> None:
    batch = control_batch(implementation, b"\0\1\0\1zz", b"\0\1\0\0\0\x09zz")
    assert parse_end_marker(batch) == EndMarker(True, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\1"),
        (b"\0\0\0", b"\0\0\0\0\0\1"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\1"),
        (b"\0\0\0\2", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\1"),
    ],
)
def test_what_is_no_end_marker_is_corrupt(
    implementation: Kernel, key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(KafkaError) as error:
        parse_end_marker(control_batch(implementation, key, value))
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_data_batch_is_no_marker(implementation: Kernel) -> None:
    with pytest.raises(CorruptBatch):
        parse_end_marker(encode([b"\0\0\0\1"], [b"\0\0\0\0\0\1"], timestamps=0))


def test_a_compressed_control_batch_is_corrupt(implementation: Kernel) -> None:
    batch = bytearray(encode_end_marker(True, 1, 2, 3, 4))
    batch[22] |= 1
    with pytest.raises(CorruptBatch):
        parse_end_marker(batch)


def test_a_marker_emptied_by_compaction_has_no_type(implementation: Kernel) -> None:
    marker = encode_end_marker(True, 1, 2, 3, 4)
    empty = bytearray(marker[:61])
    empty[8:12] = (49).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    assert read_control_type(empty) is None
    with pytest.raises(CorruptBatch):
        parse_end_marker(empty)
