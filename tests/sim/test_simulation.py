"""Apps under simulated faults, seed after seed: what is found, and that it replays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.streams.errors import ConfigurationError
from onceward.streams.testing import (
    AnomalyFound,
    Fault,
    NotDeterministic,
    Outcome,
    ReferenceFailed,
    simulate,
)
from onceward.streams.testing.scenario import Scenario
from onceward.streams.testing.verification import Verification

from . import dice_app, failing_app, forgetful_app, word_count_app
from .inputs import LINES, WORDS

HERE = Path(__file__).parent


def test_an_app_that_keeps_its_state_in_tables_is_exact_under_any_faults() -> None:
    seen = Verification(Scenario(word_count_app.app, LINES)).run(range(24))
    assert not seen.failures, str(seen.failures[0])
    assert seen.seeds == 24
    assert seen.seeds_per_minute > 0


def test_a_run_is_the_same_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(json.dumps({"value": value}) for _, value in LINES["lines"]))
    target = f"{HERE / 'word_count_app.py'}:app"
    command = [sys.executable, "-m", "onceward.streams.cli", "verify", target, "--json"]
    command += ["--seeds", "3", "--seed", "5", "--input", str(file)]
    digests = set()
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(command, env=environment, check=True, capture_output=True)
        digests.add(json.loads(run.stdout)["digest"])
    here = Verification(Scenario(target, LINES)).run(range(5, 8))
    assert digests == {here.digest}


def test_another_seed_is_another_run() -> None:
    seen = Verification(Scenario(word_count_app.app, LINES)).run(range(3))
    assert len(set(seen.digests.values())) == 3


def test_state_in_a_global_is_found_out_with_a_short_plan_and_a_command() -> None:
    with pytest.raises(AnomalyFound) as caught:
        simulate(forgetful_app.app, input=WORDS, seeds=60)
    message = str(caught.value)
    assert "totals" in message
    assert "to run it again" in message.lower()
    assert f"--seed {caught.value.failure.seed} --seeds 1" in message
    assert len(caught.value.failure.plan) <= 3


def test_at_least_once_is_found_to_repeat_effects() -> None:
    with pytest.raises(AnomalyFound, match=r"(?i)duplicated"):
        simulate(
            word_count_app.app,
            input=LINES,
            seeds=60,
            settings={"processing_guarantee": "at_least_once"},
        )


def test_the_users_own_check_is_called_with_what_came_out() -> None:
    def check(outcome: Outcome) -> None:
        assert sum(outcome.table("counts").values()) == len(outcome.output("totals"))
        assert max(value for key, value in outcome.output("totals") if key == "to") == 12

    simulate(word_count_app.app, input=LINES, seeds=4, check=check)


def test_a_failed_check_names_the_seed() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.seed != 2, "I do not like this one"

    with pytest.raises(AnomalyFound, match="I do not like this one") as caught:
        simulate(
            word_count_app.app, input=LINES, seeds=5, check=check, command=lambda s: f"run {s}"
        )
    assert caught.value.failure.seed == 2
    assert "run 2" in str(caught.value)


def test_an_app_that_fails_without_faults_is_said_to() -> None:
    numbers = {"numbers": [("n", number) for number in range(1, 7)]}
    with pytest.raises(ReferenceFailed, match="division by zero"):
        simulate(failing_app.app, input=numbers, seeds=1)


def test_input_can_be_drawn_from_a_generator() -> None:
    report = simulate(
        word_count_app.app,
        input=lambda rng: {"lines": [(None, rng.choice(["a b", "b c"])) for _ in range(6)]},
        seeds=2,
        seed=100,
    )
    assert report.seeds == 2


def test_an_app_whose_runs_differ_without_any_fault_is_refused_with_an_example() -> None:
    with pytest.raises(NotDeterministic, match=r"differ in thrown:\n  thrown: .* comes once"):
        simulate(dice_app.app, input=WORDS, seeds=2, workers=1)


def test_what_may_differ_is_said_not_to_be_compared() -> None:
    report = simulate(dice_app.app, input=WORDS, seeds=2, workers=1, unjudged=["thrown"])
    assert report.uncompared == ["thrown"]
    assert "not compared, since runs without faults differ: thrown" in str(report)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no setting 'commit_intervall'"):
        simulate(word_count_app.app, input=LINES, settings={"commit_intervall": 1})


FOUND = {
    "a full disk must not leave a transaction without its end": (
        9,
        [
            Fault(0.4, "disk_full", "broker", (0, 0.4)),
            Fault(0.8, "kill", "worker-2", (0.0,)),
        ],
    ),
    "a member restarted between two rounds of a rebalance must go on with it": (
        200,
        [
            Fault(0.2, "pause", "broker", (5.7,)),
            Fault(0.5, "aimed", "worker-0", ("receive", 1, "kill", 0.0, 0.0, "END_TXN")),
        ],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_right(name: str) -> None:
    seed, plan = FOUND[name]
    verification = Verification(Scenario(word_count_app.app, LINES))
    for each in range(seed, seed + 6):
        failure = verification.with_plan(each, plan)
        assert failure is None, str(failure)
