"""Fault plans: drawn up front from a seed, so that they can be printed, replayed and shrunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from random import Random

KINDS: tuple[str, ...] = (
    "kill",
    "power_off",
    "pause",
    "partition",
    "isolate",
    "slow",
    "reset",
    "half_open",
    "clock_jump",
    "disk_full",
    "fsync_fail",
    "slow_fsync",
    "aimed",
)
"""In simulation."""

PROCESS_KINDS: tuple[str, ...] = (
    "kill",
    "terminate",
    "pause",
    "partition",
    "isolate",
    "slow",
    "reset",
    "half_open",
    "aimed",
)
"""Of real processes: a power failure, a broken disk and another clock take a machine."""


class Aim(NamedTuple):
    """When an aimed fault strikes, and with what.

    From the fault's ``at`` on, steps of the target host of kind ``step_kind`` ("write", "fsync",
    "send", "receive", "database", ...) that fit ``match`` are counted from 1: a part of the path,
    or of a frame the name of its API, of requests and responses alike (``END_TXN``); empty fits
    all. At number ``nth`` ``action`` ("kill", "power_off", "pause", "reset") is done: instead of
    the step when ``delay_s`` is 0, else that long after it took effect. ``lasts_s``: until the
    restart (kill, power_off) or the resumption (pause).
    """

    step_kind: str
    nth: int
    action: str
    delay_s: float = 0.0
    lasts_s: float = 0.2
    match: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: ``at`` seconds after the workload starts, on host ``target``.

    ``args`` by kind:
    kill, power_off, terminate: (restarted after seconds,); pause: (seconds,);
    isolate: (seconds,);
    partition: (other host, one way?, seconds); slow: (latency factor, seconds);
    reset, half_open: (pick,), the host's live connection number ``pick`` modulo how many it has;
    clock_jump: (seconds, may be negative,); disk_full: (free bytes left, seconds);
    fsync_fail: (how many fail,); slow_fsync: (mean seconds, probability, seconds);
    aimed: the fields of ``Aim``.
    """

    at: float
    kind: str
    target: str
    args: tuple[Any, ...] = ()

    @property
    def aim(self) -> Aim:
        """The arguments of an aimed fault by name."""
        return Aim(*self.args)

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form for replay files."""
        return {"at": self.at, "kind": self.kind, "target": self.target, "args": list(self.args)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Fault:
        """The inverse of ``to_json``. Raises ValueError for an unknown kind."""
        if data["kind"] not in _DRAWN:
            raise ValueError(f"unknown kind of fault {data['kind']!r}; known: {', '.join(_DRAWN)}")
        return cls(float(data["at"]), data["kind"], data["target"], tuple(data["args"]))


# drawing


@dataclass(frozen=True, slots=True)
class Swarm:
    """What one run's faults are like: few kinds at a time find more than all at once.

    ``kinds``: those that occur; ``count``: how many faults; ``outage_s``: the longest outage, cut
    or slowness; ``close``: how likely a fault follows close upon the one before.
    """

    kinds: tuple[str, ...]
    count: int
    outage_s: float
    close: float


class _Draw(NamedTuple):
    """What the kinds are drawn from."""

    rng: Random
    broker: str
    workers: Sequence[str]
    hosts: Sequence[str]
    swarm: Swarm


def draw_swarm(rng: Random) -> Swarm:
    """Options of one run. About one run in ten has no fault at all."""
    if rng.random() < 0.1:
        return Swarm((), 0, 0.0, 0.0)
    count = rng.choice((1, 2, 3, 4, 6, 8))
    kinds = rng.sample(KINDS, min(len(KINDS), rng.choice((1, 2, 3, 4, 6, 9))))
    if rng.random() < 0.6 and "aimed" not in kinds:
        kinds.append("aimed")
    outage_s = rng.choice((0.05, 0.5, 2.0, 8.0))
    return Swarm(tuple(kinds), count, outage_s, rng.choice((0.0, 0.2, 0.6)))


def draw_plan(
    rng: Random, *, hosts: Sequence[str], duration_s: float, swarm: Swarm | None = None
) -> list[Fault]:
    """The faults of one run, in the order of time, drawn before it starts.

    ``hosts``: the broker and the workers, by name; the broker is ``"broker"``, or the first. Hosts
    named ``"client..."`` (they only feed and watch) are cut off but never killed. ``duration_s``:
    no fault starts later. ``swarm``: None draws it, too. Raises ValueError for fewer than two
    hosts: most faults take two.
    """
    if len(hosts) < 2:
        raise ValueError(f"faults need at least two hosts, got {list(hosts)}")
    if swarm is None:
        swarm = draw_swarm(rng)
    broker = "broker" if "broker" in hosts else hosts[0]
    workers = [name for name in hosts if name != broker and not name.startswith("client")]
    draw = _Draw(rng, broker, workers, hosts, swarm)
    plan: list[Fault] = []
    at = 0.0
    for _ in range(swarm.count if swarm.kinds else 0):
        if plan and rng.random() < swarm.close:
            at = min(duration_s, at + rng.expovariate(1 / 0.02))
        else:
            at = rng.uniform(0.0, duration_s)
        kind = rng.choice(swarm.kinds)
        target, args = _DRAWN[kind](draw)
        plan.append(Fault(_short(at), kind, target, args))
    return sorted(plan, key=lambda fault: fault.at)


def _short(seconds: float) -> float:
    """Few digits: plans are read by people."""
    return round(seconds, 4)


def _victim(draw: _Draw) -> str:
    """A host that may die: the broker as often as all workers together."""
    if not draw.workers or draw.rng.random() < 0.5:
        return draw.broker
    return draw.rng.choice(draw.workers)


def _outage(draw: _Draw) -> float:
    """Mostly short, now and then as long as the swarm allows."""
    longest = draw.swarm.outage_s
    return _short(draw.rng.choice((0.0, 0.1 * longest, draw.rng.uniform(0.0, longest), longest)))


def _draw_outage(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    return _victim(draw), (_outage(draw),)


def _draw_partition(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    others = [name for name in draw.hosts if name != draw.broker]
    other, one_way = draw.rng.choice(others), draw.rng.random() < 0.4
    ends = (draw.broker, other) if draw.rng.random() < 0.5 else (other, draw.broker)
    return ends[0], (ends[1], one_way, _outage(draw))


def _draw_isolate(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    return draw.rng.choice(draw.hosts), (_outage(draw),)


def _draw_slow(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    return draw.rng.choice(draw.hosts), (draw.rng.choice((5, 50, 500)), _outage(draw))


def _draw_connection(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    return draw.rng.choice(draw.hosts), (draw.rng.randrange(16),)


def _draw_clock_jump(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    seconds = draw.rng.choice((-3600.0, -60.0, -1.0, 1.0, 60.0, 3600.0))
    return draw.rng.choice(draw.hosts), (seconds,)


def _draw_disk_full(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    return draw.broker, (draw.rng.choice((0, 100, 1_000, 10_000)), _outage(draw))


def _draw_fsync_fail(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    return draw.broker, (draw.rng.choice((1, 1, 2, 3)),)


def _draw_slow_fsync(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    probability = draw.rng.choice((0.02, 0.2, 1.0))
    return draw.broker, (draw.rng.choice((0.005, 0.05, 0.2)), probability, _outage(draw))


def _draw_aimed(draw: _Draw) -> tuple[str, tuple[Any, ...]]:
    """One of the moments where uniform timing hardly ever hits."""
    on_broker = not draw.workers or draw.rng.random() < 0.5
    step_kind, match, actions, delays = draw.rng.choice(_BROKER_AIMS if on_broker else _WORKER_AIMS)
    target = draw.broker if on_broker else draw.rng.choice(draw.workers)
    nth = draw.rng.choice((1, 1, 2, 3, draw.rng.randint(1, 12), draw.rng.randint(1, 60)))
    delay_s = _short(draw.rng.choice(delays) * draw.rng.random())
    action = draw.rng.choice(actions)
    return target, tuple(Aim(step_kind, nth, action, delay_s, _outage(draw), match))


_DEATHS = ("kill", "power_off")
_BEFORE = (0.0,)
_SOON = (0.0, 0.001, 0.004)
_BROKER_AIMS: tuple[tuple[str, str, tuple[str, ...], tuple[float, ...]], ...] = (
    ("fsync", "", _DEATHS, _BEFORE),
    ("write", "", ("power_off",), _SOON),
    ("write", "", _DEATHS, _BEFORE),
    ("truncate", "", _DEATHS, _SOON),
    ("rename", "", _DEATHS, _SOON),
    ("fsync_dir", "", _DEATHS, _SOON),
    # asked, and perhaps done, but the one who asked does not learn of it
    ("send", "PRODUCE", ("reset", "kill", "power_off"), _BEFORE),
    ("send", "END_TXN", ("reset", "kill", "power_off"), _BEFORE),
    ("send", "TXN_OFFSET_COMMIT", ("reset", "kill"), _BEFORE),
    ("send", "INIT_PRODUCER_ID", ("reset", "kill", "power_off"), _BEFORE),
    ("receive", "END_TXN", ("kill", "power_off", "pause"), _SOON),
    ("receive", "TXN_OFFSET_COMMIT", ("kill", "power_off"), _SOON),
    ("receive", "", ("kill", "pause"), _SOON),
)
_WORKER_AIMS: tuple[tuple[str, str, tuple[str, ...], tuple[float, ...]], ...] = (
    ("send", "PRODUCE", ("kill", "pause", "reset"), _SOON),
    ("send", "TXN_OFFSET_COMMIT", ("kill", "pause", "reset"), _SOON),
    ("send", "END_TXN", ("kill", "power_off", "pause", "reset"), _SOON),
    ("receive", "END_TXN", ("kill", "power_off", "pause"), _SOON),
    ("receive", "PRODUCE", ("kill", "pause"), _SOON),
    ("receive", "FETCH", ("kill", "pause"), _SOON),
    ("send", "HEARTBEAT", ("pause", "reset"), _BEFORE),
    ("receive", "SYNC_GROUP", ("kill", "pause"), _SOON),
    ("write", "", _DEATHS, _SOON),
    ("fsync", "", _DEATHS, _SOON),
    ("database", "commit", ("kill", "power_off", "pause"), _SOON),
)

_DRAWN: Mapping[str, Callable[[_Draw], tuple[str, tuple[Any, ...]]]] = {
    "kill": _draw_outage,
    "power_off": _draw_outage,
    "terminate": _draw_outage,
    "pause": _draw_outage,
    "partition": _draw_partition,
    "isolate": _draw_isolate,
    "slow": _draw_slow,
    "reset": _draw_connection,
    "half_open": _draw_connection,
    "clock_jump": _draw_clock_jump,
    "disk_full": _draw_disk_full,
    "fsync_fail": _draw_fsync_fail,
    "slow_fsync": _draw_slow_fsync,
    "aimed": _draw_aimed,
}
