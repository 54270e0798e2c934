"""What the cluster looks like, as far as this client asked. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ErrorCode
from ..protocol.messages import MetadataResponse
from ..types import TopicPartition


class Node(NamedTuple):
    host: str
    port: int


class PartitionInfo(NamedTuple):
    """``leader`` -1 = none at the moment; ``leader_epoch`` -1 = unknown."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """``error`` is 0 for a topic that exists; then ``partitions`` is complete."""

    name: str
    error: int
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class ClusterMetadata:
    """The cache. ``generation`` grows with every update that changed a topic."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.generation = 0

    def update(self, response: MetadataResponse) -> None:
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.nodes = {b.node_id: Node(b.host, b.port) for b in response.brokers}
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic)

    def _update_topic(self, name: str, topic: MetadataResponse.MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        partitions = {}
        for partition in topic.partitions:
            info = PartitionInfo(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
            )
            old = known.partitions.get(partition.partition_index) if known else None
            same_topic = known is not None and known.topic_id == topic.topic_id
            # A broker that lags behind may still name a leader we know to be replaced (KIP-320).
            if old is not None and same_topic and -1 < info.leader_epoch < old.leader_epoch:
                info = old
            partitions[partition.partition_index] = info
        fresh = TopicInfo(name, topic.error_code, topic.topic_id, topic.is_internal, partitions)
        if fresh != known:
            self.topics[name] = fresh
            self.generation += 1

    def forget(self, name: str) -> None:
        self.topics.pop(name, None)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """The partition when its topic and leader are known, else None."""
        topic = self.topics.get(tp.topic)
        if topic is None or topic.error not in _USABLE:
            return None
        info = topic.partitions.get(tp.partition)
        return None if info is None or info.leader < 0 else info

    def partition_count(self, name: str) -> int | None:
        """None while the topic is unknown."""
        topic = self.topics.get(name)
        return None if topic is None or topic.error else len(topic.partitions)


_USABLE = frozenset({ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE})
