"""What the broker must remember besides logs: identity, topics, producer ids, the leader epoch.

One JSON document, rewritten atomically on every change, before the answer that reports the change.
It is the truth about which topics exist: a partition directory it does not name is the rest of an
unfinished deletion.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import ErrorCode, KafkaError
from .storage.filesystem import FileSystem
from .types import TopicPartition

if TYPE_CHECKING:
    from random import Random

FORMAT_VERSION = 1


@dataclass(slots=True)
class Topic:
    """``id`` is the 16-byte topic id; ``configs`` what the topic itself sets, as text."""

    name: str
    id: bytes
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(self.partitions)]


class ClusterMetadata:
    """The cluster of one node. Every mutator is one durable write; reading is free.

    ``revision`` counts the writes, over all lives of the broker.
    """

    def __init__(self, fs: FileSystem, path: str, rng: Random, *, node_id: int) -> None:
        """Load the document, or begin a new cluster; either way start a new leader epoch.

        Raises ValueError when the document exists and cannot be understood.
        """
        self._fs = fs
        self._path = path
        self._rng = rng
        self.node_id = node_id
        self.is_new = True
        self.cluster_id = ""
        self.leader_epoch = -1
        self.revision = 0
        self._producer_id_limit = 0
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        if fs.exists(path):
            self._load(fs.read(path))
        else:
            self.cluster_id = base64.urlsafe_b64encode(self._uuid()).decode().rstrip("=")
        self.leader_epoch += 1
        self._save()

    # -- topics ---------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self._topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < topic.partitions

    def new_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """A topic that does not exist yet: pass it to ``add_topics``."""
        return Topic(name, self._uuid(), partitions, dict(configs))

    def add_topics(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            if topic.name in self._topics:
                raise KafkaError(
                    ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
                )
            self._topics[topic.name] = topic
            self._by_id[topic.id] = topic
        self._save()

    def remove_topics(self, names: Iterable[str]) -> None:
        for name in names:
            topic = self._topics.pop(name)
            del self._by_id[topic.id]
        self._save()

    def set_partitions(self, name: str, partitions: int) -> None:
        self._topics[name].partitions = partitions
        self._save()

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        self._topics[name].configs = dict(configs)
        self._save()

    # -- producer ids ---------------------------------------------------------------------------

    def reserve_producer_ids(self, count: int) -> int:
        """The first of ``count`` producer ids no producer of this cluster ever had."""
        first = self._producer_id_limit
        self._producer_id_limit = first + count
        self._save()
        return first

    # -- the document ---------------------------------------------------------------------------

    def _uuid(self) -> bytes:
        """A random (version 4) UUID; its version bits also keep it from being all zero."""
        raw = bytearray(self._rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)

    def _load(self, stored: bytes) -> None:
        document: dict[str, Any] = json.loads(stored)
        if document.get("version") != FORMAT_VERSION:
            raise ValueError(f"metadata format {document.get('version')} is not known here")
        self.is_new = False
        self.cluster_id = document["cluster_id"]
        self.leader_epoch = document["leader_epoch"]
        self.revision = document.get("revision", 0)  # documents of the first version lack it
        self._producer_id_limit = document["producer_id_limit"]
        for name, entry in document["topics"].items():
            topic = Topic(name, bytes.fromhex(entry["id"]), entry["partitions"], entry["configs"])
            self._topics[name] = topic
            self._by_id[topic.id] = topic

    def _save(self) -> None:
        self.revision += 1
        document = {
            "version": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "leader_epoch": self.leader_epoch,
            "revision": self.revision,
            "producer_id_limit": self._producer_id_limit,
            "topics": {
                topic.name: {
                    "id": topic.id.hex(),
                    "partitions": topic.partitions,
                    "configs": topic.configs,
                }
                for topic in self._topics.values()
            },
        }
        self._fs.write_atomic(self._path, json.dumps(document, indent=1).encode())
