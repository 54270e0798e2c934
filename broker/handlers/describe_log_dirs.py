"""DescribeLogDirs (35), versions 1-4.

Behaviour
- the one data directory with the size of each partition asked for; null asks for all

Left out: total and usable bytes of the volume (4), reported as unknown (-1).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 1, 4


async def handle(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    services = context.services
    asked: Iterable[TopicPartition] = (
        [log.tp for log in services.logs.logs()]
        if request.topics is None
        else [
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        ]
    )
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for tp in asked:
        log = services.logs.get(tp)
        if log is None:
            continue
        entry = topics.setdefault(
            tp.topic, DescribeLogDirsResponse.DescribeLogDirsTopic(name=tp.topic)
        )
        entry.partitions.append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=tp.partition, partition_size=log.size_bytes
            )
        )
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponse.DescribeLogDirsResult(
                log_dir=services.data_dir, topics=list(topics.values())
            )
        ]
    )
