"""The outside world of a simulated run: it feeds the app, reads along, and reads everything back.

All of it goes over the wire, on a host of its own that no fault plan kills: what the broker or an
engine believes in memory is never asked, except for the content of the tables.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from onceward.broker.client import (
    Client,
    Consumer,
    ErrorCode,
    KafkaError,
    Produced,
    Producer,
    TopicPartition,
    partition_keys,
)
from onceward.broker.coordinator.group.records import OffsetRecord, parse_record
from onceward.broker.protocol.messages import FetchRequest, FetchResponse
from onceward.broker.records.batch import iter_headers
from onceward.broker.records.codec import decode
from onceward.broker.records.control import parse_end_marker
from onceward.broker.types import CONSUMER_OFFSETS_TOPIC, Buffer

from .history import ABORTED, COMMITTED, OPEN, LogRecord, OffsetCommit, Position, Read, Sent
from .scenario import Feed
from .sim.loop import EPOCH_S, START_S

READER = "reader"
_FIRST_TIMESTAMP_MS = int((EPOCH_S - 86_400) * 1000)
_TIMESTAMP_STEP_MS = 100
"""Inputs carry their own timestamps, so that windows are the same in every run. They are old: a
broker whose clock was set back refuses what lies an hour ahead."""
_MAX_BURST = 8
_PATIENCE_MS = 600_000
_LOOK_S, _LOOK_GROWS, _MAX_LOOK_S = 0.2, 1.25, 1.0
_RETRY_S = 0.05
_FETCH_BYTES = 16 * 1024 * 1024
_FETCH_MAX_VERSION = 12


class Outside:
    """What happens on the client's host. ``now`` is the run's clock, ``rng`` decides the pace.

    ``topics`` are all the app has, ``consumed`` those its agents read,
    ``watched`` those that a reader follows while the run goes on. ``ready`` tells when to begin,
    once the topics exist; ``calm`` tells when nothing
    goes wrong any more and the workers rest, so that it may be over. The rest is filled in as it
    comes.
    """

    def __init__(
        self,
        client: Client,
        feeds: Sequence[Feed],
        *,
        group: str,
        topics: Sequence[str],
        consumed: Sequence[str],
        watched: Collection[str],
        feed_s: float,
        now: Callable[[], float],
        rng: Any,
        ready: Callable[[], bool],
        calm: Callable[[], bool],
    ) -> None:
        self._client = client
        self._feeds = feeds
        self._group = group
        self._topics = topics
        self._consumed = consumed
        self._watched = watched
        self._feed_s = feed_s
        self._now = now
        self._rng = rng
        self._ready = ready
        self._calm = calm
        self._partitions: list[TopicPartition] = []
        self._reading: asyncio.Task[None] | None = None
        self.partition_counts: Counter[str] = Counter()
        self.began = False
        self.settled = False
        self.over = False
        self.inputs: list[Sent] = []
        self.reads: list[Read] = []
        self.log: dict[tuple[str, int], list[LogRecord]] = {}
        self.commits: list[OffsetCommit] = []
        self.ends: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """Feed, read along, wait until all is done, and read the logs. Raises KafkaError."""
        await self._client.start()
        self._partitions = await self._learn_partitions()
        self.partition_counts.update(tp.topic for tp in self._partitions)
        while not self._ready():  # noqa: ASYNC110 - told by polling, like _calm
            await asyncio.sleep(_RETRY_S)
        self.began = True
        self._reader = Consumer(self._client, isolation="read_committed", fetch_max_wait_ms=1000)
        reading = self._reading = asyncio.create_task(self._read_along(), name="reader")
        await self._feed()
        await self._wait_until_settled()
        self.settled = True
        await self.read_back()
        await self._wait_for_reader()
        reading.cancel()
        await asyncio.wait([reading])
        self.over = True

    async def close(self) -> None:
        """Stop what goes on in the background. In simulation its host just ends. Idempotent."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            await self._reader.stop()

    async def _learn_partitions(self) -> list[TopicPartition]:
        """Once the first worker has created every topic."""
        fed = dict.fromkeys(feed.topic for feed in self._feeds)
        return [
            TopicPartition(name, number)
            for name in dict.fromkeys([*self._topics, *fed])
            for number in await self._client.partitions_for(name, timeout_ms=_PATIENCE_MS)
        ]

    # feeding

    async def _feed(self) -> None:
        producer = Producer(self._client, delivery_timeout_ms=_PATIENCE_MS)
        index = 0
        begin = self._now()
        while index < len(self._feeds):
            size = self._rng.randint(1, _MAX_BURST)
            await self._send(producer, index, self._feeds[index : index + size])
            index += size
            due = begin + self._feed_s * index / len(self._feeds)
            await asyncio.sleep(max(due - self._now(), 0) * 2 * self._rng.random())
        await producer.close()

    async def _send(self, producer: Producer, index: int, feeds: Sequence[Feed]) -> None:
        """One burst; in order within every partition."""
        sent: defaultdict[TopicPartition, list[tuple[Feed, int]]] = defaultdict(list)
        for number, feed in enumerate(feeds, index):
            count = len(self._client.metadata.topics[feed.topic].partitions)
            (partition,) = partition_keys([feed.key], count)
            if partition < 0:
                partition = number % count
            timestamp = _FIRST_TIMESTAMP_MS + number * _TIMESTAMP_STEP_MS
            sent[TopicPartition(feed.topic, partition)].append((feed, timestamp))

        def buffer() -> None:
            for tp, group in sent.items():
                producer.send_batch(
                    *tp,
                    [feed.key for feed, _ in group],
                    [feed.value for feed, _ in group],
                    timestamps=[timestamp for _, timestamp in group],
                )

        sent_at = self._now()
        offsets: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        for batch in await deliver(producer, buffer):
            first = batch.base_offset
            offsets[batch.tp] += range(first, first + batch.records_count)
        acked_at = self._now()
        for tp, group in sent.items():
            self.inputs += [
                Sent(*tp, feed.key, feed.value, sent_at, acked_at, offset)
                for (feed, _), offset in zip(group, offsets[tp], strict=True)
            ]

    # reading along

    async def _read_along(self) -> None:
        """A read_committed reader of what the app writes for itself and others."""
        self._reader.assign([tp for tp in self._partitions if tp.topic in self._watched])
        while True:
            try:
                batches = await self._reader.fetch(timeout_ms=1000)
            except KafkaError:
                await asyncio.sleep(_RETRY_S)
                continue
            now = self._now()
            for batch in batches:
                records = batch.records
                self.reads += [
                    Read(READER, now, Position(*batch.tp, offset), key, value)
                    for key, value, offset in zip(
                        records.keys, records.values, records.offsets, strict=True
                    )
                ]

    async def _wait_for_reader(self) -> None:
        """Until it has been offered everything: a reader that is held back is stuck for good."""
        while self._is_reader_behind():  # noqa: ASYNC110 - positions have no event
            await asyncio.sleep(_LOOK_S)

    def _is_reader_behind(self) -> bool:
        positions = {tp: self._reader.position(tp) or 0 for tp in self._reader.assignment}
        return any(position < self.ends[tp] for tp, position in positions.items())

    # the end

    async def _wait_until_settled(self) -> None:
        """Until the group has committed the end of every topic and no transaction is open."""
        asking = Consumer(self._client, group_id=self._group)
        consumed = [tp for tp in self._partitions if tp.topic in self._consumed]
        rest_s = _LOOK_S
        while True:
            await asyncio.sleep(rest_s)
            if not self._calm():
                continue
            rest_s = min(rest_s * _LOOK_GROWS, _MAX_LOOK_S)
            try:
                committed = await asking.committed(consumed, require_stable=False)
                reached = {tp: 0 if at is None else at.offset for tp, at in committed.items()}
                if reached != await asking.end_offsets(consumed, "read_uncommitted"):
                    continue
                ends = await asking.end_offsets(self._partitions, "read_uncommitted")
                stable = await asking.end_offsets(self._partitions, "read_committed")
                done = all(ends[tp] == reached[tp] for tp in consumed)
                if done and ends == stable and self._calm():
                    self.ends = {(tp.topic, tp.partition): end for tp, end in ends.items()}
                    return
            except KafkaError:
                continue

    @property
    def expected_commits(self) -> dict[tuple[str, int], int]:
        """The ends of what the agents read."""
        return {
            place: end for place, end in self.ends.items() if place[0] in self._consumed and end
        }

    async def read_back(self) -> None:
        """Every record of the app's topics with its fate, and the group's commits."""
        logs = await read_logs(self._client, self._partitions)
        self.log = {(tp.topic, tp.partition): records_of(tp, raw) for tp, raw in logs.items()}
        if CONSUMER_OFFSETS_TOPIC not in self._client.metadata.topics:
            await self._client.topic(CONSUMER_OFFSETS_TOPIC)
        places = [
            TopicPartition(CONSUMER_OFFSETS_TOPIC, number)
            for number in self._client.metadata.topics[CONSUMER_OFFSETS_TOPIC].partitions
        ]
        offsets = await read_logs(self._client, places)
        self.commits = [
            commit for tp in places for commit in commits_of(tp, offsets[tp], self._group)
        ]


