"""Measures how many seeds each planted fault needs, and prints the table.

python -m tests.mutation.table [--hunts 5] [--seeds 600] [NAME ...]

Each hunt begins with the seed after the last catch, so no seed counts twice. A fault whose hunt
ends without a catch says so; its other hunts are not begun.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from typing import NamedTuple

from .catalogue import MUTATIONS
from .hunt import Hunt, hunt_in
from .mutation import Mutation


class Measured(NamedTuple):
    """``tried``: seeds per hunt; ``kinds``: what the first anomaly of each was."""

    tried: list[int]
    kinds: Counter[str]
    missed: bool

    @property
    def row(self) -> tuple[str, str]:
        """What caught it, and in how many seeds."""
        if not self.tried:
            return "–", "not caught"
        median = statistics.median(self.tried)
        kinds = ", ".join(kind for kind, _ in self.kinds.most_common())
        return kinds, f"{median:g}{' (one hunt missed it)' if self.missed else ''}"


def measure(hunt: Hunt, mutation: Mutation, hunts: int, seeds: int) -> Measured:
    tried: list[int] = []
    kinds: Counter[str] = Counter()
    first = 0
    for _ in range(hunts):
        catch = hunt.first(mutation, range(first, first + seeds))
        if catch is None:
            return Measured(tried, kinds, True)
        tried.append(catch.tried)
        kinds[catch.kind] += 1
        first = catch.seed + 1
    return Measured(tried, kinds, False)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.table")
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--hunts", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=600, help="at most, per hunt")
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args(arguments)
    scenarios: dict[str, Hunt] = {}
    print("| fault | planted | scenario | caught by | median seeds |")
    print("| --- | --- | --- | --- | --- |")
    missed = 0
    for mutation in MUTATIONS:
        if given.names and not any(name in mutation.name for name in given.names):
            continue
        name = mutation.scenario
        if name not in scenarios:
            scenarios[name] = hunt_in(name, jobs=given.jobs)
        measured = measure(scenarios[name], mutation, given.hunts, given.seeds)
        missed += not measured.tried
        cells = (mutation.name, mutation.planted, name, *measured.row)
        print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
