"""The kit catches every fault that is planted, and sees none where there is none."""

from __future__ import annotations

import pytest

from .catalogue import MUTATIONS, REDUNDANT
from .hunt import hunt_in
from .in_broker_log import stable_offset_one_too_far
from .in_client import refused_offsets_overlooked
from .in_engine import consumer_not_moved_back, state_flushed_before_the_commit
from .in_registry import acknowledged_before_it_is_read_back, version_given_again
from .in_sinks import nothing_skipped_after_a_crash
from .mutation import Mutation

SEEDS = 1500
"""Seeds that a fault may need at most."""
CLEAN_SEEDS = 300
QUICK = (
    consumer_not_moved_back,
    state_flushed_before_the_commit,
    refused_offsets_overlooked,
    stable_offset_one_too_far,
    nothing_skipped_after_a_crash,
    version_given_again,
    acknowledged_before_it_is_read_back,
)
SCENARIOS = sorted({mutation.scenario for mutation in MUTATIONS})


def assert_caught(mutation: Mutation, seeds: int) -> None:
    catch = hunt_in(mutation.scenario).first(mutation, range(seeds))
    assert catch is not None, f"{mutation.planted}: not caught in {seeds} seeds"
    assert catch.kind in mutation.caught_by, catch


@pytest.mark.parametrize("mutation", QUICK, ids=str)
def test_a_few_planted_faults_are_caught_at_once(mutation: Mutation) -> None:
    assert_caught(mutation, 10)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_correct_code_raises_no_alarm(scenario: str) -> None:
    assert hunt_in(scenario).first(None, range(4)) is None


@pytest.mark.parametrize("mutation", [*MUTATIONS, *REDUNDANT], ids=str)
def test_a_fault_is_planted_where_the_code_still_is_as_it_was(mutation: Mutation) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutation.plant(patch)


def test_names_are_unique_and_every_fault_is_described() -> None:
    names = [mutation.name for mutation in (*MUTATIONS, *REDUNDANT)]
    assert len(set(names)) == len(names) >= 35
    assert all(mutation.planted for mutation in MUTATIONS)


@pytest.mark.mutation
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_planted_fault_is_caught(mutation: Mutation) -> None:
    assert_caught(mutation, SEEDS)


@pytest.mark.mutation
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_correct_code_raises_no_alarm_under_the_same_seeds(scenario: str) -> None:
    assert hunt_in(scenario).first(None, range(CLEAN_SEEDS)) is None
