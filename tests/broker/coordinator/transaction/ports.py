"""The coordinator's ports in memory: a log whose commits the test makes, and recorded markers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple

from onceward.broker.coordinator.log_writer import LoadedBatch
from onceward.broker.coordinator.result import Record
from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.types import TopicPartition

OFFSETS = TopicPartition("__consumer_offsets", 3)


class MemoryLog:
    """A ``LogWriter`` whose commits the test makes. ``auto_commit`` makes each append committed."""

    def __init__(self, partitions: int = 1, *, auto_commit: bool = False) -> None:
        self.auto_commit = auto_commit
        self.records: list[list[Record]] = [[] for _ in range(partitions)]
        self.committed_to = [0] * partitions
        self.refusals: list[ErrorCode] = []
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        guard: object | None = None,
    ) -> tuple[int, int]:
        assert not transactional
        if self.refusals:
            raise KafkaError(self.refusals.pop(0))
        base = len(self.records[partition])
        self.records[partition] += records
        if self.auto_commit:
            self.commit()
        return base, base + len(records) - 1

    def append_marker(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> int:
        raise AssertionError("the transaction log holds no transactions")

    def commit(self) -> None:
        """One flush: everything appended so far is committed."""
        self.committed_to = [len(records) for records in self.records]
        for partition, offset, future in list(self._waiters):
            if self.committed_to[partition] > offset and not future.done():
                future.set_result(None)
        self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]

    async def committed(self, partition: int, offset: int) -> None:
        if self.committed_to[partition] > offset:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((partition, offset, future))
        await future

    def read_all(self, partition: int) -> Iterator[LoadedBatch]:
        for offset, record in enumerate(self.records[partition]):
            yield LoadedBatch(offset, -1, -1, None, [record])

    def crashed(self, *, keep: int | None = None) -> MemoryLog:
        """What a restart finds: the committed records, or the first ``keep`` of partition 0."""
        survivor = MemoryLog(len(self.records), auto_commit=self.auto_commit)
        survivor.records = [
            records[: to if keep is None else keep]
            for records, to in zip(self.records, self.committed_to, strict=True)
        ]
        survivor.commit()
        return survivor


class Marker(NamedTuple):
    """One end marker as a partition saw it."""

    tp: TopicPartition
    producer: tuple[int, int]
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class RecordingSink:
    """Both marker ports. ``errors[tp]`` are raised in turn; ``hold()`` delays every marker."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []
        self.errors: defaultdict[TopicPartition, list[ErrorCode]] = defaultdict(list)
        self.attempts: list[TopicPartition] = []
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def write_marker(
        self,
        tp: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> Awaitable[None]:
        self.attempts.append(tp)
        if self.errors[tp]:
            raise KafkaError(self.errors[tp].pop(0))
        marker = Marker(
            tp, (producer_id, producer_epoch), commit, coordinator_epoch, transaction_version
        )
        return self._written(marker)

    async def _written(self, marker: Marker) -> None:
        await self._open.wait()
        self.markers.append(marker)

    def partition_for(self, group_id: str) -> int:
        return OFFSETS.partition

    async def complete_transaction(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        await self.write_marker(
            TopicPartition(OFFSETS.topic, partition),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            transaction_version=transaction_version,
        )


class MemoryProducerIdStore:
    """Survives a restart of the coordinator when the same object is passed again."""

    def __init__(self, first: int = 0) -> None:
        self.end = first

    def reserve(self, count: int) -> int:
        first = self.end
        self.end += count
        return first


class LoopClock:
    """Milliseconds of the running loop from an arbitrary start: timers and clock agree."""

    def __init__(self) -> None:
        self.offset_ms = 1_000_000

    def __call__(self) -> int:
        return self.offset_ms + int(asyncio.get_running_loop().time() * 1000)
