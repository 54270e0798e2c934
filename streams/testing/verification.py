"""``simulate``: many seeds in parallel, and what to show of the first that fails."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .cluster import SimCluster
from .expectation import NotDeterministic, ReferenceFailed
from .faults import Fault
from .history import Expectation
from .loading import AppSource
from .runner import Died, Runner, run_in_child
from .scenario import InputSource, Prepared, Scenario
from .shrink import shrink as shrink_plan
from .simulation import Check, Outcome, Simulation
from .tap import Tap
from .verdict import verdict

SHRINK_RUNS = 80
_BATCH = 25
_LIMIT_S = 120.0


class SeedResult(NamedTuple):
    """What a child tells of one run."""

    digest: str
    virtual_s: float
    callbacks: int
    anomalies: list[tuple[str, str]]
    """Kind and sentence."""


@dataclass
class Failure:
    """A run that was wrong: what was found, and the smallest plan that shows it."""

    seed: int
    anomalies: list[tuple[str, str]]
    plan: list[Fault] = field(default_factory=list)
    verdict: str = ""
    command: str = ""

    @property
    def name(self) -> str:
        return f"seed {self.seed}"

    def __str__(self) -> str:
        lines = [self.name, "", self.verdict]
        lines += ["", "The faults that are enough for it:" if self.plan else "It takes no fault."]
        lines += [f"  {describe(fault)}" for fault in self.plan]
        return "\n".join([*lines, "", "To run it again:", f"  {self.command}"])


@dataclass
class Report:
    """What a number of seeds gave; ``digests`` by seed."""

    name: str
    seeds: int = 0
    seconds: float = 0.0
    virtual_s: float = 0.0
    callbacks: int = 0
    digests: dict[int, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    """Topics, tables and sinks in which already runs without faults differ."""

    @property
    def seeds_per_minute(self) -> float:
        return self.seeds / self.seconds * 60 if self.seconds else 0.0

    @property
    def digest(self) -> str:
        """Equal when every run went the same way."""
        told = "".join(f"{seed} {digest}\n" for seed, digest in sorted(self.digests.items()))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.seeds} seeds in {self.seconds:.1f} s "
            f"({self.seeds_per_minute:,.0f} a minute, {self.virtual_s:,.0f} s of virtual time), "
            f"{len(self.failures)} failed{note(self.uncompared)}"
        )


def note(uncompared: Sequence[str]) -> str:
    """What a report has to say about what it could not compare."""
    if not uncompared:
        return ""
    return f"; not compared, since runs without faults differ: {', '.join(uncompared)}"


def why_differing(names: Sequence[str], differences: dict[str, str]) -> str:
    """What to tell of an app whose results differ without any fault."""
    lines = [f"without any fault, runs of the same input differ in {', '.join(names)}:"]
    lines += [f"  {name}: {differences[name]}" for name in names if name in differences]
    lines.append(
        "What goes there depends on more than the records of its key: a global, chance, the clock, "
        "or the order of records between partitions. A record that is run again after a crash "
        "would then have another effect. Let it depend on its record and on tables only, or name "
        "it in unjudged=[...] and check it yourself."
    )
    return "\n".join(lines)


class AnomalyFound(AssertionError):
    """A run was wrong. The message has the verdict, the faults and how to run it again."""

    def __init__(self, failure: Any) -> None:
        super().__init__(f"exactly-once was broken\n\n{failure}")
        self.failure = failure


def simulate(
    app: AppSource,
    *,
    input: InputSource = None,
    seeds: int = 100,
    seed: int | None = None,
    workers: int = 3,
    records: int = 40,
    settings: dict[str, Any] | None = None,
    broker_config: dict[str, Any] | None = None,
    unjudged: Collection[str] = (),
    check: Check | None = None,
    jobs: int | None = None,
    shrink: bool = True,
    keep_going: bool = False,
    command: Callable[[int], str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run an app under ``seeds`` different fault plans, from ``seed`` (0) on; judge every run.

    ``input``: topic -> (key, value) pairs, a function of a ``random.Random`` that gives such, or
    None: made from the types of the topics. ``check`` gets the Outcome of each run that was right
    so far and may raise AssertionError; it is called in a child process. When serializers name a
    schema registry, a real one on a host of its own stands in for it, with the app's schemas in it,
    and is struck as well; one in memory stays as it is. ``unjudged``: topics and
    sinks whose content may differ from run to run. ``jobs``: processes, default one per core.
    ``command`` makes the line to run a seed again. Raises AnomalyFound at the first wrong run, or
    with ``keep_going`` after the last; ReferenceFailed when the app does not even work without
    faults; NotDeterministic when runs without faults differ.
    """
    scenario = Scenario(app, input, workers, records, settings or {}, broker_config or {}, unjudged)
    verification = Verification(scenario, check=check, jobs=jobs, command=command)
    first = 0 if seed is None else seed
    report = verification.run(
        range(first, first + seeds), shrink=shrink, keep_going=keep_going, progress=progress
    )
    if report.failures:
        raise AnomalyFound(report.failures[0])
    return report


