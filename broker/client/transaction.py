"""The requests of a transactional producer to its coordinator, and what their errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ..types import TopicPartition
from .backoff import Backoff
from .cluster import Client, Coordinator, Target
from .errors import kafka_error
from .group import GroupMetadata
from .offsets import OffsetAndMetadata, by_topic
from .outbox import ProducerIdAndEpoch

# The previous transaction's markers are being written (error 51): that takes milliseconds.
CONCURRENT_TRANSACTIONS_RETRY_MS = (20, 100)
INIT_PRODUCER_ID_MAX_VERSION = 5
KEEP_PRODUCER_ID_VERSION = 3
ADD_PARTITIONS_MAX_VERSION = 3
ADD_OFFSETS_MAX_VERSION = 4
TXN_OFFSET_COMMIT_VERSIONS = {False: (3, 4), True: (5, 5)}
END_TXN_VERSIONS = {False: (0, 4), True: (5, 5)}
PRODUCE_VERSIONS = {False: (None, 11), True: (12, 12)}

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


async def init_producer_id(
    client: Client,
    transactional_id: str | None,
    transaction_timeout_ms: int,
    current: ProducerIdAndEpoch,
    *,
    timeout_ms: int,
    lane: str = "",
) -> ProducerIdAndEpoch:
    """InitProducerId: aborts what is open, fences older producers. ``current`` as in KIP-360.

    Waits while an older transaction is being ended (error 51). Raises KafkaError.
    """
    target: Target = None
    if transactional_id is not None:
        target = Coordinator.transaction(transactional_id)
    response: InitProducerIdResponse = await client.call(
        target,
        InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
        ),
        errors=lambda r: (r.error_code,),
        min_version=KEEP_PRODUCER_ID_VERSION if current.known else None,
        max_version=INIT_PRODUCER_ID_MAX_VERSION,
        timeout_ms=timeout_ms,
        backoff=Backoff(*CONCURRENT_TRANSACTIONS_RETRY_MS, client.rng),
        lane=lane,
    )
    if response.error_code:
        raise kafka_error(response.error_code, f"InitProducerId of {transactional_id!r}")
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


class TransactionRequests:
    """Bound to one transactional id. Every method retries what may be retried, for ``timeout_ms``.

    Raises KafkaError with the code of the answer. ``v2`` is transactions version 2 (KIP-890).
    """

    def __init__(
        self, client: Client, transactional_id: str, timeout_ms: int, lane: str | None = None
    ) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator.transaction(transactional_id)
        self._is_own_lane = lane is None
        self._lane = client.new_lane("transaction") if lane is None else lane
        self._backoff = Backoff(*CONCURRENT_TRANSACTIONS_RETRY_MS, client.rng)
        # A coordinator takes one change of a transaction at a time and answers 51 to the others.
        self._adding = asyncio.Lock()

    def close(self) -> None:
        if self._is_own_lane:
            self._client.close_lane(self._lane)

    async def init(self, current: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        return await init_producer_id(
            self._client,
            self._transactional_id,
            self._timeout_ms,
            current,
            timeout_ms=max(self._timeout_ms, self._client.request_timeout_ms),
            lane=self._lane,
        )

    async def add_partitions(
        self, identity: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """AddPartitionsToTxn (version 1 only)."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        async with self._adding:
            await self._call(
                self._coordinator, request, _add_errors, (0, ADD_PARTITIONS_MAX_VERSION)
            )

    async def add_offsets(self, identity: ProducerIdAndEpoch, group_id: str) -> None:
        """AddOffsetsToTxn (version 1 only)."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        async with self._adding:
            await self._call(
                self._coordinator,
                request,
                lambda response: (response.error_code,),
                (0, ADD_OFFSETS_MAX_VERSION),
            )

    async def commit_offsets(
        self,
        identity: ProducerIdAndEpoch,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        *,
        v2: bool,
    ) -> None:
        """TxnOffsetCommit with the member's generation (KIP-447)."""
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        _offset_of(number, offsets[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(offsets).items()
            ],
        )
        await self._call(
            Coordinator.group(group.group_id),
            request,
            _offset_errors,
            TXN_OFFSET_COMMIT_VERSIONS[v2],
        )

    async def end(
        self, identity: ProducerIdAndEpoch, *, committed: bool, v2: bool
    ) -> ProducerIdAndEpoch:
        """EndTxn; returns who to be in the next transaction.

        Version 2 is repeated when no answer comes: its epoch makes that safe. Version 1 is not: a
        late first copy could end the next transaction (KAFKA-17754).
        """
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )
        response: EndTxnResponse = await self._call(
            self._coordinator,
            request,
            lambda response: (response.error_code,),
            END_TXN_VERSIONS[v2],
            repeat_unanswered=v2,
        )
        if v2 and response.producer_id >= 0:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return identity

    async def _call(
        self,
        target: Coordinator,
        request: Any,
        errors: Any,
        versions: tuple[int, int],
        *,
        repeat_unanswered: bool = True,
    ) -> Any:
        response = await self._client.call(
            target,
            request,
            errors=errors,
            lane=self._lane,
            min_version=versions[0],
            max_version=versions[1],
            timeout_ms=self._timeout_ms,
            backoff=self._backoff,
            repeat_unanswered=repeat_unanswered,
        )
        for code in sorted(errors(response), key=_not_attempted_last):
            if code:
                name = type(request).__name__.removesuffix("Request")
                raise kafka_error(code, f"{name} of {self._transactional_id!r}")
        return response


def _not_attempted_last(code: int) -> bool:
    """Error 55 only says that some other partition of the request failed."""
    return code == ErrorCode.OPERATION_NOT_ATTEMPTED


def _offset_of(
    number: int, offset: OffsetAndMetadata
) -> TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _offset_errors(response: TxnOffsetCommitResponse) -> Iterator[int]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield partition.error_code


def _add_errors(response: AddPartitionsToTxnResponse) -> Iterable[int]:
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield partition.partition_error_code


def is_fenced(error: KafkaError) -> bool:
    """From the transaction coordinator 47 and 90 both mean it (47 is what it was called before)."""
    return error.code in FENCED
