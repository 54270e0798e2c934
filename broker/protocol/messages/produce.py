"""Produce: record batches in, offsets out."""

from __future__ import annotations

from ..fields import (
    Records,
    int16,
    int32,
    int64,
    message,
    nested,
    record_set,
    string,
    struct,
    structs,
    uuid,
)


@message("3-13", flexible="9+")
class ProduceRequest:
    """v9 flexible; v12 adds its partitions to the transaction (KIP-890); v13 names topics by id."""

    @nested
    class TopicProduceData:
        """Batches for one topic."""

        name: str = string("0-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partition_data: list[ProduceRequest.PartitionProduceData] = structs("0+")

    @nested
    class PartitionProduceData:
        """Exactly one v2 record batch in ``records``."""

        index: int = int32("0+")
        records: Records = record_set("0+", nullable="0+")

    transactional_id: str | None = string("3+", default=None, nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[ProduceRequest.TopicProduceData] = structs("0+")


@message("3-13", flexible="9+")
class ProduceResponse:
    """``node_endpoints`` (KIP-951) names the new leaders of partitions that answer error 6."""

    @nested
    class TopicProduceResponse:
        """Results of one topic."""

        name: str = string("0-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = structs("0+")

    @nested
    class PartitionProduceResponse:
        """``log_append_time_ms`` is -1 unless the topic stamps records on append."""

        index: int = int32("0+")
        error_code: int = int16("0+")
        base_offset: int = int64("0+")
        log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
        log_start_offset: int = int64("5+", default=-1, ignorable=True)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = structs(
            "8+", ignorable=True
        )
        error_message: str | None = string("8+", default=None, nullable="8+", ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch | None = struct("10+", tag=0)

    @nested
    class BatchIndexAndErrorMessage:
        """A record that made the whole batch fail."""

        batch_index: int = int32("8+")
        batch_index_error_message: str | None = string("8+", default=None, nullable="8+")

    @nested
    class LeaderIdAndEpoch:
        """Who leads the partition now, when it is not the broker asked."""

        leader_id: int = int32("10+", default=-1)
        leader_epoch: int = int32("10+", default=-1)

    @nested
    class NodeEndpoint:
        """Address of a broker named in a ``current_leader``."""

        node_id: int = int32("10+")
        host: str = string("10+")
        port: int = int32("10+")
        rack: str | None = string("10+", default=None, nullable="10+")

    responses: list[ProduceResponse.TopicProduceResponse] = structs("0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[ProduceResponse.NodeEndpoint] = structs("10+", tag=0)
