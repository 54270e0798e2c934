from __future__ import annotations

import asyncio

import pytest

from onceward.broker.server.purgatory import Purgatory
from onceward.broker.types import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_a_satisfied_wait_does_not_suspend() -> None:
    assert await Purgatory().wait([ONE], lambda: True, None)


async def test_a_waiter_is_released_when_its_test_holds_and_not_before() -> None:
    purgatory, high_watermark = Purgatory(), [0]
    waiting = asyncio.ensure_future(purgatory.wait([ONE], lambda: high_watermark[0] > 5, None))
    await asyncio.sleep(0)
    high_watermark[0] = 5
    purgatory.notify(ONE)
    await asyncio.sleep(0)
    assert not waiting.done()
    high_watermark[0] = 6
    purgatory.notify(ONE)
    assert await waiting
    assert len(purgatory) == 0


async def test_any_of_the_partitions_wakes_the_waiter() -> None:
    purgatory, moved = Purgatory(), [False]
    waiting = asyncio.ensure_future(purgatory.wait([ONE, TWO], lambda: moved[0], None))
    await asyncio.sleep(0)
    assert len(purgatory) == 2
    moved[0] = True
    purgatory.notify(TWO)
    assert await waiting
    assert len(purgatory) == 0


async def test_the_timeout_answers_false_and_leaves_nothing_behind() -> None:
    purgatory = Purgatory()
    assert not await purgatory.wait([ONE], lambda: False, 0.01)
    assert not await purgatory.wait([ONE], lambda: False, 0)
    assert len(purgatory) == 0


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    purgatory = Purgatory()
    waiting = asyncio.ensure_future(purgatory.wait([ONE, TWO], lambda: False, 10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(purgatory) == 0


async def test_closing_releases_everybody() -> None:
    purgatory = Purgatory()
    waiting = [
        asyncio.ensure_future(purgatory.wait([tp], lambda: False, None)) for tp in (ONE, TWO)
    ]
    await asyncio.sleep(0)
    purgatory.close()
    assert await asyncio.gather(*waiting) == [False, False]
    assert not await purgatory.wait([ONE], lambda: False, None)
