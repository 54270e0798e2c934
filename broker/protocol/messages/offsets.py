"""Committed offsets of groups, and the offset at which a leader epoch ended."""

from __future__ import annotations

from ..fields import boolean, int16, int32, int32s, int64, message, nested, string, structs, uuid


@message("2-10", flexible="8+")
class OffsetCommitRequest:
    """Generation -1 and no member id is a commit from outside the group. v10 names topics by id."""

    @nested
    class OffsetCommitRequestTopic:
        """Partitions of one topic."""

        name: str = string("0-9", ignorable=True)
        topic_id: bytes = uuid("10+", ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = structs("0+")

    @nested
    class OffsetCommitRequestPartition:
        """The offset to continue from: last processed plus one."""

        partition_index: int = int32("0+")
        committed_offset: int = int64("0+")
        committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
        committed_metadata: str | None = string("0+", nullable="0+")

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", default=None, nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = structs("0+")


@message("2-10", flexible="8+")
class OffsetCommitResponse:
    """Group errors are repeated for every partition."""

    @nested
    class OffsetCommitResponseTopic:
        """Results of one topic."""

        name: str = string("0-9", ignorable=True)
        topic_id: bytes = uuid("10+", ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = structs("0+")

    @nested
    class OffsetCommitResponsePartition:
        """The result for one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = structs("0+")


@message("1-10", flexible="6+")
class OffsetFetchRequest:
    """The flat fields serve v1-7, ``groups`` v8 and later. Topics None (from v2) asks for all."""

    @nested
    class OffsetFetchRequestTopic:
        """Partitions of one topic, up to v7."""

        name: str = string("0-7")
        partition_indexes: list[int] = int32s("0-7")

    @nested
    class OffsetFetchRequestGroup:
        """One group; member id and epoch belong to KIP-848."""

        group_id: str = string("8+")
        member_id: str | None = string("9+", default=None, nullable="9+", ignorable=True)
        member_epoch: int = int32("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = structs(
            "8+", nullable="8+"
        )

    @nested
    class OffsetFetchRequestTopics:
        """Partitions of one topic, from v8."""

        name: str = string("8-9", ignorable=True)
        topic_id: bytes = uuid("10+", ignorable=True)
        partition_indexes: list[int] = int32s("8+")

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = structs("0-7", nullable="2-7")
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = structs("8+")
    require_stable: bool = boolean("7+")


@message("1-10", flexible="6+")
class OffsetFetchResponse:
    """Group errors are per partition in v1, top-level in v2-7 and per group from v8."""

    @nested
    class OffsetFetchResponseTopic:
        """Offsets of one topic, up to v7."""

        name: str = string("0-7")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = structs("0-7")

    @nested
    class OffsetFetchResponsePartition:
        """Offset -1 with error 0 means that nothing was committed."""

        partition_index: int = int32("0-7")
        committed_offset: int = int64("0-7")
        committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
        metadata: str | None = string("0-7", nullable="0-7")
        error_code: int = int16("0-7")

    @nested
    class OffsetFetchResponseGroup:
        """Offsets of one group, from v8."""

        group_id: str = string("8+")
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = structs("8+")
        error_code: int = int16("8+")

    @nested
    class OffsetFetchResponseTopics:
        """Offsets of one topic, from v8."""

        name: str = string("8-9", ignorable=True)
        topic_id: bytes = uuid("10+", ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = structs("8+")

    @nested
    class OffsetFetchResponsePartitions:
        """As in the older layout, within a group."""

        partition_index: int = int32("8+")
        committed_offset: int = int64("8+")
        committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
        metadata: str | None = string("8+", nullable="8+")
        error_code: int = int16("8+")

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = structs("0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = structs("8+")


@message("0")
class OffsetDeleteRequest:
    """Refused for topics the group still subscribes to."""

    @nested
    class OffsetDeleteRequestTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = structs("0+")

    @nested
    class OffsetDeleteRequestPartition:
        """One partition."""

        partition_index: int = int32("0+")

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = structs("0+")


@message("0")
class OffsetDeleteResponse:
    """``error_code`` is the group's; partitions have their own."""

    @nested
    class OffsetDeleteResponseTopic:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = structs("0+")

    @nested
    class OffsetDeleteResponsePartition:
        """The result for one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = structs("0+")


@message("2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """``replica_id`` -2 marks a consumer without one (the debug replica of Kafka)."""

    @nested
    class OffsetForLeaderTopic:
        """Partitions of one topic."""

        topic: str = string("0+")
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = structs("0+")

    @nested
    class OffsetForLeaderPartition:
        """Asks where ``leader_epoch`` ended."""

        partition: int = int32("0+")
        current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
        leader_epoch: int = int32("0+")

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = structs("0+")


@message("2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """Tells a reader where to truncate or whether it lost data (KIP-320)."""

    @nested
    class OffsetForLeaderTopicResult:
        """Results of one topic."""

        topic: str = string("0+")
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = structs("0+")

    @nested
    class EpochEndOffset:
        """The greatest epoch not above the one asked for, and its end."""

        error_code: int = int16("0+")
        partition: int = int32("0+")
        leader_epoch: int = int32("1+", default=-1, ignorable=True)
        end_offset: int = int64("0+", default=-1)

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = structs("0+")
