"""FindCoordinator (10), versions 0-6.

Behaviour
- this broker is every group's and every transactional id's coordinator; the internal topics exist
  from the first start on, so there is no "not available yet"
- 1: key type 0 group, 1 transactional id; others INVALID_REQUEST
- 4: several keys at once, the single-key fields stay empty
- 5: no new error can come from here

Left out: share groups (6, key type 2).
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 6
_KEY_TYPES = (0, 1)
_UNKNOWN_TYPE = "The key type is not known to this broker."


async def handle(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    address, node_id = context.address, context.services.metadata.node_id
    known = request.key_type in _KEY_TYPES
    error = ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST
    message = None if known else _UNKNOWN_TYPE
    if context.version < 4:
        return FindCoordinatorResponse(
            error_code=error,
            error_message=message,
            node_id=node_id if known else -1,
            host=address.host if known else "",
            port=address.port if known else -1,
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=node_id if known else -1,
                host=address.host if known else "",
                port=address.port if known else -1,
                error_code=error,
                error_message=message,
            )
            for key in request.coordinator_keys
        ]
    )