class Verification:
    """Seeds of one scenario. Raises ConfigurationError, ReferenceFailed and NotDeterministic."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        cluster: type[SimCluster] = SimCluster,
        check: Check | None = None,
        jobs: int | None = None,
        command: Callable[[int], str] | None = None,
    ) -> None:
        self.prepared = Prepared(scenario)
        self.simulation = Simulation(self.prepared, check, cluster)
        self._jobs = jobs
        self._command = command or self._default_command

    def run(
        self,
        seeds: Sequence[int],
        *,
        shrink: bool = True,
        keep_going: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Run them all, or up to the first that fails."""
        began = time.monotonic()
        report = Report(self.prepared.name)
        self.learn(self.prepared.input_number(seed) for seed in seeds)
        for seed, result in Runner(self._one, jobs=self._jobs, limit_s=_LIMIT_S).results(seeds):
            report.seeds += 1
            if progress is not None:
                progress(report.seeds, len(seeds))
            if isinstance(result, Died):
                result = SeedResult("", 0.0, 0, [("died", result.reason)])
            report.digests[seed] = result.digest
            report.virtual_s += result.virtual_s
            report.callbacks += result.callbacks
            if result.anomalies:
                report.failures.append(Failure(seed, result.anomalies, command=self._command(seed)))
                if not keep_going:
                    break
        report.uncompared = self.uncompared()
        report.seconds = time.monotonic() - began
        report.failures.sort(key=lambda failure: failure.seed)
        for failure in report.failures[:1]:
            self.explain(failure, shrink=shrink)
        return report

    def with_plan(self, seed: int, plan: Sequence[Fault]) -> Failure | None:
        """One seed under another plan than its own: what was wrong, explained, or None."""
        self.learn([self.prepared.input_number(seed)])
        result = run_in_child(self._tried, (seed, list(plan)), limit_s=_LIMIT_S)
        anomalies = [("died", result.reason)] if isinstance(result, Died) else result.anomalies
        if not anomalies:
            return None
        failure = Failure(seed, anomalies, command=self._command(seed))
        self.explain(failure, shrink=False, plan=plan)
        return failure

    def learn(self, numbers: Iterable[int]) -> None:
        """Make the reference runs of inputs. Raises ReferenceFailed and NotDeterministic."""
        references = self.simulation.references
        runner = Runner(self._expectation, jobs=self._jobs, batch=1, limit_s=_LIMIT_S)
        for number, known in runner.results(references.missing(numbers)):
            if not isinstance(known, Expectation):
                raise ReferenceFailed(known.reason if isinstance(known, Died) else known)
            references.add(number, known)
        differing = set(self.uncompared()) - set(self.prepared.scenario.unjudged)
        if differing:
            raise NotDeterministic(why_differing(sorted(differing), references.differences()))

    def uncompared(self) -> list[str]:
        """What no run can be compared in."""
        return self.simulation.references.uncompared()

    def explain(
        self, failure: Failure, *, shrink: bool, plan: Sequence[Fault] | None = None
    ) -> None:
        """Fill in the smallest plan that fails, and the verdict of its run."""
        smallest = list(self.simulation.plan(failure.seed) if plan is None else plan)
        if shrink and smallest:
            smallest = shrink_plan(smallest, lambda tried: self._fails(failure, tried), SHRINK_RUNS)
        failure.plan = smallest
        told = run_in_child(self._tell, (failure.seed, smallest), limit_s=_LIMIT_S)
        if isinstance(told, Died):
            told = f"{told.reason}; what it printed is above"
        failure.verdict = told

    # in a child

    def _one(self, seed: int) -> SeedResult:
        return result_of(self.simulation.run(seed))

    def _expectation(self, number: int) -> Expectation | str:
        try:
            return self.simulation.references.of(number)
        except ReferenceFailed as error:
            return str(error)

    def _tried(self, item: tuple[int, list[Fault]]) -> SeedResult:
        return result_of(self.simulation.run(item[0], plan=item[1]))

    def _tell(self, item: tuple[int, list[Fault]]) -> str:
        outcome = self.told(*item)
        return verdict(outcome.anomalies, outcome.history)

    def told(self, seed: int, plan: Sequence[Fault]) -> Outcome:
        """A judged run whose history has what went over the network."""
        taps: list[Tap] = []
        outcome = self.simulation.execute(
            seed, plan, prepare=lambda cluster: taps.append(Tap(cluster))
        )
        events = outcome.history.events
        outcome.history.events = sorted([*events, *taps[0].events], key=lambda event: event.at)
        expectation = self.simulation.references.of(self.prepared.input_number(seed))
        self.simulation.judge(outcome, expectation)
        return outcome

    def _fails(self, failure: Failure, plan: list[Fault]) -> bool:
        """Whether a plan still leads to the same kind of anomaly."""
        result = run_in_child(self._tried, (failure.seed, plan), limit_s=_LIMIT_S)
        if isinstance(result, Died):
            return failure.anomalies[0][0] == "died"
        return failure.anomalies[0][0] in {kind for kind, _ in result.anomalies}

    def _default_command(self, seed: int) -> str:
        workers = self.prepared.scenario.workers
        extra = "" if workers == Scenario.workers else f" --workers {workers}"
        return f"onceward verify {self.prepared.name} --seed {seed} --seeds 1{extra}"


def result_of(outcome: Outcome) -> SeedResult:
    anomalies = [(anomaly.kind, anomaly.sentence) for anomaly in outcome.anomalies]
    return SeedResult(outcome.digest, outcome.virtual_s, outcome.callbacks, anomalies)


def describe(fault: Fault) -> str:
    """A fault as one line of JSON, which ``onceward verify --faults`` takes."""
    return json.dumps(fault.to_json())
