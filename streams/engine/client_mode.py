"""Sending from programs that are no workers: one acknowledged record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.broker.client import Producer, partition_keys

from ..config import Settings
from ..topology import TopicNeed
from .block import Headers
from .declare import create, partition_counts
from .kafka import Kafka

if TYPE_CHECKING:
    from ..topic import Topic


class AppClient:
    """An idempotent producer and the partition counts it needs."""

    def __init__(self, kafka: Kafka, settings: Settings) -> None:
        self._kafka = kafka
        self._settings = settings
        self._producer: Producer = kafka.producer()
        self._counts: dict[str, int] = {}
        self._turn = 0

    async def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> int:
        """Send one record and return its offset. Raises KafkaError."""
        if partition is None:
            partition = await self._place(topic, key)
        when = self._kafka.now_ms() if timestamp_ms is None else timestamp_ms
        return await self._producer.produce(
            topic,
            partition,
            [key],
            [value],
            timestamps=when,
            headers=[headers] if headers else None,
        )

    async def declare(self, topic: Topic) -> None:
        """Create a topic if it is missing. Raises ConfigurationError."""
        admin = self._kafka.admin()
        known = await partition_counts(admin, topic.names)
        needs = [
            TopicNeed(name, topic.partitions, topic.replicas, topic.configs)
            for name in topic.names
            if name not in known
        ]
        self._counts |= known | await create(admin, needs, self._settings)

    async def close(self) -> None:
        await self._producer.close()
        await self._kafka.close()

    async def _place(self, topic: str, key: bytes | None) -> int:
        count = self._counts.get(topic)
        if count is None:
            admin = self._kafka.admin()
            self._counts |= await partition_counts(admin, [topic])
            if topic not in self._counts:
                need = TopicNeed(topic, None, None, {})
                self._counts |= await create(admin, [need], self._settings)
            count = self._counts[topic]
        if key is None:
            self._turn += 1
            return self._turn % count
        return partition_keys([key], count)[0]
