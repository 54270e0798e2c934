"""What must be right in every run of the pipeline, whatever failed in it.

    onceward verify examples/flights/app.py:app --crash-matrix --input examples/flights/sample.jsonl
        --check examples/flights/check.py:every_flight_counts_once

``sample.jsonl`` has 60 of the flights, from all over the year.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
from app import Statistics
from reference import single_pass

from onceward.streams.testing import Outcome


def every_flight_counts_once(outcome: Outcome) -> None:
    """One record per measurement, numbered without a gap, and the figures of a single pass."""
    flights = [msgspec.to_builtins(flight) for _, flight in outcome.output("flights")]
    expected = single_pass(flights)
    results: dict[str, list[Statistics]] = defaultdict(list)
    for subject, state in outcome.output("delay-statistics"):
        results[subject].append(state)
    assert results.keys() == expected.keys()
    for subject, states in results.items():
        counted = [state.flights for state in states]
        assert counted == list(range(1, len(counted) + 1)), f"{subject}: counted {counted}"
        assert msgspec.to_builtins(states[-1]) == expected[subject], f"{subject}: {states[-1]}"
