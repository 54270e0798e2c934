"""What a program wants to read, and which topics and partitions that means now."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import NamedTuple

from ...types import TopicPartition
from ..admin import Admin
from ..cluster import Client
from .abc import ConsumerRebalanceListener
from .options import ConsumerOptions, touch_topic


class Interest(NamedTuple):
    """One of: ``topics``, a ``pattern`` of topic names, or ``partitions``."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] | None = None
    listener: ConsumerRebalanceListener | None = None

    @property
    def kind(self) -> str:
        if self.partitions is not None:
            return "partitions"
        return "topics" if self.pattern is None else "pattern"

    @property
    def all_topics(self) -> frozenset[str]:
        """Those that are named; none for a pattern."""
        return self.topics | {tp.topic for tp in self.partitions or ()}


class Selection:
    """Follows the cluster's metadata; with a group, only what the group does not do by itself."""

    def __init__(self, client: Client, options: ConsumerOptions, interest: Interest) -> None:
        self._client = client
        self._interest = interest
        self._max_age = options.metadata_max_age_ms / 1000
        self._hide_internal = options.exclude_internal_topics
        self.in_group = options.group_id is not None and interest.partitions is None
        self.topics = interest.all_topics
        self._untouched = set(self.topics)
        self._looked_at = float("-inf")
        self._partitions: frozenset[TopicPartition] | None = None

    @property
    def matches_nothing(self) -> bool:
        """No topic matches the pattern; False before anybody looked."""
        looked = self._looked_at > float("-inf")
        return self._interest.pattern is not None and looked and not self.topics

    async def touch_topics(self) -> None:
        """Ask for each topic once, so that a broker that creates topics on demand creates it."""
        while self._untouched:
            name = self._untouched.pop()
            if name not in self._client.metadata.topics:
                await touch_topic(self._client, name)

    async def new_topics(self) -> frozenset[str] | None:
        """The topics that match the pattern, if they are others than before."""
        pattern = self._interest.pattern
        now = asyncio.get_running_loop().time()
        if pattern is None or now - self._looked_at < self._max_age:
            return None
        names = await Admin(self._client).list_topics(internal=not self._hide_internal)
        self._looked_at = now
        found = frozenset(name for name in names if pattern.match(name))
        if found == self.topics:
            return None
        self.topics = found
        return found

    async def new_partitions(self) -> Collection[TopicPartition] | None:
        """All partitions of the topics, if they are others than before; those there are now."""
        await self.new_topics()
        missing = [name for name in self.topics if name not in self._client.metadata.topics]
        if missing:
            await self._client.refresh_metadata(missing)
        topics = self._client.metadata.topics
        found = frozenset(
            TopicPartition(name, number)
            for name in self.topics
            if name in topics and not topics[name].error
            for number in topics[name].partitions
        )
        if found == self._partitions:
            return None
        self._partitions = found
        return found
