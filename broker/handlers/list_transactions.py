"""ListTransactions (66), versions 0-2: transactional ids by state, producer id and age.

Left out: the id pattern of version 2 (INVALID_REQUEST): a pattern from the network could hold up
the event loop.
"""

from __future__ import annotations

from ..protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 2


async def handle(
    context: RequestContext, request: ListTransactionsRequest
) -> Deferred[ListTransactionsResponse]:
    return Deferred(context.services.transactions.list_transactions(request))
