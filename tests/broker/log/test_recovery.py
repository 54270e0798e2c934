import logging
import random

import pytest

from onceward.broker.log.config import LogConfig
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.results import Isolation
from onceward.broker.storage.segment import Segment
from onceward.streams.testing.sim.disk import Inode, SimDisk

from .harness import DIRECTORY, append, consume, end, flush, open_log, send

CONFIG = LogConfig(segment_bytes=1024)
COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def files(disk: SimDisk, suffix: str) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(suffix)]


def inode(disk: SimDisk, path: str) -> Inode:
    found = disk.names[path]
    assert found is not None
    return found


def damage(disk: SimDisk, path: str, position: int) -> None:
    """Flip a bit, as a failing disk does."""
    found = inode(disk, path)
    found.data[position] ^= 1
    found.durable = bytearray(found.data)


def filled(disk: SimDisk) -> PartitionLog:
    """Ten segments of two records; a transaction of pid 1 is aborted in each, pid 2 goes on."""
    log = open_log(disk, config=CONFIG)
    for number in range(10):
        send(log, b"x" * 700, pid=1, sequence=number)
        end(log, pid=1, commit=False)
        append(log, b"%d" % number, pid=2, sequence=number)
    flush(log)
    assert log.segment_count == 10
    return log


EVERYTHING = [(3 * number + 2, b"%d" % number) for number in range(10)]


def test_a_torn_tail_is_cut_and_said(disk, caplog):
    log = filled(disk)
    inode(disk, files(disk, ".log")[-1]).data.extend(b"\0\0\0torn")
    disk.kill()
    with caplog.at_level(logging.WARNING):
        log = open_log(disk, config=CONFIG)
    assert "offset 30" in caplog.text
    assert "dropped 7 bytes" in caplog.text
    assert consume(log, COMMITTED) == EVERYTHING


def test_damage_in_the_middle_cuts_there_and_drops_what_follows(disk, caplog):
    filled(disk)
    disk.kill()
    for snapshot in files(disk, ".snapshot")[3:]:
        damage(disk, snapshot, 9)
    damage(disk, files(disk, ".log")[6], 100)
    with caplog.at_level(logging.WARNING):
        log = open_log(disk, config=CONFIG, leader_epoch=2)
    assert "3 later segments" in caplog.text
    assert log.log_end_offset == log.high_watermark == log.last_stable_offset == 18
    assert consume(log, COMMITTED) == EVERYTHING[:6]
    assert len(files(disk, ".log")) == 7
    assert append(log, b"6", pid=2, sequence=6).base_offset == 18
    assert send(log, b"x", pid=1, sequence=6).base_offset == 19
    assert log.end_offset_for_epoch(1) == (1, 18)


def test_damage_below_the_newest_snapshot_undoes_the_snapshot(disk):
    log = filled(disk)
    log.close()
    damage(disk, files(disk, ".log")[9], 100)
    log = open_log(disk, config=CONFIG)
    assert log.log_end_offset == 27
    assert append(log, b"9", pid=2, sequence=9).base_offset == 27
    flush(log)
    assert consume(log, COMMITTED)[:9] == EVERYTHING[:9]


