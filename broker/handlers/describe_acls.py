"""DescribeAcls (29), versions 1-3.

Behaviour
- there is no authorizer: SECURITY_DISABLED (54), as Kafka without one
- a code of 0 (unknown) in any place cannot be parsed: the connection is closed, as Kafka does

Left out: ACLs.
"""

from __future__ import annotations

from ..errors import ErrorCode, ProtocolError
from ..protocol.messages import DescribeAclsRequest, DescribeAclsResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 1, 3
UNKNOWN = 0
"""In Kafka's enums of resource types, pattern types, operations and permission types."""


async def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_known(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )


def check_known(*codes: int) -> None:
    """Raises ProtocolError when one of the codes is UNKNOWN."""
    if UNKNOWN in codes:
        raise ProtocolError("an ACL or a filter of ACLs has an unknown type or operation")
