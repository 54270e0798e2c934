"""AlterReplicaLogDirs (34), versions 1-2.

Behaviour
- there is one data directory: to move a replica there is done already (0); any other path, also
  another spelling of this one, is LOG_DIR_NOT_FOUND (57); 3 no such partition
- a partition that is asked for twice goes where the last one says

Left out: several data directories.
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 1, 2

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Outcome = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


async def handle(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    asked = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, _Topic] = {}
    for tp, path in asked.items():
        result = topics.setdefault(tp.topic, _Topic(topic_name=tp.topic))
        result.partitions.append(
            _Outcome(partition_index=tp.partition, error_code=_move(context, tp, path))
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(context: RequestContext, tp: TopicPartition, path: str) -> ErrorCode:
    services = context.services
    if path != services.data_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if services.logs.get(tp) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
