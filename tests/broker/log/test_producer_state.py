"""Idempotence, fencing and markers on one partition."""

import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.log.config import LogConfig
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.results import Origin
from onceward.streams.testing.sim import SimDisk

from .harness import NOW, append, batch, end, flush, open_log, send

LAST = (1 << 31) - 1


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> PartitionLog:
    return open_log(disk)


def refused(code: ErrorCode, action, *args, **kwargs) -> None:
    with pytest.raises(KafkaError) as caught:
        action(*args, **kwargs)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [
        (5, 3, None),
        (5, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (5, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (6, 0, None),
        (6, 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (4, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_after_three_records_of_epoch_5(log, epoch, sequence, code):
    append(log, b"a", b"b", b"c", pid=1, epoch=5, sequence=0)
    if code is None:
        assert append(log, b"d", pid=1, epoch=epoch, sequence=sequence).base_offset == 3
    else:
        refused(code, append, log, b"d", pid=1, epoch=epoch, sequence=sequence)
        assert log.log_end_offset == 3


def test_a_producer_without_state_may_begin_with_any_sequence(log):
    assert append(log, b"a", pid=1, epoch=3, sequence=77).base_offset == 0
    assert append(log, b"b", pid=1, epoch=3, sequence=78).base_offset == 1


def test_a_retry_of_one_of_the_last_five_batches_gets_the_original_offsets(log):
    for sequence in range(0, 12, 2):
        append(log, b"x", b"y", pid=1, sequence=sequence)
    for sequence in range(2, 12, 2):
        result = append(log, b"x", b"y", pid=1, sequence=sequence)
        assert (result.base_offset, result.last_offset) == (sequence, sequence + 1)
        assert result.duplicate
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, append, log, b"x", b"y", pid=1, sequence=0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, append, log, b"y", pid=1, sequence=11)
    assert log.log_end_offset == 12


def test_a_retry_with_another_epoch_is_no_duplicate(log):
    append(log, b"a", pid=1, epoch=1, sequence=0)
    assert not append(log, b"a", pid=1, epoch=2, sequence=0).duplicate
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, append, log, b"a", pid=1, epoch=1, sequence=0)


def test_sequences_wrap_to_zero(log):
    append(log, b"a", pid=1, sequence=LAST)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, append, log, b"b", pid=1, sequence=1)
    append(log, b"b", pid=1, sequence=0)
    append(log, b"c", b"d", b"e", pid=2, sequence=LAST - 1)
    append(log, b"f", pid=2, sequence=1)
    assert append(log, b"c", b"d", b"e", pid=2, sequence=LAST - 1).duplicate


def test_producers_do_not_disturb_each_other(log):
    append(log, b"a", pid=1, sequence=0)
    append(log, b"b", pid=2, sequence=0)
    append(log, b"c")
    assert append(log, b"d", pid=1, sequence=1).base_offset == 3


def test_the_state_survives_a_restart_with_all_five_batches(disk, log):
    for sequence in range(6):
        append(log, b"x", pid=1, epoch=2, sequence=sequence)
    flush(log)
    for reopen in ("kill", "clean", "kill"):
        clean = log.close() if reopen == "clean" else None
        disk.kill()
        log = open_log(disk, clean=clean, leader_epoch=2)
        assert append(log, b"x", pid=1, epoch=2, sequence=1).base_offset == 1
        assert append(log, b"x", pid=1, epoch=2, sequence=5).duplicate
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, append, log, b"x", pid=1, epoch=1, sequence=6)
    assert append(log, b"x", pid=1, epoch=2, sequence=6).base_offset == 6


def test_silent_producers_are_forgotten_but_not_inside_a_transaction(disk):
    log = open_log(disk, config=LogConfig(producer_id_expiration_ms=1000))
    append(log, b"a", pid=1, sequence=5)
    send(log, b"b", pid=2, sequence=0)
    log.expire_producers(NOW + 999)
    assert [info.producer_id for info in log.producers()] == [1, 2]
    log.expire_producers(NOW + 1000)
    assert [info.producer_id for info in log.producers()] == [2]
    append(log, b"a", pid=1, sequence=99)


def test_old_timestamps_do_not_make_a_live_producer_expire(disk):
    log = open_log(disk, config=LogConfig(producer_id_expiration_ms=1000))
    append(log, b"a", pid=1, sequence=0, timestamp=1)
    log.expire_producers(NOW + 999)
    assert log.producers()
    flush(log)
    disk.kill()
    log = open_log(disk, config=LogConfig(producer_id_expiration_ms=1000), now_ms=NOW + 5000)
    log.expire_producers(NOW + 5999)
    assert log.producers()


def test_the_producer_view_shows_sequence_epochs_and_the_open_transaction(log):
    append(log, b"a")
    send(log, b"b", b"c", pid=7, epoch=3, sequence=0)
    (info,) = log.producers()
    assert info == (7, 3, 1, NOW, -1, 1)
    end(log, pid=7, epoch=3, commit=True, coordinator_epoch=9)
    (info,) = log.producers()
    assert info == (7, 3, 1, NOW, 9, -1)


def transactional(log, *values, pid, epoch=0, sequence, guard=None, version=1):
    data = batch(*values, pid=pid, epoch=epoch, sequence=sequence, transactional=True)
    return log.append(data, now_ms=NOW, guard=guard, transaction_version=version)


def test_a_transactional_batch_needs_a_guard_until_the_transaction_is_open(log):
    refused(ErrorCode.INVALID_TXN_STATE, transactional, log, b"a", pid=1, sequence=0)
    guard = log.verification_guard(1, 0, 0)
    assert guard is not None
    transactional(log, b"a", pid=1, sequence=0, guard=guard)
    assert log.has_open_transaction(1, 0)
    assert not log.has_open_transaction(1, 1)
    assert log.verification_guard(1, 0, 1) is None
    transactional(log, b"b", pid=1, sequence=1)


def test_a_guard_from_before_an_abort_does_not_open_the_next_transaction(log):
    guard = log.verification_guard(1, 0, 0)
    end(log, pid=1, epoch=0, commit=False)
    refused(ErrorCode.INVALID_TXN_STATE, transactional, log, b"a", pid=1, sequence=0, guard=guard)
    assert log.last_stable_offset == log.high_watermark


def test_a_guard_of_another_producer_does_not_count(log):
    guard = log.verification_guard(2, 0, 0)
    refused(ErrorCode.INVALID_TXN_STATE, transactional, log, b"a", pid=1, sequence=0, guard=guard)


def test_a_stale_epoch_is_told_before_a_missing_guard(log):
    send(log, b"a", pid=1, epoch=3, sequence=0)
    end(log, pid=1, epoch=4, commit=False, version=2)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, transactional, log, b"b", pid=1, epoch=3, sequence=1)


