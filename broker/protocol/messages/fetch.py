"""Fetch: whole record batches out."""

from __future__ import annotations

from ..fields import (
    Records,
    int8,
    int16,
    int32,
    int32s,
    int64,
    message,
    nested,
    record_set,
    string,
    struct,
    structs,
    uuid,
)


@message("4-18", flexible="12+")
class FetchRequest:
    """v7 sessions; v9 leader epochs; v12 flexible; v13 topic ids; v15 tags the replica id."""

    @nested
    class ReplicaState:
        """A follower's id and broker epoch; consumers leave it out."""

        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    @nested
    class FetchTopic:
        """Partitions of one topic, by name up to v12 and by id from v13."""

        topic: str = string("0-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partitions: list[FetchRequest.FetchPartition] = structs("0+")

    @nested
    class FetchPartition:
        """Where to read; epochs of -1 skip the epoch check."""

        partition: int = int32("0+")
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
        fetch_offset: int = int64("0+")
        last_fetched_epoch: int = int32("12+", default=-1)
        log_start_offset: int = int64("5+", default=-1, ignorable=True)
        partition_max_bytes: int = int32("0+")
        replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True)
        high_watermark: int = int64("18+", default=2**63 - 1, tag=1, ignorable=True)

    @nested
    class ForgottenTopic:
        """Partitions to drop from an incremental fetch session."""

        topic: str = string("7-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partitions: list[int] = int32s("7+")

    cluster_id: str | None = string("12+", default=None, nullable="12+", tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: FetchRequest.ReplicaState | None = struct("15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=2**31 - 1, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchRequest.FetchTopic] = structs("0+")
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = structs("7+")
    rack_id: str = string("11+", ignorable=True)


@message("4-18", flexible="12+")
class FetchResponse:
    """``session_id`` 0 means that no session was made: the next request lists everything again."""

    @nested
    class FetchableTopicResponse:
        """Results of one topic."""

        topic: str = string("0-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partitions: list[FetchResponse.PartitionData] = structs("0+")

    @nested
    class PartitionData:
        """``aborted_transactions`` is None for read_uncommitted; offsets are -1 on an error."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        high_watermark: int = int64("0+")
        last_stable_offset: int = int64("4+", default=-1, ignorable=True)
        log_start_offset: int = int64("5+", default=-1, ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset | None = struct("12+", tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch | None = struct("12+", tag=1)
        snapshot_id: FetchResponse.SnapshotId | None = struct("12+", tag=2)
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = structs(
            "4+", nullable="4+", ignorable=True
        )
        preferred_read_replica: int = int32("11+", default=-1)
        records: Records = record_set("0+", nullable="0+")

    @nested
    class EpochEndOffset:
        """Where the reader's log and ours part (truncation detection, KIP-595)."""

        epoch: int = int32("12+", default=-1)
        end_offset: int = int64("12+", default=-1)

    @nested
    class LeaderIdAndEpoch:
        """Who leads the partition now, when it is not the broker asked."""

        leader_id: int = int32("12+", default=-1)
        leader_epoch: int = int32("12+", default=-1)

    @nested
    class SnapshotId:
        """Only for the metadata quorum."""

        end_offset: int = int64("0+", default=-1)
        epoch: int = int32("0+", default=-1)

    @nested
    class AbortedTransaction:
        """Data of ``producer_id`` from ``first_offset`` to its abort marker is void."""

        producer_id: int = int64("4+")
        first_offset: int = int64("4+")

    @nested
    class NodeEndpoint:
        """Address of a broker named in a ``current_leader``."""

        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", default=None, nullable="16+")

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchResponse.FetchableTopicResponse] = structs("0+")
    node_endpoints: list[FetchResponse.NodeEndpoint] = structs("16+", tag=0)
