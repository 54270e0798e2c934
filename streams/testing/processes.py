"""Runs an app as real processes under real faults, round after round, and judges every round.

Slower than simulation by a hundred times and not repeatable to the microsecond, but nothing is
modelled: SIGKILL, SIGSTOP and SIGTERM are the kernel's, connections are TCP through a proxy, disks
and databases are what they are. What the simulator believes about the world is checked here.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..sinks.memory import MemorySink
from .checker import check as judge
from .comparison import expectation
from .expectation import NotDeterministic, must_be_sound
from .faults import Fault
from .history import Anomaly, Expectation, Level
from .processes_cluster import ProcessCluster, Ran
from .processes_faults import FAULTS_S, draw_process_plan
from .processes_hosts import Launch, environment
from .processes_sinks import lasting_sinks
from .scenario import InputSource, Prepared, Scenario
from .simulation import Check, Outcome
from .verdict import verdict
from .verification import AnomalyFound, describe, note, why_differing

ROUNDS = 5
RECORDS = 200
WORKERS = 3
_REFERENCE_WORKERS = (1, WORKERS)
"""Runs without faults, each with so many workers: what they agree on does not depend on it."""
_REFERENCE_FEED_S = 0.3
_BEFORE_S = 60.0


@dataclass
class RoundFailure:
    """A round that was wrong. ``directory`` has the logs and data of its processes."""

    seed: int
    anomalies: list[tuple[str, str]]
    plan: list[Fault]
    verdict: str
    directory: str
    command: str

    @property
    def name(self) -> str:
        return f"round {self.seed}"

    def __str__(self) -> str:
        lines = [self.name, "", self.verdict, "", "The faults of the round:"]
        lines += [f"  {describe(fault)}" for fault in self.plan] or ["  none"]
        lines += ["", f"Logs and data of its processes: {self.directory}"]
        lines += ["", "The same faults again (real processes keep no exact time, so try more than"]
        lines += ["once; `onceward verify` without --processes repeats exactly):"]
        return "\n".join([*lines, f"  {self.command}"])


@dataclass
class ProcessReport:
    """What a number of rounds gave. ``faults``: how many happened, by kind."""

    name: str
    rounds: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    failures: list[RoundFailure] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    """Topics, tables and sinks in which already runs without faults differ."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.name}: {self.rounds} rounds of real processes in {self.seconds:.1f} s, "
            f"{sum(self.faults.values())} faults ({kinds or 'none'}), {self.restarts} processes "
            f"restarted, {len(self.failures)} failed{note(self.uncompared)}"
        )


