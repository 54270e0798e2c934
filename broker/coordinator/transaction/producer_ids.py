"""Hands out producer ids, each exactly once over the life of the cluster."""

from __future__ import annotations

from typing import Protocol

DEFAULT_BLOCK_SIZE = 1000


class ProducerIdStore(Protocol):
    """Where the end of the reserved ids is kept: a port."""

    def reserve(self, count: int) -> int:
        """Reserve ``count`` ids that were never reserved before; returns the first.

        The reservation must survive a crash before this returns. Raises ``KafkaError``.
        """
        ...


class ProducerIds:
    """Ids from persisted blocks (Kafka: ``RPCProducerIdManager``); a crash wastes part of one."""

    def __init__(self, store: ProducerIdStore, block_size: int = DEFAULT_BLOCK_SIZE) -> None:
        self._store = store
        self._block_size = block_size
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """An id nobody was given before. Raises ``KafkaError`` when no block can be reserved."""
        if self._next == self._end:
            self._next = self._store.reserve(self._block_size)
            self._end = self._next + self._block_size
        producer_id = self._next
        self._next += 1
        return producer_id
