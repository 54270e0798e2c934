"""What a read_committed reader gets from batches and a list of aborted transactions."""

from __future__ import annotations

import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.records.codec import Compression, Records, decode, encode
from onceward.broker.records.control import encode_end_marker

pytestmark = pytest.mark.usefixtures("implementation")


def data(offset: int, *values: bytes, pid: int = -1, transactional: bool = True) -> bytes:
    return encode(
        [None] * len(values),
        list(values),
        timestamps=1,
        producer_id=pid,
        producer_epoch=0,
        base_sequence=0 if pid >= 0 else -1,
        transactional=transactional and pid >= 0,
        base_offset=offset,
    )


def marker(offset: int, pid: int, commit: bool) -> bytes:
    return encode_end_marker(commit, pid, 0, 0, 1, base_offset=offset)


def committed(buf: bytes, *aborted: tuple[int, int], start_offset: int = 0) -> Records:
    return decode(buf, aborted=aborted, read_committed=True, start_offset=start_offset)


INTERLEAVED = b"".join(
    (
        data(0, b"a0", b"a1", pid=1),
        data(2, b"b2", pid=2),
        data(3, b"plain"),
        data(4, b"a4", pid=1),
        marker(5, 1, commit=False),
        data(6, b"a6", pid=1),
        marker(7, 2, commit=True),
        marker(8, 1, commit=True),
    )
)


def test_only_the_aborted_transaction_is_dropped() -> None:
    records = committed(INTERLEAVED, (1, 0))
    assert records.values == [b"b2", b"plain", b"a6"]
    assert records.offsets == [2, 3, 6]
    assert records.next_offset == 9


def test_read_uncommitted_sees_all_data() -> None:
    records = decode(INTERLEAVED, aborted=[(1, 0)])
    assert records.values == [b"a0", b"a1", b"b2", b"plain", b"a4", b"a6"]
    assert records.next_offset == 9


def test_the_second_transaction_of_a_producer_can_be_the_aborted_one() -> None:
    buf = b"".join(
        (
            data(0, b"kept", pid=1),
            marker(1, 1, commit=True),
            data(2, b"gone", pid=1),
            marker(3, 1, commit=False),
            data(4, b"kept too", pid=1),
            marker(5, 1, commit=True),
        )
    )
    assert committed(buf, (1, 2)).values == [b"kept", b"kept too"]


def test_two_aborted_transactions_of_one_producer_come_in_any_order() -> None:
    buf = b"".join(
        (
            data(0, b"gone", pid=1),
            marker(1, 1, commit=False),
            data(2, b"kept", pid=1),
            marker(3, 1, commit=True),
            data(4, b"gone", pid=1),
            marker(5, 1, commit=False),
        )
    )
    assert committed(buf, (1, 4), (1, 0)).values == [b"kept"]


def test_a_transaction_that_began_before_the_fetch_is_dropped_from_its_first_batch_on() -> None:
    buf = data(10, b"gone", pid=1) + marker(11, 1, commit=False) + data(12, b"kept")
    assert committed(buf, (1, 3), start_offset=10).values == [b"kept"]


def test_a_transaction_whose_marker_is_in_a_later_fetch_is_dropped() -> None:
    records = committed(data(0, b"kept") + data(1, b"gone", pid=1), (1, 1))
    assert records.values == [b"kept"]
    assert records.next_offset == 2


def test_the_same_producers_data_outside_a_transaction_is_kept() -> None:
    buf = data(0, b"plain", pid=1, transactional=False) + data(1, b"gone", pid=1)
    assert committed(buf, (1, 0)).values == [b"plain"]


def test_a_transaction_that_starts_behind_the_data_changes_nothing() -> None:
    assert committed(data(0, b"kept", pid=1), (1, 5)).values == [b"kept"]


def test_everything_dropped_still_moves_the_offset() -> None:
    records = committed(data(4, b"gone", b"gone", pid=1), (1, 4), start_offset=4)
    assert (records.values, records.next_offset) == ([], 6)
    assert committed(b"", (1, 4), start_offset=4).next_offset == 4


def test_headers_of_separate_runs_stay_in_line() -> None:
    rich = encode([None], [b"r"], timestamps=1, headers=[[("h", b"1")]], base_offset=2)
    buf = data(0, b"x") + data(1, b"gone", pid=1) + rich + data(3, b"gone", pid=1) + data(4, b"y")
    records = committed(buf, (1, 0))
    assert records.values == [b"x", b"r", b"y"]
    assert records.headers == [(), (("h", b"1"),), ()]


def test_compressed_batches_are_filtered_without_expanding_them() -> None:
    gone = bytearray(
        encode(
            [None],
            [b"gone"],
            timestamps=1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            compression=Compression.GZIP,
        )
    )
    gone[70] ^= 0xFF
    buf = bytes(gone) + marker(1, 1, commit=False) + data(2, b"kept")
    records = decode(buf, aborted=[(1, 0)], read_committed=True, check_crcs=False)
    assert records.values == [b"kept"]


@pytest.mark.parametrize("position", [22, 57, 70])
def test_a_dropped_batch_with_a_wrong_crc_is_corrupt(position: int) -> None:
    buf = bytearray(data(0, b"gone" * 10, pid=1) + marker(1, 1, commit=False))
    buf[position] ^= 1
    with pytest.raises(KafkaError) as error:
        committed(bytes(buf), (1, 0))
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
