"""ListOffsets (2), versions 1-10.

Behaviour
- timestamp -1: the end that readers of this isolation level see (last stable offset or high
  watermark); -2 and -4 (8+): the log start offset; -3 (7+): the record with the highest timestamp;
  -5 (9+): offset -1, nothing is in tiered storage; other negative ones: UNSUPPORTED_VERSION;
  otherwise the first record at or after the timestamp, offset -1 when none
- 4: current leader epoch in, leader epoch out

Left out: the timeout of version 10 (nothing here waits).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..errors import ErrorCode, KafkaError
from ..log.results import Isolation
from ..protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from ..types import TopicPartition
from .context import RequestContext
from .leader_epoch import check_leader_epoch

MIN_VERSION, MAX_VERSION = 1, 10
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_FIRST_VERSION_OF: Mapping[int, int] = MappingProxyType(
    {_LATEST: 1, _EARLIEST: 1, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
)

_PartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    isolation = Isolation(1 if request.isolation_level == 1 else 0)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _lookup(context, topic.name, asked, isolation) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _is_known(special_timestamp: int, version: int) -> bool:
    return version >= _FIRST_VERSION_OF.get(special_timestamp, MAX_VERSION + 1)


def _lookup(
    context: RequestContext,
    topic: str,
    asked: ListOffsetsRequest.ListOffsetsPartition,
    isolation: Isolation,
) -> _PartitionResponse:
    index = asked.partition_index
    log = context.services.logs.get(TopicPartition(topic, index))
    if log is None:
        return _PartitionResponse(
            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if asked.timestamp < 0 and not _is_known(asked.timestamp, context.version):
        return _PartitionResponse(partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if asked.timestamp == _LATEST_TIERED:
        return _PartitionResponse(partition_index=index)
    timestamp = _EARLIEST if asked.timestamp == _EARLIEST_LOCAL else asked.timestamp
    try:
        check_leader_epoch(asked.current_leader_epoch, log.leader_epoch)
        offset, found_timestamp, epoch = log.offset_for_timestamp(timestamp, isolation)
    except KafkaError as error:
        return _PartitionResponse(partition_index=index, error_code=error.code)
    return _PartitionResponse(
        partition_index=index,
        offset=offset,
        timestamp=found_timestamp,
        leader_epoch=epoch if context.version >= 4 else -1,
    )
