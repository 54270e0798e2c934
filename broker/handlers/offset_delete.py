"""OffsetDelete (47), version 0.

Behaviour
- 86 for topics the group subscribes to, 69 for an unknown group, 68 for one whose members are no
  consumers; deleting what was never committed succeeds, 3 for a partition that does not exist
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from ..server.deferred import Deferred
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 0


async def handle(
    context: RequestContext, request: OffsetDeleteRequest
) -> Deferred[OffsetDeleteResponse]:
    return Deferred(_delete(context, request))


async def _delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    try:
        response = await context.services.groups.delete_offsets(request)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    has_partition = context.services.metadata.has_partition
    for topic in response.topics:
        for each in topic.partitions:
            if not has_partition(TopicPartition(topic.name, each.partition_index)):
                each.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response
