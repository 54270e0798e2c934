"""DescribeProducers (61), version 0: producers and open transactions of partitions."""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 0

_Outcome = DescribeProducersResponse.PartitionResponse


async def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(context, TopicPartition(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(context: RequestContext, tp: TopicPartition) -> _Outcome:
    log = context.services.logs.get(tp)
    if log is None:
        return _Outcome(
            partition_index=tp.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return _Outcome(
        partition_index=tp.partition,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_start_offset,
            )
            for producer in log.producers()
        ],
    )