async def deliver(producer: Producer, buffer: Callable[[], None]) -> list[Produced]:
    """Flush what ``buffer`` puts into the producer.

    While it gets no producer id nothing is written, and what is in its buffer is dropped: then
    again. Any other KafkaError is raised.
    """
    while True:
        buffer()
        try:
            return await producer.flush()
        except KafkaError:
            if producer.identity.known:
                raise
            await asyncio.sleep(_RETRY_S)


async def read_logs(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, bytes]:
    """The raw batches of whole partitions, read_uncommitted, up to the high watermark.

    Raises KafkaError.
    """
    logs = dict.fromkeys(partitions, b"")
    positions = dict.fromkeys(logs, 0)
    unread = dict(positions)
    while unread:
        (node,) = {(await client.leader(tp)).leader for tp in unread}
        answer: FetchResponse = await client.request(
            node, _fetch(unread), max_version=_FETCH_MAX_VERSION
        )
        for topic in answer.responses:
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition_index)
                if partition.error_code:
                    raise KafkaError(ErrorCode(partition.error_code), f"reading back {tp}")
                raw = partition.records or b""
                assert not isinstance(raw, list)
                logs[tp] += bytes(raw)
                for _, header in iter_headers(raw):
                    positions[tp] = header.next_offset
                if positions[tp] >= partition.high_watermark:
                    del unread[tp]
                else:
                    unread[tp] = positions[tp]
    return logs


