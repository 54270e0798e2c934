"""The broker under plain and transactional clients, without an engine."""

from __future__ import annotations

import pytest

from onceward.streams.testing import AnomalyFound, simulate_broker
from onceward.streams.testing.clients import COPIED, GIVEN, ClientCluster, broker_scenario
from onceward.streams.testing.history import ABORTED
from onceward.streams.testing.verification import Verification

from ..mutation.in_broker_log import sequences_not_checked, stable_offset_ignores_open_transactions
from ..mutation.in_coordinators import abort_marked_as_a_commit
from ..mutation.mutation import Mutation


def test_what_clients_copy_in_transactions_is_there_exactly_once_under_any_faults() -> None:
    report = simulate_broker(seeds=24)
    assert report.seeds == 24
    assert report.uncompared == []


def test_a_run_replays_and_another_seed_is_another_run() -> None:
    first, second = (simulate_broker(seeds=3, jobs=jobs) for jobs in (1, 2))
    assert first.digests == second.digests
    assert len(set(first.digests.values())) == 3


def test_clients_commit_and_abort() -> None:
    simulation = Verification(broker_scenario(), cluster=ClientCluster).simulation
    outcomes = [simulation.execute(seed) for seed in range(4)]
    for outcome in outcomes:
        assert sorted(outcome.output(COPIED)) == sorted(outcome.output(GIVEN))
    statuses = {
        record.status
        for outcome in outcomes
        for (topic, _), records in outcome.history.log.items()
        if topic == COPIED
        for record in records
    }
    assert ABORTED in statuses


@pytest.mark.parametrize(
    "planted",
    [
        stable_offset_ignores_open_transactions,
        sequences_not_checked,
        abort_marked_as_a_commit,
    ],
    ids=str,
)
def test_a_wrong_broker_is_found_out(monkeypatch: pytest.MonkeyPatch, planted: Mutation) -> None:
    planted.plant(monkeypatch)
    with pytest.raises(AnomalyFound) as caught:
        simulate_broker(seeds=40, shrink=False)
    assert caught.value.failure.anomalies[0][0] in planted.caught_by
    assert f"simulate_broker(seed={caught.value.failure.seed}, seeds=1" in str(caught.value)
