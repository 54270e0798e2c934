"""OffsetFetch (9), versions 1-9.

Behaviour
- null topics (2+) means all; offset -1 where nothing was committed
- 2-7: an error of the whole group stands at the top and in every partition asked for, because
aiokafka
  looks only there and would else start from nothing; 15 becomes 14, which it retries
- 7: require_stable: UNSTABLE_OFFSET_COMMIT for a partition whose offset a transaction decides
- 8: several groups

Left out: member id and epoch of KIP-848 groups (9, ignored), topic ids (10).
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 1, 9
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_GROUP_ERROR = 2

_Group = OffsetFetchResponse.OffsetFetchResponseGroup


async def handle(
    context: RequestContext, request: OffsetFetchRequest
) -> Deferred[OffsetFetchResponse]:
    if context.version >= _FIRST_WITH_GROUPS:
        return Deferred(_groups(context, request))
    return Deferred(_one_group(context, request))


async def _groups(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    groups: list[_Group] = []
    for asked in request.groups:
        try:
            group = await context.services.groups.fetch_offsets(
                asked.group_id, asked.topics, request.require_stable
            )
        except KafkaError as error:
            group = _Group(group_id=asked.group_id, error_code=error.code)
        groups.append(group)
    return OffsetFetchResponse(groups=groups)


async def _one_group(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    try:
        group = await context.services.groups.fetch_offsets(
            request.group_id, request.topics, request.require_stable
        )
    except KafkaError as error:
        return _refused(context, request, error.code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )


def _refused(
    context: RequestContext, request: OffsetFetchRequest, code: ErrorCode
) -> OffsetFetchResponse:
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    has_group_error = context.version >= _FIRST_WITH_GROUP_ERROR
    return OffsetFetchResponse(
        error_code=code if has_group_error else ErrorCode.NONE,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
