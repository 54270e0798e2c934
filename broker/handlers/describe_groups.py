"""DescribeGroups (15), versions 0-6.

Behaviour
- state, protocol and members with their bytes untouched
- an unknown group is Dead; 6: with GROUP_ID_NOT_FOUND
- 3: authorized operations when asked for
"""

from __future__ import annotations

from ..protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from ..server.deferred import Deferred
from .authorized_operations import group_operations
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 6


async def handle(
    context: RequestContext, request: DescribeGroupsRequest
) -> Deferred[DescribeGroupsResponse]:
    return Deferred(_describe(context, request))


async def _describe(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    response = await context.services.groups.describe_groups(request, api_version=context.version)
    for group in response.groups:
        group.authorized_operations = group_operations(request.include_authorized_operations)
    return response
