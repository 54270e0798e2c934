"""``onceward verify``: run an app under faults, simulated or real, or crash it at every step."""

from __future__ import annotations

import dataclasses
import json
import runpy
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import ConfigurationError
from ..testing.crash import RECORDS as MATRIX_RECORDS
from ..testing.crash import WORKERS as MATRIX_WORKERS
from ..testing.crash import Crash, CrashMatrix, MatrixReport
from ..testing.faults import KINDS, Fault
from ..testing.processes import RECORDS as PROCESS_RECORDS
from ..testing.processes import ROUNDS, ProcessReport, ProcessVerification, RoundFailure
from ..testing.scenario import Prepared, Scenario
from ..testing.simulation import Check
from ..testing.verification import Failure, Report, Verification

Advance = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Options:
    """The command line, as it was typed."""

    target: str
    seeds: int
    seed: int
    faults: str | None
    crash_matrix: bool
    crash_budget: int | None
    pairs: int
    crash_at: str | None
    processes: bool
    rounds: int | None
    minutes: float | None
    before: str | None
    file: Path | None
    workers: int | None
    records: int | None
    unjudged: str
    check: str | None
    jobs: int | None
    keep_going: bool
    as_json: bool

    @property
    def is_matrix(self) -> bool:
        return self.crash_matrix or self.crash_at is not None

    def scenario(self) -> Scenario:
        """Raises ConfigurationError."""
        workers, records = Scenario.workers, Scenario.records
        if self.is_matrix:
            workers, records = MATRIX_WORKERS, MATRIX_RECORDS
        elif self.processes:
            records = PROCESS_RECORDS
        scenario = Scenario(
            self.target,
            workers=self.workers or workers,
            records=self.records or records,
            unjudged=tuple(name for name in self.unjudged.split(",") if name),
        )
        if self.file is not None:
            given = read_input(self.file, Prepared(scenario))
            scenario = dataclasses.replace(scenario, input=given)
        return scenario

    def command(self, scenario: Scenario) -> str:
        """What to type to get the same, without the seed."""
        parts = ["onceward", "verify", self.target, "--workers", str(scenario.workers)]
        parts += ["--input", str(self.file)] if self.file else ["--records", str(scenario.records)]
        parts += ["--unjudged", self.unjudged] if self.unjudged else []
        parts += ["--check", self.check] if self.check else []
        parts += ["--processes"] if self.processes else []
        parts += ["--before", self.before] if self.before else []
        return shlex.join(parts)


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many fault schedules to run.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The first of them; the same seed is the same run.",
)
@click.option(
    "--faults",
    metavar="FILE|JSON",
    help="With one seed: these faults, one JSON object a line, instead of its own.",
)
@click.option("--crash-matrix", is_flag=True, help="Crash at every I/O step of one run instead.")
@click.option("--crash-budget", type=click.IntRange(1), help="At most so many runs of the matrix.")
@click.option(
    "--pairs",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="So many runs of the matrix with a second crash soon after the first.",
)
@click.option("--crash-at", metavar="HOST:STEP[:kill|power_off],...", help="One run of the matrix.")
@click.option(
    "--processes",
    is_flag=True,
    help="Real processes, signals, connections and disks instead of simulated ones: slower.",
)
@click.option(
    "--rounds", type=click.IntRange(1), help=f"With --processes: how many. Default: {ROUNDS}."
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="With --processes: as many rounds as begin in this time.",
)
@click.option(
    "--before",
    metavar="COMMAND",
    help="With --processes: run before each round, to empty a database for instance.",
)
@click.option(
    "--input",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='JSON lines: {"topic": ..., "key": ..., "value": ...}. Default: made from types.',
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help=f"Default: {Scenario.workers}, for the matrix {MATRIX_WORKERS}.",
)
@click.option(
    "--records",
    type=click.IntRange(1),
    help=f"To make up. Default: {Scenario.records}, for the matrix {MATRIX_RECORDS}.",
)
@click.option(
    "--unjudged",
    metavar="TOPIC,...",
    default="",
    help="Topics and sinks that may differ from run to run.",
)
@click.option(
    "--check",
    metavar="FILE.py:FUNCTION",
    help="Called with the Outcome of every run that was right so far; may raise AssertionError.",
)
@click.option("--jobs", type=click.IntRange(1), help="Processes. Default: one per core.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failure.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(target: str, **given: Any) -> int:
    """Run an app on a cluster under faults, and judge every run.

    The cluster is simulated (hundreds of runs a minute, each repeatable by its seed), or with
    --processes real. Exit code 0 when every record took effect exactly once in all runs. A failure
    is printed with the record's whole journey and the command that runs it again.

    \b
    Example:  onceward verify examples/word_count.py:app --seeds 1000
              onceward verify payments.pipeline:app --crash-matrix --crash-budget 500
              onceward verify payments.pipeline:app --processes --minutes 30
    """
    options = Options(target, **given)
    scenario = options.scenario()
    check = None if options.check is None else read_check(options.check)
    if options.processes:
        return _verify_processes(options, scenario, check)
    command, seed = options.command(scenario), options.seed
    verification = Verification(
        scenario,
        check=check,
        jobs=options.jobs,
        command=lambda n: f"{command} --seed {n} --seeds 1",
    )
    if options.faults is not None:
        return _show_one(verification.with_plan(seed, read_faults(options.faults)))
    matrix = CrashMatrix(verification, seed=seed, jobs=options.jobs, command=command)
    if options.crash_at is not None:
        crashes = tuple(Crash.parse(each) for each in options.crash_at.split(","))
        return _show_one(matrix.at(crashes))
    report: Report | MatrixReport
    with _progress(quiet=options.as_json) as advance:
        if options.is_matrix:
            report = matrix.run(
                budget=options.crash_budget,
                pairs=options.pairs,
                keep_going=options.keep_going,
                progress=advance,
            )
        else:
            numbers = range(seed, seed + options.seeds)
            report = verification.run(numbers, keep_going=options.keep_going, progress=advance)
    return _show(report, as_json=options.as_json)


def _verify_processes(options: Options, scenario: Scenario, check: Check | None) -> int:
    command = options.command(scenario)
    verification = ProcessVerification(
        scenario,
        before=options.before,
        check=check,
        command=lambda n: f"{command} --seed {n} --rounds 1",
    )
    # a terminated CI job must not leave processes behind, and Ctrl-C is an exception already
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _progress(quiet=options.as_json) as advance:
            report = verification.run(
                options.seed,
                rounds=options.rounds,
                minutes=options.minutes,
                keep_going=options.keep_going,
                progress=advance,
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    return _show(report, as_json=options.as_json)


def _interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def read_check(text: str) -> Check:
    """The function that FILE.py:FUNCTION names. Raises ConfigurationError."""
    file, _, name = text.rpartition(":")
    if not Path(file).is_file():
        raise ConfigurationError(f"--check: there is no file {file!r}")
    sys.path.insert(0, str(Path(file).resolve().parent))  # as ``python FILE.py`` does
    found: Any = runpy.run_path(file).get(name)
    if not callable(found):
        raise ConfigurationError(f"--check: {file} has no function {name!r}")
    check: Check = found
    return check


def read_input(file: Path, prepared: Prepared) -> dict[str, list[tuple[Any, Any]]]:
    """Input records of a file. Raises ConfigurationError."""
    given: dict[str, list[tuple[Any, Any]]] = {}
    topics = prepared.input_topics()
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            topic = record.get("topic") or (topics[0] if len(topics) == 1 else None)
            pair = record.get("key"), record["value"]
        except (ValueError, AttributeError, KeyError) as error:
            raise ConfigurationError(f"{file}:{number}: no object with a value ({error})") from None
        if topic is None:
            raise ConfigurationError(f"{file}:{number}: topic is one of {', '.join(topics)}")
        given.setdefault(topic, []).append(pair)
    return given


def read_faults(text: str) -> list[Fault]:
    """Faults in a file, or given as they are. Raises ConfigurationError."""
    lines = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
    try:
        faults = [Fault.from_json(json.loads(line)) for line in lines.splitlines() if line.strip()]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"--faults: {error}") from error
    unknown = [fault.kind for fault in faults if fault.kind not in KINDS]
    if unknown:
        raise ConfigurationError(f"--faults: {unknown[0]} is a fault of real processes only")
    return faults


def _show_one(failure: Any) -> int:
    click.echo("nothing wrong was found" if failure is None else str(failure))
    return 0 if failure is None else 1


def _show(report: Report | MatrixReport | ProcessReport, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(_as_data(report), indent=2))
    else:
        for failure in report.failures[:1]:
            click.echo(f"{failure}\n")
        for failure in report.failures[1:]:
            kind, sentence = failure.anomalies[0]
            click.echo(f"also wrong: {failure.name}: {kind}: {sentence}")
        click.echo(str(report))
    return 1 if report.failures else 0


def _as_data(report: Report | MatrixReport | ProcessReport) -> dict[str, Any]:
    data = dataclasses.asdict(report)
    data.pop("digests", None)
    if isinstance(report, MatrixReport):
        data["steps"] = {f"{host} {kind}": n for (host, kind), n in report.steps.items()}
    elif isinstance(report, Report):
        data["digest"] = report.digest
        data["seeds_per_minute"] = round(report.seeds_per_minute)
    for number, failure in enumerate(report.failures):
        if isinstance(failure, Failure | RoundFailure):
            data["failures"][number]["plan"] = [fault.to_json() for fault in failure.plan]
    return data


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Advance | None]:
    """A bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