def _fetch(positions: dict[TopicPartition, int]) -> FetchRequest:
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for tp, offset in positions.items():
        topic = topics.setdefault(tp.topic, FetchRequest.FetchTopic(topic=tp.topic))
        topic.partitions.append(
            FetchRequest.FetchPartition(
                partition=tp.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
            )
        )
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=list(topics.values()))


def records_of(tp: TopicPartition, raw: Buffer) -> list[LogRecord]:
    """Decode a whole log. Fates come from the markers in it, not from the broker's own index."""
    return [record for _, record in _with_fates(tp, raw)]


def commits_of(tp: TopicPartition, raw: Buffer, group: str) -> list[OffsetCommit]:
    """The offset commits of ``group`` in a partition of ``__consumer_offsets``.

    In the order in which they took effect: those of a transaction at its marker.
    """
    found: list[tuple[int, OffsetCommit]] = []
    for effective, record in _with_fates(tp, raw):
        if record.key is None or record.status != COMMITTED:
            continue
        parsed = parse_record(record.key, record.value)
        if not isinstance(parsed, OffsetRecord) or parsed.group_id != group:
            continue
        if parsed.value is not None:
            at = START_S + (record.timestamp - EPOCH_S * 1000) / 1000
            commit = OffsetCommit(group, *parsed.partition, parsed.value.offset, at)
            found.append((effective, commit))
    return [commit for _, commit in sorted(found, key=lambda entry: entry[0])]


def _with_fates(tp: TopicPartition, raw: Buffer) -> list[tuple[int, LogRecord]]:
    """Records with the offset at which each took effect: its marker's, in a transaction."""
    batches: list[list[Any]] = []  # next offset, transaction, status, where it took effect
    pending: defaultdict[int, list[tuple[list[Any], int]]] = defaultdict(list)
    view = memoryview(raw)
    for position, header in iter_headers(view):
        if header.is_control:
            marker = parse_end_marker(view[position : position + header.size])
            for batch, epoch in pending.pop(header.producer_id, ()):
                batch[2] = COMMITTED if marker.commit else ABORTED
                batch[3] = header.base_offset
                if epoch == header.producer_epoch:
                    batch[1] = ""  # version 1: many transactions have this epoch
            continue
        batch = [header.next_offset, "", COMMITTED, header.base_offset]
        if header.is_transactional:
            batch[1] = f"{header.producer_id}/{header.producer_epoch}"
            batch[2] = OPEN
            pending[header.producer_id].append((batch, header.producer_epoch))
        batches.append(batch)
    records = decode(view)
    headers = records.headers or [()] * len(records)
    found = []
    at = 0
    for number, offset in enumerate(records.offsets):
        while offset >= batches[at][0]:
            at += 1
        _, transaction, status, effective = batches[at]
        record = LogRecord(
            Position(*tp, offset),
            records.keys[number],
            records.values[number],
            records.timestamps[number],
            headers[number],
            status,
            transaction,
        )
        found.append((effective, record))
    return found
