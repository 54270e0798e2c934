"""Logs on a simulated disk, batches to append, and reading back what a consumer would see."""

from __future__ import annotations

from onceward.broker.log.config import LogConfig
from onceward.broker.log.log_state import CleanEnd
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.results import AppendResult, Isolation
from onceward.broker.records.codec import decode, encode
from onceward.broker.storage.tail_cache import TailBudget
from onceward.broker.types import TopicPartition
from onceward.streams.testing.sim import SimDisk

NOW = 1_700_000_000_000
TP = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"


def open_log(
    disk: SimDisk,
    *,
    config: LogConfig | None = None,
    leader_epoch: int = 1,
    clean: CleanEnd | None = None,
    now_ms: int = NOW,
    tail_bytes: int = 64 << 20,
) -> PartitionLog:
    disk.makedirs(DIRECTORY)
    return PartitionLog(
        disk,
        DIRECTORY,
        TP,
        config=config or LogConfig(),
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        mark_dirty=lambda log: None,
        tail_budget=TailBudget(tail_bytes),
        clean=clean,
    )


def flush(log: PartitionLog) -> None:
    """What the flusher does in one pass."""
    end = log.log_end_offset
    for file in log.unsynced_files():
        file.fsync_now()
    log.flushed_to(end)


def batch(
    *values: bytes,
    timestamp: int | list[int] = NOW,
    pid: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytes:
    """A plain batch, or (with ``pid``) an idempotent one."""
    known = pid >= 0
    return encode(
        [b"k"] * len(values),
        list(values),
        timestamps=timestamp,
        producer_id=pid,
        producer_epoch=epoch if known else -1,
        base_sequence=sequence if known else -1,
        transactional=transactional,
    )


def append(log: PartitionLog, *values: bytes, now_ms: int = NOW, **fields) -> AppendResult:
    return log.append(batch(*values, **fields), now_ms=now_ms)


def send(
    log: PartitionLog, *values: bytes, pid: int, epoch: int = 0, sequence: int, version: int = 1
) -> AppendResult:
    """A transactional batch, verified as the produce path does it."""
    guard = log.verification_guard(pid, epoch, sequence)
    data = batch(*values, pid=pid, epoch=epoch, sequence=sequence, transactional=True)
    return log.append(data, now_ms=NOW, guard=guard, transaction_version=version)


def end(
    log: PartitionLog,
    *,
    pid: int,
    epoch: int = 0,
    commit: bool,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> AppendResult:
    return log.append_marker(
        producer_id=pid,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        commit=commit,
        now_ms=NOW,
        transaction_version=version,
    )


def consume(
    log: PartitionLog,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    offset: int | None = None,
    max_bytes: int = 1 << 20,
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything a consumer of this isolation gets, fetch by fetch."""
    position = log.log_start_offset if offset is None else offset
    seen: list[tuple[int, bytes | None]] = []
    while True:
        result = log.read(position, max_bytes=max_bytes, isolation=isolation)
        if not result.records:
            return seen
        assert len(set(result.aborted or ())) == len(result.aborted or ())
        records = decode(
            b"".join(result.records),
            start_offset=position,
            aborted=result.aborted or (),
            read_committed=isolation is Isolation.READ_COMMITTED,
        )
        seen += zip(records.offsets, records.values, strict=True)
        assert records.next_offset == result.next_offset > position
        position = result.next_offset
