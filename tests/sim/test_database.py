"""Sinks of a simulated app write to a database that outlives its workers and can be crashed at."""

from __future__ import annotations

from collections import Counter
from typing import Any

from onceward.streams import App, Stream
from onceward.streams.sinks import SqliteSink
from onceward.streams.testing import Outcome, crash_matrix, simulate

NUMBERS = {"numbers": [("even" if n % 2 == 0 else "odd", n) for n in range(10)]}
ROWS = Counter({("even", n): 1 for n in range(0, 10, 2)} | {("odd", n): 1 for n in range(1, 10, 2)})


def make_app() -> App:
    app = App("to-a-database")
    rows = SqliteSink("/nowhere/rows.db", table="rows", mode="insert")

    @app.agent(app.topic("numbers", key_type=str, value_type=int, partitions=2), sink=[rows])
    async def store(stream: Stream[int]) -> Any:
        async for key, number in stream.items():
            yield {"key": key, "number": number}

    return app


def check(outcome: Outcome) -> None:
    found = Counter((row["key"], row["number"]) for row in outcome.sink("rows"))
    assert found == ROWS


def test_what_an_app_writes_to_its_sink_is_judged() -> None:
    report = simulate(make_app, input=NUMBERS, seeds=4, workers=2, check=check)
    assert report.seeds == 4


def test_calls_to_the_database_are_steps_of_the_crash_matrix() -> None:
    report = crash_matrix(make_app, input=NUMBERS, budget=8, check=check)
    assert any(kind == "database" for _, kind in report.steps)
