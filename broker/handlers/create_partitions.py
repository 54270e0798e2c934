"""CreatePartitions (37), versions 0-3.

Behaviour
- ``count`` is the new total and must be larger (37); assignments name one broker per new partition,
  this one (39); 3 unknown topic, 17 internal, 42 named twice
- validate_only changes nothing
"""

from __future__ import annotations

from collections import Counter

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from ..topics import MAX_PARTITIONS
from ..types import INTERNAL_TOPICS
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 3

_Asked = CreatePartitionsRequest.CreatePartitionsTopic
_Outcome = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    mentions = Counter(asked.name for asked in request.topics)
    outcomes = []
    for name in mentions:
        asked = next(each for each in request.topics if each.name == name)
        try:
            if mentions[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice.")
            _check(context, asked)
        except KafkaError as error:
            outcomes.append(_Outcome(name=name, error_code=error.code, error_message=error.message))
            continue
        if not request.validate_only:
            context.services.topics.add_partitions(name, asked.count)
        outcomes.append(_Outcome(name=name))
    return CreatePartitionsResponse(results=outcomes)


def _check(context: RequestContext, asked: _Asked) -> None:
    topic = context.services.metadata.topic(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, "Groups would change their coordinator partition."
        )
    if not topic.partitions < asked.count <= MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic has {topic.partitions} partitions; {asked.count} is not more (most: "
            f"{MAX_PARTITIONS}).",
        )
    if asked.assignments is None:
        return
    node = [context.services.metadata.node_id]
    added = asked.count - topic.partitions
    if len(asked.assignments) != added or any(a.broker_ids != node for a in asked.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Each of the {added} new partitions must be on broker {node[0]}.",
        )
