"""One simulated run: what happens in it and what is seen of it."""

from __future__ import annotations

from collections import Counter

import pytest

from onceward.streams.testing import Fault, Outcome
from onceward.streams.testing.cluster import SimCluster
from onceward.streams.testing.faults import KINDS
from onceward.streams.testing.runner import run_in_child
from onceward.streams.testing.scenario import Prepared, Scenario
from onceward.streams.testing.simulation import Simulation
from onceward.streams.testing.tap import Tap

from . import failing_app, sink_app, word_count_app
from .inputs import LINES, WORDS

WORD_COUNTS = Counter(word for _, line in LINES["lines"] for word in line.split())


def run(*plan: Fault, seed: int = 1, app: object = word_count_app.app) -> Outcome:
    source = {"lines": LINES} if app is word_count_app.app else {"words": WORDS}
    scenario = Scenario(app, next(iter(source.values())), workers=2)  # type: ignore[arg-type]
    return Simulation(Prepared(scenario)).execute(seed, plan)


def test_a_run_tells_what_went_in_what_came_out_and_what_was_committed() -> None:
    outcome = run()
    history = outcome.history
    assert [(sent.key, sent.value) for sent in history.inputs if sent.acked_at is None] == []
    texts = [value.encode() for _, value in LINES["lines"]]
    assert sorted(sent.value or b"" for sent in history.inputs) == sorted(texts)
    for sent in history.inputs:
        assert history.log[sent.topic, sent.partition][sent.offset or 0].value == sent.value
    assert Counter(key for key, _ in outcome.output("totals")) == WORD_COUNTS
    assert outcome.table("counts") == dict(WORD_COUNTS)
    assert history.changelogs == {"counts": "small-count-counts-changelog"}
    last = {(each.topic, each.partition): each.offset for each in history.commits}
    assert last == history.expected_commits
    assert history.waiting == []


def test_a_reader_of_committed_records_saw_each_of_them_once() -> None:
    history = run().history
    committed = [
        record.position for topic in ("words", "totals") for record in history.topic(topic)
    ]
    assert sorted(read.position for read in history.reads) == sorted(committed)


def test_the_fate_of_an_aborted_transaction_is_told() -> None:
    aim = ("send", 1, "kill", 0.0, 0.1, "END_TXN")
    history = run(
        Fault(0.0, "aimed", "worker-0", aim), Fault(0.0, "aimed", "worker-1", aim)
    ).history
    assert [event.what for event in history.events].count("kill") == 2
    fates = Counter(record.status for records in history.log.values() for record in records)
    assert fates["aborted"] > 0
    assert fates["open"] == 0
    assert all(
        record.transaction for topic in ("words", "totals") for record in history.topic(topic)
    )


def test_a_broker_that_gives_up_is_started_again() -> None:
    history = run(Fault(0.2, "fsync_fail", "broker", (1,))).history
    whats = [event.what for event in history.events if event.host == "broker"]
    assert whats[:3] == ["fsync_fail", "gave up", "restart"]
    assert history.waiting == []


def test_an_error_that_no_fault_explains_ends_the_run() -> None:
    numbers = {"numbers": [("n", number) for number in range(1, 7)]}
    history = Simulation(Prepared(Scenario(failing_app.app, numbers))).execute(1).history
    (failed,) = [event for event in history.events if event.what == "worker failed"]
    assert "division by zero" in failed.detail


def test_rows_of_a_sink_outlive_the_workers() -> None:
    outcome = run(Fault(0.3, "kill", "worker-0", (0.1,)), app=sink_app.app)
    rows = Counter(row["word"] for row in outcome.sink("rows"))
    assert rows == Counter(word for _, word in WORDS["words"])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "aimed"])
def test_every_kind_of_fault_happens_and_ends(kind: str) -> None:
    target = "broker" if "fsync" in kind or kind == "disk_full" else "worker-0"
    arguments = {
        "partition": ("broker", True, 0.2),
        "slow": (50, 0.2),
        "reset": (1,),
        "half_open": (1,),
        "clock_jump": (60.0,),
        "disk_full": (100, 0.2),
        "fsync_fail": (1,),
        "slow_fsync": (0.05, 0.5, 0.2),
    }
    outcome = run(Fault(0.2, kind, target, arguments.get(kind, (0.2,))))
    assert kind in [event.what for event in outcome.history.events]
    assert outcome.history.waiting == []
    assert outcome.table("counts") == dict(WORD_COUNTS)


def test_the_tap_hears_what_workers_fetch_produce_and_commit() -> None:
    taps: list[Tap] = []

    def listen(cluster: SimCluster) -> None:
        taps.append(Tap(cluster))

    simulation = Simulation(Prepared(Scenario(word_count_app.app, LINES, workers=2)))
    history = simulation.execute(1, prepare=listen).history
    heard = Counter(event.what for event in taps[0].events)
    assert heard["fetched"] > 0
    assert heard["end_txn commit"] > 0
    written = {
        position
        for event in taps[0].events
        if event.what == "produced"
        for position in event.positions
    }
    outputs = ("words", "totals", *history.changelogs.values())
    assert written == {record.position for name in outputs for record in history.topic(name, None)}


def test_listening_changes_nothing() -> None:
    simulation = Simulation(Prepared(Scenario(word_count_app.app, LINES, workers=2)))

    def digest(listening: bool) -> str:
        def listen(cluster: SimCluster) -> None:
            Tap(cluster)

        return simulation.execute(3, prepare=listen if listening else None).digest

    assert run_in_child(digest, True) == run_in_child(digest, False)
