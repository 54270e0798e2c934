"""Produce (0), versions 3-13 (0-2 are announced and refused, as Kafka does: KAFKA-18659).

Behaviour
- one record batch per partition; validation, sequences and epochs are ``PartitionLog.append``'s
- acks=1 and acks=-1 both answer when the records are flushed (committed = flushed); acks=0 answers
  nothing and closes the connection when something failed
- a flush that takes longer than the request's timeout answers REQUEST_TIMED_OUT; the records are in
  the log and a retry of an idempotent producer finds them
- transactional batches: the first one of a producer on a partition asks the transaction
coordinator.
  Below version 12 the partition must have been added (AddPartitionsToTxn), from 12 on this adds it
  (KIP-890). Later batches of the same transaction find it open in the log and ask nobody
- never UNKNOWN_SERVER_ERROR: after a possible append Java would send again with a new epoch
- internal topics are refused except for ``__admin_client``
- 7: zstd allowed; 8: error message per partition; 13: topics by id

Left out: record_errors (the whole batch is refused with one message), quotas, KIP-951 leader hints.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ErrorCode, KafkaError, ProtocolError
from ..log.partition_log import PartitionLog
from ..log.producer_state import VerificationGuard
from ..log.results import AppendResult
from ..protocol.messages import ProduceRequest, ProduceResponse
from ..records.batch import BatchHeader, read_header
from ..records.compression import Compression
from ..server.deferred import Deferred
from ..types import INTERNAL_TOPICS, Buffer, TopicPartition
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 3, 13
ADVERTISED_MIN_VERSION = 0
FIRST_ADDING_VERSION = 12
"""From here on a transactional Produce adds its partitions to the transaction itself."""
_ADMIN_CLIENT = "__admin_client"
_PartitionResponse = ProduceResponse.PartitionProduceResponse


@dataclass(slots=True)
class _Append:
    """One partition of the request on its way: ``error`` or ``result`` ends it."""

    tp: TopicPartition
    batch: Buffer
    log: PartitionLog | None = None
    header: BatchHeader | None = None
    guard: VerificationGuard | None = None
    result: AppendResult | None = None
    error: KafkaError | None = None

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.error = KafkaError(code, message)


async def handle(
    context: RequestContext, request: ProduceRequest
) -> Deferred[ProduceResponse] | ProduceResponse | None:
    topics = [
        [_begin(context, request, topic, data) for data in topic.partition_data]
        for topic in request.topic_data
    ]
    appends = [append for partitions in topics for append in partitions]
    await _verify_transaction(context, request, appends)
    for append in appends:
        _append(context, append)
    if request.acks == 0:
        failed = [append.error for append in appends if append.error]
        if failed:
            raise ProtocolError(f"produce without acks failed: {failed[0]}")
        return None
    if all(_is_flushed(append) for append in appends):
        return _response(request, topics)
    return Deferred(_answer_when_flushed(context, request, topics))


# -- before the append
# ------------------------------------------------------------------------------


def _begin(
    context: RequestContext,
    request: ProduceRequest,
    topic: ProduceRequest.TopicProduceData,
    data: ProduceRequest.PartitionProduceData,
) -> _Append:
    services = context.services
    name = topic.name
    if context.version >= 13:
        found = services.metadata.topic_by_id(topic.topic_id)
        name = "" if found is None else found.name
    # Decoded record sets are one view of the frame; only encoders may pass lists.
    batch: Buffer = data.records if isinstance(data.records, memoryview) else b""
    append = _Append(TopicPartition(name, data.index), batch)
    append.log = services.logs.get(append.tp)
    if request.acks not in (-1, 0, 1):
        append.fail(ErrorCode.INVALID_REQUIRED_ACKS)
    elif context.version >= 13 and not name:
        append.fail(ErrorCode.UNKNOWN_TOPIC_ID)
    elif name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        append.fail(ErrorCode.INVALID_TOPIC_EXCEPTION)
    elif append.log is None:
        append.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        _read_batch(context, append)
    return append


def _read_batch(context: RequestContext, append: _Append) -> None:
    if not append.batch:
        append.fail(ErrorCode.INVALID_RECORD, "Exactly one record batch per partition is needed.")
        return
    try:
        append.header = header = read_header(append.batch)
        zstd = header.magic == 2 and header.compression is Compression.ZSTD
    except KafkaError as error:
        append.error = error
        return
    if zstd and context.version < 7:
        append.fail(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce or newer."
        )


async def _verify_transaction(
    context: RequestContext, request: ProduceRequest, appends: list[_Append]
) -> None:
    """Ask the coordinator about partitions this transaction is new on; mark what it refuses."""
    transactional = [
        append
        for append in appends
        if append.error is None and append.header is not None and append.header.is_transactional
    ]
    if not transactional:
        return
    if request.transactional_id is None:
        for append in transactional:
            append.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    first = transactional[0].header
    unverified: list[_Append] = []
    for append in transactional:
        header = append.header
        assert header is not None and append.log is not None and first is not None
        if (header.producer_id, header.producer_epoch) != (first.producer_id, first.producer_epoch):
            append.fail(ErrorCode.INVALID_RECORD, "One request, one transactional producer.")
            continue
        append.guard = append.log.verification_guard(
            header.producer_id, header.producer_epoch, header.base_sequence
        )
        if append.guard is not None:
            unverified.append(append)
    if unverified:
        assert first is not None
        await _ask_coordinator(context, request.transactional_id, first, unverified)


async def _ask_coordinator(
    context: RequestContext, transactional_id: str, header: BatchHeader, appends: list[_Append]
) -> None:
    verdicts = await context.services.transactions.verify_or_add(
        transactional_id,
        header.producer_id,
        header.producer_epoch,
        [append.tp for append in appends],
        add=context.version >= FIRST_ADDING_VERSION,
    )
    for append in appends:
        code = verdicts[append.tp]
        if code is not ErrorCode.NONE:
            append.fail(_for_producer(code, context.version))


def _for_producer(code: ErrorCode, version: int) -> ErrorCode:
    """The coordinator's verdict in a Produce answer (``AddPartitionsToTxnManager``)."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < 11:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= FIRST_ADDING_VERSION:
        return code
    if code in _RETRY_WITHOUT_REFRESH:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


