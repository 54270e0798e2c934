"""Registries under faults, and killed at every step, judged by what their clients were told.

``ONCEWARD_REGISTRY_SEEDS`` more seeds than usual; ``python -m tests.sim.registry_seeds`` for many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.streams.testing.runner import run_in_child

from .registry_runs import CrashAt, crash_at, run_seed
from .registry_seeds import INSTANCES, matrix, seed_result, seeds

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("ONCEWARD_REGISTRY_SEEDS", "12"))
CRASHES = int(os.environ.get("ONCEWARD_REGISTRY_CRASHES", "20"))


@pytest.mark.timeout(300)
def test_what_clients_were_told_is_true_under_any_faults() -> None:
    summary = seeds(range(SEEDS))
    assert not summary.failures
    assert summary.writes > 10 * SEEDS, "hardly anything happened"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("instances", INSTANCES)
def test_a_registry_may_die_at_any_step(instances: int) -> None:
    kinds, summary = matrix(instances, CRASHES)
    assert not summary.failures
    assert summary.runs == CRASHES
    assert kinds["registry-0 send"] > 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("instances", INSTANCES)
def test_a_registry_may_die_at_every_step(instances: int) -> None:
    assert not matrix(instances)[1].failures


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_clients_were_told_is_true_under_the_faults_of_a_thousand_seeds() -> None:
    assert not seeds(range(1000)).failures


def test_a_crash_that_does_not_happen_is_no_success() -> None:
    outcome = run_in_child(_anomalies_of, CrashAt(1, "registry-0", 1_000_000))
    assert outcome == ["no such step"]


def _anomalies_of(crash: CrashAt) -> list[str]:
    return [anomaly.kind for anomaly in crash_at(crash).anomalies]


def test_a_seed_is_one_history_in_any_process() -> None:
    here = run_in_child(seed_result, 3)
    code = "from tests.sim.registry_seeds import seeds; print(seeds([3]).digest)"
    there = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for number in ("1", "2")
    }
    assert len(there) == 1
    assert seeds([3]).digest in there.pop()
    assert here.digest == run_in_child(seed_result, 3).digest != run_in_child(seed_result, 4).digest


def test_a_run_tells_its_story() -> None:
    told = run_in_child(_story, 1)
    assert "seed 1" in told and "register(" in told and '"keytype":"SCHEMA"' in told


def _story(seed: int) -> str:
    return str(run_seed(seed))
