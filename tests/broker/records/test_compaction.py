"""Batches without some of their records."""

from __future__ import annotations

import random

import pytest

from onceward.broker.records.batch import (
    CorruptBatch,
    crc_is_valid,
    read_header,
    stamp_log_append_time,
)
from onceward.broker.records.codec import Compression, decode, encode
from onceward.broker.records.compaction import retained

pytestmark = pytest.mark.usefixtures("implementation")


def a_batch(compression: Compression = Compression.NONE, count: int = 5) -> bytes:
    return encode(
        [b"k%d" % number for number in range(count)],
        [b"v" * (number * 40) for number in range(count)],
        timestamps=[50 + (number * 7) % 11 for number in range(count)],
        headers=[(("h", b"%d" % number),) for number in range(count)],
        compression=compression,
        producer_id=9,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
        base_offset=100,
    )


def retain(batch: bytes, keep: list[bool]) -> bytes:
    return retained(batch, read_header(batch), keep, decode(batch).timestamps)


@pytest.mark.parametrize("compression", list(Compression))
def test_kept_records_are_as_before_and_the_others_are_gone(compression: Compression) -> None:
    rng = random.Random(compression)
    for _ in range(20):
        batch = a_batch(compression, count=rng.randint(1, 9))
        before = decode(batch)
        keep = [rng.random() < 0.5 for _ in before.offsets]
        after = retain(batch, keep)
        assert crc_is_valid(after, 0, len(after))
        found = decode(after)
        kept = [number for number, stays in enumerate(keep) if stays]
        assert found.offsets == [before.offsets[number] for number in kept]
        assert found.keys == [before.keys[number] for number in kept]
        assert found.values == [before.values[number] for number in kept]
        assert found.timestamps == [before.timestamps[number] for number in kept]
        assert before.headers is not None
        if kept:
            assert found.headers == [before.headers[number] for number in kept]
        assert found.next_offset == before.next_offset


def test_the_header_still_says_which_offsets_and_sequences_it_was() -> None:
    batch = a_batch()
    before, after = (
        read_header(batch),
        read_header(retain(batch, [False, True, True, False, False])),
    )
    assert (after.base_offset, after.next_offset) == (before.base_offset, before.next_offset)
    assert (after.base_sequence, after.last_sequence) == (11, 15)
    assert (after.producer_id, after.producer_epoch) == (9, 3)
    assert after.base_timestamp == before.base_timestamp
    assert after.max_timestamp == max(decode(batch).timestamps[1:3])
    assert after.records_count == 2
    assert not after.is_transactional


@pytest.mark.parametrize("compression", list(Compression))
def test_an_emptied_batch_is_a_header_alone(compression: Compression) -> None:
    after = retain(a_batch(compression), [False] * 5)
    header = read_header(after)
    assert (header.records_count, header.size, header.max_timestamp) == (0, 61, -1)
    assert header.compression is Compression.NONE
    assert (len(decode(after)), decode(after).next_offset) == (0, 105)


def test_a_batch_of_which_all_stays_keeps_its_bytes_but_for_the_transaction() -> None:
    batch = a_batch(Compression.GZIP)
    after = retain(batch, [True] * 5)
    assert after[61:] == batch[61:]
    assert crc_is_valid(after, 0, len(after))
    assert not read_header(after).is_transactional


def test_log_append_time_stays_that_of_the_batch() -> None:
    stamped = b"".join(stamp_log_append_time(a_batch(), 100, 1, 1234))
    assert decode(retain(stamped, [True, False, False, False, True])).timestamps == [1234, 1234]


def test_records_that_do_not_fit_their_batch_are_refused() -> None:
    batch = bytearray(a_batch())
    batch[61] = 0xFF
    header = read_header(batch)
    with pytest.raises(CorruptBatch):
        retained(batch, header, [True, False, False, False, False], [50] * 5)
    batch[61:] = b"\xff" * (len(batch) - 61)
    with pytest.raises(CorruptBatch):
        retained(batch, header, [True, False, False, False, False], [50] * 5)
