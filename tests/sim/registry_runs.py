"""Runs of simulated registries: by seed under faults, and one per step at which one dies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onceward.streams.testing.cluster import BROKER, CLIENT
from onceward.streams.testing.faults import Fault, draw_plan
from onceward.streams.testing.history import Anomaly
from onceward.streams.testing.nemesis import Nemesis
from onceward.streams.testing.sim import Host, LivenessFailure, Step, World
from onceward.streams.testing.simulated_registry import load_registry

from .registry_cluster import RegistryCluster, Setting
from .registry_judge import RegistryHistory, judge

LIMIT_S = 400.0
CRASH_RESTART_S = 0.2


@dataclass
class RegistryOutcome:
    """One run, and what is wrong with it."""

    seed: int
    plan: list[Fault]
    history: RegistryHistory
    events: list[str]
    digest: str
    virtual_s: float
    anomalies: list[Anomaly] = field(default_factory=list)

    def __str__(self) -> str:
        """The whole story."""
        lines = [f"seed {self.seed}"]
        lines += [f"{anomaly.kind}: {anomaly.sentence}" for anomaly in self.anomalies[:5]]
        calls = [str(call) for call in self.history.calls]
        lines += sorted([*calls, *self.events], key=lambda line: float(line[:8]))
        lines += [f"{write.offset}: {write.records}" for write in self.history.writes]
        return "\n".join(lines)


class RegistryNemesis(Nemesis):
    """Knows SIGTERM, too."""

    def __init__(self, cluster: RegistryCluster, plan: Sequence[Fault]) -> None:
        super().__init__(cluster, plan)
        self._registries = cluster

    def _strike(self, fault: Fault) -> None:
        if fault.kind != "terminate":
            super()._strike(fault)
            return
        host = self._hosts[fault.target]
        self._registries.note(host.name, "terminate")
        self._registries.terminate(host)


def setting_of(seed: int) -> Setting:
    """What the run of a seed is like."""
    rng = random.Random(f"{seed}/setting")
    session_s = rng.choice((1.0, 1.0, 3.0, 10.0))
    compacted = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01",
                 "log.segment.bytes": "2048"}  # fmt: skip
    return Setting(
        instances=rng.choice((1, 2, 2, 2, 3)),
        clients=rng.choice((3, 3, 6)),
        pause_s=rng.choice((0.01, 0.05, 0.2, 0.5)),
        answer_s=rng.choice((2.0, 5.0, 15.0)),
        request_timeout_ms=rng.choice((2_000, 10_000)),
        lag_s=rng.choice((0.0, 0.0, 0.2, 1.0)),
        registry={"session_timeout": session_s},
        broker=compacted if rng.random() < 0.3 else {},
    )


def plan_of(seed: int, setting: Setting) -> list[Fault]:
    """The faults of a seed: those of every simulation, and some that make zombies."""
    rng = random.Random(f"{seed}/plan")
    registries = [f"registry-{each}" for each in range(setting.instances)]
    duration_s = rng.choice((0.5, 2.0, 4.0))
    plan = draw_plan(rng, hosts=[BROKER, *registries, CLIENT], duration_s=duration_s)
    session_s = setting.registry["session_timeout"]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = rng.uniform(0, duration_s)
        target = registries[0] if rng.random() < 0.6 else rng.choice(registries)
        long_s = session_s * rng.uniform(0.8, 2.0)
        one_way, other = rng.random() < 0.5, rng.choice([BROKER, *registries])
        plan.append(
            rng.choice(
                (
                    Fault(at, "pause", target, (long_s,)),
                    Fault(at, "pause", target, (long_s,)),
                    Fault(at, "partition", target, (BROKER, one_way, long_s)),
                    Fault(at, "partition", target, (other, one_way, long_s)),
                    Fault(at, "terminate", target, (0.5,)),
                )
            )
        )
    return sorted(plan, key=lambda fault: fault.at)


def run(
    seed: int,
    setting: Setting,
    plan: Sequence[Fault] = (),
    prepare: Callable[[RegistryCluster], None] | None = None,
) -> RegistryOutcome:
    """One run, judged."""
    load_registry()
    world = World(seed)
    cluster = RegistryCluster(world, setting)
    nemesis = RegistryNemesis(cluster, plan)
    if prepare is not None:
        prepare(cluster)
    cluster.start()
    history = cluster.history
    try:
        world.run(lambda: cluster.began, max_virtual_s=LIMIT_S, stop_at_errors=True)
        nemesis.begin()
        world.run(lambda: cluster.over, max_virtual_s=LIMIT_S, stop_at_errors=True)
    except LivenessFailure as failure:
        history.waiting = [str(failure)]
    history.failures += [
        f"{each.host}: {each.message}: {each.exception!r}" for each in world.errors
    ]
    outcome = RegistryOutcome(seed, list(plan), history, cluster.events, world.digest, world.now)
    world.end()
    outcome.anomalies = judge(history)
    return outcome


def run_seed(seed: int) -> RegistryOutcome:
    """The run of a seed, under its faults."""
    setting = setting_of(seed)
    return run(seed, setting, plan_of(seed, setting))


# crashes


class CrashAt(NamedTuple):
    """With so many instances, ``host`` dies before its step of this number."""

    instances: int
    host: str
    step: int
    action: str = "kill"


def steps_of(instances: int) -> list[tuple[str, Step]]:
    """The steps of every host that may die, from its start until clients are done."""
    steps: list[tuple[str, Step]] = []

    def watch(cluster: RegistryCluster) -> None:
        mortal = cluster.hosts

        def on_step(host: Host, step: Step) -> None:
            if host in mortal and not cluster.settled:
                steps.append((host.name, step))

        cluster.world.on_step = on_step

    outcome = run(0, _matrix_setting(instances), prepare=watch)
    assert not outcome.anomalies, outcome
    return steps


def crashes_of(instances: int, steps: Sequence[tuple[str, Step]]) -> list[CrashAt]:
    """Every step of a registry by SIGKILL, of the broker by loss of power as well."""
    return [
        CrashAt(instances, host, step.number, action)
        for host, step in steps
        for action in (("kill", "power_off") if host == BROKER else ("kill",))
    ]


def crash_at(crash: CrashAt) -> RegistryOutcome:
    """The same run, in which one dies, and starts again."""
    happened: list[Step] = []

    def arm(cluster: RegistryCluster) -> None:
        def on_step(host: Host, step: Step) -> None:
            if (host.name, step.number) == (crash.host, crash.step):
                happened.append(step)
                cluster.world.on_step = None
                cluster.note(host.name, crash.action, f"before {step.kind} {step.detail}")
                power = crash.action == "power_off"
                cluster.crash(host, power=power, restart_s=CRASH_RESTART_S)

        cluster.world.on_step = on_step

    outcome = run(0, _matrix_setting(crash.instances), prepare=arm)
    if not happened:
        outcome.anomalies = [Anomaly("no such step", f"the run has no step {crash}")]
    return outcome


def _matrix_setting(instances: int) -> Setting:
    return Setting(
        instances=instances, clients=2, ops=15, calm_ops=0, registry={"session_timeout": 1.0}
    )
