"""ListPartitionReassignments (46), version 0: there is one broker, so nothing is ever moving.

Topics and partitions that do not exist are no error, as in Kafka.
"""

from __future__ import annotations

from ..protocol.messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 0


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
