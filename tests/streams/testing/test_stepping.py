"""The event loop of the driver: virtual time, and no waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from onceward.streams.testing.stepping import SteppingLoop, Stuck, Verdict


def done() -> Verdict:
    return Verdict.DONE


async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


def test_sleeping_takes_virtual_time_only() -> None:
    loop = SteppingLoop()
    start = time.perf_counter()
    assert loop.run_coroutine(sleeps(3000.0)) == pytest.approx(3000.0)
    assert time.perf_counter() - start < 1.0
    loop.shut_down()


def test_the_clock_stands_still_when_all_is_done_and_stops_where_it_is_told_to() -> None:
    loop = SteppingLoop()
    rung: list[float] = []
    for delay in (1.0, 2.0, 3.0):
        loop.call_later(delay, lambda: rung.append(loop.time()))
    loop.run(done)
    assert (rung, loop.time()) == ([], 0.0)
    loop.run(done, until=2.5)
    assert (rung, loop.time()) == ([1.0, 2.0], 2.5)
    loop.run(done, until=1.0)  # never back
    assert loop.time() == 2.5
    loop.shut_down()


def test_tiny_steps_late_in_time_still_arrive() -> None:
    loop = SteppingLoop()
    loop.run(done, until=3e9)
    assert loop.run_coroutine(sleeps(1e-9)) >= 3e9
    loop.shut_down()


def test_waiting_for_nothing_and_waiting_too_long_and_spinning_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    async def sleeps_on() -> None:
        while True:
            await asyncio.sleep(100)

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    monkeypatch.setattr("onceward.streams.testing.stepping._MAX_TURNS", 1000)
    for function, complaint in (
        (waits, "never comes"), (sleeps_on, "still at it after 3600"), (spins, "spins"),
    ):  # fmt: skip
        loop = SteppingLoop()
        with pytest.raises(Stuck, match=complaint):
            loop.run_coroutine(function())
        loop.shut_down()


def test_a_judge_that_always_finds_more_to_do_is_told() -> None:
    loop = SteppingLoop()
    with pytest.raises(Stuck, match="no progress"):
        loop.run(lambda: Verdict.AGAIN)
    loop.shut_down()


async def test_it_runs_within_another_loop_and_leaves_it_as_it_was() -> None:
    outer, task = asyncio.get_running_loop(), asyncio.current_task()
    loop = SteppingLoop()

    async def inner() -> tuple[asyncio.AbstractEventLoop, bool]:
        return asyncio.get_running_loop(), asyncio.current_task() is task

    assert loop.run_coroutine(inner()) == (loop, False)
    with pytest.raises(ZeroDivisionError):
        loop.run_coroutine(fails())
    assert asyncio.get_running_loop() is outer
    assert asyncio.current_task() is task
    loop.shut_down()
    await asyncio.sleep(0)


async def fails() -> None:
    raise ZeroDivisionError


def test_a_timeout_does_not_go_off_while_an_executor_works() -> None:
    loop = SteppingLoop()

    async def works() -> str:
        async with asyncio.timeout(0.5):
            return await asyncio.get_running_loop().run_in_executor(None, works_in_thread)

    assert loop.run_coroutine(works()) == "done"
    loop.shut_down()


def works_in_thread() -> str:
    time.sleep(0.02)
    return "done"


def test_shutting_down_cancels_what_is_left_and_may_be_repeated() -> None:
    loop = SteppingLoop()
    ended: list[str] = []

    async def left() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("finally")

    loop.create_task(left())
    loop.run(done)
    loop.shut_down()
    loop.shut_down()
    assert ended == ["finally"]
    assert loop.is_closed()
