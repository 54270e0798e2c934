"""AlterPartitionReassignments (45), versions 0-1.

Behaviour
- every partition is on the one broker: to put it there is done already (0); any other replicas are
  INVALID_REPLICA_ASSIGNMENT (39), checked as Kafka does: none, not registered, named twice
- null replicas cancel a reassignment: there is never one (85)
- 3 no such topic or partition
- 1: whether the number of replicas may change is echoed; here it cannot
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 1

_Outcome = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        # Kafka's answer to an empty request is its default one, with the empty message.
        error_message=None if request.topics else "",
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(
                        context, TopicPartition(topic.name, each.partition_index), each.replicas
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(context: RequestContext, tp: TopicPartition, replicas: list[int] | None) -> _Outcome:
    try:
        _check(context, tp, replicas)
    except KafkaError as error:
        return _Outcome(
            partition_index=tp.partition, error_code=error.code, error_message=error.message
        )
    return _Outcome(partition_index=tp.partition)


def _check(context: RequestContext, tp: TopicPartition, replicas: list[int] | None) -> None:
    metadata = context.services.metadata
    if metadata.topic(tp.topic) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {tp.topic}."
        )
    if not metadata.has_partition(tp):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {tp.topic}:{tp.partition}.",
        )
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if replicas == [metadata.node_id]:
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"The manual partition assignment includes {_problem(replicas, metadata.node_id)}",
    )


def _problem(replicas: list[int], node_id: int) -> str:
    """What is wrong with replicas that are not just this node; Kafka looks from the lowest on."""
    if not replicas:
        return "an empty replica list."
    if min(replicas) == node_id and replicas.count(node_id) > 1:
        return f"the broker {node_id} more than once."
    stranger = min(broker for broker in replicas if broker != node_id)
    return f"broker {stranger}, but no such broker is registered."
