"""The crash matrix of a small app catches planted faults as well: the steps at which it does."""

from __future__ import annotations

from collections import Counter

import pytest

from onceward.streams.testing.crash import CrashMatrix, MatrixReport
from onceward.streams.testing.scenario import Scenario
from onceward.streams.testing.verification import Verification

from ..sim import word_count_app
from ..sim.inputs import LINES
from .in_broker_log import open_transactions_forgotten_at_a_restart, sequences_not_checked
from .in_client import changelogs_outside_the_transaction, outputs_outside_the_transaction
from .in_coordinators import answered_before_it_is_durable
from .in_engine import (
    offsets_committed_ahead_of_the_transaction,
    state_flushed_before_the_commit,
)
from .mutation import Mutation

STEPS = 60
"""Crashes that are tried, spread over all kinds of steps."""
CAUGHT = (
    offsets_committed_ahead_of_the_transaction,
    state_flushed_before_the_commit,
    outputs_outside_the_transaction,
    changelogs_outside_the_transaction,
    sequences_not_checked,
    open_transactions_forgotten_at_a_restart,
    answered_before_it_is_durable,
)


def matrix(verification: Verification, planted: Mutation | None) -> MatrixReport:
    """What to expect comes from correct code."""
    verification.learn([0])
    with pytest.MonkeyPatch.context() as patch:
        if planted is not None:
            planted.plant(patch)
        return CrashMatrix(verification).run(budget=STEPS, keep_going=True)


def small_app() -> Verification:
    few = {"lines": LINES["lines"][:4]}
    return Verification(Scenario(word_count_app.app, few, workers=2))


@pytest.mark.mutation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("planted", CAUGHT, ids=str)
def test_a_planted_fault_is_caught_by_crashes_at_some_steps(planted: Mutation) -> None:
    report = matrix(small_app(), planted)
    kinds = Counter(failure.anomalies[0][0] for failure in report.failures)
    told = f"{planted}: {len(report.failures)} of {report.runs} steps, {dict(kinds)}"
    print(told)
    assert set(kinds) & set(planted.caught_by), told


@pytest.mark.mutation
@pytest.mark.timeout(600)
def test_correct_code_survives_the_same_crashes() -> None:
    report = matrix(small_app(), None)
    assert not report.failures, str(report.failures[0])
