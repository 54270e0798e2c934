"""Our broker on a simulated machine that dies at every one of its steps: what was acknowledged is
there exactly once, in order. And on one whose disk fails a sync before the power fails."""

from __future__ import annotations

import pytest

from onceward.streams.testing.sim import Host, Step, World

from .workloads import Read, broker, client_of, consume, produce_and_consume

COUNT = 6
RESTART_S = 0.2


def run(step: int, how: str) -> int:
    """Kill the broker before its ``step``; returns how many steps it took in all."""

    def on_step(host: Host, at: Step) -> None:
        if host is server and at.number == step:
            getattr(host, how)()
            world.after(RESTART_S, host.start, broker, host)

    world = World(1)
    found = produce_and_consume(world, COUNT)
    server = world.hosts["broker"]
    world.on_step = on_step
    world.run(lambda: len(found) == COUNT, max_virtual_s=60)
    assert found == [(number, b"%d" % number) for number in range(COUNT)]
    assert not world.errors
    world.end()
    return server.steps


@pytest.mark.parametrize("how", ["kill", "power_off"])
def test_what_the_broker_acknowledged_outlives_its_death_at_any_step(how: str) -> None:
    steps = run(0, how)
    assert steps > 40
    for step in range(1, steps + 1):
        run(step, how)


def run_with_failed_syncs(first: int, count: int) -> int:
    """From the ``first`` on so many syncs fail; when everything is acknowledged the power fails.

    Returns how many syncs there were.
    """
    syncs = 0

    def on_step(host: Host, at: Step) -> None:
        nonlocal syncs
        if host is server and at.kind == "fsync":
            syncs += 1
            if syncs == first:
                server.disk.fail_fsyncs(count)

    world = World(first)
    found = produce_and_consume(world, COUNT)
    server = world.hosts["broker"]
    world.on_step = on_step
    world.run(lambda: len(found) == COUNT, max_virtual_s=60)
    server.power_off()
    world.after(RESTART_S, server.start, broker, server)
    again: list[Read] = []
    auditor = world.host("auditor")
    auditor.start(consume, auditor, COUNT, again)
    world.run(lambda: len(again) == COUNT, max_virtual_s=60)
    assert again == found == [(number, b"%d" % number) for number in range(COUNT)]
    assert not world.errors
    world.end()
    return syncs


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_acknowledged_after_a_failed_sync_outlives_a_power_cut(count: int) -> None:
    syncs = run_with_failed_syncs(0, count)
    assert syncs > 10
    for first in range(1, syncs + 1):
        run_with_failed_syncs(first, count)


@pytest.mark.parametrize("away_s", [0.3, 1.2])
def test_a_client_that_starts_while_the_brokers_machine_is_off_waits_for_it(away_s: float) -> None:
    """Its first connect is answered by nobody, and the kernel asks again only after 1 and 3 s."""

    async def start(host: Host) -> None:
        client = client_of(host)  # with a request timeout of 2 s
        await client.start()
        await client.close()

    world = World(1)
    server, early = world.host("broker"), world.host("early")
    server.power_off()
    world.after(away_s, server.start, broker, server)
    world.run(early.start(start, early), max_virtual_s=60)
    assert not world.errors
    world.end()
