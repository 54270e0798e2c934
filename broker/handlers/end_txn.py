"""EndTxn (26), versions 0-5.

Behaviour
- answered when the decision is committed; the markers follow, so a reader may see it a moment later
- 2: PRODUCER_FENCED; older versions get INVALID_PRODUCER_EPOCH
- 5: transactions version 2 (KIP-890): the epoch rises with every transaction and is in the answer
- below 5, late requests on an abandoned connection: as AddPartitionsToTxn
"""

from __future__ import annotations

from ..coordinator.transaction.transaction_coordinator import ConnectionFenced
from ..errors import ProtocolError
from ..protocol.messages import EndTxnRequest, EndTxnResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    try:
        return await context.services.transactions.end_txn(
            request, context.version, connection_id=context.peer.connection_id
        )
    except ConnectionFenced as error:
        raise ProtocolError("a newer connection speaks for this producer") from error
