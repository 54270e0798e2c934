"""TxnOffsetCommit (28), versions 0-5.

Behaviour
- the offsets are pending until the transaction ends; answered when they are committed to the log
- a transaction that ends between that check and the append refuses the offsets (48): nothing may
  hang behind its marker (Kafka's verification guard)
- 3: generation, member and instance are checked (KIP-447)
- below 5 the group's offsets partition must have been added (AddOffsetsToTxn); 5 adds it (KIP-890)
- 4: TRANSACTION_ABORTABLE; older versions get INVALID_TXN_STATE
- topics and partitions that do not exist get 3 each

Left out: topic ids (6).
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..log.producer_state import VerificationGuard
from ..protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ..server.deferred import Deferred
from ..types import CONSUMER_OFFSETS_TOPIC, NO_SEQUENCE, TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 5
FIRST_ADDING_VERSION = 5

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Errors = dict[TopicPartition, ErrorCode]


async def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> Deferred[TxnOffsetCommitResponse] | TxnOffsetCommitResponse:
    asked = request.topics
    if not request.group_id:
        return _response(asked, dict.fromkeys(_partitions(asked), ErrorCode.INVALID_GROUP_ID))
    errors = dict.fromkeys(_partitions(asked), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    request.topics = _existing(context, asked)
    if not request.topics:
        return _response(asked, errors)
    # In the first stage: an EndTxn that follows on this connection must find the partition added.
    offsets = TopicPartition(
        CONSUMER_OFFSETS_TOPIC, context.services.groups.partition_for(request.group_id)
    )
    log = context.services.logs.get(offsets)
    guard = None
    verdict = ErrorCode.NONE
    if log is not None:
        guard = log.verification_guard(request.producer_id, request.producer_epoch, NO_SEQUENCE)
    if log is None or guard is not None:
        verdict = await _verify(context, request, offsets)
    if verdict is not ErrorCode.NONE:
        errors.update(dict.fromkeys(_partitions(request.topics), verdict))
        return _response(asked, errors)
    return Deferred(_commit(context, request, guard, asked, errors))


async def _verify(
    context: RequestContext, request: TxnOffsetCommitRequest, offsets: TopicPartition
) -> ErrorCode:
    verdicts = await context.services.transactions.verify_or_add(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [offsets],
        add=context.version >= FIRST_ADDING_VERSION,
    )
    code = verdicts[offsets]
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < 4:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and context.version < FIRST_ADDING_VERSION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


async def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    guard: VerificationGuard | None,
    asked: list[_Topic],
    errors: _Errors,
) -> TxnOffsetCommitResponse:
    try:
        response = await context.services.groups.txn_commit_offsets(
            request, api_version=context.version, guard=guard
        )
    except KafkaError as error:
        errors.update(dict.fromkeys(_partitions(request.topics), error.code))
    else:
        errors.update(
            (TopicPartition(topic.name, done.partition_index), ErrorCode(done.error_code))
            for topic in response.topics
            for done in topic.partitions
        )
    return _response(asked, errors)


def _response(asked: list[_Topic], errors: _Errors) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


def _existing(context: RequestContext, topics: list[_Topic]) -> list[_Topic]:
    metadata = context.services.metadata
    kept = [
        _Topic(
            name=topic.name,
            partitions=[
                each
                for each in topic.partitions
                if metadata.has_partition(TopicPartition(topic.name, each.partition_index))
            ],
        )
        for topic in topics
    ]
    return [topic for topic in kept if topic.partitions]


def _partitions(topics: list[_Topic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, each.partition_index)
        for topic in topics
        for each in topic.partitions
    ]
