"""Metadata: brokers, topics, leaders."""

from __future__ import annotations

from ..fields import boolean, int16, int32, int32s, message, nested, string, structs, uuid


@message("0-13", flexible="9+")
class MetadataRequest:
    """All topics: an empty list in v0, None from v1 on. v10 adds topic ids, usable from v12."""

    @nested
    class MetadataRequestTopic:
        """By name, or (v12) by id with a name of None."""

        topic_id: bytes = uuid("10+", ignorable=True)
        name: str | None = string("0+", nullable="10+")

    topics: list[MetadataRequest.MetadataRequestTopic] | None = structs("0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@message("0-13", flexible="9+")
class MetadataResponse:
    """v7 leader epochs; v9 flexible; v10 topic ids; v13 a top-level error."""

    @nested
    class MetadataResponseBroker:
        """A live broker and its advertised address."""

        node_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("1+", default=None, nullable="1+", ignorable=True)

    @nested
    class MetadataResponseTopic:
        """A topic or the reason why it cannot be described."""

        error_code: int = int16("0+")
        name: str | None = string("0+", nullable="12+")
        topic_id: bytes = uuid("10+", ignorable=True)
        is_internal: bool = boolean("1+", ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition] = structs("0+")
        topic_authorized_operations: int = int32("8+", default=-(2**31))

    @nested
    class MetadataResponsePartition:
        """Leader, replicas and in-sync replicas by node id."""

        error_code: int = int16("0+")
        partition_index: int = int32("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("7+", default=-1, ignorable=True)
        replica_nodes: list[int] = int32s("0+")
        isr_nodes: list[int] = int32s("0+")
        offline_replicas: list[int] = int32s("5+", ignorable=True)

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponse.MetadataResponseBroker] = structs("0+")
    cluster_id: str | None = string("2+", default=None, nullable="2+", ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponse.MetadataResponseTopic] = structs("0+")
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+", ignorable=True)
