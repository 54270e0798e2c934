"""AddOffsetsToTxn (25), versions 0-4.

Behaviour
- the partition of ``__consumer_offsets`` that holds the group joins the transaction
- 2: PRODUCER_FENCED; older versions get INVALID_PRODUCER_EPOCH
- late requests on an abandoned connection: as AddPartitionsToTxn
- clients with transactions version 2 do not send it: TxnOffsetCommit 5 does the same
"""

from __future__ import annotations

from ..coordinator.transaction.transaction_coordinator import ConnectionFenced
from ..errors import ProtocolError
from ..protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 4


async def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    try:
        return await context.services.transactions.add_offsets(
            request, context.version, connection_id=context.peer.connection_id
        )
    except ConnectionFenced as error:
        raise ProtocolError("a newer connection speaks for this producer") from error
