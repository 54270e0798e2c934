"""Hosts and their deaths, replay from the seed, and the report of a run that does not end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.streams.testing.sim import (
    Host,
    HostDied,
    LivenessFailure,
    NothingScheduled,
    OutOfTime,
    Step,
    World,
)

from .workloads import produce_and_consume

ROOT = Path(__file__).resolve().parents[2]
COUNT = 20
EXPECTED = [(number, b"%d" % number) for number in range(COUNT)]


def run_for(world: World, seconds: float) -> None:
    end = world.now + seconds
    world.at(end, lambda: None)
    world.run(lambda: world.now >= end)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


# -- the same seed, the same run ------------------------------------------------------------------


def digest(seed: int) -> str:
    world = World(seed)
    found = produce_and_consume(world, COUNT)
    world.run(lambda: len(found) == COUNT)
    world.end()
    assert found == EXPECTED
    assert not world.errors
    return world.digest


def test_our_broker_and_client_run_unmodified_and_a_seed_replays() -> None:
    assert digest(7) == digest(7)
    assert digest(8) != digest(7)


def test_a_seed_replays_in_another_interpreter_whatever_its_hash_seed() -> None:
    program = "from tests.sim.test_world import digest; print(digest(7), digest(9))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert runs == {f"{digest(7)} {digest(9)}\n"}


def test_a_trace_tells_the_run_and_does_not_change_it() -> None:
    world = World(7, keep_trace=True)
    found = produce_and_consume(world, COUNT)
    world.run(lambda: len(found) == COUNT)
    world.end()
    assert world.digest == digest(7)
    assert world.trace is not None
    assert any("'accept'" in line for line in world.trace)
    assert not any(" at 0x" in line for line in world.trace)


def test_purposes_draw_from_streams_of_their_own() -> None:
    one, two = World("s"), World("s")
    two.rng("network").random()
    assert one.rng("faults") is one.rng("faults")
    assert one.rng("faults").random() == two.rng("faults").random()
    assert World("t").rng("faults").random() != World("s").rng("faults").random()
    host = one.host("a")
    assert host.rng().random() != host.rng().random()
    one.end()
    two.end()


# -- life and death -------------------------------------------------------------------------------


def test_a_process_ends_with_its_main_task_as_under_asyncio_run() -> None:
    log: list[str] = []

    async def child() -> None:
        try:
            await forever()
        finally:
            log.append("cancelled")

    async def main() -> str:
        log.append("kept" if asyncio.create_task(child()) else "")
        await asyncio.sleep(0.1)
        return "result"

    world = World(1)
    host = world.host("a")
    task = host.start(main)
    assert (host.alive, host.main) == (True, task)
    world.run(task)
    run_for(world, 0.1)
    assert (host.alive, host.main, task.result()) == (False, None, "result")
    assert log == ["kept", "cancelled"]
    host.start(main)
    with pytest.raises(RuntimeError, match="already"):
        host.start(main)
    assert host.incarnation == 2
    world.end()


def test_a_main_task_that_fails_is_an_error_of_its_host() -> None:
    async def main() -> None:
        raise ValueError("mine")

    world = World(1)
    task = world.host("a").start(main)
    world.run(task)
    run_for(world, 0.1)
    (error,) = world.errors
    assert (error.host, error.message, str(error.exception)) == (
        "a",
        "the main task failed",
        "mine",
    )
    assert isinstance(task.exception(), ValueError)
    world.end()


@pytest.mark.parametrize("how", ["kill", "power_off"])
def test_of_a_killed_process_nothing_runs_any_more(how: str) -> None:
    log: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(5, log.append, "timer")
        try:
            while True:
                await asyncio.sleep(0.1)
                log.append("tick")
        finally:
            log.append("finally")

    world = World(1)
    host = world.host("a")
    host.start(main)
    world.after(1.05, getattr(host, how))
    run_for(world, 2)
    assert set(log) == {"tick"}
    ticks = len(log)
    assert not host.alive
    assert host.powered == (how == "kill")
    host.start(forever)
    assert host.powered
    run_for(world, 10)
    assert len(log) == ticks
    world.end()
    assert set(log) == {"tick"}


def test_a_host_killed_at_a_step_dies_before_it_takes_effect() -> None:
    log: list[str] = []

    async def main(host: Host) -> None:
        file = host.disk.open("/a", create=True)
        try:
            file.append([b"one"])
            log.append("one")
            file.append([b"two"])
            log.append("two")
        finally:
            with pytest.raises(HostDied):
                host.disk.remove("/a")
            with pytest.raises(HostDied):
                await file.fsync()

    def on_step(host: Host, step: Step) -> None:
        steps.append(step)
        if step.number == 3:
            host.kill()

    world = World(1)
    steps: list[Step] = []
    world.on_step = on_step
    host = world.host("a")
    host.start(main, host)
    run_for(world, 1)
    assert log == ["one"]
    assert host.disk.read("/a") == b"one"
    assert [(step.kind, step.number, step.detail) for step in steps] == [
        ("write", 1, "/a"),
        ("write", 2, "/a"),
        ("write", 3, "/a"),
    ]
    world.end()


def test_sends_and_receives_are_steps_and_a_death_there_is_seen_by_the_peer() -> None:
    async def serve() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(4))

        await asyncio.start_server(answer, "server", 7)
        await forever()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(b"ping")
        try:
            return await reader.read()
        except ConnectionResetError:
            return b"reset"

    def run(die_at: str) -> tuple[list[str], bytes]:
        def on_step(host: Host, step: Step) -> None:
            steps.append(f"{host.name} {step.kind} {step.detail} {step.data!r}")
            if host.name == "server" and step.kind == die_at:
                host.kill()

        steps: list[str] = []
        world = World(1)
        world.network.split_p = 0.0
        world.on_step = on_step
        server = world.host("server")
        server.start(serve)
        run_for(world, 0.1)
        asking = world.host("client").start(ask)
        world.run(asking)
        world.end()
        assert not server.alive
        return steps, asking.result()

    sent, received = "client send -> server 4 bytes b'ping'", "server receive <- client 4 bytes"
    assert run("receive") == ([sent, f"{received} b'ping'"], b"reset")
    assert run("send") == (
        [sent, f"{received} b'ping'", "server send -> client 4 bytes b'ping'"],
        b"",
    )


def test_a_step_may_power_off_another_host() -> None:
    async def main(host: Host) -> None:
        host.disk.open("/a", create=True)

    world = World(1)
    one, two = world.host("a"), world.host("b")
    world.on_step = lambda host, step: two.power_off()
    two.start(forever)
    task = one.start(main, one)
    world.run(task)
    assert (task.exception(), two.powered, one.disk.exists("/a")) == (None, False, True)
    world.end()


def test_a_paused_process_loses_time_and_goes_on() -> None:
    async def main() -> None:
        while True:
            ticks.append(world.now)
            await asyncio.sleep(0.1)

    world = World(1)
    ticks: list[float] = []
    host = world.host("a")
    host.start(main)
    run_for(world, 1)
    host.pause(5)
    run_for(world, 4.9)
    assert len(ticks) <= 11
    run_for(world, 2)
    host.pause_until_resumed()
    host.pause(1)  # its end is no end of a later pause
    host.pause_until_resumed()
    seen = len(ticks)
    assert seen > 15
    run_for(world, 10)
    assert len(ticks) == seen
    host.resume()
    host.resume()
    run_for(world, 1)
    assert len(ticks) > seen
    world.end()


def test_a_process_that_pauses_itself_stops_after_the_callback() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(host.pause, 3.0)
        loop.call_soon(lambda: seen.append(world.now))
        await forever()

    world = World(1)
    seen: list[float] = []
    host = world.host("a")
    host.start(main)
    start = world.now
    run_for(world, 5)
    assert seen[0] - start == pytest.approx(3.0, abs=0.01)
    world.end()


def test_wall_clocks_differ_by_their_skew_and_can_jump() -> None:
    world = World(1)
    one, two = world.host("a"), world.host("b", clock_skew_s=2.5)
    assert two.wall_ms() - one.wall_ms() == 2500
    before = one.wall_ms()
    one.clock_skew_s -= 60
    run_for(world, 10)
    assert one.wall_ms() - before == pytest.approx(-50_000, abs=1)
    with pytest.raises(ValueError, match="already"):
        world.host("a")
    world.end()


# -- runs that do not end -------------------------------------------------------------------------


async def inner() -> None:
    await forever()


async def outer() -> None:
    await inner()


def test_a_deadlock_is_reported_with_what_every_task_waits_for() -> None:
    async def main() -> None:
        child = asyncio.create_task(outer(), name="child")
        await child

    world = World(1)
    world.host("a").start(main)
    world.host("idle")
    with pytest.raises(NothingScheduled) as caught:
        world.run(lambda: False)
    main_line, child_line, idle_line = caught.value.waiting
    assert main_line.startswith("a: a main: ")
    assert main_line.endswith(" > task child")
    assert child_line.startswith("a: child: outer (sim/test_world.py:")
    assert " > inner (sim/test_world.py:" in child_line
    assert " > forever (sim/test_world.py:" in child_line
    assert idle_line == "idle: no process"
    assert child_line in str(caught.value)
    world.end()


def test_limits_of_time_and_of_steps_end_a_run_that_may_then_go_on() -> None:
    async def main() -> str:
        while world.now < 1003:
            await asyncio.sleep(0)
        return "done"

    async def ticks() -> None:
        while True:
            await asyncio.sleep(1)

    world = World(1)
    task = world.host("a").start(main)
    world.host("b").start(ticks)
    with pytest.raises(OutOfTime, match="virtual time"):
        world.run(task, max_virtual_s=0.5)
    with pytest.raises(LivenessFailure, match="steps"):
        world.run(task, max_steps=100)
    world.run(task)
    assert task.result() == "done"
    world.end()


def test_the_test_s_own_random_numbers_are_its_own_again_after_the_end() -> None:
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    world = World(1)
    random.random()
    world.end()
    world.end()
    assert random.random() == expected
