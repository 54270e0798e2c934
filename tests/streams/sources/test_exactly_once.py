"""The proof: sources under simulated faults, and with a crash at every kind of step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from onceward.streams import App
from onceward.streams.sources import Row
from onceward.streams.testing import (
    AnomalyFound,
    AppDriver,
    LocalCluster,
    Outcome,
    crash_matrix,
    simulate,
)
from onceward.streams.testing.memory import MemoryProducer

from . import csv_app, forgetful_app, ticks_app

EVERY_ROW = {f"{split} {n}": 1 for split in ("left", "right") for n in range(ticks_app.TICKS)}


def each_row_once(outcome: Outcome) -> None:
    assert Counter(value for _, value in outcome.output("ticks")) == EVERY_ROW
    assert outcome.history.tables["clock-positions"] == {
        0: {b"left": b"11"},
        1: {b"right": b"11"},
    }


def test_each_row_is_one_record_whatever_goes_wrong() -> None:
    report = simulate(ticks_app.app, seeds=5, workers=3, check=each_row_once)
    assert (report.seeds, report.uncompared) == (5, [])


@pytest.mark.parametrize("budget", [10, pytest.param(120, marks=pytest.mark.slow)])
def test_each_row_is_one_record_wherever_a_process_dies(budget: int) -> None:
    report = crash_matrix(
        ticks_app.app, workers=3, budget=budget, pairs=budget // 5, check=each_row_once
    )
    assert (report.runs, report.pairs) == (budget, budget // 5)


def each_line_once(outcome: Outcome) -> None:
    assert sorted(order.id for _, order in outcome.output("orders")) == sorted(
        f"o{n}" for n in range(40)
    )


def test_each_line_of_a_file_is_one_record_whatever_goes_wrong() -> None:
    simulate(csv_app.app, seeds=5, workers=2, check=each_line_once)


def test_a_source_that_forgets_its_position_is_found() -> None:
    with pytest.raises(AnomalyFound):
        crash_matrix(forgetful_app.app, workers=2, budget=24)


async def test_a_killed_worker_goes_on_where_it_was_on_a_real_broker() -> None:
    async with LocalCluster(ticks_app.app, workers=2) as cluster:
        await cluster.read("ticks", 6)
        await cluster.kill_worker(0)
        await cluster.read("ticks", 10)
        await cluster.restart_worker(0)
        await cluster.read("counted", len(EVERY_ROW))
        await cluster.wait_until_processed()
        found = await cluster.read("ticks")
    assert Counter(record.value for record in found) == EVERY_ROW


@pytest.mark.parametrize(
    ("guarantee", "order"),
    [
        ("at_least_once", ["ticks", "app-clock-positions"]),
        ("at_most_once", ["app-clock-positions", "ticks"]),
    ],
)
def test_without_transactions_positions_are_written_after_the_rows_or_before_them(
    monkeypatch: pytest.MonkeyPatch, guarantee: str, order: list[str]
) -> None:
    written: list[str] = []

    class Noting(MemoryProducer):
        def send_batch(self, topic: str, *arguments: Any, **options: Any) -> None:
            written.append(topic)
            super().send_batch(topic, *arguments, **options)

        async def flush(self) -> Any:
            written.append("flush")
            return await super().flush()

    monkeypatch.setattr("onceward.streams.testing.memory.MemoryProducer", Noting)
    app = App("app", processing_guarantee=guarantee, topic_partitions=1)

    @app.source(app.topic("ticks"))
    async def clock(position: int | None) -> Any:
        for n in range(0 if position is None else position + 1, 4):
            yield Row(n, n)

    with AppDriver(app) as driver:
        driver.run_source("clock", rows=2)
        driver.crash()
        driver.run_source("clock")
        assert [record.value for record in driver.output("ticks")] == [0, 1, 2, 3]
    sent = [topic for topic in written if topic != "flush"]
    assert sent == order * 2
    assert written[written.index(order[0]) + 1] == "flush"
