"""``AIOKafkaProducer``: one record at a time in, whole batches out."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Awaitable, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...errors import KafkaError as ClientError
from ...records.codec import partition_keys
from ...types import TopicPartition
from ..errors import NeedsReset
from ..group import GroupMetadata
from ..metadata import TopicInfo
from ..producer import Producer, ProducerState
from .batches import BATCH_OVERHEAD, BatchBuilder, Header, record_size, serialized
from .errors import IllegalOperation, MessageSizeTooLargeError, ProducerClosed, translated
from .lane import Lane, SentFuture
from .options import ProducerOptions, connect, topic_info
from .structs import Offsets, RecordMetadata, validate_offsets

if TYPE_CHECKING:
    from random import Random

DELIVERY_TIMEOUT_MS = 120_000
"""How long an idempotent producer tries; without idempotence it is the request timeout."""

_TO_ABORT = (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE, ProducerState.NEEDS_RESET)


class DefaultPartitioner:
    """Kafka's murmur2 of the key; without a key any partition that has a leader."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def __call__(self, key: bytes | None, every: list[int], available: list[int]) -> int:
        if key is None:
            return self._rng.choice(available or every)
        return every[partition_keys([key], len(every))[0]]


class AIOKafkaProducer:
    """Publishes records. The options are those of ``ProducerOptions``: aiokafka's, by keyword.

    Where aiokafka loses an error this class raises it: a record that could not be sent makes
    ``commit_transaction`` fail, and an abort is possible after every error but ``ProducerFenced``.
    """

    _closed = True

    def __init__(self, **options: Any) -> None:
        self._options = ProducerOptions(**options)
        if self._options.loop is None:
            asyncio.get_running_loop()
        self._client = self._options.new_client()
        self._partitioner = self._options.partitioner or DefaultPartitioner(self._options.random)
        self._lanes: dict[TopicPartition | None, Lane] = {}
        self._ending = False
        self._stopping = False
        self._started = False
        self._closed = False

    def __del__(self) -> None:
        if not self._closed:
            message = f"Unclosed AIOKafkaProducer {self!r}"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    # life

    async def start(self) -> None:
        """Connect; a transactional producer fences its predecessors and aborts what they left.

        Raises KafkaConnectionError when no server answers.
        """
        await connect(self._client)
        self._started = True
        if self._options.transactional_id is not None:
            lane = self._new_lane()
            self._lanes[None] = lane
            await self._translate(lane.producer.init_transactions())

    async def stop(self) -> None:
        """Send what is buffered, abort an open transaction, close the connections. Idempotent."""
        if self._closed:
            return
        self._closed = self._stopping = True
        await self.flush()
        for lane in self._lanes.values():
            if lane.producer.state in _TO_ABORT:
                with contextlib.suppress(ClientError):
                    await self._abort(lane)
            await lane.close()
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # records

    async def partitions_for(self, topic: str) -> set[int]:
        """The topic's partition numbers. Raises UnknownTopicOrPartitionError."""
        return set((await topic_info(self._client, topic)).partitions)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] | None = None,
    ) -> SentFuture:
        """Buffer a record; the future that is returned is done when the broker has it.

        Waits while the partition's batch is full, at most ``request_timeout_ms``, then raises
        KafkaTimeoutError. With ``acks=0`` the future's result is None.
        """
        assert value is not None or key is not None, "a record has a key or a value"
        self._check_open()
        info = await topic_info(self._client, topic)
        self._check_transaction()
        key_bytes = serialized(key, self._options.key_serializer)
        value_bytes = serialized(value, self._options.value_serializer)
        record_headers = tuple(headers or ())
        size = record_size(key_bytes, value_bytes, record_headers)
        if BATCH_OVERHEAD + size > self._options.max_request_size:
            raise MessageSizeTooLargeError(
                f"the record takes {BATCH_OVERHEAD + size} bytes, more than max_request_size "
                f"({self._options.max_request_size})"
            )
        tp = await self._partition(info, partition, key_bytes)
        record = (key_bytes, value_bytes, timestamp_ms, record_headers, size)
        return await self._lane(tp).add(tp, record, self._timeout)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] | None = None,
    ) -> RecordMetadata | None:
        """``send``, and wait until the broker has the record."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """An empty batch to fill, then to hand to ``send_batch``."""
        options = self._options
        return BatchBuilder(
            options.max_batch_size,
            options.clock,
            key_serializer=options.key_serializer,
            value_serializer=options.value_serializer,
        )

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> SentFuture:
        """Queue a filled batch; the future's offset is that of its first record."""
        self._check_open()
        tp = await self._partition(await topic_info(self._client, topic), partition, None)
        self._check_transaction()
        return await self._lane(tp).submit(tp, batch, self._timeout)

    async def flush(self) -> None:
        """Wait until everything sent so far is settled; errors are in the futures."""
        await asyncio.gather(*(lane.drain() for lane in list(self._lanes.values())))

    async def _partition(
        self, info: TopicInfo, partition: int | None, key: bytes | None
    ) -> TopicPartition:
        topic, partitions = info.name, info.partitions
        if partition is None:
            available = [number for number, at in partitions.items() if at.leader >= 0]
            return TopicPartition(topic, self._partitioner(key, sorted(partitions), available))
        if partition not in partitions and partition >= 0:
            await self._translate(self._client.refresh_metadata([topic]))
            partitions = (await topic_info(self._client, topic)).partitions
        assert partition in partitions, f"partition {partition} of {topic} does not exist"
        return TopicPartition(topic, partition)

    @property
    def _timeout(self) -> float:
        return self._options.request_timeout_ms / 1000

    def _lane(self, tp: TopicPartition) -> Lane:
        key = tp if self._options.transactional_id is None else None
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = self._new_lane()
        return lane

    def _new_lane(self) -> Lane:
        options = self._options
        timeout_ms = options.request_timeout_ms
        producer = Producer(
            self._client,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            acks=options.required_acks,
            compression=options.compression_type or "none",
            idempotent=options.idempotent,
            request_timeout_ms=timeout_ms,
            delivery_timeout_ms=max(timeout_ms, DELIVERY_TIMEOUT_MS)
            if options.idempotent
            else timeout_ms,
            max_batch_bytes=max(options.max_batch_size, options.max_request_size),
        )
        new_batch = partial(BatchBuilder, options.max_batch_size, options.clock)
        return Lane(
            producer,
            linger_ms=options.linger_ms,
            new_batch=new_batch,
            admit=self._check_transaction,
        )

    def _check_open(self) -> None:
        if self._stopping or not self._started:
            raise ProducerClosed("the producer is not running")

    def _check_transaction(self) -> None:
        self._check_open()
        if self._options.transactional_id is None:
            return
        state = self._lanes[None].producer.state
        if state in (ProducerState.READY, ProducerState.UNINITIALISED) or self._ending:
            raise IllegalOperation("records can be sent only in a transaction")

    # transactions

    def transaction(self) -> TransactionContext:
        """``async with``: commits at the end, aborts when the body raises."""
        return TransactionContext(self)

    async def begin_transaction(self) -> None:
        """Start a transaction. One whose outcome is unknown is settled first."""
        producer = self._transactional().producer
        if producer.state is ProducerState.NEEDS_RESET:
            await self._translate(producer.reset())
        self._only_in(ProducerState.READY, ProducerState.FENCED, ProducerState.ABORTABLE)
        with _errors_translated():
            producer.begin()

    async def commit_transaction(self) -> None:
        """Send everything, then commit; raises what made one of the records fail, if one did.

        After an error that is not ProducerFenced call ``abort_transaction``. When that error is
        RequestTimedOutError or KafkaConnectionError the outcome is unknown: the transaction may
        have been committed; abort_transaction then settles it one way or the other.
        """
        lane = self._transactional()
        self._only_in(
            ProducerState.IN_TRANSACTION,
            ProducerState.ABORTABLE,
            ProducerState.FENCED,
            ProducerState.NEEDS_RESET,
        )
        await self._end(self._commit(lane))

    async def abort_transaction(self) -> None:
        """Abort; nothing of the transaction becomes visible."""
        lane = self._transactional()
        self._only_in(*_TO_ABORT, ProducerState.FENCED)
        await self._end(self._abort(lane))

    async def _end(self, ending: Awaitable[None]) -> None:
        self._ending = True
        task = asyncio.ensure_future(ending)
        task.add_done_callback(self._on_ended)
        # A caller that is cancelled leaves no transaction half ended.
        await self._translate(asyncio.shield(task))

    def _on_ended(self, task: asyncio.Future[None]) -> None:
        self._ending = False
        if not task.cancelled():
            task.exception()

    async def _commit(self, lane: Lane) -> None:
        await lane.drain()
        await lane.producer.commit()

    async def _abort(self, lane: Lane) -> None:
        await lane.drain()
        if lane.producer.state is not ProducerState.NEEDS_RESET:
            try:
                await lane.producer.abort()
                return
            except NeedsReset:
                pass
        await lane.producer.reset()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_id: str | GroupMetadata
    ) -> None:
        """Commit consumed offsets with the transaction.

        With ``consumer.group_metadata()`` instead of the group's name the broker refuses a consumer
        that does not own its partitions any more (KIP-447).
        """
        producer = self._transactional().producer
        if producer.state in (ProducerState.READY, ProducerState.UNINITIALISED) or self._ending:
            raise IllegalOperation("offsets can be sent only in a transaction")
        group = group_id if isinstance(group_id, GroupMetadata) else None
        if group is None:
            if not group_id or not isinstance(group_id, str):
                raise ValueError(f"{group_id!r} is neither a group's name nor its metadata")
            group = GroupMetadata(group_id)
        await self._translate(producer.send_offsets(validate_offsets(offsets), group))

    @property
    def is_fenced(self) -> bool:
        """Another producer with this transactional id took over: this one can only be stopped."""
        lane = self._lanes.get(None)
        return lane is not None and lane.producer.state is ProducerState.FENCED

    def _transactional(self) -> Lane:
        if self._options.transactional_id is None:
            raise IllegalOperation("transactions need a transactional_id")
        self._check_open()
        return self._lanes[None]

    def _only_in(self, *states: ProducerState) -> None:
        """Where the client itself has an error to raise, the state is among ``states``."""
        state = self._lanes[None].producer.state
        if state not in states or self._ending:
            raise IllegalOperation(f"not possible now: the producer is {state.value}")

    async def _translate(self, call: Awaitable[None]) -> None:
        with _errors_translated():
            await call


@contextlib.contextmanager
def _errors_translated() -> Any:
    try:
        yield
    except ClientError as error:
        raise translated(error) from error


class TransactionContext:
    """What ``transaction()`` returns."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None:
            if not self._producer.is_fenced:
                await self._producer.abort_transaction()
            return
        try:
            await self._producer.commit_transaction()
        except ClientError:
            # The next transaction must find the producer ready; what went wrong is in the error.
            if not self._producer.is_fenced:
                with contextlib.suppress(ClientError):
                    await self._producer.abort_transaction()
            raise
