"""What was written and where it comes from, as one looks at it one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from onceward.broker.client import TopicPartition
from onceward.streams.engine.block import Block, RecordAt
from onceward.streams.sinks.effects import Batch, EffectId, Effects, Written

BLOCKS = [
    Block(
        TopicPartition("orders", partition), [None] * 4, [None] * 4, [first, first + 1, first + 2,
        first + 7], [0] * 4, None, first + 8,
    )
    for partition, first in ((0, 0), (1, 0), (0, 8))
]  # fmt: skip
Place = tuple[int, int, str]
places = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from(["a", "b"])))


def written(steps: list[Place], first: int = 0) -> Written:
    effects = Effects()
    for number, (block, index, agent) in enumerate(steps):
        effects.add(first + number, BLOCKS[block], index, agent)
    return effects.take()


def ids(steps: list[Place]) -> list[EffectId]:
    counts: Counter[Place] = Counter()
    found = []
    for block, index, agent in steps:
        tp, offset = BLOCKS[block].tp, BLOCKS[block].offsets[index]
        found.append(EffectId(*tp, offset, agent, counts[block, index, agent]))
        counts[block, index, agent] += 1
    return found


def same(one: Written, steps: list[Place], values: list[int]) -> None:
    assert one.values == values
    assert one.records == [RecordAt(BLOCKS[block], index) for block, index, _ in steps]
    assert list(one.ids()) == ids(steps)
    assert one.counts() == Counter(BLOCKS[block].tp for block, _, _ in steps)


@given(steps=places, more=places)
def test_every_value_keeps_its_record_and_its_id(steps: list[Place], more: list[Place]) -> None:
    all_ = written(steps)
    same(all_, steps, list(range(len(steps))))
    all_.extend(written(more, len(steps)))
    same(all_, steps + more, list(range(len(steps) + len(more))))


@given(steps=places, data=st.data())
def test_a_part_has_the_same_records_and_ids_as_in_the_whole(
    steps: list[Place], data: st.DataObject
) -> None:
    whole = Batch("app", "a sink", written(steps))
    start = data.draw(st.integers(0, len(steps)))
    stop = data.draw(st.integers(start, len(steps)))
    part = whole.part(start, stop)
    assert part.values == list(range(start, stop))
    assert part.ids() == ids(steps)[start:stop]
    same(part.written, steps[start:stop], part.values)
    inner = part.part(0, len(part) // 2)
    assert inner.ids() == ids(steps)[start : start + len(inner)]
    assert inner.start == start
    some = data.draw(st.lists(st.sampled_from(range(len(steps))), unique=True)) if steps else []
    some.sort()
    only = whole.only(some)
    assert only.ids() == [ids(steps)[at] for at in some]
    same(only.written, [steps[at] for at in some], some)


@given(steps=places, undone=places, after=places)
def test_what_is_undone_leaves_no_trace(
    steps: list[Place], undone: list[Place], after: list[Place]
) -> None:
    effects = Effects()

    def add(places: list[Place]) -> None:
        for block, index, agent in places:
            effects.add(len(effects), BLOCKS[block], index, agent)

    add(steps)
    effects.mark()
    add(undone)
    effects.roll_back()
    add(after)
    same(effects.take(), steps + after, list(range(len(steps + after))))
    assert (len(effects), effects.take()) == (0, Written())
