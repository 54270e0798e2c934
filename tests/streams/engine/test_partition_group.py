"""Which records come next: merged by timestamp, never out of order within a partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onceward.broker.client import FetchedBatch, Records, TopicPartition
from onceward.streams.engine.partition_group import PartitionGroup

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def batch(tp: TopicPartition, start: int, timestamps: list[int], after: int = 0) -> FetchedBatch:
    offsets = list(range(start, start + len(timestamps)))
    values: list[bytes | None] = [b"%d" % offset for offset in offsets]
    records = Records(list(values), values, offsets, timestamps, None, start + len(offsets) + after)
    return FetchedBatch(tp, records, 0, 0, 0)


def drain(group: PartitionGroup, most: int = 100) -> list[tuple[TopicPartition, int, int]]:
    found = []
    while (block := group.next_block(most)) is not None:
        assert len(block) <= most
        pairs = zip(block.offsets, block.timestamps, strict=True)
        found += [(block.tp, offset, timestamp) for offset, timestamp in pairs]
    return found


def test_one_partition_is_handed_out_in_blocks_of_bounded_size() -> None:
    group = PartitionGroup([A])
    group.add(batch(A, 0, [1] * 25, after=3))
    sizes, last = [], None
    while (block := group.next_block(10)) is not None:
        sizes.append(len(block))
        last = block
    assert sizes == [10, 10, 5]
    assert last is not None
    assert last.next_offset == 28
    assert group.buffered == 0


def test_two_partitions_are_merged_by_timestamp() -> None:
    group = PartitionGroup([A, B])
    group.add(batch(A, 0, [1, 2, 5, 6]))
    group.add(batch(B, 0, [3, 4, 7]))
    assert [timestamp for _, _, timestamp in drain(group)] == [1, 2, 3, 4, 5, 6, 7]
    assert group.stream_time == 7


def test_an_empty_batch_only_carries_a_position() -> None:
    group = PartitionGroup([A])
    group.add(batch(A, 10, [], after=2))
    block = group.next_block(10)
    assert block is not None
    assert (len(block), block.next_offset) == (0, 12)
    assert group.next_block(10) is None


def test_a_block_pushed_back_comes_first_again() -> None:
    group = PartitionGroup([A])
    group.add(batch(A, 0, [1, 2, 3]))
    block = group.next_block(10)
    assert block is not None
    group.push_back(block.part(1, 3))
    assert [offset for _, offset, _ in drain(group)] == [1, 2]


@given(
    a=st.lists(st.integers(0, 20), max_size=30),
    b=st.lists(st.integers(0, 20), max_size=30),
    most=st.integers(1, 7),
)
def test_nothing_is_lost_or_reordered_within_a_partition(
    a: list[int], b: list[int], most: int
) -> None:
    group = PartitionGroup([A, B])
    group.add(batch(A, 0, a))
    group.add(batch(B, 0, b))
    found = drain(group, most)
    assert [offset for tp, offset, _ in found if tp == A] == list(range(len(a)))
    assert [offset for tp, offset, _ in found if tp == B] == list(range(len(b)))
    if a == sorted(a) and b == sorted(b):
        assert [timestamp for _, _, timestamp in found] == sorted(a + b)
