"""A cluster in memory for one worker, with the surface of ``onceward.broker.client`` the engine
uses.

It keeps what exactly-once rests on: transactions (invisible until committed, consumed offsets
included), offsets with gaps where markers are, committed offsets. There is one member per group,
and no call fails. Sync means atomic here too: no method waits, except ``fetch`` for records.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onceward.broker.client import (
    ErrorCode,
    FetchedBatch,
    GroupMetadata,
    KafkaError,
    OffsetAndMetadata,
    PartitionDescription,
    Produced,
    ProducerState,
    Records,
    TopicDescription,
    TopicPartition,
)

from ..engine.block import Headers


@dataclass(slots=True, eq=False)
class Transaction:
    """``is_open`` until it is committed or aborted."""

    is_open: bool = True
    is_committed: bool = False
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)


class Batch(NamedTuple):
    """Records of one partition written together; ``sequence`` orders batches of all partitions."""

    base_offset: int
    sequence: int
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    transaction: Transaction | None

    @property
    def is_visible(self) -> bool:
        """To a read_committed reader."""
        return self.transaction is None or self.transaction.is_committed

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.keys)


class PartitionLog:
    """One partition. ``end`` is the log end offset."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self._bases: list[int] = []
        self._open: dict[int, int] = {}

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._bases.append(batch.base_offset)
        self.end = batch.next_offset
        if batch.transaction is not None:
            self._open.setdefault(id(batch.transaction), batch.base_offset)

    def mark(self, transaction: Transaction) -> None:
        """The marker that ends a transaction: it takes an offset."""
        self._open.pop(id(transaction), None)
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self._open.values(), default=self.end)

    def read(self, position: int, *, committed: bool) -> Records | None:
        """The next batch from ``position``; None at the end, no records over what is invisible."""
        end = self.stable_end if committed else self.end
        if position >= end:
            return None
        at = max(bisect_right(self._bases, position) - 1, 0)
        while at < len(self.batches) and self._bases[at] < end:
            batch = self.batches[at]
            at += 1
            if batch.next_offset <= position or (committed and not batch.is_visible):
                continue
            following = self._bases[at] if at < len(self._bases) else end
            return _records(batch, max(position - batch.base_offset, 0), min(following, end))
        return Records([], [], [], [], None, end)


def _records(batch: Batch, skip: int, next_offset: int) -> Records:
    offsets = list(range(batch.base_offset + skip, batch.next_offset))
    if not skip:
        keys, values, times = batch.keys, batch.values, batch.timestamps
        return Records(keys, values, offsets, times, batch.headers, next_offset)
    return Records(
        batch.keys[skip:],
        batch.values[skip:],
        offsets,
        batch.timestamps[skip:],
        None if batch.headers is None else batch.headers[skip:],
        next_offset,
    )


class MemoryCluster:
    """Topics and committed offsets: what outlives a worker."""

    def __init__(self) -> None:
        self.logs: dict[str, list[PartitionLog]] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self._written = 0
        self._transactions: dict[str, Transaction] = {}
        self._waiting: set[Callable[[], None]] = set()

    def create(self, topic: str, partitions: int) -> None:
        self.logs[topic] = [PartitionLog() for _ in range(partitions)]

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION)."""
        logs = self.logs.get(tp.topic, [])
        if not 0 <= tp.partition < len(logs):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {tp}")
        return logs[tp.partition]

    def append(
        self,
        tp: TopicPartition,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None = None,
        transaction: Transaction | None = None,
    ) -> int:
        """Write records; returns the offset of the first. The lists are kept. Raises KafkaError."""
        log = self.log(tp)
        self._written += 1
        batch = Batch(log.end, self._written, keys, values, timestamps, headers, transaction)
        log.append(batch)
        if transaction is None:
            self.wake()
        else:
            transaction.partitions.add(tp)
        return batch.base_offset

    def visible(self, topic: str) -> Iterator[tuple[int, Batch]]:
        """Partition and batch of everything committed, in the order of writing."""
        found = [
            (number, batch)
            for number, log in enumerate(self.logs.get(topic, []))
            for batch in log.batches
            if batch.is_visible
        ]
        return iter(sorted(found, key=lambda each: each[1].sequence))

    def begin(self, transactional_id: str) -> Transaction:
        transaction = self._transactions[transactional_id] = Transaction()
        return transaction

    def finish(self, transactional_id: str, *, commit: bool) -> None:
        """End the open transaction of this id, if there is one."""
        transaction = self._transactions.pop(transactional_id, None)
        if transaction is None:
            return
        transaction.is_open, transaction.is_committed = False, commit
        for tp in sorted(transaction.partitions):
            self.log(tp).mark(transaction)
        if commit:
            self.offsets.update(transaction.offsets)
        self.wake()

    def on_written(self, call: Callable[[], None]) -> None:
        self._waiting.add(call)

    def forget(self, call: Callable[[], None]) -> None:
        self._waiting.discard(call)

    def wake(self) -> None:
        for call in list(self._waiting):
            call()


class MemoryKafka:
    """``engine.kafka.Kafka`` over a MemoryCluster."""

    def __init__(self, cluster: MemoryCluster, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self.members: list[MemoryConsumer] = []

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    def admin(self) -> Any:
        return MemoryAdmin(self._cluster)

    def consumer(self, **options: Any) -> Any:
        consumer = MemoryConsumer(self._cluster, **options)
        if consumer.group_id is not None:
            self.members.append(consumer)
        return consumer

    def producer(self, **options: Any) -> Any:
        return MemoryProducer(self._cluster, **options)

    def now_ms(self) -> int:
        return self._now_ms()


class MemoryAdmin:
    """What of ``Admin`` a worker uses."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        logs = self._cluster.logs
        return {name: _description(name, len(logs[name])) for name in names if name in logs}

    async def create_topics(self, topics: Iterable[Any]) -> dict[str, KafkaError | None]:
        results: dict[str, KafkaError | None] = {}
        for topic in topics:
            results[topic.name] = None
            if topic.name in self._cluster.logs:
                results[topic.name] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
            else:
                self._cluster.create(topic.name, topic.partitions)
        return results

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        for transactional_id in transactional_ids:
            self._cluster.finish(transactional_id, commit=False)


