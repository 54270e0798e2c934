"""Administration of topics, configs and the cluster."""

from __future__ import annotations

from ..fields import (
    boolean,
    int8,
    int16,
    int32,
    int32s,
    int64,
    message,
    nested,
    string,
    strings,
    struct,
    structs,
    uuid,
)


@message("2-7", flexible="5+")
class CreateTopicsRequest:
    """-1 partitions or replicas means the broker's default (v4)."""

    @nested
    class CreatableTopic:
        """A topic to make; manual assignments exclude the two counts."""

        name: str = string("0+")
        num_partitions: int = int32("0+")
        replication_factor: int = int16("0+")
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = structs("0+")
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = structs("0+")

    @nested
    class CreatableReplicaAssignment:
        """Brokers that hold one partition."""

        partition_index: int = int32("0+")
        broker_ids: list[int] = int32s("0+")

    @nested
    class CreatableTopicConfig:
        """A config by Kafka's name."""

        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")

    topics: list[CreateTopicsRequest.CreatableTopic] = structs("0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


@message("2-7", flexible="5+")
class CreateTopicsResponse:
    """v5 tells what was made, v7 the topic id."""

    @nested
    class CreatableTopicResult:
        """The result for one topic."""

        name: str = string("0+")
        topic_id: bytes = uuid("7+", ignorable=True)
        error_code: int = int16("0+")
        error_message: str | None = string("1+", nullable="0+", ignorable=True)
        topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
        num_partitions: int = int32("5+", default=-1, ignorable=True)
        replication_factor: int = int16("5+", default=-1, ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = structs(
            "5+", nullable="5+", ignorable=True
        )

    @nested
    class CreatableTopicConfigs:
        """A config in effect and where it comes from."""

        name: str = string("5+")
        value: str | None = string("5+", nullable="5+")
        read_only: bool = boolean("5+")
        config_source: int = int8("5+", default=-1, ignorable=True)
        is_sensitive: bool = boolean("5+")

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreateTopicsResponse.CreatableTopicResult] = structs("0+")


@message("1-6", flexible="4+")
class DeleteTopicsRequest:
    """Names up to v5; from v6 names or ids in ``topics``."""

    @nested
    class DeleteTopicState:
        """By name, or by id with a name of None."""

        name: str | None = string("6+", default=None, nullable="6+")
        topic_id: bytes = uuid("6+")

    topics: list[DeleteTopicsRequest.DeleteTopicState] = structs("6+")
    topic_names: list[str] = strings("0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@message("1-6", flexible="4+")
class DeleteTopicsResponse:
    """One result for each topic; v5 adds messages, v6 ids."""

    @nested
    class DeletableTopicResult:
        """The result for one topic."""

        name: str | None = string("0+", nullable="6+")
        topic_id: bytes = uuid("6+", ignorable=True)
        error_code: int = int16("0+")
        error_message: str | None = string("5+", default=None, nullable="5+", ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = structs("0+")


@message("0-3", flexible="2+")
class CreatePartitionsRequest:
    """Adds partitions; their number never goes down."""

    @nested
    class CreatePartitionsTopic:
        """``count`` is the new total."""

        name: str = string("0+")
        count: int = int32("0+")
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = structs(
            "0+", nullable="0+"
        )

    @nested
    class CreatePartitionsAssignment:
        """Brokers of one new partition."""

        broker_ids: list[int] = int32s("0+")

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = structs("0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@message("0-3", flexible="2+")
class CreatePartitionsResponse:
    """One result for each topic."""

    @nested
    class CreatePartitionsTopicResult:
        """The result for one topic."""

        name: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = structs("0+")


@message("0-2", flexible="2+")
class DeleteRecordsRequest:
    """Raises log start offsets; Kafka Streams purges repartition topics so."""

    @nested
    class DeleteRecordsTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = structs("0+")

    @nested
    class DeleteRecordsPartition:
        """Deletes below ``offset``; -1 is the high watermark."""

        partition_index: int = int32("0+")
        offset: int = int64("0+")

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = structs("0+")
    timeout_ms: int = int32("0+")


@message("0-2", flexible="2+")
class DeleteRecordsResponse:
    """Results by topic and partition."""

    @nested
    class DeleteRecordsTopicResult:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = structs("0+")

    @nested
    class DeleteRecordsPartitionResult:
        """``low_watermark`` is the log start offset afterwards."""

        partition_index: int = int32("0+")
        low_watermark: int = int64("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = structs("0+")


@message("1-4", flexible="4+")
class DescribeConfigsRequest:
    """Synonyms (v1) and documentation (v3) only when asked for."""

    @nested
    class DescribeConfigsResource:
        """Type 2 is a topic, 4 a broker; keys None asks for all."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configuration_keys: list[str] | None = strings("0+", nullable="0+")

    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = structs("0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@message("1-4", flexible="4+")
class DescribeConfigsResponse:
    """One result for each resource."""

    @nested
    class DescribeConfigsResult:
        """Configs of one resource."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = structs("0+")

    @nested
    class DescribeConfigsResourceResult:
        """A config; ``value`` is None when it is sensitive."""

        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")
        read_only: bool = boolean("0+")
        config_source: int = int8("1+", default=-1, ignorable=True)
        is_sensitive: bool = boolean("0+")
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = structs(
            "1+", ignorable=True
        )
        config_type: int = int8("3+", ignorable=True)
        documentation: str | None = string("3+", nullable="0+", ignorable=True)

    @nested
    class DescribeConfigsSynonym:
        """A place that could have set the value, in order of precedence."""

        name: str = string("1+")
        value: str | None = string("1+", nullable="0+")
        source: int = int8("1+")

    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = structs("0+")


@message("0-2", flexible="2+")
class AlterConfigsRequest:
    """Replaces every config of a resource; the incremental API is the better one."""

    @nested
    class AlterConfigsResource:
        """All configs of one resource."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: list[AlterConfigsRequest.AlterableConfig] = structs("0+")

    @nested
    class AlterableConfig:
        """A new value."""

        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")

    resources: list[AlterConfigsRequest.AlterConfigsResource] = structs("0+")
    validate_only: bool = boolean("0+")


@message("0-2", flexible="2+")
class AlterConfigsResponse:
    """One result for each resource."""

    @nested
    class AlterConfigsResourceResponse:
        """The result for one resource."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = structs("0+")


@message("0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Changes single configs and leaves the others alone (KIP-339)."""

    @nested
    class AlterConfigsResource:
        """Changes of one resource."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = structs("0+")

    @nested
    class AlterableConfig:
        """``config_operation``: 0 set, 1 delete, 2 append, 3 subtract."""

        name: str = string("0+")
        config_operation: int = int8("0+")
        value: str | None = string("0+", nullable="0+")

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = structs("0+")
    validate_only: bool = boolean("0+")


@message("0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One result for each resource."""

    @nested
    class AlterConfigsResourceResponse:
        """The result for one resource."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")

    throttle_time_ms: int = int32("0+")
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = structs("0+")


@message("0-2", flexible="0+")
class DescribeClusterRequest:
    """``endpoint_type`` 1 asks for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@message("0-2", flexible="0+")
class DescribeClusterResponse:
    """Authorized operations are the int32 minimum unless asked for."""

    @nested
    class DescribeClusterBroker:
        """A broker and its advertised address."""

        broker_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("0+", default=None, nullable="0+")
        is_fenced: bool = boolean("2+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = structs("0+")
    cluster_authorized_operations: int = int32("0+", default=-(2**31))


@message("0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Topics in name order, page by page."""

    @nested
    class TopicRequest:
        """A topic by name."""

        name: str = string("0+")

    @nested
    class Cursor:
        """Where the page starts."""

        topic_name: str = string("0+")
        partition_index: int = int32("0+")

    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = structs("0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: DescribeTopicPartitionsRequest.Cursor | None = struct("0+", nullable="0+")


@message("0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """``next_cursor`` is None on the last page."""

    @nested
    class DescribeTopicPartitionsResponseTopic:
        """A topic or the reason why it cannot be described."""

        error_code: int = int16("0+")
        name: str | None = string("0+", nullable="0+")
        topic_id: bytes = uuid("0+", ignorable=True)
        is_internal: bool = boolean("0+", ignorable=True)
        partitions: list[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        ] = structs("0+")
        topic_authorized_operations: int = int32("0+", default=-(2**31))

    @nested
    class DescribeTopicPartitionsResponsePartition:
        """As in Metadata, with the eligible leader replicas (KIP-966)."""

        error_code: int = int16("0+")
        partition_index: int = int32("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+", default=-1, ignorable=True)
        replica_nodes: list[int] = int32s("0+")
        isr_nodes: list[int] = int32s("0+")
        eligible_leader_replicas: list[int] | None = int32s("0+", default=None, nullable="0+")
        last_known_elr: list[int] | None = int32s("0+", default=None, nullable="0+")
        offline_replicas: list[int] = int32s("0+", ignorable=True)

    @nested
    class Cursor:
        """Where the next page starts."""

        topic_name: str = string("0+")
        partition_index: int = int32("0+")

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = structs(
        "0+"
    )
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = struct("0+", nullable="0+")


@message("1-4", flexible="2+")
class DescribeLogDirsRequest:
    """Topics None asks for everything."""

    @nested
    class DescribableLogDirTopic:
        """Partitions of one topic."""

        topic: str = string("0+")
        partitions: list[int] = int32s("0+")

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = structs(
        "0+", nullable="0+"
    )


@message("1-4", flexible="2+")
class DescribeLogDirsResponse:
    """v4 adds the size of the volume."""

    @nested
    class DescribeLogDirsResult:
        """One data directory; bytes are -1 when unknown."""

        error_code: int = int16("0+")
        log_dir: str = string("0+")
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = structs("0+")
        total_bytes: int = int64("4+", default=-1, ignorable=True)
        usable_bytes: int = int64("4+", default=-1, ignorable=True)

    @nested
    class DescribeLogDirsTopic:
        """Partitions of one topic in that directory."""

        name: str = string("0+")
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = structs("0+")

    @nested
    class DescribeLogDirsPartition:
        """Size on disk in bytes."""

        partition_index: int = int32("0+")
        partition_size: int = int64("0+")
        offset_lag: int = int64("0+")
        is_future_key: bool = boolean("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = structs("0+")
