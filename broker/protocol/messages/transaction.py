"""Producer ids and transactions."""

from __future__ import annotations

from ..fields import (
    boolean,
    int16,
    int32,
    int32s,
    int64,
    int64s,
    message,
    nested,
    string,
    strings,
    structs,
)


@message("0-6", flexible="2+")
class InitProducerIdRequest:
    """v3 may bring the current id and epoch to bump them (KIP-360); v6 (two-phase) is unstable."""

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@message("0-6", flexible="2+")
class InitProducerIdResponse:
    """The ongoing transaction (v6) is only for two-phase commit."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


@message("0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """One transaction in the flat fields up to v3; a batch between brokers from v4."""

    @nested
    class AddPartitionsToTxnTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[int] = int32s("0+")

    @nested
    class AddPartitionsToTxnTransaction:
        """``verify_only`` asks without adding (KIP-890)."""

        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+")
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = structs("4+")

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = structs("4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = structs("0-3")


@message("0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """One bad partition fails all: the good ones get error 55."""

    @nested
    class AddPartitionsToTxnTopicResult:
        """Results of one topic."""

        name: str = string("0+")
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = (
            structs("0+")
        )

    @nested
    class AddPartitionsToTxnPartitionResult:
        """The result for one partition."""

        partition_index: int = int32("0+")
        partition_error_code: int = int16("0+")

    @nested
    class AddPartitionsToTxnResult:
        """Results of one transaction, from v4."""

        transactional_id: str = string("4+")
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = structs(
            "4+"
        )

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = structs(
        "4+"
    )
    results_by_topic_v3_and_below: list[
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    ] = structs("0-3")


@message("0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Adds the group's offsets partition to the transaction."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@message("0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Errors are those of the transaction coordinator."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@message("0-5", flexible="3+")
class EndTxnRequest:
    """v5 is transactions version 2: the epoch grows with every transaction (KIP-890)."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message("0-5", flexible="3+")
class EndTxnResponse:
    """From v5 with the producer id and epoch for the next transaction."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


@message("0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """v3 fences by group generation (KIP-447); v5 in a transaction adds the group by itself."""

    @nested
    class TxnOffsetCommitRequestTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = structs("0+")

    @nested
    class TxnOffsetCommitRequestPartition:
        """An offset, pending until the transaction ends."""

        partition_index: int = int32("0+")
        committed_offset: int = int64("0+")
        committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
        committed_metadata: str | None = string("0+", nullable="0+")

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = structs("0+")


@message("0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """Group errors are repeated for every partition."""

    @nested
    class TxnOffsetCommitResponseTopic:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = structs("0+")

    @nested
    class TxnOffsetCommitResponsePartition:
        """The result for one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = structs("0+")


@message("1", flexible="1+")
class WriteTxnMarkersRequest:
    """From the transaction coordinator to partition leaders, and from admins who abort."""

    @nested
    class WritableTxnMarker:
        """One transaction's outcome; ``transaction_result`` True commits."""

        producer_id: int = int64("0+")
        producer_epoch: int = int16("0+")
        transaction_result: bool = boolean("0+")
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = structs("0+")
        coordinator_epoch: int = int32("0+")

    @nested
    class WritableTxnMarkerTopic:
        """Partitions of one topic."""

        name: str = string("0+")
        partition_indexes: list[int] = int32s("0+")

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = structs("0+")


@message("1", flexible="1+")
class WriteTxnMarkersResponse:
    """Results by producer, topic and partition."""

    @nested
    class WritableTxnMarkerResult:
        """Results of one marker."""

        producer_id: int = int64("0+")
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = structs("0+")

    @nested
    class WritableTxnMarkerTopicResult:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = structs("0+")

    @nested
    class WritableTxnMarkerPartitionResult:
        """The result for one partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = structs("0+")


@message("0", flexible="0+")
class DescribeProducersRequest:
    """Asks partition leaders which producers they know (KIP-664)."""

    @nested
    class TopicRequest:
        """Partitions of one topic."""

        name: str = string("0+")
        partition_indexes: list[int] = int32s("0+")

    topics: list[DescribeProducersRequest.TopicRequest] = structs("0+")


@message("0", flexible="0+")
class DescribeProducersResponse:
    """Results by topic and partition."""

    @nested
    class TopicResponse:
        """Results of one topic."""

        name: str = string("0+")
        partitions: list[DescribeProducersResponse.PartitionResponse] = structs("0+")

    @nested
    class PartitionResponse:
        """Producers the partition remembers."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")
        active_producers: list[DescribeProducersResponse.ProducerState] = structs("0+")

    @nested
    class ProducerState:
        """``current_txn_start_offset`` is -1 outside a transaction."""

        producer_id: int = int64("0+")
        producer_epoch: int = int32("0+")
        last_sequence: int = int32("0+", default=-1)
        last_timestamp: int = int64("0+", default=-1)
        coordinator_epoch: int = int32("0+")
        current_txn_start_offset: int = int64("0+", default=-1)

    throttle_time_ms: int = int32("0+")
    topics: list[DescribeProducersResponse.TopicResponse] = structs("0+")


@message("0", flexible="0+")
class DescribeTransactionsRequest:
    """Asks the coordinator for the state of transactional ids (KIP-664)."""

    transactional_ids: list[str] = strings("0+")


@message("0", flexible="0+")
class DescribeTransactionsResponse:
    """One state, or error, for each transactional id."""

    @nested
    class TransactionState:
        """State of one transactional id; times in ms, -1 when none runs."""

        error_code: int = int16("0+")
        transactional_id: str = string("0+")
        transaction_state: str = string("0+")
        transaction_timeout_ms: int = int32("0+")
        transaction_start_time_ms: int = int64("0+")
        producer_id: int = int64("0+")
        producer_epoch: int = int16("0+")
        topics: list[DescribeTransactionsResponse.TopicData] = structs("0+")

    @nested
    class TopicData:
        """Partitions of the transaction in one topic."""

        topic: str = string("0+")
        partitions: list[int] = int32s("0+")

    throttle_time_ms: int = int32("0+")
    transaction_states: list[DescribeTransactionsResponse.TransactionState] = structs("0+")


@message("0-2", flexible="0+")
class ListTransactionsRequest:
    """Filters by state, producer, minimum age in ms (v1) and id pattern (v2)."""

    state_filters: list[str] = strings("0+")
    producer_id_filters: list[int] = int64s("0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", default=None, nullable="2+")


@message("0-2", flexible="0+")
class ListTransactionsResponse:
    """``unknown_state_filters`` returns filters that name no state."""

    @nested
    class TransactionState:
        """One transactional id."""

        transactional_id: str = string("0+")
        producer_id: int = int64("0+")
        transaction_state: str = string("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = strings("0+")
    transaction_states: list[ListTransactionsResponse.TransactionState] = structs("0+")
