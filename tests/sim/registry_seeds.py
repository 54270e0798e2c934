"""Simulated registries under many seeds, and a crash at every step of the one that leads.

python -m tests.sim.registry_seeds --seeds 1000          faults drawn from seeds 0 to 999
python -m tests.sim.registry_seeds --seed 17             one seed, with its whole story
python -m tests.sim.registry_seeds --matrix              a death at every step of every host
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from onceward.streams.testing.runner import Died, Runner

from .registry_runs import CrashAt, crash_at, crashes_of, run_seed, steps_of

T = TypeVar("T")
_LIMIT_S = 120.0
INSTANCES = (1, 2)


class Result(NamedTuple):
    """What a child tells of one run."""

    digest: str
    calls: int
    writes: int
    virtual_s: float
    anomalies: list[tuple[str, str]]


class Summary(NamedTuple):
    """Of many runs; ``failures`` by seed, or crash."""

    runs: int
    calls: int
    writes: int
    digest: str
    failures: dict[Any, list[tuple[str, str]]]


def result_of(outcome: Any) -> Result:
    return Result(
        outcome.digest,
        len(outcome.history.calls),
        len(outcome.history.writes),
        outcome.virtual_s,
        [(anomaly.kind, anomaly.sentence) for anomaly in outcome.anomalies],
    )


def results(run: Callable[[T], Result], items: Sequence[T], jobs: int | None) -> Summary:
    """Run them all in forked children."""
    found: dict[T, Result] = {}
    for item, result in Runner(run, jobs=jobs, limit_s=_LIMIT_S).results(items):
        if isinstance(result, Died):
            result = Result("", 0, 0, 0.0, [("died", result.reason)])
        found[item] = result
    told = "".join(f"{item} {found[item].digest}\n" for item in items)
    return Summary(
        len(found),
        sum(result.calls for result in found.values()),
        sum(result.writes for result in found.values()),
        hashlib.sha256(told.encode()).hexdigest()[:16],
        {item: found[item].anomalies for item in items if found[item].anomalies},
    )


def seed_result(seed: int) -> Result:
    return result_of(run_seed(seed))


def crash_result(crash: CrashAt) -> Result:
    return result_of(crash_at(crash))


def seeds(numbers: Sequence[int], jobs: int | None = None) -> Summary:
    return results(seed_result, numbers, jobs)


def matrix(
    instances: int, budget: int | None = None, jobs: int | None = None
) -> tuple[Counter[str], Summary]:
    """The steps by host and kind, and a run for each, or for ``budget`` of them, evenly."""
    steps = steps_of(instances)
    crashes = crashes_of(instances, steps)
    if budget is not None and budget < len(crashes):
        crashes = [crashes[index * len(crashes) // budget] for index in range(budget)]
    kinds = Counter(f"{host} {step.kind}" for host, step in steps)
    return kinds, results(crash_result, crashes, jobs)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.registry_seeds")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="one run, told in full")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--budget", type=int, help="of the matrix: so many steps")
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args(arguments)
    failed = 0
    if given.seed is not None:
        outcome = run_seed(given.seed)
        print(outcome)
        failed += bool(outcome.anomalies)
    if given.seeds:
        began = time.monotonic()
        summary = seeds(range(given.first, given.first + given.seeds), given.jobs)
        failed += _report("seeds", summary, began)
    if given.matrix:
        for instances in INSTANCES:
            began = time.monotonic()
            kinds, summary = matrix(instances, given.budget, given.jobs)
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            print(f"{instances} instances, {sum(kinds.values())} steps: {listed}")
            failed += _report("crashes", summary, began)
    return 1 if failed else 0


def _report(what: str, summary: Summary, began: float) -> int:
    took = time.monotonic() - began
    print(
        f"{summary.runs} {what}: {summary.calls} requests, {summary.writes} writes in {took:.0f} s "
        f"({summary.runs / took * 60:.0f} a minute), {len(summary.failures)} failed, digest "
        f"{summary.digest}"
    )
    kinds = Counter(anomalies[0][0] for anomalies in summary.failures.values())
    for item, anomalies in summary.failures.items():
        print(f"  {item}: {anomalies[0][0]}: {anomalies[0][1][:600]}")
    if kinds:
        print(f"  {dict(kinds)}")
    return len(summary.failures)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
