"""Administration of replicas and of the metadata quorum, and the list of what has settings."""

from __future__ import annotations

from ..fields import (
    boolean,
    int8,
    int8s,
    int16,
    int32,
    int32s,
    int64,
    message,
    nested,
    string,
    structs,
    uint16,
    uuid,
)


@message("1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Moves replicas of the asked broker to other data directories (KIP-113)."""

    @nested
    class AlterReplicaLogDir:
        """A directory and what should be in it."""

        path: str = string("0+")
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = structs("0+")

    @nested
    class AlterReplicaLogDirTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[int] = int32s("0+")

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = structs("0+")


@message("1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """Results by topic and partition."""

    @nested
    class AlterReplicaLogDirTopicResult:
        """Results of one topic."""

        topic_name: str = string("0+")
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = structs(
            "0+"
        )

    @nested
    class AlterReplicaLogDirPartitionResult:
        """The result for one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = structs("0+")


@message("0-2", flexible="2+")
class ElectLeadersRequest:
    """``election_type``: 0 the preferred replica, 1 any replica that is alive (KIP-460).

    Partitions None asks for all.
    """

    @nested
    class TopicPartitions:
        """Partitions of one topic."""

        topic: str = string("0+")
        partitions: list[int] = int32s("0+")

    election_type: int = int8("1+")
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = structs(
        "0+", nullable="0+"
    )
    timeout_ms: int = int32("0+", default=60000)


@message("0-2", flexible="2+")
class ElectLeadersResponse:
    """Results by topic and partition."""

    @nested
    class ReplicaElectionResult:
        """Results of one topic."""

        topic: str = string("0+")
        partition_result: list[ElectLeadersResponse.PartitionResult] = structs("0+")

    @nested
    class PartitionResult:
        """The result for one partition."""

        partition_id: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = structs("0+")


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Moves partitions to other brokers (KIP-455); replicas None cancels a move."""

    @nested
    class ReassignableTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = structs("0+")

    @nested
    class ReassignablePartition:
        """The brokers one partition should be on."""

        partition_index: int = int32("0+")
        replicas: list[int] | None = int32s("0+", default=None, nullable="0+")

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = structs("0+")


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """Results by topic and partition."""

    @nested
    class ReassignableTopicResponse:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = (
            structs("0+")
        )

    @nested
    class ReassignablePartitionResponse:
        """The result for one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = structs("0+")


@message("0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Topics None asks for every move under way."""

    @nested
    class ListPartitionReassignmentsTopics:
        """Partitions of one topic."""

        name: str = string("0+")
        partition_indexes: list[int] = int32s("0+")

    timeout_ms: int = int32("0+", default=60000)
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = (
        structs("0+", default=None, nullable="0+")
    )


@message("0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """Moves under way by topic and partition."""

    @nested
    class OngoingTopicReassignment:
        """Moves of one topic."""

        name: str = string("0+")
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = structs(
            "0+"
        )

    @nested
    class OngoingPartitionReassignment:
        """One move; ``replicas`` are those before it and those it adds."""

        partition_index: int = int32("0+")
        replicas: list[int] = int32s("0+")
        adding_replicas: list[int] = int32s("0+")
        removing_replicas: list[int] = int32s("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = structs("0+")


@message("0-2", flexible="0+")
class DescribeQuorumRequest:
    """Kafka knows one topic with a quorum: ``__cluster_metadata``."""

    @nested
    class TopicData:
        """Partitions of one topic."""

        topic_name: str = string("0+")
        partitions: list[DescribeQuorumRequest.PartitionData] = structs("0+")

    @nested
    class PartitionData:
        """A partition."""

        partition_index: int = int32("0+")

    topics: list[DescribeQuorumRequest.TopicData] = structs("0+")


@message("0-2", flexible="0+")
class DescribeQuorumResponse:
    """Leader and replicas of the metadata log (KIP-595); v2 adds where its nodes listen."""

    @nested
    class TopicData:
        """Partitions of one topic."""

        topic_name: str = string("0+")
        partitions: list[DescribeQuorumResponse.PartitionData] = structs("0+")

    @nested
    class PartitionData:
        """The quorum of one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("2+", nullable="2+", ignorable=True)
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        high_watermark: int = int64("0+")
        current_voters: list[DescribeQuorumResponse.ReplicaState] = structs("0+")
        observers: list[DescribeQuorumResponse.ReplicaState] = structs("0+")

    @nested
    class ReplicaState:
        """How far a replica is; times are milliseconds of the leader's clock, -1 unknown."""

        replica_id: int = int32("0+")
        replica_directory_id: bytes = uuid("2+")
        log_end_offset: int = int64("0+")
        last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
        last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)

    @nested
    class Node:
        """A node that votes."""

        node_id: int = int32("2+")
        listeners: list[DescribeQuorumResponse.Listener] = structs("2+")

    @nested
    class Listener:
        """An address of a node."""

        name: str = string("2+")
        host: str = string("2+")
        port: int = uint16("2+")

    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponse.TopicData] = structs("0+")
    nodes: list[DescribeQuorumResponse.Node] = structs("2+")


@message("0-1", flexible="0+")
class ListConfigResourcesRequest:
    """v0 was ListClientMetricsResources and lists those; from v1 no type means all (KIP-1142)."""

    resource_types: list[int] = int8s("1+")


@message("0-1", flexible="0+")
class ListConfigResourcesResponse:
    """What has settings."""

    @nested
    class ConfigResource:
        """Type 2 is a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""

        resource_name: str = string("0+")
        resource_type: int = int8("1+", default=16, ignorable=True)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ListConfigResourcesResponse.ConfigResource] = structs("0+")
