"""ListConfigResources (74), versions 0-1 (KIP-1142).

Behaviour
- what DescribeConfigs can be asked about: this broker (4) and every topic (2)
- 0: was ListClientMetricsResources; there are none
- 1: only the types asked for; none means all; client metrics (16), groups (32) and a broker's
  loggers (8) have no settings of their own here; any other type is UNSUPPORTED_VERSION (35)

Left out: loggers, which Kafka lists for each broker.
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from .context import RequestContext
from .describe_configs import BROKER, TOPIC

MIN_VERSION, MAX_VERSION = 0, 1
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
_TYPES = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


async def handle(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if context.version == 0:
        return ListConfigResourcesResponse()
    asked = frozenset(request.resource_types) or _TYPES
    if not asked <= _TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    metadata = context.services.metadata
    named = [(BROKER, str(metadata.node_id)), *((TOPIC, name) for name in sorted(metadata.topics))]
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in named
            if kind in asked
        ]
    )