_RETRY_WITHOUT_REFRESH = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


# -- append and after
# -------------------------------------------------------------------------------


def _append(context: RequestContext, append: _Append) -> None:
    if append.error is not None:
        return
    # The coordinator may have been asked in between: the partition may be gone since.
    log = append.log
    if log is None or context.services.logs.get(append.tp) is not log:
        append.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    try:
        append.result = log.append(
            append.batch,
            now_ms=context.services.clock(),
            guard=append.guard,
            transaction_version=2 if context.version >= FIRST_ADDING_VERSION else 0,
        )
    except KafkaError as error:
        append.error = error


def _is_flushed(append: _Append) -> bool:
    if append.result is None or append.log is None:
        return True
    return append.log.high_watermark > append.result.last_offset


async def _answer_when_flushed(
    context: RequestContext, request: ProduceRequest, topics: list[list[_Append]]
) -> ProduceResponse:
    logs = context.services.logs
    waiting = [append for partitions in topics for append in partitions if not _is_flushed(append)]

    def settled() -> bool:
        return all(_is_flushed(each) or logs.get(each.tp) is not each.log for each in waiting)

    partitions = [append.tp for append in waiting]
    await context.services.purgatory.wait(partitions, settled, max(request.timeout_ms, 1) / 1000)
    for append in waiting:
        if _is_flushed(append):
            continue
        gone = logs.get(append.tp) is not append.log
        append.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.REQUEST_TIMED_OUT)
    return _response(request, topics)


def _response(request: ProduceRequest, topics: list[list[_Append]]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=asked.name,
                topic_id=asked.topic_id,
                partition_responses=[_partition_response(append) for append in partitions],
            )
            for asked, partitions in zip(request.topic_data, topics, strict=True)
        ]
    )


def _partition_response(append: _Append) -> _PartitionResponse:
    if append.error is not None or append.result is None:
        error = append.error or KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return _PartitionResponse(
            index=append.tp.partition,
            error_code=error.code,
            base_offset=-1,
            error_message=error.message,
        )
    return _PartitionResponse(
        index=append.tp.partition,
        base_offset=append.result.base_offset,
        log_append_time_ms=append.result.log_append_time,
        log_start_offset=append.result.log_start_offset,
    )
