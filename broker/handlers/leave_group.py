"""LeaveGroup (13), versions 0-5. 3: several members at once, static ones by their instance id."""

from __future__ import annotations

from ..errors import KafkaError
from ..protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 5


async def handle(
    context: RequestContext, request: LeaveGroupRequest
) -> Deferred[LeaveGroupResponse]:
    return Deferred(_leave(context, request))


async def _leave(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    try:
        return await context.services.groups.leave_group(request, api_version=context.version)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