def test_a_batch_may_not_overtake_the_lowest_sequence_that_is_being_verified(log):
    guard = log.verification_guard(1, 0, 4)
    assert log.verification_guard(1, 0, 0) is guard
    overtaking = {"pid": 1, "sequence": 4, "guard": guard}
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, transactional, log, b"a", **overtaking)
    transactional(log, b"a", pid=1, sequence=0, guard=guard)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, transactional, log, b"a", **overtaking)


def test_a_late_retry_of_a_finished_transaction_does_not_block_the_next_one(log):
    send(log, b"a", pid=1, sequence=0)
    end(log, pid=1, commit=True)
    assert send(log, b"a", pid=1, sequence=0).duplicate
    assert send(log, b"b", pid=1, sequence=1).base_offset == 2


def test_version_2_without_producer_state_begins_at_zero(log):
    guard = log.verification_guard(1, 0, 5)
    first = {"pid": 1, "sequence": 5, "guard": guard}
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, transactional, log, b"a", **first, version=2)
    transactional(log, b"a", **first, version=1)


def test_old_guards_are_forgotten(disk):
    log = open_log(disk, config=LogConfig(producer_id_expiration_ms=1000))
    guard = log.verification_guard(1, 0, 0)
    log.expire_producers(NOW)
    assert log.verification_guard(1, 0, 0) is guard
    log.expire_producers(NOW + 1000)
    refused(ErrorCode.INVALID_TXN_STATE, transactional, log, b"a", pid=1, sequence=0, guard=guard)


