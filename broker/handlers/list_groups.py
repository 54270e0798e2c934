"""ListGroups (16), versions 0-5. 4: filter by state; 5: filter by type ("classic")."""

from __future__ import annotations

from ..protocol.messages import ListGroupsRequest, ListGroupsResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 5


async def handle(
    context: RequestContext, request: ListGroupsRequest
) -> Deferred[ListGroupsResponse]:
    return Deferred(context.services.groups.list_groups(request))
