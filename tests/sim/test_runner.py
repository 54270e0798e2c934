"""Jobs in forked processes: results, deaths, and jobs that take too long."""

from __future__ import annotations

import os
import signal
import time

import pytest

from onceward.streams.testing.runner import Died, Runner, run_in_child


def square(number: int) -> int:
    return number * number


def test_every_item_gives_its_result() -> None:
    results = dict(Runner(square, jobs=2, batch=3).results(range(20)))
    assert results == {number: number * number for number in range(20)}


def test_nothing_of_a_child_reaches_the_parent() -> None:
    seen: list[int] = []
    assert len(list(Runner(seen.append, jobs=1).results([1, 2]))) == 2
    assert seen == []


def test_a_child_that_dies_costs_one_item() -> None:
    def run(number: int) -> int:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    results = dict(Runner(run, jobs=1, batch=10).results(range(6)))
    assert results.pop(3) == Died(f"the process was ended by signal {int(signal.SIGKILL)}")
    assert results == {0: 0, 1: 1, 2: 2, 4: 4, 5: 5}


def test_an_exception_is_a_death_that_was_told(capfd: pytest.CaptureFixture[str]) -> None:
    def run(_: int) -> None:
        raise ZeroDivisionError("in the child")

    assert run_in_child(run, 1) == Died("the process ended with status 1")
    assert "in the child" in capfd.readouterr().err


def test_an_item_that_takes_too_long_is_ended() -> None:
    def run(number: int) -> int:
        if number == 1:
            time.sleep(60)
        return number

    results = dict(Runner(run, jobs=1, limit_s=0.5).results(range(3)))
    assert results == {0: 0, 1: Died("it took more than 0.5 s of real time"), 2: 2}


def test_no_child_outlives_a_caller_that_stops_early() -> None:
    runner = Runner(square, jobs=2, batch=1)
    for _ in runner.results(range(100)):
        break
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
