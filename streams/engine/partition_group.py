"""Which records a task handles next: its input partitions merged by timestamp. Pure.

Kafka Streams' ``PartitionGroup``, by blocks instead of records: the partition whose next record is
the oldest is read up to the first record newer than the next record of another partition.
Partitions with nothing fetched are not waited for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable

from onceward.broker.client import FetchedBatch, TopicPartition

from .block import Block


class _Waiting:
    """A fetched block, handed out up to record ``at``: what is left is not copied each time."""

    __slots__ = ("at", "block")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.at = 0

    def __len__(self) -> int:
        return len(self.block) - self.at


class PartitionGroup:
    """Fetched, not yet handled records of one task.

    ``stream_time`` is the highest timestamp handed out so far in ms, -1 before the first.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._queues: dict[TopicPartition, deque[_Waiting]] = {tp: deque() for tp in partitions}
        self.buffered = 0
        self.stream_time = -1
        self.limits: dict[TopicPartition, int] = {}
        """Offsets that are not handed out, nor any after them."""

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._queues)

    def buffered_in(self, tp: TopicPartition) -> int:
        """Records waiting in one partition."""
        return sum(map(len, self._queues[tp]))

    def add(self, batch: FetchedBatch) -> None:
        """Append fetched records; an empty batch moves the position over control records."""
        records = batch.records
        queue = self._queues[batch.tp]
        block = Block(
            batch.tp,
            records.keys,
            records.values,
            records.offsets,
            records.timestamps,
            records.headers,
            records.next_offset,
        )
        queue.append(_Waiting(block))
        self.buffered += len(records.offsets)

    def push_back(self, block: Block) -> None:
        """Return a block that was not handled: it comes first again."""
        self._queues[block.tp].appendleft(_Waiting(block))
        self.buffered += len(block)

    def next_block(self, max_records: int) -> Block | None:
        """The next block of at most ``max_records``; None when nothing is buffered.

        A block without records only carries a position.
        """
        chosen: deque[_Waiting] | None = None
        oldest = newest_allowed = None
        for queue in self._queues.values():
            if not queue:
                continue
            waiting = queue[0]
            if not waiting.block.offsets:
                return queue.popleft().block
            if self.limits and self._is_held_back(waiting):
                continue
            head = waiting.block.timestamps[waiting.at]
            if oldest is None or head < oldest:
                chosen, oldest, newest_allowed = queue, head, oldest
            elif newest_allowed is None or head < newest_allowed:
                newest_allowed = head
        if chosen is None:
            return None
        limit = self.limits.get(chosen[0].block.tp)
        block = self._cut(chosen, max_records, newest_allowed, limit)
        self.buffered -= len(block)
        self.stream_time = max(self.stream_time, max(block.timestamps))
        return block

    def held_back(self) -> list[TopicPartition]:
        """Partitions whose next record is at or behind their limit."""
        return [
            tp
            for tp in self.limits
            if (queue := self._queues[tp])
            and queue[0].block.offsets
            and self._is_held_back(queue[0])
        ]

    @property
    def behind(self) -> set[TopicPartition]:
        """Partitions that have not reached their limit: the others wait for them."""
        return set(self.limits) - set(self.held_back()) if self.limits else set()

    def clear(self) -> None:
        """Forget everything buffered (before seeking)."""
        for queue in self._queues.values():
            queue.clear()
        self.buffered = 0

    def _is_held_back(self, waiting: _Waiting) -> bool:
        limit = self.limits.get(waiting.block.tp)
        return limit is not None and waiting.block.offsets[waiting.at] >= limit

    @staticmethod
    def _cut(
        queue: deque[_Waiting], max_records: int, newest_allowed: int | None, limit: int | None
    ) -> Block:
        waiting = queue[0]
        block, start = waiting.block, waiting.at
        stop = min(len(block), start + max_records)
        if newest_allowed is not None:
            newer = bisect_right(block.timestamps, newest_allowed, start, stop)
            stop = max(start + 1, newer)
        if limit is not None:
            stop = bisect_left(block.offsets, limit, start, stop)
        if stop < len(block):
            waiting.at = stop
        else:
            queue.popleft()
        return block if stop - start == len(block) else block.part(start, stop)
