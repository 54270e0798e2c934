"""ElectLeaders (43), versions 0-2.

Behaviour
- the one broker leads every partition and is its preferred replica: ELECTION_NOT_NEEDED (84) for
  what exists, 3 for what does not; both kinds of election
- null asks for all partitions: each topic is named, with no partition, because Kafka tells only of
  elections that were needed
- another kind of election: 42, at the top and for every partition asked for
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from ..types import TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 2
PREFERRED, UNCLEAN = 0, 1

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Outcome = ElectLeadersResponse.PartitionResult


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    metadata = context.services.metadata
    is_known = request.election_type in (PREFERRED, UNCLEAN)
    response = ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    )
    if request.topic_partitions is None:
        if is_known:
            response.replica_election_results = [_Topic(topic=name) for name in metadata.topics]
        return response
    response.replica_election_results = [
        _Topic(
            topic=asked.topic,
            partition_result=[
                _elect(context, request.election_type, TopicPartition(asked.topic, index))
                for index in asked.partitions
            ],
        )
        for asked in request.topic_partitions
    ]
    return response


def _elect(context: RequestContext, election_type: int, tp: TopicPartition) -> _Outcome:
    metadata = context.services.metadata
    if election_type not in (PREFERRED, UNCLEAN):
        code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    elif metadata.topic(tp.topic) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {tp.topic}"
    elif not metadata.has_partition(tp):
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {tp}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        message = "Leader election not needed for topic partition."
    return _Outcome(partition_id=tp.partition, error_code=code, error_message=message)
