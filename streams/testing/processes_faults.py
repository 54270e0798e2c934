"""Makes the faults of a plan happen to real processes and to the proxy before their broker."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .cluster import BROKER
from .faults import PROCESS_KINDS, Aim, Fault, Swarm, draw_plan
from .proxy import Connection, FaultProxy, Frame

if TYPE_CHECKING:
    from .processes_cluster import ProcessCluster
    from .processes_hosts import Host

FAULTS_S = 3.0
"""Faults start within this long after the first input was sent."""
_OUTAGES_S = (0.2, 1.0, 3.0)
_DELAY_S = 0.001
"""What a factor of slowness multiplies: a network in one room."""
_AIM_S = 3.0
"""How long an aimed fault waits for its moment."""


def draw_process_plan(seed: int, workers: int) -> list[Fault]:
    """The faults of one round."""
    rng = random.Random(f"{seed}/processes")
    kinds = rng.sample(PROCESS_KINDS, rng.choice((2, 3, 4, 6)))
    if rng.random() < 0.6 and "aimed" not in kinds:
        kinds.append("aimed")
    swarm = Swarm(
        tuple(kinds), rng.choice((3, 4, 6, 8)), rng.choice(_OUTAGES_S), rng.choice((0.0, 0.3))
    )
    hosts = [BROKER, *(f"worker-{number}" for number in range(workers))]
    plan = draw_plan(rng, hosts=hosts, duration_s=FAULTS_S, swarm=swarm)
    return [_for_processes(fault) for fault in plan]


def _for_processes(fault: Fault) -> Fault:
    """Only frames can be aimed at; a fault aimed at a disk or a database becomes a kill."""
    if fault.kind != "aimed":
        return fault
    aim = fault.aim
    if aim.step_kind not in ("send", "receive"):
        return Fault(fault.at, "kill", fault.target, (aim.lasts_s,))
    action = "kill" if aim.action == "power_off" else aim.action
    return Fault(fault.at, "aimed", fault.target, tuple(aim._replace(action=action)))


class ProcessNemesis:
    """One plan for one cluster. ``run`` ends when the last fault is over."""

    def __init__(self, cluster: ProcessCluster, plan: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._proxy: FaultProxy = cluster.proxy
        self._plan = plan
        self._aims: list[_Aiming] = []
        self.struck: Counter[str] = Counter()
        """Faults that happened, by kind."""
        self._proxy.intercept = self._intercept

    async def run(self) -> None:
        """From now on. What is broken at its end is left to ``ProcessCluster.heal``."""
        async with asyncio.TaskGroup() as group:
            for fault in self._plan:
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        host = self._cluster.hosts[fault.target]
        if fault.kind == "aimed":
            aiming = _Aiming(host, fault.aim)
            self._aims.append(aiming)
            await asyncio.sleep(_AIM_S)
            if aiming in self._aims:
                self._aims.remove(aiming)
            await aiming.ended()
            return
        self._cluster.note(host.name, fault.kind, ", ".join(str(arg) for arg in fault.args))
        self.struck[fault.kind] += 1
        await _STRIKES[fault.kind](self, host, *fault.args)

    def _links_of(self, host: Host) -> list[str]:
        """The listeners that a fault of this host concerns: of the broker, all."""
        if host.name != BROKER:
            return [host.name]
        return [name for name in self._cluster.hosts if name != BROKER]

    def _connections_of(self, host: Host) -> list[Connection]:
        return [each for name in self._links_of(host) for each in self._proxy.connections(name)]

    async def kill(self, host: Host, restart_s: float) -> None:
        await host.kill(restart_s)

    async def terminate(self, host: Host, restart_s: float) -> None:
        await host.terminate(restart_s)

    async def pause(self, host: Host, seconds: float) -> None:
        host.pause()
        await asyncio.sleep(seconds)
        host.resume()

    async def partition(self, host: Host, other: str, one_way: bool, seconds: float) -> None:
        link = other if host.name == BROKER else host.name
        if host.name == other or link == BROKER:
            return
        to_broker = host.name != BROKER
        self._proxy.partition(
            link, requests=to_broker or not one_way, answers=not to_broker or not one_way
        )
        await asyncio.sleep(seconds)
        self._proxy.heal(link)

    async def isolate(self, host: Host, seconds: float) -> None:
        for link in self._links_of(host):
            self._proxy.partition(link)
        await asyncio.sleep(seconds)
        for link in self._links_of(host):
            self._proxy.heal(link)

    async def slow(self, host: Host, factor: float, seconds: float) -> None:
        for link in self._links_of(host):
            self._proxy.slow(link, factor * _DELAY_S)
        await asyncio.sleep(seconds)
        for link in self._links_of(host):
            self._proxy.slow(link, 0.0)

    async def reset(self, host: Host, pick: int) -> None:
        connections = self._connections_of(host)
        if connections:
            self._proxy.reset(connections[pick % len(connections)])

    async def half_open(self, host: Host, pick: int) -> None:
        connections = self._connections_of(host)
        if connections:
            forgets: Literal["client", "broker"] = "broker" if host.name == BROKER else "client"
            self._proxy.half_open(connections[pick % len(connections)], forgets=forgets)

    # aimed faults

    async def _intercept(self, frame: Frame) -> bool:
        for aiming in self._aims:
            if aiming.is_hit_by(frame):
                self._aims.remove(aiming)
                return await self._hit(aiming, frame)
        return True

    async def _hit(self, aiming: _Aiming, frame: Frame) -> bool:
        """Whether the frame may pass."""
        host, aim = aiming.host, aiming.aim
        if aim.delay_s > 0:
            aiming.act(self._later(aiming, frame))
            return True
        self._note(aiming, frame)
        if aim.action == "reset":
            return False
        if aim.action == "pause":
            aiming.act(self.pause(host, aim.lasts_s))
            if aim.step_kind == "send":  # it arrives when its sender goes on
                await aiming.ended()
            return True
        await host.kill(aim.lasts_s)
        return False

    async def _later(self, aiming: _Aiming, frame: Frame) -> None:
        host, aim = aiming.host, aiming.aim
        await asyncio.sleep(aim.delay_s)
        self._note(aiming, frame)
        if aim.action == "reset":
            self._proxy.reset(frame.connection)
        elif aim.action == "pause":
            await self.pause(host, aim.lasts_s)
        else:
            await host.kill(aim.lasts_s)

    def _note(self, aiming: _Aiming, frame: Frame) -> None:
        aim = aiming.aim
        way = "to" if frame.is_request else "from"
        what = f"{frame.connection.link.name} {way} broker"
        self.struck[f"aimed {aim.action}"] += 1
        detail = f"at {aim.step_kind} of {frame.api} number {aim.nth} ({what})"
        self._cluster.note(aiming.host.name, aim.action, detail)


class _Aiming:
    """An aimed fault that waits for its frame."""

    def __init__(self, host: Host, aim: Aim) -> None:
        self.host = host
        self.aim = aim
        self._seen = 0
        self._acting: asyncio.Task[None] | None = None

    def is_hit_by(self, frame: Frame) -> bool:
        is_broker = self.host.name == BROKER
        if not is_broker and frame.connection.link.name != self.host.name:
            return False
        sends = frame.is_request != is_broker
        if sends != (self.aim.step_kind == "send"):
            return False
        if self.aim.match and self.aim.match != frame.api:
            return False
        self._seen += 1
        return self._seen == self.aim.nth

    def act(self, action: Coroutine[Any, Any, None]) -> None:
        self._acting = asyncio.create_task(action)

    async def ended(self) -> None:
        """Until what it began is over."""
        if self._acting is not None:
            await self._acting


_STRIKES: dict[str, Callable[..., Awaitable[None]]] = {
    "kill": ProcessNemesis.kill,
    "terminate": ProcessNemesis.terminate,
    "pause": ProcessNemesis.pause,
    "partition": ProcessNemesis.partition,
    "isolate": ProcessNemesis.isolate,
    "slow": ProcessNemesis.slow,
    "reset": ProcessNemesis.reset,
    "half_open": ProcessNemesis.half_open,
}
