"""SyncGroup (14), versions 0-5.

Behaviour
- followers are parked until the leader's assignment is committed
- 3: static members; 5: protocol type and name must be given, are checked and returned
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import SyncGroupRequest, SyncGroupResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 5
FIRST_VERSION_WITH_PROTOCOL = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
    return Deferred(_sync(context, request))


async def _sync(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return await context.services.groups.sync_group(
            request, connection_id=context.peer.connection_id
        )
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
