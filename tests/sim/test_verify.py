"""``onceward verify`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceward.streams.cli.main import main

HERE = Path(__file__).parent
GOOD = f"{HERE / 'word_count_app.py'}:app"
FORGETFUL = f"{HERE / 'forgetful_app.py'}:app"


def test_a_right_app_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", GOOD, "--seeds", "4", "--records", "10"]) == 0
    assert "4 seeds" in capsys.readouterr().out


def test_a_wrong_app_exits_with_1_and_the_printed_command_shows_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", FORGETFUL, "--seeds", "40"]) == 1
    printed = capsys.readouterr().out
    command = printed.partition("To run it again:\n")[2].split("\n")[0].split()
    assert main(command[1:]) == 1
    again = capsys.readouterr().out
    assert again.partition("To run it again:")[0] == printed.partition("To run it again:")[0]


def test_the_faults_of_a_failure_can_be_given_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kill = {"at": 0.5, "kind": "kill", "target": "worker-0", "args": [0.1]}
    both = [kill, {**kill, "target": "worker-1"}]
    file = tmp_path / "faults.jsonl"
    file.write_text("\n".join(json.dumps(fault) for fault in both))
    assert main(["verify", FORGETFUL, "--seed", "1", "--faults", str(file)]) == 1
    assert main(["verify", GOOD, "--seed", "1", "--faults", json.dumps(kill)]) == 0
    assert "nothing wrong" in capsys.readouterr().out


def test_input_comes_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    file.write_text('{"value": "a b"}\n\n{"topic": "lines", "key": null, "value": "b"}\n')
    assert main(["verify", GOOD, "--seeds", "2", "--input", str(file), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["seeds"] == 2
    assert result["failures"] == []


def test_input_that_is_none_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "input.jsonl"
    file.write_text("[1]\n")
    assert main(["verify", GOOD, "--input", str(file)]) == 1
    assert "input.jsonl:1" in capsys.readouterr().err


def test_the_matrix_says_how_many_steps_it_covered(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", GOOD, "--crash-matrix", "--crash-budget", "6", "--records", "4"]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["runs"] == 6
    assert result["steps"]["broker fsync"] > 0


def test_an_app_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "no_such_module:app"]) == 1
    assert "there is no module no_such_module" in capsys.readouterr().err


def test_an_own_check_looks_at_every_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own_check.py"
    file.write_text(
        "from own_limit import LIMIT\n"
        "def few_words(outcome):\n"
        "    assert len(outcome.table('counts')) < LIMIT, 'too many words'\n"
    )
    (tmp_path / "own_limit.py").write_text("LIMIT = 1\n")
    arguments = ["verify", GOOD, "--seeds", "2", "--records", "4", "--check"]
    assert main([*arguments, f"{file}:few_words"]) == 1
    printed = capsys.readouterr().out
    assert "too many words" in printed
    assert f"--check {file}:few_words" in printed
    assert main([*arguments, f"{file}:no_such_function"]) == 1
    assert "has no function 'no_such_function'" in capsys.readouterr().err


def test_a_fault_of_real_processes_is_none_of_a_simulation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault = {"at": 0.5, "kind": "terminate", "target": "worker-0", "args": [0.1]}
    assert main(["verify", GOOD, "--faults", json.dumps(fault)]) == 1
    assert "terminate is a fault of real processes only" in capsys.readouterr().err
