import dataclasses

import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.log.config import LogConfig
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.results import Isolation
from onceward.broker.records.batch import crc_is_valid, read_header
from onceward.broker.records.codec import Compression, crc32c, encode
from onceward.broker.records.control import encode_end_marker
from onceward.streams.testing.sim import SimDisk

from .harness import NOW, append, batch, consume, end, flush, open_log, send

UNCOMMITTED = Isolation.READ_UNCOMMITTED
COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> PartitionLog:
    return open_log(disk, leader_epoch=7)


def code_of(action, *args, **kwargs) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action(*args, **kwargs)
    return caught.value.code


# validation


def patched(data: bytes, position: int, value: bytes, *, crc: bool = True) -> bytes:
    """``data`` with some bytes replaced and its CRC made right again."""
    changed = data[:position] + value + data[position + len(value) :]
    if crc:
        changed = changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]
    return changed


GOOD = batch(b"a", b"b")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD[:-1], ErrorCode.INVALID_RECORD),
        (GOOD[:40], ErrorCode.INVALID_RECORD),
        (GOOD[:3], ErrorCode.INVALID_RECORD),
        (patched(GOOD, 0, (5).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (patched(GOOD, 16, b"\x01", crc=False), ErrorCode.INVALID_RECORD),
        (patched(GOOD, 57, (0).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
        (patched(GOOD, 57, (3).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
        (patched(GOOD, 22, b"\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (patched(GOOD, 22, b"\x08"), ErrorCode.INVALID_TIMESTAMP),
        (encode_end_marker(True, 1, 0, 0, NOW), ErrorCode.INVALID_RECORD),
        (batch(b"a", pid=1, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(b"a", transactional=True), ErrorCode.INVALID_RECORD),
        (batch(b"a", timestamp=NOW + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"x" * 1_048_588), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else f"{len(value)} bytes",
)
def test_a_bad_batch_is_refused_and_leaves_no_trace(log, data, code):
    assert code_of(log.append, data, now_ms=NOW) is code
    assert (log.log_end_offset, log.size_bytes, list(log.unsynced_files())) == (0, 0, [])


def test_limits_of_the_topic_apply(disk):
    log = open_log(disk, config=LogConfig(segment_bytes=200))
    assert code_of(append, log, b"x" * 200) is ErrorCode.RECORD_LIST_TOO_LARGE
    log.config = LogConfig(message_timestamp_before_max_ms=1000)
    assert code_of(append, log, b"a", timestamp=NOW - 1001) is ErrorCode.INVALID_TIMESTAMP
    append(log, b"a", timestamp=-1)
    append(log, b"a", timestamp=NOW - 1000)


def test_a_compacted_topic_needs_keys(disk):
    log = open_log(disk, config=LogConfig(cleanup_policy=frozenset({"compact"})))
    data = encode([b"k", None], [b"v", b"w"], timestamps=NOW, compression=Compression.GZIP)
    assert code_of(log.append, data, now_ms=NOW) is ErrorCode.INVALID_RECORD
    append(log, b"a")


def test_compressed_batches_are_kept_with_new_offsets(log):
    append(log, b"first")
    data = encode([None] * 3, [b"v"] * 3, timestamps=NOW, compression=Compression.GZIP)
    result = log.append(memoryview(data), now_ms=NOW)
    assert (result.base_offset, result.last_offset, result.log_append_time) == (1, 3, -1)
    flush(log)
    (stored,) = log.read(1, max_bytes=1000, isolation=UNCOMMITTED).records
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 7)
    assert bytes(stored[16:]) == data[16:]


def test_log_append_time_is_the_brokers_and_so_is_the_crc(disk):
    log = open_log(disk, config=LogConfig(message_timestamp_type="LogAppendTime"))
    result = append(log, b"a", timestamp=5, pid=1, sequence=0)
    assert result.log_append_time == NOW
    again = append(log, b"a", timestamp=5, now_ms=NOW + 9, pid=1, sequence=0)
    assert (again.duplicate, again.log_append_time) == (True, NOW)
    flush(log)
    (stored,) = log.read(0, max_bytes=1000, isolation=UNCOMMITTED).records
    header = read_header(stored)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW
    assert crc_is_valid(stored, 0, header.size)
    assert log.offset_for_timestamp(NOW, UNCOMMITTED) == (0, NOW, 1)


# reading


@pytest.fixture(params=["memory", "file"])
def filled(request: pytest.FixtureRequest, disk: SimDisk) -> PartitionLog:
    """Fifty flushed batches of two records in several segments; in the tail cache or not."""
    tail_bytes = 1 << 20 if request.param == "memory" else 0
    log = open_log(disk, config=LogConfig(segment_bytes=1024), tail_bytes=tail_bytes)
    for number in range(50):
        append(log, b"%d" % (2 * number), b"%d" % (2 * number + 1), timestamp=NOW + number)
    flush(log)
    return log


def test_everything_can_be_read_from_any_offset_in_any_portion(filled):
    assert filled.segment_count > 3
    everything = [(offset, b"%d" % offset) for offset in range(100)]
    for offset in range(101):
        assert consume(filled, offset=offset) == everything[offset:]
    for max_bytes in (1, 100, 250, 1000, 5000):
        assert consume(filled, max_bytes=max_bytes) == everything


def test_a_read_returns_whole_batches_within_the_limit(filled):
    one = len(batch(b"00", b"00"))
    for max_bytes, count in ((1, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (20 * one, 20)):
        result = filled.read(21, max_bytes=max_bytes, isolation=UNCOMMITTED)
        assert result.size == count * one
        assert result.next_offset == 20 + 2 * count
    nothing = filled.read(21, max_bytes=one - 1, isolation=UNCOMMITTED, min_one=False)
    assert (nothing.records, nothing.next_offset) == ([], 21)


def test_every_batch_of_a_long_segment_is_found_through_the_index(disk):
    log = open_log(disk, tail_bytes=0)
    for number in range(400):
        append(log, b"x" * (7 * number % 300), timestamp=NOW + number)
    append(log, b"x" * 20_000, timestamp=NOW + 400)
    append(log, b"end", timestamp=NOW + 401)
    flush(log)
    for offset in range(402):
        result = log.read(offset, max_bytes=1, isolation=UNCOMMITTED)
        (stored,) = result.records
        assert (read_header(stored).base_offset, result.next_offset) == (offset, offset + 1)
        assert log.offset_for_timestamp(NOW + offset, UNCOMMITTED)[0] == offset


def test_a_batch_larger_than_the_limit_is_read_whole(disk):
    log = open_log(disk, tail_bytes=0)
    append(log, b"x" * 100_000)
    append(log, b"y" * 50_000)
    flush(log)
    first = log.read(0, max_bytes=10, isolation=UNCOMMITTED)
    assert (first.next_offset, first.size > 100_000) == (1, True)
    assert [offset for offset, _ in consume(log, max_bytes=10)] == [0, 1]


def test_reads_stop_at_the_high_watermark_and_beyond_the_end_are_errors(log):
    append(log, b"a")
    flush(log)
    append(log, b"b")
    assert consume(log) == [(0, b"a")]
    for offset in (1, 2):
        result = log.read(offset, max_bytes=1000, isolation=UNCOMMITTED)
        assert (result.records, result.next_offset, result.high_watermark) == ([], offset, 1)
        assert result.aborted is None
    assert code_of(log.read, 3, max_bytes=1, isolation=UNCOMMITTED) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (
        code_of(log.read, -1, max_bytes=1, isolation=UNCOMMITTED) is ErrorCode.OFFSET_OUT_OF_RANGE
    )
    assert [bytes(batch.data[8:]) for batch in log.read_all(1)] == [
        bytes(batch.data[8:]) for batch in [list(log.read_all(0))[1]]
    ]


def test_the_high_watermark_never_goes_back(log):
    append(log, b"a")
    append(log, b"b")
    log.flushed_to(2)
    log.flushed_to(1)
    assert log.high_watermark == 2


# transactions


def test_a_transaction_becomes_readable_when_its_marker_is_flushed(log):
    append(log, b"before")
    send(log, b"in", pid=1, sequence=0)
    append(log, b"after")
    flush(log)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    assert consume(log, COMMITTED) == [(0, b"before")]
    assert len(consume(log)) == 3
    end(log, pid=1, commit=True)
    assert log.last_stable_offset == 1
    flush(log)
    assert log.last_stable_offset == 4
    assert consume(log, COMMITTED) == [(0, b"before"), (1, b"in"), (2, b"after")]


def test_a_marker_that_overtakes_the_flush_of_its_data_holds_back_the_stable_offset(log):
    send(log, b"a", pid=1, sequence=0)
    end(log, pid=1, commit=True)
    log.flushed_to(1)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.flushed_to(2)
    assert log.last_stable_offset == 2


def test_the_oldest_open_transaction_counts_whichever_ends_first(log):
    send(log, b"a", pid=1, sequence=0)
    send(log, b"b", pid=2, sequence=0)
    end(log, pid=1, commit=False)
    flush(log)
    assert log.last_stable_offset == 1
    end(log, pid=2, commit=False)
    flush(log)
    assert log.last_stable_offset == 4
    assert consume(log, COMMITTED) == []


def test_only_the_aborted_transactions_that_overlap_are_listed(log):
    for pid in range(4):
        send(log, b"x", pid=pid, sequence=0)
        end(log, pid=pid, commit=pid % 2 == 0)
    flush(log)
    one = log.read(0, max_bytes=1, isolation=COMMITTED)
    assert (one.next_offset, one.aborted) == (1, [])
    assert log.read(2, max_bytes=1, isolation=COMMITTED).aborted == [(1, 2)]
    assert log.read(3, max_bytes=1, isolation=COMMITTED).aborted == [(1, 2)]
    assert log.read(4, max_bytes=1, isolation=COMMITTED).aborted == []
    assert log.read(0, max_bytes=9999, isolation=COMMITTED).aborted == [(1, 2), (3, 6)]
    assert log.read(0, max_bytes=9999, isolation=UNCOMMITTED).aborted is None


def test_a_long_aborted_transaction_behind_short_ones_is_listed(log):
    send(log, b"long", pid=9, sequence=0)
    for pid in range(3):
        send(log, b"x", pid=pid, sequence=0)
        end(log, pid=pid, commit=False)
    end(log, pid=9, commit=False)
    flush(log)
    assert log.read(0, max_bytes=1, isolation=COMMITTED).aborted == [(9, 0)]
    assert consume(log, COMMITTED) == []


# offsets by time and by epoch


def test_a_timestamp_leads_to_the_first_record_at_or_after_it(filled):
    for number in range(50):
        assert filled.offset_for_timestamp(NOW + number, UNCOMMITTED) == (
            2 * number,
            NOW + number,
            1,
        )
    assert filled.offset_for_timestamp(0, UNCOMMITTED) == (0, NOW, 1)
    assert filled.offset_for_timestamp(NOW + 50, UNCOMMITTED) == (-1, -1, -1)
    assert filled.offset_for_timestamp(-3, UNCOMMITTED) == (98, NOW + 49, 1)
    filled.delete_records(31)
    assert filled.offset_for_timestamp(0, UNCOMMITTED) == (31, NOW + 15, 1)


def test_a_timestamp_is_looked_up_inside_the_batch_and_below_the_readers_limit(log):
    append(log, b"a", b"b", b"c", timestamp=[NOW + 5, NOW + 30, NOW + 10])
    append(log, b"d", timestamp=NOW + 20)
    send(log, b"e", pid=1, sequence=0)
    append(log, b"f", timestamp=NOW + 99)
    assert log.offset_for_timestamp(NOW, UNCOMMITTED) == (-1, -1, -1)
    flush(log)
    assert log.offset_for_timestamp(NOW + 6, UNCOMMITTED) == (1, NOW + 30, 7)
    assert log.offset_for_timestamp(NOW + 31, UNCOMMITTED) == (5, NOW + 99, 7)
    assert log.offset_for_timestamp(NOW + 31, COMMITTED) == (-1, -1, -1)
    assert log.offset_for_timestamp(-3, UNCOMMITTED) == (5, NOW + 99, 7)
    assert log.offset_for_timestamp(-3, COMMITTED) == (1, NOW + 30, 7)
    assert log.offset_for_timestamp(-1, UNCOMMITTED) == (6, -1, 7)
    assert log.offset_for_timestamp(-1, COMMITTED) == (4, -1, 7)
    assert log.offset_for_timestamp(-2, UNCOMMITTED) == (0, -1, 7)


def test_each_start_writes_in_its_own_epoch_and_old_epochs_have_an_end(disk):
    for epoch in (1, 4, 6):
        log = open_log(disk, leader_epoch=epoch)
        if epoch != 4:
            append(log, b"a", b"b")
        flush(log)
        disk.kill()
    append(log, b"c")
    assert log.end_offset_for_epoch(6) == (6, 5)
    assert log.end_offset_for_epoch(7) == (-1, -1)
    assert log.end_offset_for_epoch(5) == (1, 2)
    assert log.end_offset_for_epoch(1) == (1, 2)
    assert log.end_offset_for_epoch(0) == (0, 0)
    assert log.end_offset_for_epoch(-1) == (-1, -1)


# segments, retention, DeleteRecords


def test_a_segment_is_rolled_by_size_and_by_age_of_its_first_record(disk):
    log = open_log(disk, config=LogConfig(segment_bytes=1000, segment_ms=100))
    append(log, b"a", timestamp=NOW)
    append(log, b"b", timestamp=NOW + 100)
    assert log.segment_count == 1
    append(log, b"c", timestamp=NOW + 101)
    assert log.segment_count == 2
    append(log, b"d" * 890, timestamp=NOW + 101)
    assert log.segment_count == 3
    flush(log)
    assert [offset for offset, _ in consume(log)] == [0, 1, 2, 3]


def test_rolling_keeps_the_old_segment_dirty_until_it_is_synced(disk):
    log = open_log(disk, config=LogConfig(segment_bytes=1024))
    for _ in range(30):
        append(log, b"x" * 100)
    assert len(log.unsynced_files()) == log.segment_count > 3
    flush(log)
    assert not log.unsynced_files()


def test_an_append_during_a_sync_keeps_the_log_dirty(log):
    append(log, b"a")
    captured = log.log_end_offset
    append(log, b"b")
    log.flushed_to(captured)
    assert len(log.unsynced_files()) == 1


def retention_log(disk: SimDisk, **settings: int) -> PartitionLog:
    log = open_log(disk, config=LogConfig(segment_bytes=1024, **settings))
    for number in range(20):
        append(log, b"x" * 400, timestamp=NOW + number * 1000)
    flush(log)
    assert log.segment_count == 10
    return log


def test_retention_by_time_drops_whole_old_segments(disk):
    log = retention_log(disk, retention_ms=10_000)
    assert log.apply_retention(NOW + 15_000) == 2
    assert (log.log_start_offset, log.segment_count) == (4, 8)
    assert log.apply_retention(NOW + 15_000) == 0
    assert code_of(log.read, 3, max_bytes=1, isolation=UNCOMMITTED) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [offset for offset, _ in consume(log)] == list(range(4, 20))


def test_retention_by_size_keeps_at_least_that_much(disk):
    log = retention_log(disk, retention_bytes=3000, retention_ms=-1)
    log.apply_retention(NOW)
    assert 3000 <= log.size_bytes < 4000


def test_an_expired_active_segment_is_rolled_and_dropped(disk):
    log = retention_log(disk, retention_ms=10_000)
    append(log, b"x", pid=1, sequence=4, timestamp=NOW)
    flush(log)
    log.apply_retention(NOW + 10_000_000)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (21, 21, 0)
    flush(log)
    disk.kill()
    log = open_log(disk, config=log.config)
    assert (log.log_start_offset, log.log_end_offset) == (21, 21)
    assert append(log, b"x", pid=1, sequence=4, timestamp=NOW).duplicate
    assert append(log, b"y").base_offset == 21


def test_retention_never_touches_what_is_not_flushed_nor_a_log_that_only_compacts(disk):
    log = open_log(disk, config=LogConfig(segment_bytes=1024, retention_ms=1))
    for _ in range(20):
        append(log, b"x" * 400)
    assert log.apply_retention(NOW + 10_000_000) == 0
    flush(log)
    log.config = dataclasses.replace(log.config, cleanup_policy=frozenset({"compact"}))
    assert log.apply_retention(NOW + 10_000_000) == 0
    log.delete_records(9)
    assert log.apply_retention(NOW) == 4
    assert log.log_start_offset == 9


def test_delete_records_moves_the_start_durably(disk, log):
    for number in range(10):
        append(log, b"%d" % number, pid=1, sequence=number)
    flush(log)
    append(log, b"unflushed", pid=1, sequence=10)
    assert code_of(log.delete_records, 11) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(log.delete_records, -2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(4) == 4
    assert log.delete_records(2) == 4
    assert [offset for offset, _ in consume(log)] == [4, 5, 6, 7, 8, 9]
    disk.kill()
    log = open_log(disk)
    assert log.log_start_offset == 4
    assert append(log, b"9", pid=1, sequence=9).duplicate
    assert log.delete_records(-1) == 11
    assert consume(log) == []


def test_delete_records_inside_an_open_transaction_moves_the_stable_offset_to_the_start(log):
    send(log, b"a", b"b", pid=1, sequence=0)
    append(log, b"c")
    flush(log)
    log.delete_records(2)
    assert (log.log_start_offset, log.last_stable_offset) == (2, 2)
    assert consume(log, COMMITTED) == []
    end(log, pid=1, commit=False)
    flush(log)
    assert consume(log, COMMITTED) == [(2, b"c")]


# failures of the disk


def test_a_full_disk_refuses_the_append_and_leaves_nothing_torn(disk, log):
    append(log, b"a", pid=1, sequence=0)
    disk.free_bytes = 30
    assert code_of(append, log, b"b", pid=1, sequence=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    disk.free_bytes = None
    append(log, b"b", pid=1, sequence=1)
    flush(log)
    assert consume(log) == [(0, b"a"), (1, b"b")]
    disk.kill()
    assert consume(open_log(disk)) == [(0, b"a"), (1, b"b")]


def test_what_cannot_be_cut_back_at_once_is_cut_before_the_next_append(disk, log, monkeypatch):
    append(log, b"a")
    file = log.unsynced_files()[0]
    truncate = file.truncate

    def broken(size: int) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(file, "truncate", broken)
    disk.free_bytes = 30
    assert code_of(append, log, b"b") is ErrorCode.KAFKA_STORAGE_ERROR
    disk.free_bytes = None
    assert code_of(append, log, b"c") is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.setattr(file, "truncate", truncate)
    append(log, b"d")
    flush(log)
    disk.kill()
    assert consume(open_log(disk)) == [(0, b"a"), (1, b"d")]


def test_a_closed_log_takes_nothing(log):
    append(log, b"a")
    log.close()
    assert code_of(append, log, b"b") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log.flushed_to(1)
