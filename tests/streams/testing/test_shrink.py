"""Shrinking: the culprits stay, everything else goes, and never more runs than allowed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.streams.testing.faults import KINDS, Aim, Fault, Swarm, draw_plan
from onceward.streams.testing.shrink import shrink

HOSTS = ("broker", "worker-0", "worker-1", "client")


def plan_of(seed: int, count: int) -> list[Fault]:
    swarm = Swarm(KINDS, count, 2.0, 0.2)
    return draw_plan(Random(seed), hosts=HOSTS, duration_s=10.0, swarm=swarm)


class Runs:
    """Counts how often a plan is tried."""

    def __init__(self, fails: Callable[[list[Fault]], bool]) -> None:
        self.fails = fails
        self.tried: list[list[Fault]] = []

    def __call__(self, plan: list[Fault]) -> bool:
        assert plan not in self.tried, "the same plan is not run twice"
        assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
        self.tried.append(list(plan))
        return self.fails(plan)


@given(st.integers(0, 10_000), st.integers(1, 16), st.data())
@settings(max_examples=150, deadline=None)
def test_exactly_the_faults_that_are_needed_together_remain(
    seed: int, count: int, data: st.DataObject
) -> None:
    plan = plan_of(seed, count)
    needed = data.draw(st.sets(st.sampled_from(range(count)), min_size=1, max_size=4))
    marks = {(plan[number].kind, plan[number].target) for number in needed}

    def fails(candidate: list[Fault]) -> bool:
        kinds = {(fault.kind, fault.target) for fault in candidate}
        return marks <= kinds

    small = shrink(plan, Runs(fails), budget=2_000)
    assert fails(small)
    assert len(small) == len(marks)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 30))
@settings(max_examples=150, deadline=None)
def test_the_budget_is_kept_and_the_answer_was_seen_to_fail(
    seed: int, count: int, budget: int
) -> None:
    plan = plan_of(seed, count)
    runs = Runs(lambda candidate: sum(fault.at for fault in candidate) > plan[-1].at / 2)
    small = shrink(plan, runs, budget)
    assert len(runs.tried) <= budget
    assert small == plan or small in [tried for tried in runs.tried if runs.fails(tried)]


def test_a_run_that_fails_without_any_fault_has_an_empty_plan() -> None:
    runs = Runs(lambda _: True)
    assert shrink(plan_of(1, 8), runs, 100) == []
    assert len(runs.tried) == 1


def test_faults_are_found_that_only_fail_as_a_pair_far_apart() -> None:
    plan = [Fault(float(number), "reset", "worker-0", (number,)) for number in range(64)]
    wanted = {3.0, 60.0}
    runs = Runs(lambda candidate: wanted <= {fault.at for fault in candidate})
    assert [fault.at for fault in shrink(plan, runs, 1_000)] == [3.0, 60.0]
    assert len(runs.tried) < 150


@pytest.mark.parametrize(
    ("fault", "simple"),
    [
        (Fault(1.2345, "kill", "broker", (1.75,)), Fault(1.2, "kill", "broker", (0.0,))),
        (Fault(1.0, "power_off", "broker", (1.75,)), Fault(1.0, "kill", "broker", (0.0,))),
        (
            Fault(1.0, "partition", "broker", ("client", True, 1.0)),
            Fault(1.0, "partition", "broker", ("client", False, 0.0)),
        ),
        (Fault(1.0, "slow", "client", (50, 1.0)), Fault(1.0, "slow", "client", (50, 0.0))),
        (Fault(1.0, "fsync_fail", "broker", (3,)), Fault(1.0, "fsync_fail", "broker", (1,))),
        (
            Fault(1.0, "aimed", "broker", tuple(Aim("send", 9, "kill", 0.003, 1.0, "END_TXN"))),
            Fault(0.0, "aimed", "broker", tuple(Aim("send", 1, "kill", 0.0, 0.0, "END_TXN"))),
        ),
    ],
)
def test_what_does_not_matter_about_a_fault_becomes_simple(fault: Fault, simple: Fault) -> None:
    assert shrink([fault], Runs(lambda plan: len(plan) == 1), 100) == [simple]


def test_what_matters_about_a_fault_is_kept() -> None:
    aim = Aim("send", 9, "power_off", 0.003, 1.0, "END_TXN")
    fault = Fault(1.25, "aimed", "broker", tuple(aim))

    def fails(plan: list[Fault]) -> bool:
        return len(plan) == 1 and plan[0].at >= 1.0 and plan[0].aim.nth >= 5

    (small,) = shrink([fault], Runs(fails), 200)
    assert small == Fault(
        1.2, "aimed", "broker", tuple(Aim("send", 5, "kill", 0.0, 0.0, "END_TXN"))
    )
