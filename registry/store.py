"""The topic ``_schemas``: read by every instance, written by the one that leads.

Why no id is given twice, even beside a leader that does not know it was deposed:

1. Every write is a transaction of one transactional id that belongs to the topic. Leading begins
   with InitProducerId, which ends what the former leader left open and raises the epoch. From then
   on the cluster takes no write of the former leader, however late it comes.
2. Then the new leader writes a record of its own and reads until it sees it. All that was ever
   committed lies before that record, and a decision is made from that state or a later one.
3. One write is under way at a time, and the next decision waits until this instance has read the
   last one. A write whose outcome is unknown makes the instance begin anew at 1.
4. The answer to a client is given after the record was read back, so it was committed.

Readers are ``read_committed``: what an ended leader left behind half-done is never seen. Other
registries that read the topic have to be told to read like that.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Sequence

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    ErrorCode,
    FetchedBatch,
    KafkaError,
    NewTopic,
    Producer,
    ProducerFenced,
    TopicPartition,
)

from .errors import NotLeader, StoreFailed, StoreTimeout, schema_too_large
from .records import NoopKey, Record, encode_key

log = logging.getLogger("onceward.registry")

MAX_REPLICATION = 3
TRANSACTION_TIMEOUT_MS = 10_000
CLOSING_TIMEOUT_MS = 2_000
MAX_RECORD_BYTES = 1_000_000
"""Brokers take batches of 1 MiB unless told otherwise (``max.message.bytes``)."""
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""Another instance began to lead, or a transaction took longer than its timeout."""
REPORTED_SKIPS = 20
"""Records that cannot be understood and are written to the log; the rest is only counted."""

Replay = Callable[[bytes, bytes | None, int], str | None]


