"""WriteTxnMarkers (27), version 1: an administrator ends a hanging transaction by hand.

Behaviour
- writes the marker to each partition, durable before it is answered; errors per partition: 3, 47
  stale epoch, 52 stale coordinator epoch
- the transaction coordinator does not learn of it, as in Kafka; its own markers go a shorter way

Left out: version 2 (transaction version per marker).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ..server.deferred import Deferred
from ..types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 1, 1

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


async def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> Deferred[WriteTxnMarkersResponse]:
    return Deferred(_write_all(context, request))


async def _write_all(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[await _write_topic(context, marker, topic) for topic in marker.topics],
            )
            for marker in request.markers
        ]
    )


async def _write_topic(
    context: RequestContext, marker: _Marker, topic: _Topic
) -> WriteTxnMarkersResponse.WritableTxnMarkerTopicResult:
    result = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name)
    for index in topic.partition_indexes:
        code = ErrorCode.NONE
        try:
            await _write(context, marker, TopicPartition(topic.name, index))
        except KafkaError as error:
            code = error.code
        result.partitions.append(
            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                partition_index=index, error_code=code
            )
        )
    return result


async def _write(context: RequestContext, marker: _Marker, tp: TopicPartition) -> None:
    services = context.services
    if tp.topic == CONSUMER_OFFSETS_TOPIC and services.metadata.has_partition(tp):
        write: Callable[..., Awaitable[None]] = partial(
            services.groups.complete_transaction, tp.partition
        )
    else:
        write = partial(services.markers.write_marker, tp)
    await write(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        commit=marker.transaction_result,
        transaction_version=0,
    )
