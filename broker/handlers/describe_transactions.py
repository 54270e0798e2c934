"""DescribeTransactions (65), version 0: state and open partitions of transactional ids."""

from __future__ import annotations

from ..protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from ..server.deferred import Deferred
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 0, 0


async def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> Deferred[DescribeTransactionsResponse]:
    return Deferred(context.services.transactions.describe_transactions(request))
