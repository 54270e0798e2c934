"""The same statistics in one plain pass over the file: what the pipeline must come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from source import read_flights


def single_pass(flights: Iterable[Mapping[str, object]] | None = None) -> dict[str, dict[str, int]]:
    """Subject ("carrier UA", "airport JFK") -> its figures, computed without any of onceward.

    ``flights``: None takes the whole file.
    """
    table: dict[str, dict[str, int]] = defaultdict(
        lambda: {"flights": 0, "cancelled": 0, "late": 0, "delay_sum": 0, "delay_max": 0}
    )
    for flight in (flight for _key, flight in read_flights()) if flights is None else flights:
        delay = flight["dep_delay"]
        for subject in (f"carrier {flight['carrier']}", f"airport {flight['origin']}"):
            row = table[subject]
            row["flights"] += 1
            if delay is None:
                row["cancelled"] += 1
                continue
            assert isinstance(delay, int)
            row["late"] += delay > 15
            row["delay_sum"] += delay
            row["delay_max"] = max(row["delay_max"], delay)
    return dict(table)


if __name__ == "__main__":
    for subject, row in sorted(single_pass().items()):
        print(subject, row)