def test_a_plain_batch_inside_a_transaction_is_refused(log):
    send(log, b"a", pid=1, sequence=0)
    refused(ErrorCode.INVALID_TXN_STATE, append, log, b"b", pid=1, sequence=1)


def test_version_1_transactions_continue_the_sequence_and_keep_the_epoch(log):
    send(log, b"a", pid=1, sequence=0)
    end(log, pid=1, commit=True)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, send, log, b"b", pid=1, sequence=0 + 2)
    assert send(log, b"b", pid=1, sequence=1).base_offset == 2


def test_version_2_markers_bump_the_epoch_and_the_next_sequence_is_zero(log):
    send(log, b"a", pid=1, epoch=0, sequence=0, version=2)
    end(log, pid=1, epoch=1, commit=True, version=2)
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        send, log, b"b", pid=1, epoch=1, sequence=1, version=2,
    )  # fmt: skip
    send(log, b"b", pid=1, epoch=1, sequence=0, version=2)


@pytest.mark.parametrize(
    ("version", "epoch", "is_open", "code"),
    [
        (1, 5, True, None),
        (1, 6, True, None),
        (1, 4, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 6, True, None),
        (2, 5, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, False, None),
        (2, 4, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 5, False, None),
    ],
)
def test_the_epoch_a_marker_needs_after_data_of_epoch_5(log, version, epoch, is_open, code):
    send(log, b"a", pid=1, epoch=4 if not is_open else 5, sequence=0)
    if not is_open:
        end(log, pid=1, epoch=5, commit=True, version=2)
    marker = {"pid": 1, "epoch": epoch, "commit": False, "version": version}
    if code is None:
        end(log, **marker)
        assert not log.has_open_transaction(1, 5)
    else:
        refused(code, end, log, **marker)
        assert log.has_open_transaction(1, 5) is is_open


def test_the_last_epoch_can_end_its_own_transaction(log):
    send(log, b"a", pid=1, epoch=32767, sequence=0, version=2)
    end(log, pid=1, epoch=32767, commit=True, version=2)
    assert not log.has_open_transaction(1, 32767)


def test_a_marker_of_an_older_coordinator_is_fenced_also_after_a_restart(disk, log):
    send(log, b"a", pid=1, sequence=0)
    end(log, pid=1, commit=True, coordinator_epoch=3)
    flush(log)
    disk.kill()
    log = open_log(disk)
    refused(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED, end, log, pid=1, commit=True, coordinator_epoch=2
    )
    end(log, pid=1, commit=True, coordinator_epoch=3)


def test_a_marker_without_data_fences_and_ends_nothing(log):
    end(log, pid=1, epoch=2, commit=False)
    flush(log)
    assert log.last_stable_offset == 1
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, append, log, b"a", pid=1, epoch=1, sequence=0)
    append(log, b"a", pid=1, epoch=2, sequence=0)


def test_a_coordinator_needs_no_sequence_but_its_epoch_and_a_guard(log):
    data = batch(b"a", pid=1, epoch=3, sequence=-1, transactional=True)
    refused(
        ErrorCode.INVALID_TXN_STATE,
        log.append, data, now_ms=NOW, origin=Origin.COORDINATOR,
    )  # fmt: skip
    guard = log.verification_guard(1, 3, -1)
    log.append(data, now_ms=NOW, origin=Origin.COORDINATOR, guard=guard)
    assert log.verification_guard(1, 3, -1) is None
    log.append(data, now_ms=NOW, origin=Origin.COORDINATOR)
    assert log.log_end_offset == 2
    stale = batch(b"a", pid=1, epoch=2, sequence=-1, transactional=True)
    refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        log.append, stale, now_ms=NOW, origin=Origin.COORDINATOR,
    )  # fmt: skip
    end(log, pid=1, epoch=3, commit=True)
    old = log.verification_guard(1, 3, -1)
    end(log, pid=1, epoch=3, commit=False)
    refused(
        ErrorCode.INVALID_TXN_STATE,
        log.append, data, now_ms=NOW, origin=Origin.COORDINATOR, guard=old,
    )  # fmt: skip
