"""Every I/O step of a run, and what becomes of the run when a process dies before it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from onceward.streams.cli.main import main
from onceward.streams.errors import ConfigurationError
from onceward.streams.testing import AnomalyFound, Outcome, crash_matrix
from onceward.streams.testing.crash import (
    Crash,
    CrashMatrix,
    StepSeen,
    pairs_of,
    sample,
    singles_of,
)
from onceward.streams.testing.scenario import Scenario
from onceward.streams.testing.verification import Verification

from . import word_count_app
from .inputs import LINES, WORDS

HERE = Path(__file__).parent
FEW = {"lines": LINES["lines"][:4]}


def test_a_right_app_is_judged_right_wherever_a_process_dies() -> None:
    report = crash_matrix(word_count_app.app, input=FEW, budget=40, pairs=6)
    assert (report.runs, report.pairs) == (40, 6)
    kinds = {(host.partition("-")[0], kind) for host, kind in report.steps}
    assert kinds >= {
        ("broker", "write"),
        ("broker", "fsync"),
        ("broker", "send"),
        ("broker", "receive"),
        ("worker", "send"),
        ("worker", "receive"),
    }
    assert "steps" in str(report)


def test_the_steps_of_a_run_are_the_same_every_time() -> None:
    matrix = CrashMatrix(Verification(Scenario(word_count_app.app, FEW, workers=2)))
    steps = matrix.steps()
    assert steps == matrix.steps()
    numbers = Counter((step.host, step.number) for step in steps)
    assert set(numbers.values()) == {1}


def test_a_crash_that_loses_a_global_is_found_and_its_command_finds_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = f"{HERE / 'forgetful_app.py'}:app"
    with pytest.raises(AnomalyFound) as caught:
        crash_matrix(target, input=WORDS, budget=90)
    message = str(caught.value)
    assert "--crash-at " in message
    arguments = ["verify", target, "--crash-matrix", "--crash-budget", "30", "--records", "40"]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    command = printed.partition("To run it again:\n")[2].split("\n")[0].split()
    assert command[:2] == ["onceward", "verify"]
    assert main(command[1:]) == 1
    verdict = printed.partition("To run it again:")[0]
    assert capsys.readouterr().out.partition("To run it again:")[0] == verdict


def test_one_run_can_be_asked_for_with_the_input_it_had() -> None:
    target = f"{HERE / 'forgetful_app.py'}:app"
    with pytest.raises(AnomalyFound) as caught:
        crash_matrix(target, input=WORDS, budget=30, command="pytest test_it.py")
    failure = caught.value.failure
    assert failure.command == f"pytest test_it.py --crash-at {failure.name}"
    with pytest.raises(AnomalyFound) as again:
        crash_matrix(target, input=WORDS, at=failure.name, command="pytest test_it.py")
    assert str(again.value) == str(caught.value)
    assert crash_matrix(word_count_app.app, input=FEW, at="broker:9").runs == 1


def test_a_step_that_the_run_does_not_have_is_said_to_be_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = f"{HERE / 'word_count_app.py'}:app"
    assert main(["verify", target, "--records", "4", "--crash-at", "broker:999999"]) == 1
    assert "no step broker:999999" in capsys.readouterr().out


def test_the_users_own_check_looks_at_every_run() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.table("counts")["to"] == 4, "not this"

    with pytest.raises(AnomalyFound, match="not this"):
        crash_matrix(word_count_app.app, input=FEW, budget=2, check=check)


def test_a_second_crash_does_not_hit_the_reading_back() -> None:
    matrix = CrashMatrix(Verification(Scenario(word_count_app.app, FEW, workers=2)))
    last = max(step.number for step in matrix.steps() if step.host == "broker")
    for gap in range(64, 76, 2):  # the log is read at some of these
        assert matrix.at((Crash("broker", last), Crash("broker", gap, after=True))) is None


def test_a_crash_is_written_and_read_back() -> None:
    for text in ("broker:12:power_off", "worker-1:+3:kill"):
        assert str(Crash.parse(text)) == text
    assert Crash.parse("broker:7") == Crash("broker", 7, "kill")
    for wrong in ("broker", "broker:x", "broker:1:explode"):
        with pytest.raises(ConfigurationError):
            Crash.parse(wrong)


def test_a_budget_is_spent_on_every_kind_of_step_before_any_gets_more() -> None:
    steps = [StepSeen("broker", n, "write") for n in range(90)]
    steps += [StepSeen("broker", 90 + n, "rename") for n in range(2)]
    steps += [StepSeen("worker-0", n, "send") for n in range(40)]
    singles = singles_of(steps)
    assert len(singles) == 2 * 92 + 40
    chosen = sample(singles, 20)
    assert len(chosen) == len(set(chosen)) == 20
    by_crash = {crashes: name for name, crashes in singles}
    assert Counter(by_crash[crashes] for crashes in chosen) == {
        "broker write kill": 5,
        "broker write power_off": 6,
        "broker rename kill": 2,
        "broker rename power_off": 2,
        "worker send kill": 5,
    }
    assert sample(singles, None) == [crashes for _, crashes in singles]


def test_pairs_are_drawn_from_a_seed() -> None:
    steps = [StepSeen("broker", n, "write") for n in range(9)] + [StepSeen("worker-0", 1, "send")]
    assert pairs_of(steps, 5, Random(1)) == pairs_of(steps, 5, Random(1))
    for first, second in pairs_of(steps, 50, Random(2)):
        assert not first.after
        assert second.after
        assert second.step >= 1
