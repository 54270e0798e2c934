"""What ListTransactions and DescribeTransactions show of a shard. Pure."""

from __future__ import annotations

from collections.abc import Callable, Set

from ...errors import ErrorCode
from ...protocol.messages.transaction import (
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...types import TopicPartition
from .records import by_topic
from .transaction_metadata import NO_TIMESTAMP, TransactionMetadata
from .transaction_shard import TransactionShard
from .transaction_state import TransactionState


def empty_listing(request: ListTransactionsRequest) -> ListTransactionsResponse:
    """A response without transactions that names the state filters nobody knows."""
    known = {state.title for state in TransactionState}
    return ListTransactionsResponse(
        unknown_state_filters=[title for title in request.state_filters if title not in known]
    )


def matching(
    shard: TransactionShard, request: ListTransactionsRequest, now_ms: int
) -> list[ListTransactionsResponse.TransactionState]:
    """The shard's transactional ids that pass every filter, in order of their ids."""
    return [
        ListTransactionsResponse.TransactionState(
            transactional_id=transactional_id,
            producer_id=metadata.producer_id,
            transaction_state=metadata.state.title,
        )
        for transactional_id, metadata in sorted(shard.transactions.items())
        if _matches(metadata, request, now_ms)
    ]


def _matches(metadata: TransactionMetadata, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and metadata.state.title not in request.state_filters:
        return False
    if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    # KIP-994: started longer ago than this. An id without a transaction has not started.
    started = metadata.start_ms != NO_TIMESTAMP
    return started and now_ms - metadata.start_ms > request.duration_filter


def described(
    shard: TransactionShard,
    transactional_id: str,
    lacking_marker: Callable[[TransactionMetadata], Set[TopicPartition]],
) -> DescribeTransactionsResponse.TransactionState:
    """One id; 42 for an empty one, 105 for one that is not known."""
    metadata = shard.get(transactional_id)
    if metadata is None:
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribeTransactionsResponse.TransactionState(
            error_code=missing if transactional_id else ErrorCode.INVALID_REQUEST,
            transactional_id=transactional_id,
        )
    partitions: Set[TopicPartition] = metadata.partitions
    if metadata.state.is_prepared:
        partitions = lacking_marker(metadata)
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ],
    )
