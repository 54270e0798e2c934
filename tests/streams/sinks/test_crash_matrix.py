"""A worker dies at every call to its databases, two sinks behind two topics, and just after it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from onceward.streams import App, Stream
from onceward.streams.sinks import MemorySink
from onceward.streams.testing import Outcome, crash_matrix, simulate
from onceward.streams.testing.crash import Crash, CrashMatrix
from onceward.streams.testing.scenario import Scenario
from onceward.streams.testing.verification import Verification

INPUT = {"left": [(None, n) for n in range(9)], "right": [(None, n) for n in range(10, 19)]}
NUMBERS = Counter(number for pairs in INPUT.values() for _, number in pairs)
SINKS = UNJUDGED = ("lists", "others")


def make_app() -> App:
    """Lists of both topics' records into two sinks, and into a topic."""
    app = App("lists-app", commit_interval=0.05)
    lists, others = (MemorySink(name) for name in SINKS)
    copies = app.topic("copies", value_type=int, partitions=1)

    @app.agent(app.topic("left", "right", value_type=int, partitions=1))
    async def collect(stream: Stream[int]) -> Any:
        async for numbers in stream.take(4, within=0.02):
            await lists.write({"numbers": list(numbers)})
            await others.write({"numbers": list(numbers)})
            for number in numbers:
                await copies.send(key=number, value=number)

    return app


def check(outcome: Outcome) -> None:
    for name in SINKS:
        found = Counter(
            number for row in outcome.sink(name) for number in json.loads(row["numbers"])
        )
        assert found == NUMBERS, name
    assert Counter(number for _, number in outcome.output("copies")) == NUMBERS


def test_a_worker_may_die_at_every_step_of_two_databases() -> None:
    """Before and after every take-over and commit of each sink: one is ahead of the other, or both
    of Kafka."""
    scenario = Scenario(make_app, INPUT, 2, 12, {}, {}, UNJUDGED)
    matrix = CrashMatrix(Verification(scenario, check=check))
    steps = [step for step in matrix.steps() if step.kind == "database"]
    assert len(steps) >= 12
    for step in steps:
        failure = matrix.at((Crash(step.host, step.number),))
        assert failure is None, str(failure)


def test_a_worker_may_die_twice_and_anything_else_with_it() -> None:
    crash_matrix(make_app, input=INPUT, budget=1, pairs=6, unjudged=UNJUDGED, check=check)


def test_workers_and_broker_may_fail_at_any_time() -> None:
    simulate(make_app, input=INPUT, seeds=5, unjudged=UNJUDGED, check=check)
