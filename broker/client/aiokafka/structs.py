"""The values programs exchange with the consumer and the producer, with aiokafka's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ...types import TopicPartition
from ..offsets import OffsetAndMetadata as CommittedOffset

__all__ = [
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
    "validate_offsets",
]

KT = TypeVar("KT")
VT = TypeVar("VT")

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record, and any text."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time; ``timestamp`` is its own, in ms."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a record went. ``timestamp`` in ms; ``timestamp_type`` 0 = the sender's, 1 = the
    broker's.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None = None


@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """One record. Sizes are those of the serialized bytes, -1 for None; ``checksum`` is None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes | None]]


Offsets = Mapping[TopicPartition, "int | tuple[int, str] | OffsetAndMetadata"]


def validate_offsets(offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """What a program wants committed. Raises ValueError or TypeError for another shape."""
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(f"offsets are a dict with at least one partition, not {offsets!r}")
    checked = {}
    for tp, position in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"{tp!r} is not a TopicPartition")
        if isinstance(position, int):
            checked[tp] = CommittedOffset(position)
            continue
        if not isinstance(position, tuple) or len(position) != 2:
            raise ValueError(f"{position!r} is neither an offset nor (offset, metadata)")
        offset, metadata = position
        if not isinstance(metadata, str):
            raise TypeError(f"metadata {metadata!r} is not a string")
        checked[tp] = CommittedOffset(offset, metadata=metadata)
    return checked
