"""DeleteRecords (21), versions 0-2.

Behaviour
- the log start offset moves up to ``offset`` (-1: the high watermark); durable before it is
answered - errors per partition: 1 above the high watermark, 3 unknown, 44 the topic is only
compacted
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from ..types import INTERNAL_TOPICS, TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 2

_Outcome = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(context, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    context: RequestContext, topic: str, asked: DeleteRecordsRequest.DeleteRecordsPartition
) -> _Outcome:
    index = asked.partition_index
    log = context.services.logs.get(TopicPartition(topic, index))
    try:
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        start = log.delete_records(log.high_watermark if asked.offset == -1 else asked.offset)
    except KafkaError as error:
        return _Outcome(partition_index=index, low_watermark=-1, error_code=error.code)
    return _Outcome(partition_index=index, low_watermark=start)
