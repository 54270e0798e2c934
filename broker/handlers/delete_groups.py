"""DeleteGroups (42), versions 0-2. Per group: 68 it has members, 69 it does not exist."""

from __future__ import annotations

from ..protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 2


async def handle(
    context: RequestContext, request: DeleteGroupsRequest
) -> Deferred[DeleteGroupsResponse]:
    return Deferred(context.services.groups.delete_groups(request))
