"""AddPartitionsToTxn (24), versions 0-3.

Behaviour
- all partitions join the transaction or none: with an unknown one (3) the others get 55
- 2: PRODUCER_FENCED; older versions get INVALID_PRODUCER_EPOCH
- a request that arrives late on a connection its client has abandoned is dropped and the connection
  closed (KAFKA-17754)

Left out: 4-5, which only brokers send to each other.
"""

from __future__ import annotations

from ..coordinator.transaction.transaction_coordinator import ConnectionFenced
from ..errors import ProtocolError
from ..protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 3


async def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    try:
        return await context.services.transactions.add_partitions(
            request, context.version, connection_id=context.peer.connection_id
        )
    except ConnectionFenced as error:
        raise ProtocolError("a newer connection speaks for this producer") from error
