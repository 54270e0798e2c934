"""DeleteAcls (31), versions 1-3.

Behaviour
- there is no authorizer: SECURITY_DISABLED (54) for each filter, as Kafka without one
- a code of 0 (unknown) in any place cannot be parsed: the connection is closed, as Kafka does

Left out: ACLs.
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import DeleteAclsRequest, DeleteAclsResponse
from .context import RequestContext
from .describe_acls import check_known

MIN_VERSION, MAX_VERSION = 1, 3


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for asked in request.filters:
        check_known(
            asked.resource_type_filter,
            asked.pattern_type_filter,
            asked.operation,
            asked.permission_type,
        )
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
            )
            for _ in request.filters
        ]
    )
