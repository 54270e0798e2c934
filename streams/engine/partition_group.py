"""Which records a task handles next: its input partitions merged by timestamp. Pure.

Kafka Streams' ``PartitionGroup``, by blocks instead of records: the partition whose next record is
the oldest is read up to the first record newer than the next record of another partition.
Partitions with nothing fetched are not waited for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from onceward.broker.client import FetchedBatch, TopicPartition

from .block import Block


class PartitionGroup:
    """Fetched, not yet handled records of one task.

    ``stream_time`` is the highest timestamp handed out so far in ms, -1 before the first.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._queues: dict[TopicPartition, deque[Block]] = {tp: deque() for tp in partitions}
        self.buffered = 0
        self.stream_time = -1

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
        queue.append(
            Block(
                batch.tp,
                records.keys,
                records.values,
                records.offsets,
                records.timestamps,
                records.headers,
                records.next_offset,
            )
        )
        self.buffered += len(records.offsets)

    def push_back(self, block: Block) -> None:
        """Return a block that was not handled: it comes first again."""
        self._queues[block.tp].appendleft(block)
        self.buffered += len(block)

    def next_block(self, max_records: int) -> Block | None:
        """The next block of at most ``max_records``; None when nothing is buffered.

        A block without records only carries a position.
        """
        chosen: deque[Block] | None = None
        oldest = newest_allowed = None
        for queue in self._queues.values():
            if not queue:
                continue
            if not queue[0].offsets:
                return queue.popleft()
            head = queue[0].timestamps[0]
            if oldest is None or head < oldest:
                chosen, oldest, newest_allowed = queue, head, oldest
            elif newest_allowed is None or head < newest_allowed:
                newest_allowed = head
        if chosen is None:
            return None
        block = self._cut(chosen, max_records, newest_allowed)
        self.buffered -= len(block)
        self.stream_time = max(self.stream_time, max(block.timestamps))
        return block

    def clear(self) -> None:
        """Forget everything buffered (before seeking)."""
        for queue in self._queues.values():
            queue.clear()
        self.buffered = 0

    @staticmethod
    def _cut(queue: deque[Block], max_records: int, newest_allowed: int | None) -> Block:
        block = queue[0]
        stop = min(len(block), max_records)
        if newest_allowed is not None:
            stop = max(1, min(stop, bisect_right(block.timestamps, newest_allowed, 0, stop)))
        if stop == len(block):
            return queue.popleft()
        queue[0] = block.part(stop, len(block))
        return block.part(0, stop)
