"""``onceward verify``: run an app under simulated faults, or crash it at every step."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import ConfigurationError
from ..testing.crash import RECORDS as MATRIX_RECORDS
from ..testing.crash import WORKERS as MATRIX_WORKERS
from ..testing.crash import Crash, CrashMatrix, MatrixReport
from ..testing.faults import Fault
from ..testing.scenario import Prepared, Scenario
from ..testing.verification import Failure, Report, Verification

Advance = Callable[[int, int], None]


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
@click.option("--jobs", type=click.IntRange(1), help="Processes. Default: one per core.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failure.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(
    target: str,
    seeds: int,
    seed: int,
    faults: str | None,
    crash_matrix: bool,
    crash_budget: int | None,
    pairs: int,
    crash_at: str | None,
    file: Path | None,
    workers: int | None,
    records: int | None,
    unjudged: str,
    jobs: int | None,
    keep_going: bool,
    as_json: bool,
) -> int:
    """Run an app on a simulated cluster under faults, and judge every run.

    Exit code 0 when every record took effect exactly once in all of them. A failure is printed with
    the record's whole journey and the command that runs it again.

    \b
    Example:  onceward verify examples/word_count.py:app --seeds 1000
              onceward verify payments.pipeline:app --crash-matrix --crash-budget 500
    """
    is_matrix = crash_matrix or crash_at is not None
    scenario = Scenario(
        target,
        workers=workers or (MATRIX_WORKERS if is_matrix else Scenario.workers),
        records=records or (MATRIX_RECORDS if is_matrix else Scenario.records),
        unjudged=tuple(name for name in unjudged.split(",") if name),
    )
    if file is not None:
        scenario = dataclasses.replace(scenario, input=read_input(file, Prepared(scenario)))
    command = _command(scenario, file)
    verification = Verification(
        scenario, jobs=jobs, command=lambda n: f"{command} --seed {n} --seeds 1"
    )
    if faults is not None:
        return _show_one(verification.with_plan(seed, read_faults(faults)))
    if crash_at is not None:
        matrix = CrashMatrix(verification, seed=seed, jobs=jobs, command=command)
        return _show_one(matrix.at(tuple(Crash.parse(each) for each in crash_at.split(","))))
    report: Report | MatrixReport
    with _progress(quiet=as_json) as advance:
        if is_matrix:
            matrix = CrashMatrix(verification, seed=seed, jobs=jobs, command=command)
            report = matrix.run(
                budget=crash_budget, pairs=pairs, keep_going=keep_going, progress=advance
            )
        else:
            numbers = range(seed, seed + seeds)
            report = verification.run(numbers, keep_going=keep_going, progress=advance)
    _show(report, as_json=as_json)
    return 1 if report.failures else 0


def _command(scenario: Scenario, file: Path | None) -> str:
    parts = ["onceward", "verify", str(scenario.app), "--workers", str(scenario.workers)]
    parts += ["--input", str(file)] if file else ["--records", str(scenario.records)]
    parts += ["--unjudged", ",".join(scenario.unjudged)] if scenario.unjudged else []
    return shlex.join(parts)


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
        return [Fault.from_json(json.loads(line)) for line in lines.splitlines() if line.strip()]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"--faults: {error}") from error


def _show_one(failure: Any) -> int:
    click.echo("nothing wrong was found" if failure is None else str(failure))
    return 0 if failure is None else 1


def _show(report: Report | MatrixReport, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_data(report), indent=2))
        return
    for failure in report.failures[:1]:
        click.echo(f"{failure}\n")
    for failure in report.failures[1:]:
        kind, sentence = failure.anomalies[0]
        click.echo(f"also wrong: {failure.name}: {kind}: {sentence}")
    click.echo(str(report))


def _as_data(report: Report | MatrixReport) -> dict[str, Any]:
    data = dataclasses.asdict(report)
    data.pop("digests", None)
    if isinstance(report, MatrixReport):
        data["steps"] = {f"{host} {kind}": n for (host, kind), n in report.steps.items()}
    else:
        data["digest"] = report.digest
        data["seeds_per_minute"] = round(report.seeds_per_minute)
    for number, failure in enumerate(report.failures):
        if isinstance(failure, Failure):
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
