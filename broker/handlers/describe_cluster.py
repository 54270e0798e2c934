"""DescribeCluster (60), versions 0-2.

Behaviour
- the one broker, which is the controller; endpoint type 2 (controllers, 1+) is refused as a Kafka
  broker refuses it: MISMATCHED_ENDPOINT_TYPE does not exist for us, so INVALID_REQUEST
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from .authorized_operations import cluster_operations
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 2
_BROKERS = 1


async def handle(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Only the endpoints of brokers are known here.",
            endpoint_type=request.endpoint_type if context.version >= 1 else _BROKERS,
        )
    metadata, address = context.services.metadata, context.address
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=metadata.node_id, host=address.host, port=address.port
            )
        ],
        cluster_authorized_operations=cluster_operations(
            request.include_cluster_authorized_operations
        ),
    )
