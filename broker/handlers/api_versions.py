"""ApiVersions (18), versions 0-4.

Behaviour
- answers what ``registry`` serves; the response header is always version 0
- an unknown version is answered in the layout of version 0 with UNSUPPORTED_VERSION and the range
of
  ApiVersions itself; the client asks again in that range (KIP-511)
- 3: a client software name or version outside Kafka's pattern gets INVALID_REQUEST
- 3: features ``transaction.version`` (0-2) with level 2 finalised: clients that can use KIP-890
  transactions do
- 4: supported features whose minimum is 0 are listed; below 4 old Java clients fail on them
  (KAFKA-17011), so they are left out

Left out: telemetry, share groups, streams groups, KIP-848 (``group.version``).
"""

from __future__ import annotations

import re

from ..errors import ErrorCode
from ..protocol.api import ApiKey
from ..protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 4
TRANSACTION_VERSION = 2
_FEATURES_EPOCH = 1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.match(request.client_software_name)
        and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _answer(context)


def unsupported_version() -> ApiVersionsResponse:
    """The version 0 answer to a version we do not know."""
    own = ApiVersionsResponse.ApiVersion(
        api_key=ApiKey.API_VERSIONS, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def _answer(context: RequestContext) -> ApiVersionsResponse:
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=entry.key,
                min_version=(
                    entry.min_version if entry.advertised_min is None else entry.advertised_min
                ),
                max_version=entry.max_version,
            )
            for entry in context.services.apis.values()
        ]
    )
    if context.version < 3:
        return response
    response.finalized_features_epoch = _FEATURES_EPOCH
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(
            name="transaction.version",
            min_version_level=TRANSACTION_VERSION,
            max_version_level=TRANSACTION_VERSION,
        )
    ]
    if context.version >= 4:
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(
                name="transaction.version", min_version=0, max_version=TRANSACTION_VERSION
            )
        ]
    return response