def verify_processes(
    app: str,
    *,
    input: InputSource = None,
    rounds: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    workers: int = WORKERS,
    records: int = RECORDS,
    settings: dict[str, Any] | None = None,
    broker_config: dict[str, Any] | None = None,
    unjudged: Collection[str] = (),
    before: str | None = None,
    check: Check | None = None,
    keep_going: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> ProcessReport:
    """Run ``app`` ("module:app" or "file.py:app") as real processes under faults.

    Each round has a broker, workers, and a fault plan drawn from its own seed (``seed``, ``seed`` +
    1, ...); ``rounds`` (5) or ``minutes`` say how many. Workers run in an empty directory, so a
    database with a relative path is new in each round; what outlives a round is for ``before``, a
    shell command run before each. ``check`` and the other arguments as in ``simulate``. Timeouts
    that the app leaves at their defaults are shortened. Raises AnomalyFound, ReferenceFailed,
    NotDeterministic, ConfigurationError.
    """
    scenario = Scenario(app, input, workers, records, settings or {}, broker_config or {}, unjudged)
    verification = ProcessVerification(scenario, before=before, check=check)
    report = verification.run(
        seed, rounds=rounds, minutes=minutes, keep_going=keep_going, progress=progress
    )
    if report.failures:
        raise AnomalyFound(report.failures[0])
    return report


class ProcessVerification:
    """Rounds of one scenario. Raises ConfigurationError."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        before: str | None = None,
        check: Check | None = None,
        command: Callable[[int], str] | None = None,
    ) -> None:
        if not isinstance(scenario.app, str):
            raise ConfigurationError(
                "real processes have to find the app: give it as 'module:app' or 'file.py:app'"
            )
        self.prepared = Prepared(scenario)
        self._target = _absolute(scenario.app)
        self._before = before
        self._check = check
        self._command = command or (
            lambda seed: f"onceward verify {scenario.app} --processes --seed {seed} --rounds 1"
        )
        self._expectations: dict[int, Expectation] = {}
        for sink in self.prepared.app.sinks:
            if isinstance(sink, MemorySink):
                raise ConfigurationError(
                    f"{sink.describe()} is another one in every process, so there is nothing to "
                    "judge: leave out --processes, or use a database"
                )
        for sink in lasting_sinks(self.prepared.app) if before is None else ():
            raise ConfigurationError(
                f"what is in {sink.describe()} after one round would still be there in the next: "
                "give a shell command that empties it (--before), or for SQLite a relative path, "
                "which is new in every round"
            )

    def run(
        self,
        seed: int,
        *,
        rounds: int | None = None,
        minutes: float | None = None,
        keep_going: bool = False,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> ProcessReport:
        """``rounds``, or as many as begin within ``minutes``, or up to the first that fails.

        Raises ReferenceFailed and NotDeterministic.
        """
        began = time.monotonic()
        wanted = ROUNDS if rounds is None and minutes is None else rounds
        report = ProcessReport(self.prepared.name)
        while wanted is None or report.rounds < wanted:
            if minutes is not None and report.rounds and time.monotonic() - began >= minutes * 60:
                break
            failure = self.round(seed + report.rounds, report)
            report.rounds += 1
            if progress is not None:
                progress(report.rounds, wanted)
            if failure is not None:
                report.failures.append(failure)
                if not keep_going:
                    break
        report.seconds = time.monotonic() - began
        return report

    def round(self, seed: int, report: ProcessReport) -> RoundFailure | None:
        """One round, judged; ``report`` counts what happened in it."""
        number = self.prepared.input_number(seed)
        known = self._expectation(number, report)
        plan = draw_process_plan(seed, self.prepared.scenario.workers)
        ran, work = self._execute(seed, number, plan, self.prepared.scenario.workers)
        report.faults = dict(Counter(report.faults) + Counter(ran.struck))
        report.restarts += ran.restarts
        outcome = Outcome(seed, self.prepared.app, ran.history, plan)
        outcome.anomalies = self._judge(outcome, known)
        if not outcome.anomalies:
            shutil.rmtree(work)
            return None
        told = verdict(outcome.anomalies, outcome.history)
        anomalies = [(anomaly.kind, anomaly.sentence) for anomaly in outcome.anomalies]
        return RoundFailure(seed, anomalies, plan, told, str(work), self._command(seed))

    def _judge(self, outcome: Outcome, known: Expectation) -> list[Anomaly]:
        anomalies = judge(outcome.history, known)
        if anomalies or self._check is None:
            return anomalies
        try:
            self._check(outcome)
        except AssertionError as error:
            sentence = f"the own check failed: {error or type(error).__name__}"
            return [Anomaly("check failed", sentence)]
        return []

    def _expectation(self, number: int, report: ProcessReport) -> Expectation:
        """Raises ReferenceFailed and NotDeterministic."""
        if number not in self._expectations:
            histories = []
            for workers in _REFERENCE_WORKERS:
                ran, work = self._execute(f"reference-{workers}", number, (), workers)
                must_be_sound(ran.history)
                shutil.rmtree(work)
                histories.append(ran.history)
            self._expectations[number] = expectation(histories)
        known = self._expectations[number]
        results = {**known.outputs, **known.sinks}
        report.uncompared = sorted(n for n, (level, _) in results.items() if level is Level.NONE)
        differing = set(report.uncompared) - set(self.prepared.scenario.unjudged)
        if differing:
            raise NotDeterministic(why_differing(sorted(differing), known.differences))
        return known

    def _execute(
        self, seed: int | str, number: int, plan: Sequence[Fault], workers: int
    ) -> tuple[Ran, Path]:
        """One run, and the directory with what it left behind."""
        with ExitStack() as undo:
            work = Path(tempfile.mkdtemp(prefix="onceward-verify-"))
            undo.callback(shutil.rmtree, work, ignore_errors=True)
            env = environment(work / "shared")
            if self._before:
                _run_before(self._before, env)
            settings = json.dumps(dict(self.prepared.scenario.settings))
            launch = Launch(self._target, env, settings)
            ran = asyncio.run(self._cluster_run(seed, number, plan, workers, work, launch))
            undo.pop_all()
        return ran, work

    async def _cluster_run(
        self,
        seed: int | str,
        number: int,
        plan: Sequence[Fault],
        workers: int,
        work: Path,
        launch: Launch,
    ) -> Ran:
        cluster = ProcessCluster(
            self.prepared,
            self.prepared.feeds(number),
            work,
            launch,
            seed=seed,
            workers=workers,
            plan=plan,
            feed_s=FAULTS_S if plan else _REFERENCE_FEED_S,
        )
        return await cluster.run()


def _absolute(target: str) -> str:
    """Workers run in another directory than this process."""
    module, colon, name = target.partition(":")
    return f"{Path(module).resolve()}{colon}{name}" if module.endswith(".py") else target


def _run_before(command: str, env: dict[str, str]) -> None:
    try:
        subprocess.run(command, shell=True, check=True, env=env, timeout=_BEFORE_S)
    except subprocess.SubprocessError as error:
        raise ConfigurationError(f"the command to run before each round: {error}") from error
