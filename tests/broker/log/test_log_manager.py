import errno
import random
import time
from pathlib import Path

import pytest

from onceward.broker.log.config import LogConfig
from onceward.broker.log.log_manager import LogManager
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.storage.filesystem import File, FileSystem, LockHeldError, OsFileSystem
from onceward.broker.storage.flusher import Flusher
from onceward.broker.types import TopicPartition
from onceward.streams.testing.sim import HostDied, SimDisk

from .harness import NOW, append, consume, flush

A = TopicPartition("a", 0)
ODD = TopicPartition("odd.name-7", 12)


def fail(error: BaseException) -> None:
    raise error


def manager(fs: FileSystem, data_dir: str = "/data", *, leader_epoch: int = 1) -> LogManager:
    flusher: Flusher[PartitionLog] = Flusher(lambda log: None, fail)
    manager = LogManager(
        fs,
        data_dir,
        flusher=flusher,
        clock=lambda: NOW,
        defaults=LogConfig(),
        leader_epoch=leader_epoch,
    )
    manager.flusher = flusher  # type: ignore[attr-defined]
    return manager


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def opened(disk: SimDisk, **fields) -> LogManager:
    logs = manager(disk, **fields)
    logs.open()
    return logs


def test_logs_are_found_again_after_a_clean_stop_and_after_a_kill(disk):
    logs = opened(disk)
    for tp in (A, ODD):
        append(logs.create(tp), b"1")
    logs.close()
    logs = opened(disk)
    append(logs.create(A), b"2")
    disk.kill()
    logs = opened(disk)
    assert sorted(log.tp for log in logs.logs()) == [A, ODD]
    assert [value for _, value in consume(logs.create(A))] == [b"1", b"2"]
    assert [value for _, value in consume(logs.create(ODD))] == [b"1"]


def test_create_is_idempotent_and_applies_the_settings(disk):
    logs = opened(disk)
    log = logs.create(A)
    config = LogConfig(retention_ms=5)
    assert logs.create(A, config) is log
    assert log.config is config
    assert logs.create(A).config is config
    assert logs.get(ODD) is None


def test_the_settings_of_a_topic_are_given_at_open(disk):
    opened(disk).create(A)
    disk.kill()
    logs = manager(disk)
    config = LogConfig(segment_bytes=2048)
    logs.open({"a": config})
    log = logs.get(A)
    assert log is not None
    assert log.config is config


def test_the_clean_mark_is_gone_before_anything_is_written(disk):
    logs = opened(disk)
    logs.create(A)
    logs.close()
    assert disk.exists("/data/clean-shutdown")
    opened(disk)
    disk.power_cut(random.Random(0))
    assert not disk.exists("/data/clean-shutdown")


def test_a_data_directory_has_one_user(disk):
    logs = opened(disk)
    with pytest.raises(LockHeldError):
        opened(disk)
    logs.close()
    opened(disk)


def test_a_deleted_topic_is_gone_at_once_and_its_files_later(disk):
    logs = opened(disk)
    append(logs.create(A), b"old")
    logs.delete(A)
    logs.delete(A)
    assert logs.get(A) is None
    assert logs.create(A).log_end_offset == 0
    disk.kill()
    logs = opened(disk)
    assert [log.log_end_offset for log in logs.logs()] == [0]
    logs.delete(A)
    logs.maintenance(NOW)
    assert list(disk.list("/data")) == [".lock"]


async def test_a_new_partition_is_durable_with_its_first_flush(disk):
    logs = opened(disk)
    append(logs.create(A), b"1")
    await logs.flusher.flush_all()
    for seed in range(10):
        disk.power_cut(random.Random(seed))
        logs = opened(disk)
        log = logs.get(A)
        assert log is not None
        assert consume(log) == [(0, b"1")]


async def test_the_flusher_moves_every_log_that_was_appended_to(disk):
    logs = opened(disk)
    for tp in (A, ODD):
        append(logs.create(tp), b"1")
    await logs.flusher.flush_all()
    assert [log.high_watermark for log in logs.logs()] == [1, 1]


def fail_a_sync(disk: SimDisk, logs: LogManager, value: bytes) -> None:
    """A sync of one record fails, and the broker notes it and dies."""
    append(logs.create(A), value)
    disk.fail_fsyncs(1)
    with pytest.raises(OSError, match="output error"):
        flush(logs.create(A))
    logs.note_failed_sync()
    logs.abandon()


