"""OffsetForLeaderEpoch (23), versions 2-4.

Behaviour
- the largest epoch at or below the one asked for and where it ends (KIP-320); -1/-1 when there is
  none; the current leader epoch is checked (74, 75); 3 unknown partition
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ..types import TopicPartition
from .context import RequestContext
from .leader_epoch import check_leader_epoch

MIN_VERSION, MAX_VERSION = 2, 4

_End = OffsetForLeaderEpochResponse.EpochEndOffset


async def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_lookup(context, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _lookup(
    context: RequestContext,
    topic: str,
    asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
) -> _End:
    log = context.services.logs.get(TopicPartition(topic, asked.partition))
    if log is None:
        return _End(partition=asked.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_leader_epoch(asked.current_leader_epoch, log.leader_epoch)
    except KafkaError as error:
        return _End(partition=asked.partition, error_code=error.code)
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return _End(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
