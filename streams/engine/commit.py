"""The commit cycle: everything a set of tasks did since the last one takes effect, or nothing.

The transaction exists only while this runs: outputs wait in memory until the cut, so a slow agent
never holds a transaction open and a crash while processing leaves nothing behind on the cluster.
Agents may go on behind the cut while it is written (``CommitCycle.may_overlap``); the next cut is
taken only after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from onceward.broker.client import (
    Consumer,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    Produced,
    Producer,
    ProducerState,
    TopicPartition,
)

from ..config import ProcessingGuarantee
from .output import PartitionOutput, TopicOutput, split
from .sinks import SinkCut, Sinks, SinkShare
from .sources import SourceTask
from .task import Task

logger = logging.getLogger(__name__)

Positions = dict[TopicPartition, int]

_REFUSED = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    }
)


class _Share(NamedTuple):
    """One task's part of a cycle."""

    task: Task
    positions: Positions
    outputs: list[PartitionOutput]
    changelogs: dict[str, TopicPartition]
    sinks: list[SinkShare]


class Cut(NamedTuple):
    """What one transaction makes durable: taken from tasks at a cut, nothing is added later."""

    shares: list[_Share]
    positions: Positions
    batches: list[PartitionOutput]
    sinks: SinkCut


class CommitCycle:
    """Commits tasks under one guarantee with one producer, one cut at a time.

    ``counts`` knows the partition count of every topic that can be sent to; ``source_positions``
    are the topics that say where sources are. Any KafkaError out of ``write`` means that it is not
    known what took effect: call ``recover``, then move every task back to the committed offsets.
    Sinks commit before Kafka does: what they have is known from their own positions, and no offset
    is committed that a sink has not reached.
    """

    def __init__(
        self,
        guarantee: ProcessingGuarantee,
        consumer: Consumer,
        new_producer: Callable[[], Producer],
        sinks: Sinks,
        source_positions: Collection[str] = (),
    ) -> None:
        self._guarantee = guarantee
        self._consumer = consumer
        self._new_producer = new_producer
        self._sinks = sinks
        self._source_positions = frozenset(source_positions)
        self._producer: Producer | None = None
        self.commits = 0

    @property
    def is_transactional(self) -> bool:
        return self._guarantee is ProcessingGuarantee.EXACTLY_ONCE

    @property
    def may_overlap(self) -> bool:
        """Whether tasks may go on while their cut is being written.

        What they do then waits for the next transaction, and is dropped with the failure of this
        one. Without transactions outputs are sent with the same producer meanwhile.
        """
        return self.is_transactional

    @property
    def _is_at_most_once(self) -> bool:
        return self._guarantee is ProcessingGuarantee.AT_MOST_ONCE

    async def start(self) -> None:
        """Fence the previous holder of this transactional id; aborts what it left open."""
        self._producer = self._new_producer()
        if self.is_transactional:
            await self._producer.init_transactions()

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None

    async def before_processing(self, positions: Positions) -> None:
        """At most once: these records count as done before any of them is handled."""
        if self._is_at_most_once and positions:
            await self._consumer.commit(_offsets(positions))

    async def send_early(self, tasks: Sequence[Task], counts: Mapping[str, int]) -> None:
        """Without transactions outputs need not wait for a cut. Raises KafkaError."""
        producer = self._producer
        if producer is None or self.is_transactional:
            return
        for task in tasks:
            if isinstance(task, SourceTask) and self._is_at_most_once:
                continue  # its positions come first
            for batch in split(task.outputs.take(), counts, _keyless_partition(task)):
                _send(producer, batch)
        await producer.flush()

    def cut(
        self,
        tasks: Sequence[Task],
        worker_outputs: Mapping[str, TopicOutput],
        counts: Mapping[str, int],
    ) -> Cut:
        """Take what tasks that are at a cut did, and what timers sent; ``write`` comes next."""
        shares = [_share(task, counts, self._sinks) for task in tasks]
        positions: Positions = {}
        for share in shares:
            positions.update(share.positions)
        batches = [batch for share in shares for batch in share.outputs]
        batches.extend(split(worker_outputs, counts, self.commits))
        sinks = [written for share in shares for written in share.sinks]
        return Cut(shares, positions, batches, SinkCut(sinks, counts))

    async def write(self, cut: Cut) -> None:
        """Commit a cut. Raises KafkaError, SinkUnavailable, WorkerError (a sink's)."""
        shares, positions, batches, sinks = cut
        batches.extend(await self._sinks.commit(sinks))
        if self._is_at_most_once:
            positions = {}
        produced = await self._write(batches, positions) if batches or positions else []
        self.commits += 1
        ends = {batch.tp: 0 for batch in produced}
        for batch in produced:
            ends[batch.tp] = max(ends[batch.tp], batch.base_offset + batch.records_count)
        for share in shares:
            for table, changelog in share.changelogs.items():
                share.task.stores[table].flush(ends[changelog])
            share.task.committed(share.positions)

    async def recover(self) -> None:
        """Bring the producer back to a state in which nothing is open. Raises KafkaError."""
        producer = self._producer
        if producer is not None and self.is_transactional:
            if producer.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE):
                await producer.abort()
            if producer.state is ProducerState.NEEDS_RESET:
                await producer.reset()
            if producer.state is ProducerState.UNINITIALISED:
                await producer.init_transactions()
            if producer.state is ProducerState.READY:
                return
        await self.close()
        await self.start()

    async def _write(
        self, batches: Sequence[PartitionOutput], positions: Positions
    ) -> list[Produced]:
        producer = self._producer
        if producer is None:
            raise RuntimeError("the commit cycle is not started")
        if not self.is_transactional:
            return await self._write_in_order(producer, batches, positions)
        producer.begin()
        for batch in batches:
            _send(producer, batch)
        flushing = producer.flush()
        if positions:
            group = self._consumer.group_metadata
            adding = producer.send_offsets(_offsets(positions), group)
            outcomes = await asyncio.gather(flushing, adding, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            produced = outcomes[0] if isinstance(outcomes[0], list) else []
        else:
            produced = await flushing
        await producer.commit()
        return produced

    async def _write_in_order(
        self, producer: Producer, batches: Sequence[PartitionOutput], positions: Positions
    ) -> list[Produced]:
        """Without a transaction: where sources are comes after their rows, or before them."""
        moved = [batch for batch in batches if batch.topic in self._source_positions]
        rows = [batch for batch in batches if batch.topic not in self._source_positions]
        produced: list[Produced] = []
        for part in (moved, rows) if self._is_at_most_once else (rows, moved):
            for batch in part:
                _send(producer, batch)
            if part:
                produced += await producer.flush()
        if positions:
            await self._consumer.commit(_offsets(positions))
        return produced


def recoverable(error: KafkaError) -> bool:
    """Whether running the same records again may succeed: not so for what the cluster refuses.

    FENCED_INSTANCE_ID may: a commit that was on its way while the worker rejoined names the member
    it was. That somebody else has the instance is for MemberFenced to say.
    """
    return error.code not in _REFUSED


def _send(producer: Producer, batch: PartitionOutput) -> None:
    producer.send_batch(
        batch.topic,
        batch.partition,
        batch.keys,
        batch.values,
        timestamps=batch.timestamps,
        headers=batch.headers,
    )


def _share(task: Task, counts: Mapping[str, int], sinks: Sinks) -> _Share:
    positions = task.changed_positions()
    written = sinks.take(task, positions)
    outputs = list(split(task.outputs.take(), counts, _keyless_partition(task)))
    changelogs: dict[str, TopicPartition] = {}
    for name, transaction in task.stores.items():
        if not transaction.is_dirty:
            continue
        topic = task.sub_topology.tables[name].changelog_name
        keys, values = transaction.prepare()
        timestamps = [max(task.stream_time, 0)] * len(keys)
        changelogs[name] = TopicPartition(topic, task.id.partition)
        outputs.append(PartitionOutput(topic, task.id.partition, keys, values, timestamps, None))
    share = _Share(task, positions, outputs, changelogs, written)
    task.records_since_commit = 0
    return share


def _keyless_partition(task: Task) -> int:
    return task.keyless_partition if isinstance(task, SourceTask) else task.id.partition


def _offsets(positions: Positions) -> dict[TopicPartition, OffsetAndMetadata]:
    return {tp: OffsetAndMetadata(offset) for tp, offset in positions.items()}
