"""Topics as a whole: the metadata entry, the partition logs and what else knows the topic.

Order of changes: metadata first when something is created, metadata first when it is deleted. A
crash in between leaves a named topic without logs (created empty at the next start) or logs without
a name (removed at the next start), never data of a deleted topic under a new one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from .config import BrokerConfig, check_topic_configs
from .errors import ErrorCode, KafkaError
from .log.config import LogConfig
from .log.log_manager import LogManager
from .metadata import ClusterMetadata, Topic
from .types import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, TopicPartition

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
MAX_PARTITIONS = 10_000
"""Most partitions of one topic. Each is a directory and open files on this one node."""

_INTERNAL_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "4194304",
}
"""Segments are smaller than Kafka's 100 MiB: what is not sealed is scanned and replayed at a start
and cannot be compacted."""


def check_topic_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION) for names Kafka refuses (``Topic.validate``)."""
    if name in (".", "..") or not _LEGAL_NAME.match(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name {name!r} is illegal: 1 to 249 of the characters a-z A-Z 0-9 . _ - "
            "and neither '.' nor '..'",
        )


class Topics:
    """``partition_removed`` is told each partition that is gone, to release who waits for it."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        logs: LogManager,
        config: BrokerConfig,
        *,
        partition_removed: Callable[[TopicPartition], None],
    ) -> None:
        self._metadata = metadata
        self._logs = logs
        self._config = config
        self._partition_removed = partition_removed

    # -- start ----------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Make the logs on disk match the metadata, and the internal topics exist.

        Raises ValueError when there are logs but no metadata: that is a lost file, and guessing
        would delete data.
        """
        on_disk = [log.tp for log in self._logs.logs()]
        if self._metadata.is_new and on_disk:
            raise ValueError(
                f"the data directory holds {len(on_disk)} partitions but no metadata document"
            )
        for tp in on_disk:
            if not self._metadata.has_partition(tp):
                self._logs.delete(tp)
        internal = [
            self._metadata.new_topic(name, self._config.int(key), _INTERNAL_CONFIGS)
            for name, key in (
                (CONSUMER_OFFSETS_TOPIC, "offsets.topic.num.partitions"),
                (TRANSACTION_STATE_TOPIC, "transaction.state.log.num.partitions"),
            )
            if self._metadata.topic(name) is None
        ]
        if internal:
            self._metadata.add_topics(internal)
        for topic in self._metadata.topics.values():
            self._apply_configs(topic)
            self._create_logs(topic)

    def _create_logs(self, topic: Topic) -> None:
        config = self.log_config(topic.configs)
        for tp in topic.topic_partitions:
            if self._logs.get(tp) is None:
                self._logs.create(tp, config)

    def _apply_configs(self, topic: Topic) -> None:
        config = self.log_config(topic.configs)
        for tp in topic.topic_partitions:
            log = self._logs.get(tp)
            if log is not None:
                log.config = config

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """What a topic's logs run with: its own settings over the broker's over Kafka's."""
        known = LogConfig().describe()
        settings = {**self._config.topic_overrides(), **configs}
        return dataclasses.replace(
            LogConfig.parse({name: value for name, value in settings.items() if name in known}),
            producer_id_expiration_ms=self._config.int("producer.id.expiration.ms"),
        )

    def log_configs(self) -> dict[str, LogConfig]:
        """Settings by topic name, for opening the logs."""
        return {
            topic.name: self.log_config(topic.configs) for topic in self._metadata.topics.values()
        }

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Raise KafkaError(INVALID_CONFIG) for what a topic cannot be set to."""
        check_topic_configs(configs)
        self.log_config(configs)

    # -- changes --------------------------------------------------------------------------------

    def prepare(
        self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Validate a topic to be created. ``partitions`` -1 means the broker's default.

        Raises KafkaError: 17 name, 36 exists, 37 partitions, 40 configs.
        """
        check_topic_name(name)
        if self._metadata.topic(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        collision = self._collision(name)
        if collision is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {collision}",
            )
        count = self._config.int("num.partitions") if partitions == -1 else partitions
        if not 1 <= count <= MAX_PARTITIONS:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Number of partitions must be from 1 to {MAX_PARTITIONS}.",
            )
        self.check_configs(configs or {})
        return self._metadata.new_topic(name, count, configs or {})

    def _collision(self, name: str) -> str | None:
        """Kafka refuses names that differ only in '.' and '_': their metrics would collide."""
        if "." not in name and "_" not in name:
            return None
        flattened = name.replace(".", "_")
        for existing in self._metadata.topics:
            if existing.replace(".", "_") == flattened:
                return existing
        return None

    def create(self, topics: Sequence[Topic]) -> None:
        """Create prepared topics; durable when it returns."""
        if topics:
            self._metadata.add_topics(topics)
            for topic in topics:
                self._create_logs(topic)

    def auto_create(self, name: str) -> Topic:
        """Create a topic because a client asked about it. Raises KafkaError as ``prepare``."""
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic = self.prepare(name)
        self.create([topic])
        return topic

    def delete(self, names: Iterable[str]) -> None:
        """Delete existing topics; durable when it returns."""
        gone = [self._metadata.topics[name] for name in names]
        if not gone:
            return
        self._metadata.remove_topics([topic.name for topic in gone])
        for topic in gone:
            for tp in topic.topic_partitions:
                self._logs.delete(tp)
                self._partition_removed(tp)

    def add_partitions(self, name: str, count: int) -> None:
        self._metadata.set_partitions(name, count)
        self._create_logs(self._metadata.topics[name])

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace what the topic sets itself. The caller has checked the values."""
        self._metadata.set_configs(name, configs)
        self._apply_configs(self._metadata.topics[name])
