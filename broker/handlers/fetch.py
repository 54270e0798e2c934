"""Fetch (1), versions 4-17.

Behaviour
- answers when ``min_bytes`` are there, after ``max_wait_ms``, or at once when a partition has an
  error; waiting is woken by moves of the high watermark (or last stable offset)
- never above the high watermark; read_committed (isolation 1) never above the last stable offset,
  with the list of aborted transactions; read_uncommitted gets null there
- ``max_bytes`` is shared by the partitions: each request starts at another one so that the first
  does not starve the rest. The first batch found is sent whole even over the limits (KIP-74)
- sessions (7+): every answer has session id 0, "no session"; a request that continues one
  gets FETCH_SESSION_ID_NOT_FOUND and the client starts over
- 9: current leader epoch, older FENCED_LEADER_EPOCH, newer UNKNOWN_LEADER_EPOCH
- 12: last fetched epoch: a diverging one is answered with the point of divergence
- 13: topics by id, UNKNOWN_TOPIC_ID

Left out: incremental sessions, follower fetching, rack awareness, preferred read replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ErrorCode, KafkaError
from ..log.partition_log import PartitionLog
from ..log.results import Isolation
from ..protocol.messages import FetchRequest, FetchResponse
from ..server.deferred import Deferred
from ..types import TopicPartition
from .context import RequestContext
from .leader_epoch import check_leader_epoch

MIN_VERSION, MAX_VERSION = 4, 17
_FULL_FETCH_EPOCHS = (0, -1)

_Data = FetchResponse.PartitionData


class _Target(NamedTuple):
    """One partition of the request. ``error`` is set when it cannot be read at all."""

    tp: TopicPartition
    asked: FetchRequest.FetchPartition
    log: PartitionLog | None
    error: ErrorCode


class _Reading(NamedTuple):
    """One pass over the partitions: answers in request order, and what they contain."""

    answers: list[_Data]
    size: int
    has_error: bool


async def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | Deferred[FetchResponse]:
    # A client that starts over with a full fetch may still name its old session.
    if request.session_id != 0 and request.session_epoch not in _FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    targets = [
        _target(context, topic, asked) for topic in request.topics for asked in topic.partitions
    ]
    limits = _limits(request, targets)
    reading = _read(context, request, targets)
    if _is_enough(request, reading) or not targets:
        return _response(request, reading)
    return Deferred(_wait(context, request, targets, limits), abandonable=True)


def _is_enough(request: FetchRequest, reading: _Reading) -> bool:
    return reading.has_error or reading.size >= request.min_bytes or request.max_wait_ms <= 0


async def _wait(
    context: RequestContext,
    request: FetchRequest,
    targets: Sequence[_Target],
    limits: list[int],
) -> FetchResponse:
    """Read again whenever a partition can be read further than at the last attempt."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    partitions = [target.tp for target in targets if target.log is not None]
    logs = context.services.logs
    while True:
        seen = limits

        def moved(seen: list[int] = seen) -> bool:
            return _limits(request, targets) != seen or any(
                logs.get(target.tp) is not target.log for target in targets
            )

        woken = await context.services.purgatory.wait(partitions, moved, deadline - loop.time())
        current = [_again(context, target) for target in targets]
        limits = _limits(request, current)
        reading = _read(context, request, current)
        if not woken or _is_enough(request, reading):
            return _response(request, reading)


def _again(context: RequestContext, target: _Target) -> _Target:
    """A topic may have been deleted, or deleted and created, during the wait."""
    if target.log is None or context.services.logs.get(target.tp) is target.log:
        return target
    return target._replace(log=None, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _target(
    context: RequestContext, topic: FetchRequest.FetchTopic, asked: FetchRequest.FetchPartition
) -> _Target:
    services = context.services
    name, missing = topic.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.version >= 13:
        found = services.metadata.topic_by_id(topic.topic_id)
        if found is None:
            tp = TopicPartition("", asked.partition)
            return _Target(tp, asked, None, ErrorCode.UNKNOWN_TOPIC_ID)
        name = found.name
    tp = TopicPartition(name, asked.partition)
    log = services.logs.get(tp)
    return _Target(tp, asked, log, missing if log is None else ErrorCode.NONE)


def _limits(request: FetchRequest, targets: Sequence[_Target]) -> list[int]:
    """How far each partition can be read now."""
    committed = request.isolation_level == 1
    return [
        -1
        if target.log is None
        else target.log.last_stable_offset
        if committed
        else target.log.high_watermark
        for target in targets
    ]


def _read(context: RequestContext, request: FetchRequest, targets: Sequence[_Target]) -> _Reading:
    remaining = min(request.max_bytes, context.services.config.int("fetch.max.bytes"))
    isolation = Isolation(1 if request.isolation_level == 1 else 0)
    answers: list[_Data | None] = [None] * len(targets)
    size, has_error = 0, False
    # Handlers keep nothing between requests; the correlation id moves the start by one each time.
    start = context.header.correlation_id % len(targets) if targets else 0
    for place in range(len(targets)):
        index = (start + place) % len(targets)
        answer, taken = _read_partition(targets[index], isolation, remaining, size == 0)
        answers[index] = answer
        size += taken
        remaining = max(remaining - taken, 0)
        has_error = has_error or answer.error_code != 0 or answer.diverging_epoch is not None
    return _Reading([answer for answer in answers if answer is not None], size, has_error)


def _read_partition(
    target: _Target, isolation: Isolation, remaining: int, min_one: bool
) -> tuple[_Data, int]:
    """The partition's answer and how many bytes of records it carries."""
    asked, log = target.asked, target.log
    if log is None:
        return _failed(target, target.error), 0
    try:
        check_leader_epoch(asked.current_leader_epoch, log.leader_epoch)
    except KafkaError as error:
        return _failed(target, error.code), 0
    diverging = _divergence(asked, log)
    if diverging is not None:
        answer = _failed(target, ErrorCode.NONE)
        answer.diverging_epoch = diverging
        return answer, 0
    try:
        result = log.read(
            asked.fetch_offset,
            max_bytes=min(asked.partition_max_bytes, remaining),
            isolation=isolation,
            min_one=min_one,
        )
    except KafkaError as error:
        return _failed(target, error.code), 0
    aborted = result.aborted
    answer = _Data(
        partition_index=asked.partition,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None
        if aborted is None or isolation is Isolation.READ_UNCOMMITTED
        else [
            FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in aborted
        ],
        records=result.records or b"",
    )
    return answer, sum(map(len, result.records))


def _failed(target: _Target, code: ErrorCode) -> _Data:
    log = target.log
    return _Data(
        partition_index=target.asked.partition,
        error_code=code,
        high_watermark=-1 if log is None else log.high_watermark,
        last_stable_offset=-1 if log is None else log.last_stable_offset,
        log_start_offset=-1 if log is None else log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _divergence(
    asked: FetchRequest.FetchPartition, log: PartitionLog
) -> FetchResponse.EpochEndOffset | None:
    """Where the reader's history leaves ours, when it does (KIP-595)."""
    if asked.last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or (epoch == asked.last_fetched_epoch and end_offset >= asked.fetch_offset):
        return None
    return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _response(request: FetchRequest, reading: _Reading) -> FetchResponse:
    answers = iter(reading.answers)
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[next(answers) for _ in topic.partitions],
            )
            for topic in request.topics
        ]
    )
