"""The bytes that members of a consumer group exchange through the broker, which never reads them.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, so that members written with
other clients and Kafka's tools understand ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import ProtocolError
from ..types import TopicPartition

SUBSCRIPTION_VERSION = 2
ASSIGNMENT_VERSION = 1
OWNED_SINCE = 1
GENERATION_SINCE = 2


class MemberMetadata(NamedTuple):
    """What a member said in its subscription (ConsumerProtocolSubscription v0 to v3), decoded."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes = b""
    group_instance_id: str | None = None


def encode_subscription(
    topics: Sequence[str],
    *,
    owned: Iterable[TopicPartition] = (),
    generation: int = -1,
    user_data: bytes = b"",
) -> bytes:
    """ConsumerProtocolSubscription v2."""
    out = [struct.pack(">hi", SUBSCRIPTION_VERSION, len(topics))]
    out += [_string(topic) for topic in topics]
    out += [struct.pack(">i", len(user_data)), user_data]
    out += [_partitions(owned), struct.pack(">i", generation)]
    return b"".join(out)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> MemberMetadata:
    """Any version; fields a newer one added are skipped. Raises ProtocolError."""
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.bytes()
    owned = tuple(reader.partitions()) if version >= OWNED_SINCE else ()
    generation = reader.int32() if version >= GENERATION_SINCE else -1
    return MemberMetadata(topics, owned, generation, user_data, group_instance_id)


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes = b"") -> bytes:
    """ConsumerProtocolAssignment v1; ``user_data`` reaches ``on_assigned`` of that member."""
    head = struct.pack(">h", ASSIGNMENT_VERSION)
    return b"".join((head, _partitions(partitions), struct.pack(">i", len(user_data)), user_data))


def decode_assignment(data: bytes) -> tuple[list[TopicPartition], bytes]:
    """Partitions and user data. Empty bytes are an empty assignment. Raises ProtocolError."""
    if not data:
        return [], b""
    reader = _Reader(data)
    reader.int16()
    return reader.partitions(), reader.bytes()


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    out = [struct.pack(">i", len(topics))]
    for topic, numbers in topics.items():
        out += [_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ProtocolError("group protocol bytes end too early")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise ProtocolError(f"{count} elements cannot be in {len(self._data)} bytes")
        return count

    def string(self) -> str:
        try:
            return self._take(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a name in group protocol bytes is not UTF-8") from error

    def bytes(self) -> bytes:
        size = self.int32()
        return b"" if size == -1 else self._take(size)

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return found
