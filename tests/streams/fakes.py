"""A cluster in memory with the surface of ``onceward.broker.client`` that the engine uses.

It models what exactly-once rests on: transactions (invisible until committed, offsets included),
fencing by producer epoch, membership in a group, committed offsets. Every call a worker makes is
counted and may be made to fail once, before or after it took effect.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceward.broker.client import (
    ErrorCode,
    FetchedBatch,
    GroupMetadata,
    KafkaError,
    MemberMetadata,
    NeedsReset,
    OffsetAndMetadata,
    Produced,
    ProducerFenced,
    ProducerState,
    Records,
    TopicDescription,
    TopicPartition,
    TransactionAborted,
    decode_assignment,
)
from onceward.broker.client import PartitionDescription as _Partition

Injector = Callable[[str, int], str | None]
"""Called with a call's name and number; returns None, "before" or "after"."""


@dataclass(eq=False)
class Transaction:
    producer_id: int
    status: str = "open"
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)


@dataclass(eq=False)
class Entry:
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    transaction: Transaction | None
    is_marker: bool = False


@dataclass(eq=False)
class Identity:
    """A transactional id on the coordinator."""

    producer_id: int
    epoch: int = 0
    transaction: Transaction | None = None


class FakeCluster:
    """Shared by the workers of a test."""

    def __init__(self, *, batch_records: int = 7) -> None:
        self.logs: dict[str, list[list[Entry]]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.identities: dict[str, Identity] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.groups: dict[str, FakeGroup] = defaultdict(FakeGroup)
        self.batch_records = batch_records
        self.fenced: list[str] = []
        self.calls: list[str] = []
        self.injector: Injector | None = None
        self.injected = ErrorCode.NETWORK_EXCEPTION
        self.may_commit: asyncio.Event | None = None
        """Commits wait for it, then take effect."""
        self.commit_turns = 1
        """Turns of the event loop a commit takes."""

    def create(self, topic: str, partitions: int = 1) -> None:
        self.logs[topic] = [[] for _ in range(partitions)]

    def put(
        self, topic: str, value: bytes | None, key: bytes | None = None, partition: int = 0,
        timestamp: int = 0,
    ) -> None:  # fmt: skip
        self.logs[topic][partition].append(Entry(key, value, timestamp, (), None))

    def read(self, topic: str, *, committed: bool = True) -> list[Entry]:
        """What a read_committed reader sees, partition by partition."""
        found = []
        for number, log in enumerate(self.logs.get(topic, [])):
            end = self.stable_end(TopicPartition(topic, number)) if committed else len(log)
            found += [entry for entry in log[:end] if self.visible(entry) or not committed]
        return [entry for entry in found if not entry.is_marker]

    def values(self, topic: str) -> list[bytes | None]:
        return [entry.value for entry in self.read(topic)]

    def stable_end(self, tp: TopicPartition) -> int:
        log = self.logs[tp.topic][tp.partition]
        for offset, entry in enumerate(log):
            if entry.transaction is not None and entry.transaction.status == "open":
                return offset
        return len(log)

    @staticmethod
    def visible(entry: Entry) -> bool:
        if entry.is_marker:
            return False
        return entry.transaction is None or entry.transaction.status == "committed"

    def finish(self, identity: Identity, *, commit: bool) -> None:
        transaction, identity.transaction = identity.transaction, None
        if transaction is None:
            return
        transaction.status = "committed" if commit else "aborted"
        for tp in transaction.partitions:
            self.logs[tp.topic][tp.partition].append(Entry(None, None, 0, (), None, is_marker=True))
        if commit:
            self.offsets.update(transaction.offsets)

    def has_pending_offset(self, group: str, tp: TopicPartition) -> bool:
        return any(
            identity.transaction is not None and (group, tp) in identity.transaction.offsets
            for identity in self.identities.values()
        )

    def initialise(self, transactional_id: str) -> tuple[Identity, int]:
        identity = self.identities.get(transactional_id)
        if identity is None:
            identity = self.identities[transactional_id] = Identity(1000 + len(self.identities))
        else:
            identity.epoch += 1
            self.finish(identity, commit=False)
        return identity, identity.epoch

    def call(self, name: str) -> Callable[[], None]:
        """Count a call; raises when it is to fail before its effect; the result raises after it."""
        self.calls.append(name)
        wanted = None if self.injector is None else self.injector(name, len(self.calls) - 1)
        error = KafkaError(self.injected, f"injected into {name}")
        if wanted == "before":
            raise error

        def after() -> None:
            if wanted == "after":
                raise error

        return after


class FakeGroup:
    """Members, each with the assignment it has yet to take."""

    def __init__(self) -> None:
        self.members: dict[str, FakeConsumer] = {}
        self.generation = 0
        self.joined = 0

    def rebalance(self) -> None:
        if not self.members:
            return
        self.generation += 1
        members = {
            member: MemberMetadata(
                tuple(consumer.topics),
                tuple(sorted(consumer.owned)),
                consumer.generation,
                consumer.assignor.metadata(consumer.topics, [], consumer.generation),
                consumer.instance_id,
            )
            for member, consumer in self.members.items()
        }
        leader = next(iter(self.members.values()))
        counts = {
            topic: len(leader.cluster.logs[topic])
            for consumer in self.members.values()
            for topic in consumer.topics
            if topic in leader.cluster.logs
        }
        for member, assignment in leader.assignor.assign(members, counts).items():
            self.members[member].pending = (assignment, self.generation)


class FakeKafka:
    """What one worker connects with (``engine.kafka.Kafka``)."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.consumers: list[FakeConsumer] = []
        self.producers: list[FakeProducer] = []

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    def admin(self) -> Any:
        return FakeAdmin(self.cluster)

    def consumer(self, **options: Any) -> Any:
        self.consumers.append(FakeConsumer(self.cluster, **options))
        return self.consumers[-1]

    def producer(self, **options: Any) -> Any:
        self.producers.append(FakeProducer(self.cluster, **options))
        return self.producers[-1]

    def now_ms(self) -> int:
        return 1_700_000_000_000


class FakeAdmin:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {
            name: TopicDescription(
                name,
                b"",
                False,
                tuple(_Partition(n, 0, 0, (0,), (0,)) for n in range(len(self.cluster.logs[name]))),
            )
            for name in names
            if name in self.cluster.logs
        }

    async def create_topics(self, topics: Iterable[Any]) -> dict[str, KafkaError | None]:
        results: dict[str, KafkaError | None] = {}
        for topic in topics:
            if topic.name in self.cluster.logs:
                results[topic.name] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
                continue
            self.cluster.create(topic.name, topic.partitions)
            self.cluster.configs[topic.name] = topic.configs
            results[topic.name] = None
        return results

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        after = self.cluster.call("fence_producers")
        for transactional_id in transactional_ids:
            self.cluster.fenced.append(transactional_id)
            self.cluster.initialise(transactional_id)
        after()


class FakeProducer:
    def __init__(
        self, cluster: FakeCluster, *, transactional_id: str | None = None, **_: Any
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.state = ProducerState.UNINITIALISED if transactional_id else ProducerState.READY
        self._epoch = -1
        self._buffer: list[tuple[Any, ...]] = []

    def _identity(self) -> Identity:
        assert self.transactional_id is not None
        identity = self.cluster.identities[self.transactional_id]
        if identity.epoch != self._epoch:
            self.state = ProducerState.FENCED
            raise ProducerFenced(ErrorCode.PRODUCER_FENCED, "a newer producer took over")
        return identity

    async def init_transactions(self) -> None:
        await asyncio.sleep(0)
        after = self.cluster.call("init_transactions")
        assert self.transactional_id is not None
        self._epoch = self.cluster.initialise(self.transactional_id)[1]
        after()
        self.state = ProducerState.READY

    async def reset(self) -> None:
        assert self.state is ProducerState.NEEDS_RESET
        self._identity()
        await self.init_transactions()

    def begin(self) -> None:
        assert self.state is ProducerState.READY, self.state
        self.state = ProducerState.IN_TRANSACTION
        self._buffer = []

    def send_batch(
        self, topic: str, partition: int, keys: list[Any], values: list[Any], *,
        timestamps: list[int], headers: Any = None,
    ) -> None:  # fmt: skip
        allowed = ProducerState.IN_TRANSACTION if self.transactional_id else ProducerState.READY
        assert self.state is allowed, self.state
        assert len(keys) == len(values) == len(timestamps)
        self._buffer.append((topic, partition, keys, values, timestamps, headers))

    async def flush(self) -> list[Produced]:
        await asyncio.sleep(0)
        if not self._buffer:
            return []
        try:
            after = self.cluster.call("flush")
            transaction = self._open() if self.transactional_id else None
            produced = []
            for topic, partition, keys, values, timestamps, headers in self._buffer:
                tp = TopicPartition(topic, partition)
                log = self.cluster.logs[topic][partition]
                produced.append(Produced(tp, len(log), len(keys), -1))
                for at, key in enumerate(keys):
                    mine = tuple(headers[at]) if headers else ()
                    log.append(Entry(key, values[at], timestamps[at], mine, transaction))
                if transaction is not None:
                    transaction.partitions.add(tp)
            self._buffer = []
            after()
        except ProducerFenced:
            raise
        except KafkaError as error:
            self._buffer = []
            if self.transactional_id is None:
                raise
            self.state = ProducerState.NEEDS_RESET
            raise NeedsReset(error.code, error.message) from error
        return produced

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        await asyncio.sleep(0)
        try:
            after = self.cluster.call("send_offsets")
            transaction = self._open()
            if group.member_id not in self.cluster.groups[group.group_id].members:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            for tp, offset in offsets.items():
                transaction.offsets[(group.group_id, tp)] = offset.offset
            after()
        except ProducerFenced:
            raise
        except KafkaError as error:
            if self.state is ProducerState.IN_TRANSACTION:
                self.state = ProducerState.ABORTABLE
            raise TransactionAborted(error.code, error.message) from error

    async def commit(self) -> None:
        await self.flush()
        await self._end(commit=True)

    async def abort(self) -> None:
        await self._end(commit=False)

    async def _end(self, *, commit: bool) -> None:
        for _ in range(self.cluster.commit_turns):
            await asyncio.sleep(0)
        if commit and self.cluster.may_commit is not None:
            await self.cluster.may_commit.wait()
        try:
            after = self.cluster.call("commit" if commit else "abort")
            self.cluster.finish(self._identity(), commit=commit)
            after()
        except ProducerFenced:
            raise
        except KafkaError as error:
            self.state = ProducerState.NEEDS_RESET
            raise NeedsReset(error.code, error.message) from error
        self.state = ProducerState.READY

    async def produce(self, topic: str, partition: int, keys: Any, values: Any, **_: Any) -> int:
        self.cluster.put(topic, values[0], keys[0], partition)
        return len(self.cluster.logs[topic][partition]) - 1

    async def close(self) -> None:
        self.state = ProducerState.CLOSED

    def _open(self) -> Transaction:
        identity = self._identity()
        if identity.transaction is None:
            identity.transaction = Transaction(identity.producer_id)
        return identity.transaction


class FakeConsumer:
    def __init__(
        self, cluster: FakeCluster, *, group_id: str | None = None,
        group_instance_id: str | None = None, isolation: str = "read_committed",
        assignors: Sequence[Any] = (), **_: Any,
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.group_id = group_id
        self.instance_id = group_instance_id
        self.isolation = isolation
        self.assignor: Any = assignors[0] if assignors else None
        self.topics: list[str] = []
        self.owned: set[TopicPartition] = set()
        self.generation = -1
        self.member_id = ""
        self.pending: tuple[bytes, int] | None = None
        self._listener: Any = None
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self.frozen = False

    @property
    def group(self) -> FakeGroup:
        assert self.group_id is not None
        return self.cluster.groups[self.group_id]

    async def start(self) -> None: ...

    async def stop(self, *, leave: bool = True) -> None: ...

    def nudge(self) -> None: ...

    async def leave_group(self) -> None:
        if self.member_id in self.group.members:
            del self.group.members[self.member_id]
            self.owned = set()
            self.group.rebalance()

    def subscribe(self, topics: Iterable[str], listener: Any = None) -> None:
        self.topics = sorted(topics)
        self._listener = listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.owned = set(partitions)

    def expel(self) -> None:
        """The session of this member timed out: its partitions go to the others."""
        self.group.members.pop(self.member_id, None)
        self.group.rebalance()

    async def _poll_group(self) -> None:
        if self._listener is None:
            return
        if self.member_id not in self.group.members:
            if self.generation >= 0:
                lost, self.owned = sorted(self.owned), set()
                await self._listener.on_lost(lost)
            self.group.joined += 1
            self.member_id = f"member-{self.group.joined}"
            self.group.members[self.member_id] = self
            self.group.rebalance()
        while self.pending is not None:
            (assignment, self.generation), self.pending = self.pending, None
            self.assignor.on_assignment(assignment, self.generation)
            partitions, user_data = decode_assignment(assignment)
            revoked = sorted(self.owned - set(partitions))
            if revoked:
                await self._listener.on_revoked(revoked)
            new = sorted(set(partitions) - self.owned)
            self.owned = set(partitions)
            await self._listener.on_assigned(new, user_data)
            if revoked:
                self.group.rebalance()

    async def fetch(self, *, timeout_ms: int) -> list[FetchedBatch]:
        while self.frozen:
            await asyncio.sleep(0.001)
        await self._poll_group()
        self.cluster.call("fetch")()  # a failed fetch hands out nothing and moves no position
        deadline = asyncio.get_running_loop().time() + min(timeout_ms, 5) / 1000
        while True:
            batches = [
                batch
                for tp in sorted(self.owned - self._paused)
                if (batch := self._fetch_partition(tp)) is not None
            ]
            if batches or asyncio.get_running_loop().time() >= deadline:
                return batches
            await asyncio.sleep(0.001)

    def _fetch_partition(self, tp: TopicPartition) -> FetchedBatch | None:
        log = self.cluster.logs[tp.topic][tp.partition]
        committed = self.isolation == "read_committed"
        end = self.cluster.stable_end(tp) if committed else len(log)
        start = self._positions[tp]
        if start >= end:
            return None
        stop = min(end, start + self.cluster.batch_records)
        chosen = [at for at in range(start, stop) if self.cluster.visible(log[at])]
        headers = [log[at].headers for at in chosen]
        records = Records(
            [log[at].key for at in chosen],
            [log[at].value for at in chosen],
            chosen,
            [log[at].timestamp for at in chosen],
            headers if any(headers) else None,
            stop,
        )
        self._positions[tp] = stop
        return FetchedBatch(tp, records, len(log), end, 0)

    def position(self, tp: TopicPartition) -> int | None:
        return self._positions.get(tp)

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self._positions[tp] = offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused -= set(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused & self.owned)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.owned)

    @property
    def group_metadata(self) -> GroupMetadata:
        assert self.group_id is not None
        return GroupMetadata(self.group_id, self.generation, self.member_id, self.instance_id)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await asyncio.sleep(0)
        after = self.cluster.call("commit_offsets")
        if self.member_id not in self.group.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        for tp, offset in offsets.items():
            self.cluster.offsets[(self.group_id or "", tp)] = offset.offset
        after()

    async def committed(
        self, partitions: Collection[TopicPartition], *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        await asyncio.sleep(0)
        self.cluster.call("committed")()
        group = self.group_id or ""
        if any(self.cluster.has_pending_offset(group, tp) for tp in partitions):
            raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = {tp: self.cluster.offsets.get((group, tp)) for tp in partitions}
        return {tp: None if at is None else OffsetAndMetadata(at) for tp, at in found.items()}

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self.cluster.call("beginning_offsets")()
        return dict.fromkeys(partitions, 0)

    async def end_offsets(
        self, partitions: Collection[TopicPartition], isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        self.cluster.call("end_offsets")()
        if (isolation or self.isolation) == "read_committed":
            return {tp: self.cluster.stable_end(tp) for tp in partitions}
        return {tp: len(self.cluster.logs[tp.topic][tp.partition]) for tp in partitions}
