"""Typed results of ``Admin``."""

from __future__ import annotations

from typing import NamedTuple

from ..types import TopicPartition
from .offsets import OffsetAndMetadata


class NewTopic(NamedTuple):
    """A topic to create; -1 = the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = {}  # noqa: RUF012 - never mutated


class PartitionDescription(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicDescription(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ConfigEntry(NamedTuple):
    """``source`` as in DescribeConfigs (1 = set on the topic, 5 = default); ``value`` None =
    sensitive.
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    is_sensitive: bool


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    metadata: bytes


class GroupDescription(NamedTuple):
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """``start_time_ms`` -1 = no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class ClusterNode(NamedTuple):
    node_id: int
    host: str
    port: int


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller_id: int
    nodes: tuple[ClusterNode, ...]


__all__ = [
    "ClusterDescription",
    "ClusterNode",
    "ConfigEntry",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "OffsetAndMetadata",
    "PartitionDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