def _description(name: str, count: int) -> TopicDescription:
    partitions = tuple(PartitionDescription(n, 0, 0, (0,), (0,)) for n in range(count))
    return TopicDescription(name, b"", False, partitions)


class MemoryProducer:
    """``Producer``: transactional when it has an id."""

    def __init__(
        self, cluster: MemoryCluster, *, transactional_id: str | None = None, **_: Any
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._transaction: Transaction | None = None
        self._produced: list[Produced] = []
        self.state = ProducerState.READY if self._id is None else ProducerState.UNINITIALISED

    async def init_transactions(self) -> None:
        if self._id is not None:
            self._cluster.finish(self._id, commit=False)
        self.state = ProducerState.READY

    reset = init_transactions

    def begin(self) -> None:
        if self._id is None or self.state is not ProducerState.READY:
            raise RuntimeError(f"a transaction cannot begin: {self.state}")
        self._transaction = self._cluster.begin(self._id)
        self.state = ProducerState.IN_TRANSACTION

    def send_batch(
        self,
        topic: str,
        partition: int,
        keys: list[bytes | None],
        values: list[bytes | None],
        *,
        timestamps: list[int],
        headers: list[Headers] | None = None,
    ) -> None:
        tp = TopicPartition(topic, partition)
        base = self._cluster.append(tp, keys, values, timestamps, headers, self._transaction)
        self._produced.append(Produced(tp, base, len(keys), -1))

    async def flush(self) -> list[Produced]:
        produced, self._produced = self._produced, []
        return produced

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        if self._transaction is None:
            raise RuntimeError("offsets need a transaction")
        for tp, offset in offsets.items():
            self._transaction.offsets[(group.group_id, tp)] = offset.offset

    async def commit(self) -> None:
        self._end(commit=True)

    async def abort(self) -> None:
        self._end(commit=False)

    async def close(self) -> None:
        self.state = ProducerState.CLOSED

    def _end(self, *, commit: bool) -> None:
        if self._id is not None:
            self._cluster.finish(self._id, commit=commit)
        self._transaction = None
        self.state = ProducerState.READY


class MemoryConsumer:
    """``Consumer``: with a group it owns every partition of its topics from the first fetch on."""

    def __init__(
        self,
        cluster: MemoryCluster,
        *,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        isolation: str = "read_committed",
        **_: Any,
    ) -> None:
        self._cluster = cluster
        self.group_id = group_id
        self._instance_id = group_instance_id
        self._committed = isolation == "read_committed"
        self._topics: list[str] = []
        self._listener: Any = None
        self._owned: dict[TopicPartition, PartitionLog] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._waiter: asyncio.Future[None] | None = None
        self._joined = False

    async def start(self) -> None: ...

    async def stop(self, *, leave: bool = True) -> None:
        self._cluster.forget(self.nudge)

    async def leave_group(self) -> None: ...

    def subscribe(self, topics: Iterable[str], listener: Any = None) -> None:
        self._topics, self._listener = sorted(topics), listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._owned = {tp: self._cluster.log(tp) for tp in partitions}

    async def fetch(self, *, timeout_ms: int) -> list[FetchedBatch]:
        """Everything there is. A group's member waits until there is something or ``nudge``."""
        if self._listener is not None and not self._joined:
            self._joined = True
            self._cluster.on_written(self.nudge)
            self.assign(
                TopicPartition(topic, number)
                for topic in self._topics
                for number in range(len(self._cluster.logs[topic]))
            )
            await self._listener.on_assigned(sorted(self._owned), b"")
        batches = list(self._read())
        if batches or timeout_ms == 0 or self.group_id is None:
            return batches
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        return list(self._read())

    def nudge(self) -> None:
        """Let ``fetch`` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def has_more(self) -> bool:
        """Whether there is anything to read, paused partitions included."""
        return any(
            self._positions.get(tp, 0) < (log.stable_end if self._committed else log.end)
            for tp, log in self._owned.items()
        )

    def position(self, tp: TopicPartition) -> int | None:
        return self._positions.get(tp)

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self._positions[tp] = offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        resumed = self._paused.intersection(partitions)
        self._paused -= resumed
        if resumed:
            self.nudge()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned)

    @property
    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self.group_id or "", 1, "driver", self._instance_id)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for tp, offset in offsets.items():
            self._cluster.offsets[(self.group_id or "", tp)] = offset.offset

    async def committed(
        self, partitions: Collection[TopicPartition], *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found = {tp: self._cluster.offsets.get((self.group_id or "", tp)) for tp in partitions}
        return {tp: None if at is None else OffsetAndMetadata(at) for tp, at in found.items()}

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(
        self, partitions: Sequence[TopicPartition], isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        committed = self._committed if isolation is None else isolation == "read_committed"
        logs = {tp: self._cluster.log(tp) for tp in partitions}
        return {tp: log.stable_end if committed else log.end for tp, log in logs.items()}

    def _read(self) -> Iterator[FetchedBatch]:
        for tp, log in self._owned.items():
            if tp in self._paused:
                continue
            while True:
                records = log.read(self._positions.get(tp, 0), committed=self._committed)
                if records is None:
                    break
                self._positions[tp] = records.next_offset
                yield FetchedBatch(tp, records, log.end, log.stable_end, 0)
