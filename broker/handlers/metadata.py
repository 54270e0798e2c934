"""Metadata (3), versions 0-13.

Behaviour
- one broker, which is leader of everything and the controller
- 0: an empty list asks for all topics; 1+: null does, an empty list asks for none
- an unknown topic is created, before the answer, when both ``auto.create.topics.enable`` and the
  request allow it (0-3 always allow); otherwise UNKNOWN_TOPIC_OR_PARTITION, or
  INVALID_TOPIC_EXCEPTION for an illegal name. Asking for all topics creates nothing
- 7: leader epochs, real ones
- 10: topic ids in answers; 12: a topic may be asked for by id (UNKNOWN_TOPIC_ID), 10-11 ignore ids
- authorized operations: all bits of the resource, since there are no ACLs; only when asked for

Left out: racks, offline replicas (there is one node).
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..metadata import Topic
from ..protocol.messages import MetadataRequest, MetadataResponse
from ..topics import check_topic_name
from ..types import INTERNAL_TOPICS, ZERO_UUID
from .authorized_operations import cluster_operations, topic_operations
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 13

_ResponseTopic = MetadataResponse.MetadataResponseTopic
_ResponsePartition = MetadataResponse.MetadataResponsePartition


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    metadata = context.services.metadata
    address = context.address
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=metadata.node_id, host=address.host, port=address.port
            )
        ],
        cluster_id=metadata.cluster_id,
        controller_id=metadata.node_id,
        topics=_topics(context, request),
        cluster_authorized_operations=cluster_operations(
            request.include_cluster_authorized_operations
        ),
    )


def _topics(context: RequestContext, request: MetadataRequest) -> list[_ResponseTopic]:
    operations = topic_operations(request.include_topic_authorized_operations)
    metadata = context.services.metadata
    if request.topics is None or (context.version == 0 and not request.topics):
        return [_found(context, topic, operations) for topic in metadata.topics.values()]
    may_create = request.allow_auto_topic_creation or context.version < 4
    # A topic that is named twice is answered once, like Kafka.
    distinct = {(asked.name, asked.topic_id): asked for asked in request.topics}
    return [_asked(context, asked, may_create, operations) for asked in distinct.values()]


def _asked(
    context: RequestContext,
    asked: MetadataRequest.MetadataRequestTopic,
    may_create: bool,
    operations: int,
) -> _ResponseTopic:
    services = context.services
    if asked.name is None or (context.version >= 12 and asked.topic_id != ZERO_UUID):
        topic = services.metadata.topic_by_id(asked.topic_id)
        if topic is None:
            return _ResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
            )
        return _found(context, topic, operations)
    topic = services.metadata.topic(asked.name)
    if topic is None:
        try:
            topic = _create(context, asked.name, may_create)
        except KafkaError as error:
            return _ResponseTopic(error_code=error.code, name=asked.name)
    return _found(context, topic, operations)


def _create(context: RequestContext, name: str, may_create: bool) -> Topic:
    services = context.services
    if may_create and services.config.bool("auto.create.topics.enable"):
        return services.topics.auto_create(name)
    check_topic_name(name)
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _found(context: RequestContext, topic: Topic, operations: int) -> _ResponseTopic:
    metadata = context.services.metadata
    node = [metadata.node_id]
    return _ResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _ResponsePartition(
                partition_index=index,
                leader_id=metadata.node_id,
                leader_epoch=metadata.leader_epoch,
                replica_nodes=node,
                isr_nodes=node,
            )
            for index in range(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )
