"""Committed and pending offsets of all groups of one shard (Kafka: ``OffsetMetadataManager``).

Pending are offsets written inside a transaction that has not ended. Both change only by replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...errors import ErrorCode
from ...protocol.messages import OffsetFetchResponse
from ...types import NO_PRODUCER_ID, TopicPartition
from ..result import Record
from .classic_group import ClassicGroup, GroupState
from .records import OffsetCommitValue, offset_record, offset_tombstone

INVALID_OFFSET = -1
NO_LEADER_EPOCH = -1


class CommittedOffset(NamedTuple):
    """An offset as committed; ``record_offset`` is where its record stands in the log."""

    record_offset: int
    value: OffsetCommitValue


class TopicPartitions(Protocol):
    """A topic of an OffsetFetch request, of either layout."""

    name: str
    partition_indexes: list[int]


class Commit(NamedTuple):
    """One partition of a commit request."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str | None


Offsets = dict[TopicPartition, CommittedOffset]


@dataclass(slots=True)
class OffsetStore:
    """committed: by group. pending: by producer id, then by group."""

    committed: dict[str, Offsets] = field(default_factory=dict)
    pending: dict[int, dict[str, Offsets]] = field(default_factory=dict)

    # -- replay -----------------------------------------------------------------------------------

    def replay_offset(
        self,
        record_offset: int,
        producer_id: int,
        group_id: str,
        partition: TopicPartition,
        value: OffsetCommitValue | None,
    ) -> None:
        """Apply an offset record; a tombstone also drops what is pending for the partition."""
        if value is None:
            _discard(self.committed, group_id, partition)
            for producer, groups in list(self.pending.items()):
                _discard(groups, group_id, partition)
                if not groups:
                    del self.pending[producer]
            return
        groups = (
            self.committed
            if producer_id == NO_PRODUCER_ID
            else self.pending.setdefault(producer_id, {})
        )
        groups.setdefault(group_id, {})[partition] = CommittedOffset(record_offset, value)

    def replay_marker(self, producer_id: int, commit: bool) -> set[str]:
        """End a producer's transaction; returns the groups it had pending offsets in.

        A commit does not overwrite an offset whose record is newer than the transaction's.
        """
        groups = self.pending.pop(producer_id, {})
        if commit:
            for group_id, offsets in groups.items():
                committed = self.committed.setdefault(group_id, {})
                for partition, offset in offsets.items():
                    present = committed.get(partition)
                    if present is None or present.record_offset < offset.record_offset:
                        committed[partition] = offset
        return set(groups)

    # -- questions --------------------------------------------------------------------------------

    def has_any(self, group_id: str) -> bool:
        return group_id in self.committed or self.has_pending(group_id)

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self.pending.values())

    def pending_partitions(self, group_id: str) -> set[TopicPartition]:
        return {
            partition for groups in self.pending.values() for partition in groups.get(group_id, ())
        }

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Every partition with a committed or pending offset, sorted."""
        return sorted(self.pending_partitions(group_id) | set(self.committed.get(group_id, ())))

    def fetch(
        self, group_id: str, topics: Sequence[TopicPartitions] | None, *, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """Committed offsets; ``topics`` ``None`` = all. Offset -1 where nothing was committed.

        With ``require_stable`` a partition whose next offset a transaction decides answers
        UNSTABLE_OFFSET_COMMIT.
        """
        unstable = self.pending_partitions(group_id) if require_stable else set()
        committed = self.committed.get(group_id, {})
        wanted: dict[str, list[int]] = {}
        if topics is None:
            for partition in sorted(unstable | set(committed)):
                wanted.setdefault(partition.topic, []).append(partition.partition)
        else:
            for topic in topics:
                wanted.setdefault(topic.name, []).extend(topic.partition_indexes)
        return OffsetFetchResponse.OffsetFetchResponseGroup(
            group_id=group_id,
            topics=[
                OffsetFetchResponse.OffsetFetchResponseTopics(
                    name=name,
                    partitions=[
                        _fetched(TopicPartition(name, index), committed, unstable)
                        for index in indexes
                    ],
                )
                for name, indexes in wanted.items()
            ],
        )

    def expired(
        self, group: ClassicGroup, *, retention_ms: int, now_ms: int
    ) -> list[TopicPartition]:
        """Offsets of the group that may be forgotten, sorted.

        Kept: everything of a group with pending offsets; offsets of a group with members, except of
        topics a Stable consumer group no longer subscribes to. An explicit expiry time decides
        alone; else the age counts from the commit or, if that is later, from the time a group that
        once had members became empty.
        """
        offsets = self.committed.get(group.group_id, {})
        if not offsets or self.has_pending(group.group_id):
            return []
        subscribed: set[str] | None = set()
        empty_since = 0
        if group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                empty_since = group.state_timestamp
            elif group.state is GroupState.STABLE:
                subscribed = group.subscribed_topics()
            else:
                subscribed = None
        if subscribed is None:
            return []
        return sorted(
            partition
            for partition, offset in offsets.items()
            if partition.topic not in subscribed
            and _expiry(offset.value, empty_since, retention_ms) <= now_ms
        )

    def deletions(self, group_id: str, partitions: Sequence[TopicPartition]) -> Iterator[Record]:
        """Tombstones for those of ``partitions`` that have a committed or pending offset."""
        present = self.pending_partitions(group_id) | set(self.committed.get(group_id, ()))
        for partition in partitions:
            if partition in present:
                yield offset_tombstone(group_id, partition)


def commit_records(
    group_id: str,
    commits: Sequence[Commit],
    *,
    max_metadata_size: int,
    retention_ms: int,
    now_ms: int,
) -> tuple[list[Record], dict[TopicPartition, ErrorCode]]:
    """Records of a valid commit and the error of each partition.

    ``retention_ms`` -1 = the broker's retention; else the offsets expire that long after now.
    """
    records: list[Record] = []
    errors: dict[TopicPartition, ErrorCode] = {}
    expire_timestamp = -1 if retention_ms < 0 else now_ms + retention_ms
    for partition, offset, leader_epoch, metadata in commits:
        if metadata is not None and len(metadata) > max_metadata_size:
            errors[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        errors[partition] = ErrorCode.NONE
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_timestamp,
        )
        records.append(offset_record(group_id, partition, value))
    return records, errors


def _expiry(value: OffsetCommitValue, empty_since: int, retention_ms: int) -> int:
    if value.expire_timestamp >= 0:
        return value.expire_timestamp
    return max(value.commit_timestamp, empty_since) + retention_ms


def _fetched(
    partition: TopicPartition, committed: Offsets, unstable: set[TopicPartition]
) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
    response = OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=partition.partition,
        committed_offset=INVALID_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
    )
    found = committed.get(partition)
    if partition in unstable:
        response.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    elif found is not None:
        response.committed_offset = found.value.offset
        response.committed_leader_epoch = found.value.leader_epoch
        response.metadata = found.value.metadata
    return response


def _discard(groups: dict[str, Offsets], group_id: str, partition: TopicPartition) -> None:
    offsets = groups.get(group_id)
    if offsets is None:
        return
    offsets.pop(partition, None)
    if not offsets:
        del groups[group_id]