def test_a_lost_end_of_a_sealed_segment_drops_what_follows(disk):
    """Not synced when the power went: the newer file survived, the older one did not."""
    log = open_log(disk, config=CONFIG)
    for number in range(4):
        append(log, b"x" * 400, pid=1, sequence=number)
    first = inode(disk, files(disk, ".log")[0])
    del first.data[len(first.data) // 2 :]
    disk.kill()
    log = open_log(disk, config=CONFIG)
    assert (log.log_end_offset, log.segment_count) == (1, 1)
    assert append(log, b"x" * 400, pid=1, sequence=1).base_offset == 1


@pytest.mark.parametrize("broken", [0, 4, 8])
def test_a_damaged_snapshot_is_replaced_by_replay(disk, broken):
    filled(disk)
    damage(disk, files(disk, ".snapshot")[broken], 30)
    disk.kill()
    log = open_log(disk, config=CONFIG)
    assert consume(log, COMMITTED) == EVERYTHING
    assert append(log, b"9", pid=2, sequence=9).duplicate


def test_a_damaged_or_missing_index_is_rebuilt(disk):
    clean = filled(disk).close()
    indexes = files(disk, ".index")
    assert len(indexes) == 10
    damage(disk, indexes[2], 20)
    disk.remove(indexes[5])
    inode(disk, indexes[7]).data.clear()
    log = open_log(disk, config=CONFIG, clean=clean)
    assert consume(log, COMMITTED) == EVERYTHING
    for number in range(10):
        assert consume(log, COMMITTED, offset=3 * number) == EVERYTHING[number:]


def test_an_unclean_start_scans_from_the_last_snapshot_only(disk, monkeypatch):
    filled(disk)
    disk.kill()
    scanned = []
    recover = Segment.recover
    monkeypatch.setattr(
        Segment,
        "recover",
        lambda self, **gaps: (scanned.append(self.base_offset), recover(self, **gaps))[1],
    )
    open_log(disk, config=CONFIG)
    assert scanned == [27]


def test_a_clean_start_scans_nothing(disk, monkeypatch):
    clean = filled(disk).close()
    monkeypatch.setattr(Segment, "batches", None)
    log = open_log(disk, config=CONFIG, clean=clean)
    assert log.high_watermark == 30
    assert append(log, b"9", pid=2, sequence=9).duplicate
    assert consume(log, COMMITTED) == EVERYTHING


def test_a_clean_mark_that_does_not_fit_the_files_is_not_believed(disk):
    clean = filled(disk).close()
    inode(disk, files(disk, ".log")[-1]).data.extend(b"more")
    log = open_log(disk, config=CONFIG, clean=clean)
    assert consume(log, COMMITTED) == EVERYTHING


def test_the_index_of_the_active_segment_is_not_taken_from_an_older_stop(disk):
    clean = filled(disk).close()
    log = open_log(disk, config=CONFIG, clean=clean)
    assert append(log, b"new").base_offset == 30
    flush(log)
    disk.kill()
    log = open_log(disk, config=CONFIG)
    assert consume(log, COMMITTED, offset=30) == [(30, b"new")]


def test_what_recovery_kept_is_durable(disk):
    """After a kill the data may be in the page cache only; it is readable, so it is synced."""
    log = open_log(disk, config=CONFIG)
    for number in range(8):
        append(log, b"x" * 300, pid=1, sequence=number)
    disk.kill()
    assert open_log(disk, config=CONFIG).high_watermark == 8
    disk.power_cut(random.Random(3))
    assert open_log(disk, config=CONFIG).high_watermark == 8


def test_a_log_whose_start_is_beyond_what_is_left_begins_there(disk):
    log = filled(disk)
    log.delete_records(29)
    disk.kill()
    damage(disk, files(disk, ".log")[-1], 30)
    log = open_log(disk, config=CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (29, 29)
    assert append(log, b"9").base_offset == 29
    disk.kill()
    assert open_log(disk, config=CONFIG).log_end_offset == 30


def test_a_snapshot_that_cannot_be_written_is_tried_again(disk):
    log = open_log(disk, config=LogConfig(segment_bytes=1024, retention_ms=1))
    for number in range(8):
        append(log, b"x" * 300, pid=1, sequence=number)
    disk.free_bytes = 0
    flush(log)
    assert log.high_watermark == 8
    assert log.apply_retention(10**15) == 0
    disk.free_bytes = None
    append(log, b"y", pid=1, sequence=8)
    flush(log)
    assert log.apply_retention(10**15) > 2
    disk.kill()
    log = open_log(disk, config=CONFIG)
    assert append(log, b"y", pid=1, sequence=8).duplicate


def test_a_snapshot_waits_for_the_sync_of_everything_below_it(disk):
    log = open_log(disk, config=CONFIG)
    append(log, b"x" * 600, pid=1, sequence=0)
    captured = log.log_end_offset
    append(log, b"x" * 600, pid=1, sequence=1)
    append(log, b"x" * 600, pid=1, sequence=2)
    log.flushed_to(captured)
    assert [int(name[-29:-9]) for name in files(disk, ".snapshot")] == [1]
    flush(log)
    assert [int(name[-29:-9]) for name in files(disk, ".snapshot")] == [1, 2]


def test_a_damaged_offset_is_found_though_the_crc_does_not_cover_it(disk):
    log = open_log(disk)
    for number in range(3):
        append(log, b"%d" % number)
    flush(log)
    size = log.size_bytes // 3
    disk.kill()
    damage(disk, files(disk, ".log")[0], size + 7)
    assert consume(open_log(disk)) == [(0, b"0")]


def test_a_crash_before_a_snapshot_does_not_keep_the_segment_for_ever(disk):
    config = LogConfig(segment_bytes=1024, retention_ms=1)
    log = open_log(disk, config=config)
    for _ in range(12):
        append(log, b"x" * 200)  # nothing is flushed: every snapshot is still to be written
    disk.kill()
    log = open_log(disk, config=config)
    assert log.segment_count > 2
    assert log.apply_retention(10**15) >= 2
