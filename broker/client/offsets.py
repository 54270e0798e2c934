"""Offsets of groups and of partitions: OffsetCommit, OffsetFetch and ListOffsets as functions."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from ..errors import KafkaError
from ..protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ..types import TopicPartition
from .backoff import Backoff
from .cluster import Client, Coordinator
from .errors import ConnectionFailed, kafka_error
from .group import GroupMetadata

Isolation = Literal["read_committed", "read_uncommitted"]

LATEST = -1
EARLIEST = -2
OFFSET_COMMIT_MAX_VERSION = 8
OFFSET_FETCH_MAX_VERSION = 7
REQUIRE_STABLE_VERSION = 7
UNSTABLE_RETRY_MS = (20, 100)


class OffsetAndMetadata(NamedTuple):
    """A committed position: ``offset`` is the next one to read. ``leader_epoch`` -1 = unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """Answer of a lookup by time. ``timestamp`` in ms; ``leader_epoch`` -1 = unknown."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers per topic, both in order: how requests nest them."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic].append(tp.partition)
    return topics


async def commit_offsets(
    client: Client,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    timeout_ms: int | None = None,
) -> None:
    """OffsetCommit. Raises KafkaError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS
    ...
    """
    request = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    _committed_partition(number, offsets[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    response = await client.call(
        Coordinator.group(group.group_id),
        request,
        errors=_commit_errors,
        max_version=OFFSET_COMMIT_MAX_VERSION,
        timeout_ms=timeout_ms,
    )
    for code in _commit_errors(response):
        if code:
            raise kafka_error(code, f"commit of group {group.group_id}")


def _committed_partition(
    number: int, offset: OffsetAndMetadata
) -> OffsetCommitRequest.OffsetCommitRequestPartition:
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _commit_errors(response: OffsetCommitResponse) -> Iterator[int]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield partition.error_code


async def fetch_offsets(
    client: Client,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    *,
    require_stable: bool,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """OffsetFetch; None as ``partitions`` asks for every partition the group committed.

    With ``require_stable`` it waits for undecided transactions (error 88), at most ``timeout_ms``,
    then raises KafkaError(UNSTABLE_OFFSET_COMMIT). None as an offset: nothing was committed.
    """
    if partitions is not None and not partitions:
        return {}
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    response = await client.call(
        Coordinator.group(group_id),
        OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable),
        errors=_fetch_errors,
        min_version=REQUIRE_STABLE_VERSION if require_stable else None,
        max_version=OFFSET_FETCH_MAX_VERSION,
        timeout_ms=timeout_ms,
        backoff=Backoff(*UNSTABLE_RETRY_MS, client.rng),
    )
    for code in _fetch_errors(response):
        if code:
            raise kafka_error(code, f"committed offsets of group {group_id}")
    found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions or ())
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.committed_offset >= 0:
                found[TopicPartition(topic.name, partition.partition_index)] = OffsetAndMetadata(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata or "",
                )
    return found


def _fetch_errors(response: OffsetFetchResponse) -> Iterator[int]:
    yield response.error_code
    for topic in response.topics:
        for partition in topic.partitions:
            yield partition.error_code


async def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: Isolation,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """ListOffsets at the leaders: first offset at or after a time, or LATEST / EARLIEST.

    An offset of -1 means that no record is that late. Follows moving leaders for ``timeout_ms``.
    """
    loop = asyncio.get_running_loop()
    timeout_ms = client.request_timeout_ms if timeout_ms is None else timeout_ms
    deadline = loop.time() + timeout_ms / 1000
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    for failures in itertools.count(1):
        remaining_ms = max(int((deadline - loop.time()) * 1000), 1)
        pending = {tp: time for tp, time in timestamps.items() if tp not in found}
        error = await _list_offsets_once(client, pending, isolation, remaining_ms, found)
        if error is None:
            return found
        delay = client.backoff.delay(failures)
        if not error.retriable or loop.time() + delay >= deadline:
            raise error
        await asyncio.sleep(delay)
        await client.refresh_metadata()
    raise AssertionError("unreachable")


async def _list_offsets_once(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation,
    timeout_ms: int,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> KafkaError | None:
    """Ask every leader once; returns the first error, after ``found`` has what did succeed."""
    by_leader: defaultdict[int, dict[TopicPartition, tuple[int, int]]] = defaultdict(dict)
    for tp, timestamp in timestamps.items():
        info = await client.leader(tp, timeout_ms=timeout_ms)
        by_leader[info.leader][tp] = (timestamp, info.leader_epoch)
    answers = await asyncio.gather(
        *(
            client.request(node, _list_request(wanted, isolation), timeout_ms=timeout_ms)
            for node, wanted in by_leader.items()
        ),
        return_exceptions=True,
    )
    error: KafkaError | None = None
    for answer in answers:
        if isinstance(answer, ConnectionFailed):
            error = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            error = _collect(answer, found) or error
    return error


def _list_request(
    wanted: Mapping[TopicPartition, tuple[int, int]], isolation: Isolation
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level(isolation),
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=number,
                        timestamp=wanted[TopicPartition(topic, number)][0],
                        current_leader_epoch=wanted[TopicPartition(topic, number)][1],
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ],
    )


def _collect(
    response: ListOffsetsResponse, found: dict[TopicPartition, OffsetAndTimestamp]
) -> KafkaError | None:
    error: KafkaError | None = None
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                error = kafka_error(partition.error_code, str(tp))
            else:
                found[tp] = OffsetAndTimestamp(
                    partition.offset, partition.timestamp, partition.leader_epoch
                )
    return error


def isolation_level(isolation: Isolation) -> int:
    """The number on the wire; raises ValueError for any other word."""
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"isolation {isolation!r} is neither read_committed nor read_uncommitted")
    return 1 if isolation == "read_committed" else 0
