"""OffsetCommit (8), versions 2-9.

Behaviour
- answered when the offsets are committed; topics and partitions that do not exist get 3 each, the
  rest is committed
- 7: static members; 9: the errors of KIP-848 groups

Left out: retention time of versions 2-4 (the broker's setting holds), topic ids (10).
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from ..server.deferred import Deferred
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 2, 9

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic


async def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> Deferred[OffsetCommitResponse]:
    return Deferred(_commit(context, request))


async def _commit(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    asked = request.topics
    errors = {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in asked
        for partition in topic.partitions
    }
    request.topics = _existing(context, asked)
    if request.topics or not asked:
        try:
            response = await context.services.groups.commit_offsets(
                request, api_version=context.version
            )
        except KafkaError as error:
            errors.update(dict.fromkeys(_partitions(request.topics), error.code))
        else:
            errors.update(
                (TopicPartition(topic.name, done.partition_index), ErrorCode(done.error_code))
                for topic in response.topics
                for done in topic.partitions
            )
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
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
