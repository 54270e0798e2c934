"""The standard library inside a simulated process is the simulated machine's."""

from __future__ import annotations

import os
import random
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from onceward.streams.testing.sim import World, install
from onceward.streams.testing.sim.patch import SimulationEscape


def inside(work: Callable[[], Any], seed: int = 1) -> Any:
    async def main() -> Any:
        return work()

    world = World(seed)
    task = world.host("machine", clock_skew_s=100.0).start(main)
    world.run(task)
    world.end()
    return task.result()


def test_clocks_are_the_world_s() -> None:
    def read() -> list[float]:
        return [
            time.time(),
            time.time_ns() / 1e9,
            time.monotonic(),
            time.monotonic_ns() / 1e9,
            time.perf_counter(),
            time.perf_counter_ns() / 1e9,
        ]

    wall, monotonic = [1_700_000_100.0] * 2, [1000.0] * 4
    assert inside(read) == pytest.approx([*wall, *monotonic], abs=0.01)
    assert read()[0] > 1_700_000_200


@pytest.mark.parametrize(
    "draw",
    [
        lambda: os.urandom(8),
        lambda: secrets.token_hex(8),
        lambda: str(uuid.uuid4()),
        lambda: str(uuid.uuid1()),
        lambda: random.random(),
        lambda: random.Random().random(),
        lambda: random.SystemRandom().random(),
    ],
    ids=["urandom", "secrets", "uuid4", "uuid1", "random", "Random()", "SystemRandom"],
)
def test_entropy_comes_from_the_seed(draw: Callable[[], Any]) -> None:
    assert inside(draw, 1) == inside(draw, 1) != inside(draw, 2)
    assert draw() != draw()


def test_the_machine_has_its_own_name() -> None:
    assert inside(socket.gethostname) == "machine"
    assert inside(os.getpid) == 1001
    assert socket.gethostname() != "machine"


@pytest.mark.parametrize(
    "escape",
    [
        lambda: time.sleep(0.001),
        lambda: threading.Thread(target=int).start(),
        lambda: socket.socket().close(),
    ],
    ids=["sleep", "thread", "socket"],
)
def test_what_would_leave_the_simulation_raises_inside_and_works_outside(
    escape: Callable[[], None],
) -> None:
    def try_it() -> str:
        with pytest.raises(SimulationEscape):
            escape()
        return "raised"

    assert inside(try_it) == "raised"
    escape()


def test_installing_twice_changes_nothing() -> None:
    install()
    before = time.time
    install()
    assert time.time is before
