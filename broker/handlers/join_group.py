"""JoinGroup (11), versions 0-9.

Behaviour
- the answer is parked until the rebalance ends; other requests of the connection go on
- 4: a new member first gets an id (MEMBER_ID_REQUIRED); 5: static members; 9: a static leader that
  returns unchanged is told to keep its assignment
- tag 10000 (6+, ours): how long after its last connection closed the member may be taken for dead

Left out: nothing of the classic protocol.
"""

from __future__ import annotations

from ..errors import KafkaError
from ..protocol.messages import JoinGroupRequest, JoinGroupResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 9


async def handle(context: RequestContext, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
    return Deferred(_join(context, request))


async def _join(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        return await context.services.groups.join_group(
            request,
            client_id=context.client_id,
            client_host=f"/{context.peer.host}",
            api_version=context.version,
            connection_id=context.peer.connection_id,
        )
    except KafkaError as error:
        return JoinGroupResponse(
            error_code=error.code,
            member_id=request.member_id,
            protocol_name=None if context.version >= 7 else "",
        )
