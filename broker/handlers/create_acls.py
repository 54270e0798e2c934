"""CreateAcls (30), versions 1-3.

Behaviour
- there is no authorizer: SECURITY_DISABLED (54) for each ACL, as Kafka without one
- a code of 0 (unknown) in any place cannot be parsed: the connection is closed, as Kafka does

Left out: ACLs.
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import CreateAclsRequest, CreateAclsResponse
from .context import RequestContext
from .describe_acls import check_known

MIN_VERSION, MAX_VERSION = 1, 3


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for asked in request.creations:
        check_known(
            asked.resource_type,
            asked.resource_pattern_type,
            asked.operation,
            asked.permission_type,
        )
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
            )
            for _ in request.creations
        ]
    )
