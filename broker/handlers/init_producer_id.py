"""InitProducerId (22), versions 0-5.

Behaviour
- without a transactional id: a new producer id, nothing else is kept
- with one: fences the producer that had it and ends its open transaction first (51 meanwhile)
- 3: producer id and epoch of a producer that recovers itself (KIP-360)
- 4: PRODUCER_FENCED; older versions get INVALID_PRODUCER_EPOCH

Left out: two-phase commit (6, KIP-939).
"""

from __future__ import annotations

from ..protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 5


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    return await context.services.transactions.init_producer_id(request, context.version)
