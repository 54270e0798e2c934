"""Heartbeat (12), versions 0-4. 3: static members."""

from __future__ import annotations

from ..errors import KafkaError
from ..protocol.messages import HeartbeatRequest, HeartbeatResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 4


async def handle(context: RequestContext, request: HeartbeatRequest) -> Deferred[HeartbeatResponse]:
    return Deferred(_beat(context, request))


async def _beat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        return await context.services.groups.heartbeat(
            request, connection_id=context.peer.connection_id
        )
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
