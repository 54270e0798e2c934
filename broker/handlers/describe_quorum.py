"""DescribeQuorum (55), versions 0-2.

Behaviour
- the metadata quorum is the one broker: leader, only voter, always caught up; the metadata log ends
  at the number of changes of the metadata document, each of which is durable
- only ``__cluster_metadata`` 0, alone, has a quorum; otherwise everything asked for gets 3, as in
  Kafka
- 1: times; 2: the address of the broker, directory id all zero (as a Kafka with static voters)
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 2
METADATA_TOPIC, METADATA_PARTITION = "__cluster_metadata", 0

_Topic = DescribeQuorumResponse.TopicData
_Partition = DescribeQuorumResponse.PartitionData


async def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if asked == [(METADATA_TOPIC, METADATA_PARTITION)] and len(request.topics) == 1:
        return _quorum(context)
    return DescribeQuorumResponse(
        topics=[
            _Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _Partition(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="This server does not host this topic-partition.",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _quorum(context: RequestContext) -> DescribeQuorumResponse:
    metadata, now_ms = context.services.metadata, context.services.clock()
    voter = DescribeQuorumResponse.ReplicaState(
        replica_id=metadata.node_id,
        log_end_offset=metadata.revision,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = _Partition(
        partition_index=METADATA_PARTITION,
        leader_id=metadata.node_id,
        leader_epoch=metadata.leader_epoch,
        high_watermark=metadata.revision,
        current_voters=[voter],
    )
    response = DescribeQuorumResponse(
        topics=[_Topic(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if context.version >= 2:
        address = context.address
        listener = DescribeQuorumResponse.Listener(
            name="PLAINTEXT", host=address.host, port=address.port
        )
        response.nodes = [
            DescribeQuorumResponse.Node(node_id=metadata.node_id, listeners=[listener])
        ]
    return response
