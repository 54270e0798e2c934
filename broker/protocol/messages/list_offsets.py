"""ListOffsets: offsets by timestamp."""

from __future__ import annotations

from ..fields import int8, int16, int32, int64, message, nested, string, structs


@message("1-10", flexible="6+")
class ListOffsetsRequest:
    """Timestamp -1 asks for the latest offset, -2 the earliest, -3 (v7) the greatest timestamp."""

    @nested
    class ListOffsetsTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = structs("0+")

    @nested
    class ListOffsetsPartition:
        """One lookup."""

        partition_index: int = int32("0+")
        current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
        timestamp: int = int64("0+")

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = structs("0+")
    timeout_ms: int = int32("10+", ignorable=True)


@message("1-10", flexible="6+")
class ListOffsetsResponse:
    """Offset and timestamp are -1 when no record is that late."""

    @nested
    class ListOffsetsTopicResponse:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = structs("0+")

    @nested
    class ListOffsetsPartitionResponse:
        """The first offset at or after the timestamp."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        timestamp: int = int64("1+", default=-1)
        offset: int = int64("1+", default=-1)
        leader_epoch: int = int32("4+", default=-1)

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = structs("0+")
