"""Inside one process, a simulated loop is an asyncio loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from onceward.streams.testing.sim import World


def run(main: Callable[[], Awaitable[Any]], world: World | None = None) -> Any:
    """The result of a process on its own."""
    world = world or World(1)
    task = world.host("host").start(_calling(main))
    world.run(task)
    world.end()
    return task.result()


def _calling(main: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    async def call() -> Any:
        return await main()

    return call


def test_callbacks_run_in_the_order_in_which_they_were_scheduled() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        for number in range(5):
            loop.call_soon(order.append, number)
        dropped = loop.call_soon(order.append, 99)
        dropped.cancel()
        assert dropped.cancelled()
        await asyncio.sleep(0)
        return order

    assert run(main) == [0, 1, 2, 3, 4]


def test_timers_fire_at_their_time_in_order_and_cost_none_of_ours() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[str, float]] = []
        start = loop.time()
        for name, delay in (("late", 360.0), ("early", 0.5), ("never", 1.0)):
            timer = loop.call_later(
                delay, lambda name: fired.append((name, round(loop.time() - start, 2))), name
            )
        timer.cancel()
        await asyncio.sleep(400)
        return fired

    assert run(main) == [("early", 0.5), ("late", 360.0)]


def test_many_cancelled_timers_are_cleared_out() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        kept = [loop.call_later(5.0, done.append, number) for number in range(3)]
        for _ in range(5000):
            loop.call_later(1.0, done.append, -1).cancel()
        assert len(world.heap) < 600
        await asyncio.sleep(6)
        assert not any(timer.cancelled() for timer in kept)

    world = World(1)
    done: list[int] = []
    run(main, world)
    assert done == [0, 1, 2]


def test_a_loop_that_spins_sees_time_go_by() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        while loop.time() < start + 0.01:
            await asyncio.sleep(0)
        return loop.time() - start

    assert run(main) == pytest.approx(0.01, abs=0.001)


def test_the_tools_of_asyncio_work() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0.1)
            yield number

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(1, number)) for number in range(3)]
        assert [task.result() for task in tasks] == [0, 1, 2]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.sleep(1)
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        getter = asyncio.create_task(queue.get())
        await queue.put(7)
        assert await getter == 7
        assert await asyncio.wait_for(asyncio.to_thread(sum, [1, 2]), 1) == 3
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(delay)) for delay in (0.1, 9)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert (len(done), len(pending)) == (1, 1)
        assert [number async for number in numbers()] == [0, 1, 2]

    run(main)


def test_sets_of_futures_and_tasks_have_the_order_of_their_making() -> None:
    async def main() -> tuple[list[str], list[int]]:
        loop = asyncio.get_running_loop()
        tasks = {asyncio.create_task(asyncio.sleep(1), name=str(number)) for number in range(9)}
        futures = [loop.create_future() for _ in range(9)]
        positions = [futures.index(future) for future in set(futures)]
        return [task.get_name() for task in tasks], positions

    first = run(main)
    ballast = [bytearray(100 + number) for number in range(1000)]  # other addresses
    assert run(main) == first
    assert ballast


def test_context_variables_are_those_of_the_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")

    async def main() -> tuple[str, str]:
        async def child() -> str:
            before = variable.get()
            variable.set("child")
            return before

        assert variable.get() == "outside"
        variable.set("main")
        return await asyncio.create_task(child()), variable.get()

    assert run(main) == ("main", "main")


def test_an_async_generator_that_is_dropped_is_closed_by_the_loop() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0.1)
            closed.append("closed")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    run(main)
    assert closed == ["closed"]


def test_what_nobody_handles_is_collected() -> None:
    async def fail() -> None:
        raise ValueError("forgotten")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(int, "x")
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        assert task.done()

    world = World(1)
    run(main, world)
    assert [type(error.exception) for error in world.errors] == [ValueError, ValueError]
    assert "never retrieved" in world.errors[1].message
    assert {error.host for error in world.errors} == {"host"}


def test_a_job_for_the_executor_fails_as_in_a_thread() -> None:
    async def main() -> str:
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.get_running_loop().run_in_executor(None, int, "x")
        return "raised"

    assert run(main) == "raised"


def test_a_blocking_call_holds_up_the_process() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        host.loop.block(2.0)
        await asyncio.sleep(0)
        return loop.time() - start

    world = World(1)
    host: Any = world.host("host")
    task = host.start(main)
    world.run(task)
    world.end()
    assert task.result() >= 2.0
