"""``crash_matrix``: one run per I/O step, in which a process dies just before that step."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigurationError
from .cluster import BROKER, SimCluster
from .history import Anomaly
from .loading import AppSource
from .runner import Died, Runner, run_in_child
from .scenario import InputSource, Scenario
from .simulation import Check, Outcome
from .tap import Tap
from .verdict import verdict
from .verification import AnomalyFound, SeedResult, Verification, note, result_of

if TYPE_CHECKING:
    from .sim.host import Host, Step

RESTART_S = 0.2
"""A process that was killed is back after so many virtual seconds."""
RECORDS = 12
WORKERS = 2
SEED = 0
_LIMIT_S = 120.0
_LONGEST_GAP = 400
KILL, POWER_OFF = "kill", "power_off"


class Crash(NamedTuple):
    """``host`` dies before its step number ``step`` takes effect.

    ``after``: counted from the crash before it and not from the start of the host's life.
    """

    host: str
    step: int
    action: str = KILL
    after: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{'+' if self.after else ''}{self.step}:{self.action}"

    @classmethod
    def parse(cls, text: str) -> Crash:
        """The inverse of ``str``. Raises ConfigurationError."""
        host, _, rest = text.partition(":")
        number, _, action = rest.partition(":")
        if not number.lstrip("+").isdigit() or (action or KILL) not in (KILL, POWER_OFF):
            raise ConfigurationError(f"{text!r} is not HOST:STEP[:kill|power_off]")
        return cls(host, int(number), action or KILL, number.startswith("+"))


Crashes = tuple[Crash, ...]


class StepSeen(NamedTuple):
    """A step of the run without crashes."""

    host: str
    number: int
    kind: str


@dataclass
class CrashFailure:
    """A run of the matrix that was wrong."""

    crashes: Crashes
    anomalies: list[tuple[str, str]]
    verdict: str = ""
    command: str = ""

    @property
    def name(self) -> str:
        return ",".join(map(str, self.crashes))

    def __str__(self) -> str:
        lines = [f"crashes: {self.name}", "", self.verdict]
        return "\n".join([*lines, "", "To run it again:", f"  {self.command}"])


@dataclass
class MatrixReport:
    """``steps``: how many steps the run has, per (host, kind). ``runs``: single crashes tried,
    ``pairs``: pairs."""

    name: str
    steps: dict[tuple[str, str], int] = field(default_factory=dict)
    runs: int = 0
    pairs: int = 0
    seconds: float = 0.0
    failures: list[CrashFailure] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    """As in ``Report``."""

    def __str__(self) -> str:
        kinds: Counter[str] = Counter()
        for (host, kind), count in self.steps.items():
            kinds[f"{host.partition('-')[0]} {kind}"] += count
        listed = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
        return (
            f"{self.name}: {sum(self.steps.values())} steps ({listed}); {self.runs} single crashes "
            f"and {self.pairs} pairs in {self.seconds:.1f} s, {len(self.failures)} failed"
            f"{note(self.uncompared)}"
        )


def crash_matrix(
    app: AppSource,
    *,
    input: InputSource = None,
    budget: int | None = None,
    pairs: int = 0,
    workers: int = WORKERS,
    records: int = RECORDS,
    seed: int = SEED,
    settings: dict[str, Any] | None = None,
    broker_config: dict[str, Any] | None = None,
    unjudged: Collection[str] = (),
    check: Check | None = None,
    jobs: int | None = None,
    keep_going: bool = False,
    at: str | None = None,
    command: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MatrixReport:
    """Number every I/O step of a run without faults, then crash each host at every one of them.

    The broker dies by SIGKILL and by loss of power, workers by SIGKILL. ``budget`` bounds the runs
    (None: all of them): every kind of step is tried before any is tried more often. ``pairs``: so
    many runs with a second crash, of any host, soon after the first. ``check`` and ``unjudged`` as
    in ``simulate``. ``at``: only this run of the matrix, as a failure names it. ``command``: what
    to type to get the matrix again. Raises AnomalyFound, ReferenceFailed, NotDeterministic,
    ConfigurationError.
    """
    scenario = Scenario(app, input, workers, records, settings or {}, broker_config or {}, unjudged)
    verification = Verification(scenario, check=check, jobs=jobs)
    matrix = CrashMatrix(verification, seed=seed, jobs=jobs, command=command)
    if at is not None:
        failure = matrix.at(tuple(Crash.parse(each) for each in at.split(",")))
        if failure is not None:
            raise AnomalyFound(failure)
        return MatrixReport(verification.prepared.name, runs=1)
    report = matrix.run(budget=budget, pairs=pairs, keep_going=keep_going, progress=progress)
    if report.failures:
        raise AnomalyFound(report.failures[0])
    return report


class CrashMatrix:
    """The crashes of one scenario."""

    def __init__(
        self,
        verification: Verification,
        *,
        seed: int = SEED,
        jobs: int | None = None,
        command: str | None = None,
    ) -> None:
        self._verification = verification
        self._simulation = verification.simulation
        self._seed = seed
        self._jobs = jobs
        scenario = verification.prepared.scenario
        self._command = command or (
            f"onceward verify {verification.prepared.name} --workers {scenario.workers} "
            f"--records {scenario.records}"
        )

    def run(
        self,
        *,
        budget: int | None = None,
        pairs: int = 0,
        keep_going: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MatrixReport:
        """All single crashes within the budget, then the pairs."""
        began = time.monotonic()
        self._verification.learn([self._verification.prepared.input_number(self._seed)])
        steps = self.steps()
        report = MatrixReport(self._verification.prepared.name)
        report.steps = dict(Counter((step.host, step.kind) for step in steps))
        singles = sample(singles_of(steps), budget)
        items = [*singles, *pairs_of(steps, pairs, random.Random(f"{self._seed}/pairs"))]
        results = Runner(self._one, jobs=self._jobs, limit_s=_LIMIT_S).results(items)
        for done, (crashes, result) in enumerate(results, 1):
            report.runs += len(crashes) == 1
            report.pairs += len(crashes) > 1
            if progress is not None:
                progress(done, len(items))
            if isinstance(result, Died):
                result = SeedResult("", 0.0, 0, [("died", result.reason)])
            if result.anomalies:
                report.failures.append(CrashFailure(crashes, result.anomalies))
                if not keep_going:
                    break
        for failure in report.failures[:1]:
            self.explain(failure)
        report.uncompared = self._verification.uncompared()
        report.seconds = time.monotonic() - began
        return report

    def steps(self) -> list[StepSeen]:
        """The steps of the run without crashes, from the moment on when inputs are fed."""
        found = run_in_child(self._record, None, limit_s=_LIMIT_S)
        if isinstance(found, Died):
            raise ConfigurationError(f"the run without crashes failed: {found.reason}")
        return [StepSeen(*step) for step in found]

    def at(self, crashes: Crashes) -> CrashFailure | None:
        """Run these crashes; what was wrong, explained, or None."""
        self._verification.learn([self._verification.prepared.input_number(self._seed)])
        result = run_in_child(self._one, crashes, limit_s=_LIMIT_S)
        anomalies = [("died", result.reason)] if isinstance(result, Died) else result.anomalies
        if not anomalies:
            return None
        failure = CrashFailure(crashes, anomalies)
        self.explain(failure)
        return failure

    def explain(self, failure: CrashFailure) -> None:
        """Fill in the verdict and the command."""
        told = run_in_child(self._tell, failure.crashes, limit_s=_LIMIT_S)
        failure.verdict = told.reason if isinstance(told, Died) else told
        seed = f" --seed {self._seed}" if self._seed != SEED else ""
        failure.command = f"{self._command} --crash-at {failure.name}{seed}"

    # in a child

    def _record(self, _: None) -> list[StepSeen]:
        steps: list[StepSeen] = []

        def watch(cluster: SimCluster) -> None:
            def on_step(host: Host, step: Step) -> None:
                if _counts(cluster, host):
                    steps.append(StepSeen(host.name, step.number, step.kind))

            cluster.world.on_step = on_step

        self._simulation.execute(self._seed, orderly=True, prepare=watch)
        return steps

    def _one(self, crashes: Crashes) -> SeedResult:
        return result_of(self._run(crashes, None))

    def _tell(self, crashes: Crashes) -> str:
        taps: list[Tap] = []
        outcome = self._run(crashes, taps)
        return verdict(outcome.anomalies, outcome.history)

    def _run(self, crashes: Crashes, taps: list[Tap] | None) -> Outcome:
        armed: list[_Arming] = []

        def arm(cluster: SimCluster) -> None:
            if taps is not None:
                taps.append(Tap(cluster))
            armed.append(_Arming(cluster, crashes))

        outcome = self._simulation.execute(self._seed, orderly=True, prepare=arm)
        for tap in taps or ():
            outcome.history.events = sorted(
                [*outcome.history.events, *tap.events], key=lambda event: event.at
            )
        number = self._verification.prepared.input_number(self._seed)
        self._simulation.judge(outcome, self._simulation.references.of(number))
        if armed[0].happened == 0:
            sentence = f"the run has no step {crashes[0]}: is it another app, input or version?"
            outcome.anomalies = [Anomaly("no such step", sentence)]
        return outcome


def _counts(cluster: SimCluster, host: Host) -> bool:
    """Whether a step belongs to the matrix: after the start, before the reading back."""
    outside = cluster.outside
    return (
        host is not cluster.client and outside is not None and outside.began and not outside.settled
    )


class _Arming:
    """Makes the crashes happen, one after the other."""

    def __init__(self, cluster: SimCluster, crashes: Sequence[Crash]) -> None:
        self._cluster = cluster
        self._left = list(crashes)
        self.happened = 0
        self._since: Counter[str] = Counter()
        cluster.world.on_step = self._on_step

    def _on_step(self, host: Host, step: Step) -> None:
        outside = self._cluster.outside
        if outside is not None and outside.settled:
            return  # a second crash must not hit the reading back, which takes a broker
        crash = self._left[0]
        if crash.after:
            self._since[host.name] += 1
        number = self._since[host.name] if crash.after else step.number
        if host.name != crash.host or number != crash.step:
            return
        self._left.pop(0)
        self.happened += 1
        if not self._left:
            self._cluster.world.on_step = None
        self._cluster.note(
            host.name, crash.action, f"before {step.kind} {step.number} ({step.detail})"
        )
        self._cluster.crash(host, power=crash.action == POWER_OFF, restart_s=RESTART_S)


def singles_of(steps: Iterable[StepSeen]) -> list[tuple[str, Crashes]]:
    """Every single crash, with the class it belongs to."""
    found: list[tuple[str, Crashes]] = []
    for step in steps:
        actions = (KILL, POWER_OFF) if step.host == BROKER else (KILL,)
        role = step.host.partition("-")[0]
        found += [
            (f"{role} {step.kind} {action}", (Crash(step.host, step.number, action),))
            for action in actions
        ]
    return found


def sample(candidates: Sequence[tuple[str, Crashes]], budget: int | None) -> list[Crashes]:
    """All, or so many of them: classes take turns, each spread evenly over its run."""
    if budget is None or budget >= len(candidates):
        return [crashes for _, crashes in candidates]
    classes: defaultdict[str, list[Crashes]] = defaultdict(list)
    for name, crashes in candidates:
        classes[name].append(crashes)
    shares = _shares([len(members) for members in classes.values()], budget)
    chosen = []
    for members, share in zip(classes.values(), shares, strict=True):
        chosen += [members[index * len(members) // share] for index in range(share)]
    return chosen


def _shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Split a budget evenly; what a small class does not need goes to the larger ones."""
    shares = [0] * len(sizes)
    left = budget
    for place, index in enumerate(sorted(range(len(sizes)), key=lambda each: sizes[each])):
        shares[index] = min(sizes[index], left // (len(sizes) - place))
        left -= shares[index]
    return shares


def pairs_of(steps: Sequence[StepSeen], count: int, rng: random.Random) -> list[Crashes]:
    """Seeded pairs: a crash anywhere, then one of any host, mostly soon after it."""
    hosts = sorted({step.host for step in steps})
    pairs: list[Crashes] = []
    for _ in range(count):
        first = rng.choice(steps)
        second = rng.choice(hosts)
        gap = int(_LONGEST_GAP ** rng.random())
        pairs.append(
            (
                Crash(first.host, first.number, _action(first.host, rng)),
                Crash(second, gap, _action(second, rng), after=True),
            )
        )
    return pairs


def _action(host: str, rng: random.Random) -> str:
    return rng.choice((KILL, POWER_OFF)) if host == BROKER else KILL
