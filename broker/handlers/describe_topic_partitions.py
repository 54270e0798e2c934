"""DescribeTopicPartitions (75), version 0 (KIP-966).

Behaviour
- topics in name order, all of them when none is named; never creates a topic
- at most ``response_partition_limit`` partitions (and 2000) per answer; ``next_cursor`` names where
  to go on
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..metadata import Topic
from ..protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from ..types import INTERNAL_TOPICS
from .authorized_operations import topic_operations
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 0
MAX_PARTITIONS_PER_ANSWER = 2000

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    metadata = context.services.metadata
    names = sorted({asked.name for asked in request.topics} or metadata.topics)
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS_PER_ANSWER))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if name < first_name:
            continue
        start = first_partition if name == first_name else 0
        topic = metadata.topic(name)
        if topic is None:
            response.topics.append(
                _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
            )
            continue
        if room == 0:
            response.next_cursor = _cursor(name, start)
            break
        described = _describe(context, topic, start, room)
        response.topics.append(described)
        room -= len(described.partitions)
        if start + len(described.partitions) < topic.partitions:
            response.next_cursor = _cursor(name, start + len(described.partitions))
            break
    return response


def _cursor(name: str, partition: int) -> DescribeTopicPartitionsResponse.Cursor:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=partition)


def _describe(context: RequestContext, topic: Topic, start: int, room: int) -> _Topic:
    metadata = context.services.metadata
    node = [metadata.node_id]
    return _Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _Partition(
                partition_index=index,
                leader_id=metadata.node_id,
                leader_epoch=metadata.leader_epoch,
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in range(start, min(topic.partitions, start + room))
        ],
        topic_authorized_operations=topic_operations(True),
    )
