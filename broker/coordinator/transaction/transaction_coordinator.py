"""The transaction coordinator as the handlers see it: protocol messages in, protocol messages out.

It picks the log partition, runs the shard's operation through the runtime and maps error codes to
what the version of the request knows. A reply leaves once every record it rests on is committed.

Left out: AddPartitionsToTxn v4+ (between brokers only), two-phase commit (InitProducerId v6), the
id pattern of ListTransactions v2 (a pattern from the network can hold up the event loop).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from ...errors import ErrorCode, KafkaError
from ...protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...types import (
    CONSUMER_OFFSETS_TOPIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_STATE_TOPIC,
    Clock,
    TopicPartition,
)
from ..log_writer import LogWriter
from ..result import DomainEffect, ProducerIdAndEpoch, Result, Token
from ..runtime import CoordinatorRuntime, PartitionState
from . import transaction_listing
from .config import TransactionConfig
from .marker_writer import Completion, GroupTransactions, MarkerSink, MarkerWriter
from .producer_ids import ProducerIds
from .transaction_metadata import TRANSACTION_VERSION_1, TRANSACTION_VERSION_2
from .transaction_shard import ProducerAnswer, SendMarkers, TransactionShard

__all__ = ["ConnectionFenced", "TransactionConfig", "TransactionCoordinator"]

R = TypeVar("R")
Operation = Callable[[TransactionShard, int, Token], Result[R]]

RETRY_INTERVAL_S = 0.02

_FIRST_VERSION_WITH_PRODUCER_FENCED = 2
_FIRST_INIT_VERSION_WITH_PRODUCER_FENCED = 4
_FIRST_END_VERSION_OF_TRANSACTIONS_V2 = 5


class ConnectionFenced(Exception):
    """A newer connection speaks for this producer: close this one without an answer."""


class TransactionCoordinator:
    """Coordinator of every transactional id of this broker.

    writer: the log of ``__transaction_state``.
    sink, groups: where markers go. partition_exists: for data partitions.
    coordinator_epoch: grows with every start of the broker; fences markers of an earlier one.
    on_failure: receives the exception of anything that broke (a bug of ours).
    """

    def __init__(
        self,
        *,
        writer: LogWriter,
        producer_ids: ProducerIds,
        sink: MarkerSink,
        groups: GroupTransactions,
        partition_exists: Callable[[TopicPartition], bool],
        coordinator_epoch: int,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
        config: TransactionConfig | None = None,
    ) -> None:
        self._config = config or TransactionConfig()
        self._clock = clock
        self._producer_ids = producer_ids
        self._groups = groups
        self._partition_exists = partition_exists
        self._shards: list[TransactionShard] = []
        self._completed: dict[str, asyncio.Event] = {}
        self._markers = MarkerWriter(
            sink=sink,
            groups=groups,
            partition_exists=partition_exists,
            coordinator_epoch=coordinator_epoch,
            on_written=self._write_complete,
            on_failure=on_failure,
        )
        self._runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            topic=TRANSACTION_STATE_TOPIC,
            partitions=self._config.partitions,
            writer=writer,
            shard_factory=self._new_shard,
            clock=clock,
            on_effect=self._on_effect,
            on_failure=on_failure,
        )

    async def start(self) -> None:
        """Load the log, then finish what it says is decided; returns when it is loaded."""
        await self._runtime.start()

    async def stop(self) -> None:
        """Stop serving. Markers under way are given up: the next start writes them."""
        await self._runtime.stop()
        await self._markers.stop()

    def partition_for(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` that owns the id."""
        return self._runtime.partition_for(transactional_id)

    # --- requests ---------------------------------------------------------------------------------

    async def init_producer_id(
        self, request: InitProducerIdRequest, api_version: int
    ) -> InitProducerIdResponse:
        """A producer id and epoch; without a transactional id any new id will do."""
        answer = await self._init_producer_id(request)
        error = answer.error
        if api_version < _FIRST_INIT_VERSION_WITH_PRODUCER_FENCED:
            error = _without_producer_fenced(error)
        return InitProducerIdResponse(
            error_code=error,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        )

    async def add_partitions(
        self,
        request: AddPartitionsToTxnRequest,
        api_version: int,
        *,
        connection_id: int | None = None,
    ) -> AddPartitionsToTxnResponse:
        """AddPartitionsToTxn v0-3: all partitions or none. Raises ``ConnectionFenced``."""
        partitions = [
            TopicPartition(topic.name, index)
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        ]
        unknown = {tp for tp in partitions if not self._partition_exists(tp)}
        if unknown:
            errors = {
                tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if tp in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED
                for tp in partitions
            }
        else:
            error = await self._add(
                request.v3_and_below_transactional_id,
                ProducerIdAndEpoch(
                    request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
                ),
                partitions,
                TRANSACTION_VERSION_1,
                connection_id,
            )
            errors = dict.fromkeys(partitions, _known_to(api_version, error))
        return _add_partitions_response(request, errors)

    async def add_offsets(
        self,
        request: AddOffsetsToTxnRequest,
        api_version: int,
        *,
        connection_id: int | None = None,
    ) -> AddOffsetsToTxnResponse:
        """Put the group's offsets partition into the transaction. Raises ``ConnectionFenced``."""
        offsets = TopicPartition(
            CONSUMER_OFFSETS_TOPIC, self._groups.partition_for(request.group_id)
        )
        error = await self._add(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [offsets],
            TRANSACTION_VERSION_1,
            connection_id,
        )
        return AddOffsetsToTxnResponse(error_code=_known_to(api_version, error))

    async def end_txn(
        self, request: EndTxnRequest, api_version: int, *, connection_id: int | None = None
    ) -> EndTxnResponse:
        """Commit or abort. v5 is transactions version 2: the answer has the next epoch.

        Raises ``ConnectionFenced`` (v0-4 only).
        """
        is_v2 = api_version >= _FIRST_END_VERSION_OF_TRANSACTIONS_V2
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

        def operation(
            shard: TransactionShard, now_ms: int, _token: Token
        ) -> Result[ProducerAnswer]:
            return shard.end_transaction(
                request.transactional_id,
                producer,
                commit=request.committed,
                client_version=TRANSACTION_VERSION_2 if is_v2 else TRANSACTION_VERSION_1,
                now_ms=now_ms,
            )

        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            answer = await self._write(
                request.transactional_id,
                operation,
                producer=producer,
                connection_id=None if is_v2 else connection_id,
            )
        except KafkaError as error:
            answer = ProducerAnswer(error.code)
        response = EndTxnResponse(error_code=_known_to(api_version, answer.error))
        if is_v2:
            response.producer_id = answer.producer_id
            response.producer_epoch = answer.producer_epoch
        return response

    async def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """For Produce and TxnOffsetCommit: may this producer write to these partitions now?

        add: transactions version 2, the partitions join the transaction by being written to; when
        this returns NONE for them that is committed. Otherwise version 1: they must be in it. The
        codes are the coordinator's own: 49, 51, 90, 120, 14, 15, 16.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        if add:
            error = await self._add(
                transactional_id, producer, partitions, TRANSACTION_VERSION_2, None
            )
            return dict.fromkeys(partitions, error)

        def operation(
            shard: TransactionShard, _now_ms: int, _token: Token
        ) -> Result[dict[TopicPartition, ErrorCode]]:
            return shard.verify_partitions(transactional_id, producer, partitions)

        try:
            return await self._write(transactional_id, operation)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)

    async def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """Transactional ids that pass every filter of the request."""
        if request.transactional_id_pattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        response = transaction_listing.empty_listing(request)
        for partition in range(self._runtime.partitions):
            try:
                response.transaction_states += await self._runtime.read(
                    partition,
                    lambda shard, now_ms: transaction_listing.matching(shard, request, now_ms),
                )
            except KafkaError as error:
                return ListTransactionsResponse(error_code=error.code)
        return response

    async def describe_transactions(
        self, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """One state per requested id; partitions that already have their marker are left out."""
        return DescribeTransactionsResponse(
            transaction_states=[
                await self._describe(transactional_id)
                for transactional_id in request.transactional_ids
            ]
        )

    # --- operations -------------------------------------------------------------------------------

    async def _init_producer_id(self, request: InitProducerIdRequest) -> ProducerAnswer:
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
        transactional_id = request.transactional_id
        if has_id != has_epoch or transactional_id == "":
            return ProducerAnswer(ErrorCode.INVALID_REQUEST)
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        fenced_now = False

        def operation(
            shard: TransactionShard, now_ms: int, _token: Token
        ) -> Result[ProducerAnswer]:
            nonlocal fenced_now
            result = shard.init_producer_id(
                str(transactional_id),
                request.transaction_timeout_ms,
                expected if has_id else None,
                now_ms,
            )
            fenced_now = bool(result.records)
            return result

        async def attempt() -> ProducerAnswer:
            return await self._write(str(transactional_id), operation)

        def is_busy(answer: ProducerAnswer) -> bool:
            return answer.error is ErrorCode.CONCURRENT_TRANSACTIONS and not fenced_now

        try:
            if transactional_id is None:
                return ProducerAnswer(ErrorCode.NONE, self._producer_ids.next(), 0)
            return await self._retry_while_busy(transactional_id, attempt, is_busy)
        except KafkaError as error:
            return ProducerAnswer(error.code)

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        connection_id: int | None,
    ) -> ErrorCode:
        def operation(shard: TransactionShard, now_ms: int, _token: Token) -> Result[ErrorCode]:
            return shard.add_partitions(
                transactional_id, producer, partitions, client_version, now_ms
            )

        async def attempt() -> ErrorCode:
            return await self._write(
                transactional_id, operation, producer=producer, connection_id=connection_id
            )

        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        try:
            return await self._retry_while_busy(
                transactional_id,
                attempt,
                lambda error: error is ErrorCode.CONCURRENT_TRANSACTIONS,
            )
        except KafkaError as error:
            return error.code

    async def _describe(
        self, transactional_id: str
    ) -> DescribeTransactionsResponse.TransactionState:
        try:
            return await self._runtime.read(
                self.partition_for(transactional_id),
                lambda shard, _now_ms: transaction_listing.described(
                    shard, transactional_id, self._markers.remaining
                ),
            )
        except KafkaError as error:
            return DescribeTransactionsResponse.TransactionState(
                error_code=error.code, transactional_id=transactional_id
            )

    # --- plumbing ---------------------------------------------------------------------------------

    def _new_shard(self, partition: int) -> TransactionShard:
        shard = TransactionShard(config=self._config, next_producer_id=self._producer_ids.next)
        self._shards.append(shard)
        return shard

    async def _write(
        self,
        transactional_id: str,
        operation: Operation[R],
        *,
        producer: ProducerIdAndEpoch | None = None,
        connection_id: int | None = None,
    ) -> R:
        """Run the operation unless a newer connection speaks for ``producer``, in one step."""
        fenced = False

        def guarded(shard: TransactionShard, now_ms: int, token: Token) -> Result[R]:
            nonlocal fenced
            if producer is not None and connection_id is not None:
                fenced = not shard.admits_connection(transactional_id, producer, connection_id)
            return Result() if fenced else operation(shard, now_ms, token)

        response = await self._runtime.write(self.partition_for(transactional_id), guarded)
        if fenced:
            raise ConnectionFenced(transactional_id)
        return response

    async def _retry_while_busy(
        self,
        transactional_id: str,
        attempt: Callable[[], Awaitable[R]],
        is_busy: Callable[[R], bool],
    ) -> R:
        """Repeat a request that met the previous transaction's markers, for a bounded time.

        Markers take about one flush. Answering 51 at once would cost the client its retry back-off
        at the start of every transaction.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.busy_wait_ms / 1000
        while True:
            response = await attempt()
            remaining_s = deadline - loop.time()
            if not is_busy(response) or remaining_s <= 0:
                return response
            completed = self._completed.setdefault(transactional_id, asyncio.Event())
            try:
                async with asyncio.timeout(min(RETRY_INTERVAL_S, remaining_s)):
                    await completed.wait()
            except TimeoutError:
                continue

    def _on_effect(self, partition: int, effect: DomainEffect) -> None:
        """The Prepare record is committed: from here on the outcome stands."""
        if not isinstance(effect, SendMarkers):
            raise TypeError(f"unknown effect {effect}")
        prepared = self._shards[partition].get(effect.transactional_id)
        if prepared is not None and prepared.state.is_prepared:
            self._markers.send(partition, prepared)

    def _write_complete(self, completion: Completion) -> None:
        prepared = completion.prepared
        try:
            self._runtime.submit(
                completion.partition,
                lambda shard, now_ms, _token: shard.complete(prepared, now_ms),
            )
        except KafkaError as error:
            if self._runtime.state(completion.partition) is not PartitionState.ACTIVE:
                raise
            # The log refused it (a full disk, say), and there is nobody else who would do it.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        completed = self._completed.pop(prepared.transactional_id, None)
        if completed is not None:
            completed.set()


def _without_producer_fenced(error: ErrorCode) -> ErrorCode:
    """For versions older than PRODUCER_FENCED (KIP-588)."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def _known_to(api_version: int, error: ErrorCode) -> ErrorCode:
    """The code as the given version of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn knows it."""
    if api_version < _FIRST_VERSION_WITH_PRODUCER_FENCED:
        return _without_producer_fenced(error)
    return error


def _add_partitions_response(
    request: AddPartitionsToTxnRequest, errors: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=errors[TopicPartition(topic.name, index)],
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
