"""Sends encoded batches: one request per node and round, pipelined, in order per partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import ProduceRequest, ProduceResponse
from ..types import TopicPartition
from .cluster import DEFAULT_LANE, Client
from .errors import ConnectionFailed, kafka_error
from .outbox import EncodedBatch

MAX_IN_FLIGHT = 5
MAX_REQUEST_BYTES = 32 * 1024 * 1024
CONCURRENT_TRANSACTIONS_BACKOFF = 0.02
ALREADY_APPENDED = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class Produced(NamedTuple):
    """Where one encoded batch went. ``base_offset`` -1 with acks=0. ``log_append_time`` -1 =
    CreateTime.
    """

    tp: TopicPartition
    base_offset: int
    records_count: int
    log_append_time: int


class ProduceConfig(NamedTuple):
    """What is the same in every Produce of one flush; versions None = whatever both sides speak."""

    acks: int
    request_timeout_ms: int
    transactional_id: str | None
    min_version: int | None
    max_version: int | None
    idempotent: bool
    first_goes_alone: bool
    lane: str = DEFAULT_LANE


class _Queue:
    """The batches of one partition. The first ``in_flight`` of them are with the broker.

    After a failure nothing more is sent until everything in flight is answered; then it goes on
    with the first batch that is not done. So batches arrive in order, and a batch that overtook a
    failed one is refused by its sequence (OUT_OF_ORDER_SEQUENCE_NUMBER) and comes again after it.
    Except where the partition does not know the producer yet: it takes any sequence then, so the
    very first batch goes alone (transactions version 2 refuses it: KAFKA-18202).
    """

    __slots__ = ("batches", "failures", "first_goes_alone", "in_flight", "retry_at", "rewinding")

    def __init__(self, batches: list[EncodedBatch], *, first_goes_alone: bool) -> None:
        self.batches = batches
        self.first_goes_alone = first_goes_alone
        self.in_flight = 0
        self.rewinding = False
        self.retry_at = 0.0
        self.failures = 0

    def sendable(self, now: float) -> bool:
        if self.rewinding or self.retry_at > now or len(self.batches) <= self.in_flight:
            return False
        if self.first_goes_alone and self.batches[0].begins:
            return self.in_flight == 0
        return self.in_flight < MAX_IN_FLIGHT

    def next(self) -> EncodedBatch:
        batch = self.batches[self.in_flight]
        batch.first_in_line = self.in_flight == 0
        self.in_flight += 1
        return batch

    def on_answer(self, *, failed: bool) -> None:
        self.in_flight -= 1
        self.rewinding = self.rewinding or failed
        if self.in_flight == 0 and self.rewinding:
            self.rewinding = False
        self.batches = [batch for batch in self.batches if not batch.done]


class Delivery:
    """One flush: sends every batch and waits for all answers.

    ``run`` returns in partition order; after a failure it still waits for what is in flight (at
    most the request timeout), sends nothing more of that partition - of any partition in a
    transaction, which cannot be committed any more - and raises the first error.
    """

    def __init__(
        self,
        client: Client,
        config: ProduceConfig,
        encoded: Mapping[TopicPartition, list[EncodedBatch]],
    ) -> None:
        self._client = client
        self._config = config
        alone = config.first_goes_alone
        self._queues = {
            tp: _Queue(batches, first_goes_alone=alone) for tp, batches in encoded.items()
        }
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._produced: list[Produced] = []
        self._error: KafkaError | None = None
        self._last_error: KafkaError | None = None

    async def run(self, deadline: float) -> list[Produced]:
        """``deadline`` in loop time: then what is left fails with the error that held it up."""
        try:
            while self._queues or self._tasks:
                await self._step(deadline)
        finally:
            for task in self._tasks:
                task.cancel()
        if self._error is not None:
            raise self._error
        self._produced.sort(key=lambda produced: (produced.tp, produced.base_offset))
        return self._produced

    async def _step(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "records were not delivered in time")
            self._fail_all(self._last_error or late)
        else:
            await self._find_leaders(deadline)
            self._send_rounds()
        if self._tasks:
            # Every request has its own timeout, so this ends.
            done, _ = await asyncio.wait(
                self._tasks,
                timeout=self._pause(loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                self._tasks.discard(task)
                task.result()
        elif self._queues:
            await asyncio.sleep(self._pause(loop.time()) or 0)

    def _pause(self, now: float) -> float | None:
        """Until the next queue may be retried; None when only answers are awaited."""
        waits = [
            queue.retry_at - now
            for queue in self._queues.values()
            if queue.retry_at > now and not queue.in_flight
        ]
        return min(waits) if waits else None

    async def _find_leaders(self, deadline: float) -> None:
        """Ask for unknown leaders before anything is sent; a topic that does not exist fails."""
        loop = asyncio.get_running_loop()
        for tp, queue in list(self._queues.items()):
            now = loop.time()
            if self._client.metadata.partition(tp) is None and queue.retry_at <= now:
                remaining_ms = max(int((deadline - now) * 1000), 1)
                timeout_ms = min(remaining_ms, self._config.request_timeout_ms)
                try:
                    await self._client.leader(tp, timeout_ms=timeout_ms)
                except ConnectionFailed as error:
                    self._retry_later(queue, error)
                except KafkaError as error:
                    self._fail(tp, error)

    def _retry_later(self, queue: _Queue, error: KafkaError) -> None:
        self._last_error = error
        queue.failures += 1
        delay = self._client.backoff.delay(queue.failures)
        if error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            delay = CONCURRENT_TRANSACTIONS_BACKOFF
        queue.retry_at = asyncio.get_running_loop().time() + delay

    def _send_rounds(self) -> None:
        """As many rounds as are allowed in flight; a round has the next batch of each partition."""
        now = asyncio.get_running_loop().time()
        while True:
            rounds: defaultdict[int, list[EncodedBatch]] = defaultdict(list)
            sizes: defaultdict[int, int] = defaultdict(int)
            for tp, queue in self._queues.items():
                info = self._client.metadata.partition(tp)
                if info is None or not queue.sendable(now):
                    continue
                node_id = info.leader
                if self._in_flight[node_id] >= MAX_IN_FLIGHT or sizes[node_id] > MAX_REQUEST_BYTES:
                    continue
                batch = queue.next()
                rounds[node_id].append(batch)
                sizes[node_id] += len(batch.data)
            if not rounds:
                return
            for node_id, batches in rounds.items():
                self._in_flight[node_id] += 1
                self._tasks.add(asyncio.create_task(self._send(node_id, batches)))

    async def _send(self, node_id: int, batches: list[EncodedBatch]) -> None:
        config = self._config
        try:
            response = await self._client.request(
                node_id,
                self._request(batches),
                lane=config.lane,
                min_version=config.min_version,
                max_version=config.max_version,
                timeout_ms=config.request_timeout_ms,
                answered=config.acks != 0,
            )
        except KafkaError as error:
            self._client.request_metadata_refresh()
            for batch in batches:
                self._on_error(batch, error)
        else:
            self._on_response(batches, response)
        finally:
            self._in_flight[node_id] -= 1

    def _request(self, batches: list[EncodedBatch]) -> ProduceRequest:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for batch in batches:
            name = batch.tp.topic
            topic = topics.setdefault(name, ProduceRequest.TopicProduceData(name=name))
            topic.partition_data.append(
                ProduceRequest.PartitionProduceData(index=batch.tp.partition, records=batch.data)
            )
        return ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _on_response(self, batches: list[EncodedBatch], response: ProduceResponse | None) -> None:
        if response is None:
            for batch in batches:
                self._on_success(batch, -1, -1)
            return
        answers = {
            TopicPartition(topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.tp)
            if answer is None:
                missing = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no answer for {batch.tp}")
                self._on_error(batch, missing)
            elif answer.error_code in (ErrorCode.NONE, ALREADY_APPENDED):
                self._on_success(batch, answer.base_offset, answer.log_append_time_ms)
            else:
                message = f"{batch.tp}: {answer.error_message or 'produce failed'}"
                self._on_error(batch, kafka_error(answer.error_code, message))

    def _on_success(self, batch: EncodedBatch, base_offset: int, log_append_time: int) -> None:
        batch.done = True
        count = batch.records_count
        self._produced.append(Produced(batch.tp, base_offset, count, log_append_time))
        queue = self._queues.get(batch.tp)
        if queue is None:
            return
        queue.failures = 0
        queue.on_answer(failed=False)
        if not queue.batches:
            del self._queues[batch.tp]

    def _on_error(self, batch: EncodedBatch, error: KafkaError) -> None:
        queue = self._queues.get(batch.tp)
        if queue is None:
            return
        queue.on_answer(failed=True)
        self._last_error = error
        overtook = (
            self._config.idempotent
            and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and not batch.first_in_line
        )
        if not (error.retriable or overtook):
            self._fail(batch.tp, error)
            return
        self._retry_later(queue, error)
        if error.code in _STALE_METADATA:
            self._client.request_metadata_refresh()

    def _fail(self, tp: TopicPartition, error: KafkaError) -> None:
        if self._config.transactional_id is not None:
            self._fail_all(error)
        else:
            self._error = self._error or error
            self._queues.pop(tp, None)

    def _fail_all(self, error: KafkaError) -> None:
        self._error = self._error or error
        self._queues.clear()


_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