def test_what_is_acknowledged_behind_a_failed_sync_survives_the_next_power_cut(disk):
    for seed in range(20):
        disk = SimDisk()
        fail_a_sync(disk, opened(disk), b"dropped")
        logs = opened(disk)
        log = logs.create(A)
        end = log.log_end_offset
        append(log, b"acknowledged")
        flush(log)
        disk.power_cut(random.Random(seed))
        log = opened(disk).create(A)
        assert consume(log)[end:] == [(end, b"acknowledged")]


def test_sealed_segments_that_no_snapshot_vouches_for_are_written_anew_too(disk):
    logs = opened(disk)
    log = logs.create(A, LogConfig(segment_bytes=1024))
    for number in range(6):
        append(log, b"%d" % number * 600)
    assert log.segment_count > 3
    disk.fail_fsyncs(log.segment_count)
    for file in log.unsynced_files():
        with pytest.raises(OSError, match="output error"):
            file.fsync_now()
    logs.note_failed_sync()
    logs.abandon()
    found = consume(opened(disk).create(A))
    disk.power_cut(random.Random(1))
    assert consume(opened(disk).create(A)) == found
    assert len(found) == 6


def test_a_failed_sync_is_remembered_until_a_start_has_written_everything_anew(disk):
    fail_a_sync(disk, opened(disk), b"x")
    steps = disk.steps
    opened(disk).abandon()
    assert not disk.exists("/data/failed-sync")
    for step in range(1, disk.steps - steps + 1):
        disk = SimDisk()
        fail_a_sync(disk, opened(disk), b"x")
        disk.kill_at = disk.steps + step
        with pytest.raises(HostDied):
            opened(disk)
        disk.kill()
        log = opened(disk).create(A)
        found = consume(log)
        disk.power_cut(random.Random(step))
        assert consume(opened(disk).create(A)) == found


def test_a_sync_that_fails_at_the_start_is_noted(disk):
    append(opened(disk).create(A), b"x")
    disk.kill()
    disk.fail_fsyncs(1)
    logs = manager(disk)
    with pytest.raises(OSError, match="output error"):
        logs.open()
    logs.close()
    found = consume(opened(disk).create(A))
    disk.power_cut(random.Random(1))
    assert consume(opened(disk).create(A)) == found == [(0, b"x")]


def test_a_stop_whose_sync_fails_is_not_clean(disk):
    logs = opened(disk)
    append(logs.create(A), b"x")
    disk.fail_fsyncs(1)
    with pytest.raises(OSError, match="output error"):
        logs.close()
    assert disk.exists("/data/failed-sync")
    logs = opened(disk)
    logs.note_failed_sync()
    logs.close()
    assert not disk.exists("/data/clean-shutdown")


def test_a_failed_sync_that_cannot_be_noted_is_said_aloud(disk, monkeypatch, caplog):
    logs = opened(disk)

    def read_only(path: str, *, create: bool = False) -> File:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(disk, "open", read_only)
    logs.note_failed_sync()
    assert "start the machine anew" in caplog.text


def test_maintenance_applies_retention_and_forgets_producers(disk):
    logs = manager(disk)
    logs.open({})
    log = logs.create(A, LogConfig(segment_bytes=1024, retention_ms=10))
    for number in range(4):
        append(log, b"x" * 600, pid=1, sequence=number)
    for file in log.unsynced_files():
        file.fsync_now()
    log.flushed_to(4)
    logs.maintenance(NOW + 24 * 3600 * 1000)
    assert (log.log_start_offset, log.producers()) == (4, [])


def test_a_clean_start_with_a_hundred_partitions_is_fast(tmp_path: Path):
    fs = OsFileSystem()
    logs = manager(fs, str(tmp_path))
    logs.open()
    for number in range(100):
        log = logs.create(TopicPartition("topic", number))
        for sequence in range(20):
            append(log, b"x" * 1000, pid=number, sequence=sequence)
    logs.close()
    logs = manager(fs, str(tmp_path), leader_epoch=2)
    began = time.perf_counter()
    logs.open()
    took = time.perf_counter() - began
    assert sum(log.high_watermark for log in logs.logs()) == 2000
    assert took < 0.5  # about 20 ms; the machine may be busy
    logs.abandon()
