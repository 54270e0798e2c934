"""Makes the faults of a plan happen to a simulated cluster, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .cluster import BROKER
from .faults import Aim, Fault
from .frames import FrameWatch

if TYPE_CHECKING:
    from .sim.host import Host, Step
    from .sim.world import World

_REST_S = 0.2
"""How long a plan's last fault is left to itself before everything is set right."""
_AIM_S = 2.0
"""How long an aimed fault waits for its moment."""


class Target(Protocol):
    """What faults happen to: a ``SimCluster``, or another set of hosts that are kept running."""

    world: World
    client: Host
    calm: bool

    @property
    def hosts(self) -> list[Host]:
        """All that faults may hit, but for the client."""

    def note(self, host: str, what: str, detail: str = "") -> None: ...
    def restart(self, host: Host) -> None: ...
    def crash(self, host: Host, *, power: bool, restart_s: float) -> None: ...


class Nemesis:
    """One plan for one cluster; ``begin`` starts its clock."""

    def __init__(self, cluster: Target, plan: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._plan = plan
        self._network = cluster.world.network
        self._hosts = {host.name: host for host in [*cluster.hosts, cluster.client]}
        self._aims: list[_Aiming] = []
        self._to_come = sum(fault.kind == "aimed" for fault in plan)
        self._over_at = 0.0
        matching = any(fault.kind == "aimed" and fault.aim.match for fault in plan)
        self._watch = FrameWatch(BROKER) if matching else None
        if self._to_come:
            self._world.on_step = self._on_step

    def begin(self) -> None:
        """Schedule the faults, and the calm after them."""
        if not self._plan:
            self._cluster.calm = True
            return
        for fault in self._plan:
            self._world.after(fault.at, self._strike, fault)
            self._lasts_until(self._world.now + fault.at + _duration(fault))
        self._world.at(self._over_at, self._calm)

    def _lasts_until(self, when: float) -> None:
        self._over_at = max(self._over_at, when + _REST_S)

    def _calm(self) -> None:
        """Set everything right: from here on the cluster must come to its end.

        Not before every fault is over. An aimed one is when it has hit, or has waited too long.
        """
        now = self._world.now
        waiting = [aiming.gives_up_at + _REST_S for aiming in self._aims]
        over_at = max(self._over_at, *waiting) if waiting else self._over_at
        if over_at > now:
            self._world.at(over_at, self._calm)
            return
        if self._cluster.calm:
            return
        self._cluster.note("", "heal", "everything")
        self._world.on_step = None
        self._aims.clear()
        self._network.heal()
        for host in self._cluster.hosts:
            host.disk.free_bytes = None
            host.disk.fail_fsyncs(0)
            host.disk.slow_fsync(0.0, 0.0)
            host.resume()
            self._cluster.restart(host)
        self._cluster.client.resume()
        self._cluster.calm = True

    def _strike(self, fault: Fault) -> None:
        host = self._hosts[fault.target]
        if fault.kind == "aimed":
            self._to_come -= 1
            self._aims.append(_Aiming(host, fault.aim, self._world.now + _AIM_S))
            return
        self._cluster.note(host.name, fault.kind, ", ".join(str(arg) for arg in fault.args))
        _STRIKES[fault.kind](self, host, *fault.args)

    def kill(self, host: Host, restart_s: float) -> None:
        self._cluster.crash(host, power=False, restart_s=restart_s)

    def power_off(self, host: Host, restart_s: float) -> None:
        self._cluster.crash(host, power=True, restart_s=restart_s)

    def pause(self, host: Host, seconds: float) -> None:
        host.pause(seconds)

    def partition(self, host: Host, other: str, oneway: bool, seconds: float) -> None:
        if host.name != other:
            self._network.partition(host, other, oneway=oneway)
            self._world.after(seconds, self._network.heal, host, other)

    def isolate(self, host: Host, seconds: float) -> None:
        self._network.isolate(host)
        self._world.after(seconds, self._network.heal, host)

    def slow(self, host: Host, factor: float, seconds: float) -> None:
        self._network.slow(host, factor)
        self._world.after(seconds, self._network.slow, host, 1.0)

    def reset(self, host: Host, pick: int) -> None:
        connections = [c for c in self._network.connections() if host in (c.client, c.server)]
        if connections:
            self._network.reset(connections[pick % len(connections)])

    def half_open(self, host: Host, pick: int) -> None:
        connections = [c for c in self._network.connections() if host in (c.client, c.server)]
        if connections:
            connection = connections[pick % len(connections)]
            forgets = "client" if connection.client is host else "server"
            self._network.half_open(connection, forgets=forgets)

    def clock_jump(self, host: Host, seconds: float) -> None:
        host.clock_skew_s += seconds

    def disk_full(self, host: Host, free_bytes: int, seconds: float) -> None:
        host.disk.free_bytes = free_bytes
        self._world.after(seconds, setattr, host.disk, "free_bytes", None)

    def fsync_fail(self, host: Host, count: int) -> None:
        host.disk.fail_fsyncs(count)

    def slow_fsync(self, host: Host, mean_s: float, probability: float, seconds: float) -> None:
        host.disk.slow_fsync(mean_s, probability)
        self._world.after(seconds, host.disk.slow_fsync, 0.0, 0.0)

    # aimed faults

    def _on_step(self, host: Host, step: Step) -> None:
        names: list[str] | None = None
        if self._watch is not None and step.kind in ("send", "receive"):
            names = self._watch.feed(step.kind, host.name, step.connection, step.data)
        for aiming in self._aims:
            if aiming.host is host and aiming.is_hit_by(step, names):
                self._aims.remove(aiming)
                if not self._aims and not self._to_come:
                    self._world.on_step = None
                self._hit(aiming, step)
                return

    def _hit(self, aiming: _Aiming, step: Step) -> None:
        aim = aiming.aim
        self._lasts_until(self._world.now + aim.delay_s + aim.lasts_s)
        if not self._aims and not self._to_come:
            self._world.at(self._over_at, self._calm)
        if aim.delay_s > 0:
            self._world.after(aim.delay_s, self._act, aiming, step)
        else:
            self._act(aiming, step)

    def _act(self, aiming: _Aiming, step: Step) -> None:
        host, aim = aiming.host, aiming.aim
        detail = (
            f"at {step.kind} {step.number} ({step.detail}{' ' if aim.match else ''}{aim.match})"
        )
        self._cluster.note(host.name, aim.action, detail)
        if aim.action == "reset":
            self._network.reset(step.connection)
        elif aim.action == "pause":
            host.pause(aim.lasts_s)
        elif host.alive:
            self._cluster.crash(host, power=aim.action == "power_off", restart_s=aim.lasts_s)


class _Aiming:
    """An aimed fault that waits for its step, until it gives up."""

    def __init__(self, host: Host, aim: Aim, gives_up_at: float) -> None:
        self.host = host
        self.aim = aim
        self.gives_up_at = gives_up_at
        self._seen = 0

    def is_hit_by(self, step: Step, names: Sequence[str] | None) -> bool:
        aim = self.aim
        if step.kind != aim.step_kind:
            return False
        if aim.match and (
            aim.match not in names if names is not None else aim.match not in step.detail
        ):
            return False
        self._seen += 1
        return self._seen == aim.nth


def _duration(fault: Fault) -> float:
    """How long a fault lasts: its last argument, for those that end. Aimed ones count when they
    hit."""
    if fault.kind in ("reset", "half_open", "clock_jump", "fsync_fail", "aimed"):
        return 0.0
    return float(fault.args[-1])


_STRIKES: dict[str, Callable[..., None]] = {
    "kill": Nemesis.kill,
    "power_off": Nemesis.power_off,
    "pause": Nemesis.pause,
    "partition": Nemesis.partition,
    "isolate": Nemesis.isolate,
    "slow": Nemesis.slow,
    "reset": Nemesis.reset,
    "half_open": Nemesis.half_open,
    "clock_jump": Nemesis.clock_jump,
    "disk_full": Nemesis.disk_full,
    "fsync_fail": Nemesis.fsync_fail,
    "slow_fsync": Nemesis.slow_fsync,
}