class SchemaStore:
    """Reads the topic into ``replay``; ``write`` appends. Times are milliseconds.

    ``replication_factor`` None: 3, or as many as the cluster has nodes.
    """

    def __init__(
        self,
        client: Client,
        replay: Replay,
        *,
        topic: str = "_schemas",
        replication_factor: int | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        self._client = client
        self._replay = replay
        self._tp = TopicPartition(topic, 0)
        self._replication_factor = replication_factor
        self._timeout = timeout_ms / 1000
        self._consumer = Consumer(client, isolation="read_committed")
        self._producer: Producer | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._written_end = 0
        self.position = 0
        """Everything below this offset was replayed."""
        self.skipped = 0
        """Records that could not be understood."""

    # life

    async def start(self) -> None:
        """Create the topic if it is missing, and read it to its end.

        Raises ``KafkaError``, and ``StoreFailed`` when the topic is not what it has to be.
        """
        await self._ensure_topic()
        self._consumer.assign([self._tp])
        await self._consumer.start()
        self._reader = asyncio.create_task(self._read(), name="schemas reader")
        await self.catch_up()

    async def stop(self) -> None:
        """Idempotent. A write that is under way is left to its transaction's timeout."""
        await self.resign()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._consumer.stop()
        for _, _, waiter in self._waiting:
            waiter.cancel()

    async def finish(self) -> None:
        """Write no more; end the topic with a record instead of the mark of a transaction.

        Karapace compares the last record it read with the end of the topic before it takes over.
        """
        if self._producer is None:
            return
        await self.resign()
        producer = Producer(self._client, delivery_timeout_ms=CLOSING_TIMEOUT_MS)
        try:
            await producer.produce(
                *self._tp, [encode_key(NoopKey())], [None], timestamps=self._client.clock()
            )
        except KafkaError as error:
            log.info("no last record was written to %s: %s", self._tp, error)
        finally:
            await producer.close()

    async def wait_failed(self) -> None:
        """Returns never, or raises what ended the reader: a fault of ours."""
        assert self._reader is not None
        await asyncio.shield(self._reader)

    async def _ensure_topic(self) -> None:
        admin = Admin(self._client)
        name = self._tp.topic
        described = await admin.describe_topics([name])
        if name not in described:
            factor = self._replication_factor
            if factor is None:
                factor = min(MAX_REPLICATION, max(1, len(self._client.metadata.nodes)))
            new = NewTopic(name, 1, factor, {"cleanup.policy": "compact"})
            error = (await admin.create_topics([new]))[name]
            if error is None:
                return
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error
            await self._client.topic(name)
            described = await admin.describe_topics([name])
        partitions = len(described[name].partitions)
        if partitions != 1:
            raise StoreFailed(f"topic {name} has {partitions} partitions, it must have one")
        policy = (await admin.describe_configs(name))["cleanup.policy"].value
        if policy != "compact":
            raise StoreFailed(
                f"topic {name} has cleanup.policy={policy}, so schemas would be lost: set compact"
            )

    # reading

    async def _read(self) -> None:
        failures = 0
        while True:
            try:
                batches = await self._consumer.fetch(timeout_ms=60_000)
            except KafkaError as error:
                failures += 1
                log.warning("reading %s failed: %s", self._tp, error)
                await asyncio.sleep(self._client.backoff.delay(failures))
                continue
            failures = 0
            for batch in batches:
                self._take(batch)

    def _take(self, batch: FetchedBatch) -> None:
        records = batch.records
        for key, value, offset, timestamp in zip(
            records.keys, records.values, records.offsets, records.timestamps, strict=True
        ):
            problem = "it has no key" if key is None else self._replay(key, value, timestamp)
            if problem is not None:
                self.skipped += 1
                if self.skipped <= REPORTED_SKIPS:
                    log.warning("record %d of %s is skipped: %s", offset, self._tp, problem)
        self.position = records.next_offset
        while self._waiting and self._waiting[0][0] <= self.position:
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    async def _wait_for(self, offset: int) -> None:
        """Until everything below ``offset`` is replayed. Raises ``StoreTimeout``."""
        if self.position >= offset:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._numbers), waiter))
        try:
            async with asyncio.timeout(self._timeout):
                await waiter
        except TimeoutError:
            raise StoreTimeout(f"offset {offset} of {self._tp} was not read in time") from None

    async def catch_up(self) -> None:
        """Until everything is replayed that was committed when this was called.

        Raises ``StoreFailed``, ``StoreTimeout``.
        """
        try:
            end = (await self._consumer.end_offsets([self._tp]))[self._tp]
        except KafkaError as error:
            raise StoreFailed(str(error)) from error
        await self._wait_for(end)

    # writing: the callers see to it that one of these runs at a time

    async def lead(self) -> None:
        """Be the only one who can write, with everything read that was written before.

        To be called before a decision; does nothing when nothing changed since the last write.
        Raises ``StoreFailed``, ``StoreTimeout``, ``NotLeader``.
        """
        if self._producer is None:
            producer = Producer(
                self._client,
                transactional_id=f"onceward-registry-{self._tp.topic}",
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
            try:
                await producer.init_transactions()
            except KafkaError as error:
                await producer.close()
                raise StoreFailed(str(error)) from error
            self._producer = producer
            await self.write([(encode_key(NoopKey()), None)])
        await self._wait_for(self._written_end)

    async def resign(self) -> None:
        """Stop being able to write."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def write(self, records: Sequence[Record]) -> None:
        """Append in one transaction; returns when they are replayed here.

        Raises ``NotLeader`` when another instance took over, ``StoreFailed`` when they may or may
        not have been written, ``StoreTimeout`` when they were but could not be read back.
        """
        producer = self._producer
        if producer is None:
            raise NotLeader(None)
        largest = max(len(key) + len(value or b"") for key, value in records)
        if largest > MAX_RECORD_BYTES:
            raise schema_too_large(f"its record has {largest} bytes")
        try:
            producer.begin()
            producer.send_batch(
                *self._tp,
                [key for key, _ in records],
                [value for _, value in records],
                timestamps=self._client.clock(),
            )
            produced = await producer.flush()
            await producer.commit()
        except KafkaError as error:
            await self.resign()
            if isinstance(error, ProducerFenced) or error.code in FENCED:
                raise NotLeader(None) from error
            raise StoreFailed(str(error)) from error
        except asyncio.CancelledError:
            await self.resign()
            raise
        self._written_end = max(one.base_offset + one.records_count for one in produced)
        await self._wait_for(self._written_end)
