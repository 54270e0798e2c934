"""Blocks: runs of consecutive records of one partition as parallel lists, the engine's unit of
work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onceward.broker.client import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True, eq=False)
class Block:
    """Records of ``tp`` in offset order. ``next_offset`` is the position after the last of them.

    ``values`` holds the decoded values once the task delivered the block; ``headers`` is None when
    no record has any. Timestamps are in ms.
    """

    tp: TopicPartition
    keys: list[bytes | None]
    raw_values: list[bytes | None]
    offsets: list[int]
    timestamps: list[int]
    headers: list[Headers] | None
    next_offset: int
    values: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> Block:
        """Records ``start`` to ``stop`` (exclusive) as a block of their own."""
        size = len(self.offsets)
        return Block(
            self.tp,
            self.keys[start:stop],
            self.raw_values[start:stop],
            self.offsets[start:stop],
            self.timestamps[start:stop],
            None if self.headers is None else self.headers[start:stop],
            self.next_offset if stop >= size else self.offsets[stop],
        )

    def position(self, index: int) -> int:
        """Offset to go on from when ``index`` records of this block are done."""
        return self.offsets[index] if index < len(self.offsets) else self.next_offset

    def headers_of(self, index: int) -> Headers:
        return self.headers[index] if self.headers is not None else ()


class RecordAt(NamedTuple):
    """One record of a block."""

    block: Block
    at: int

    @property
    def offset(self) -> int:
        return self.block.offsets[self.at]
