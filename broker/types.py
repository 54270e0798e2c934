"""Vocabulary shared by every layer of the broker: a leaf that imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview
"""What the layers pass around as bytes; never copied only to change its type."""

Clock = Callable[[], int]
"""Wall clock in milliseconds since the epoch. Injected; decisions take ``now_ms`` instead."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
ZERO_UUID = bytes(16)
"""The absent topic id on the wire."""

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """A partition by name: the address every layer uses."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java, which Kafka uses to spread groups and transactional ids."""
    value = 0
    for unit in _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _utf16_units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[i] << 8 | raw[i + 1] for i in range(0, len(raw), 2)]


def coordinator_partition(key: str, partitions: int) -> int:
    """Partition of an internal topic that owns a group or transactional id (``Utils.abs``)."""
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions
