"""The pytest plugin, in pytest runs of its own. What runs a marked test is stood in for here: it is
the simulator's business."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.streams import testing

pytest_plugins = ["pytester"]

PLUGIN = "onceward.streams.testing.plugin"
ASYNCIO = (
    *("-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"),
    *("-o", "asyncio_default_fixture_loop_scope=function"),
)
APP = """
    from onceward.streams import App

    def make_app():
        app = App("numbers", topic_partitions=1)
        totals = app.Table("totals", default=int)

        @app.agent(app.topic("numbers", value_type=int))
        async def add(stream):
            async for number in stream:
                totals["all"] += number

        return app
"""


@dataclass
class Report:
    seeds: int = 3
    seeds_per_minute: float = 1234.5
    runs: int = 7
    pairs: int = 2


class Calls:
    """Stands for ``simulate`` and ``crash_matrix``: calls the check as they do."""

    def __init__(self, outcomes: int = 2) -> None:
        self.options: list[dict[str, Any]] = []
        self.outcomes = outcomes

    def __call__(self, app: Any, *, check: Callable[[Any], None], **options: Any) -> Report:
        self.options.append({"app": app, **options})
        for number in range(self.outcomes):
            try:
                check(SimpleNamespace(seed=number))
            except AssertionError as error:
                command = options.get("command", str)(number)
                raise AssertionError(f"exactly-once was broken\n{error}\n  {command}") from error
        return Report(seeds=options.get("seeds", 100))


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(testing, "simulate", calls, raising=False)
    return calls


@pytest.fixture
def crash_matrix(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(testing, "crash_matrix", calls, raising=False)
    return calls


class Runner:
    """Runs pytest on a test file."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.options = ["-p", PLUGIN, "-p", "no:cacheprovider"]

    def __call__(self, test: str, *options: str) -> pytest.RunResult:
        self.pytester.makepyfile(app=APP, test_it=test)
        return self.pytester.runpytest_inprocess(*self.options, *options)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Runner(pytester)


# fixtures


def test_a_broker_a_cluster_and_a_driver_are_fixtures_of_plain_and_async_tests(run: Runner) -> None:
    result = run(
        """
        import asyncio, random
        from app import make_app
        from onceward.broker.client import Client, Admin

        async def names(address):
            async with Client(address, clock=lambda: 0, rng=random.Random()) as client:
                return await Admin(client).list_topics()

        def test_broker(onceward_broker):
            assert asyncio.run(names(onceward_broker)) == []

        async def test_broker_async(onceward_broker):
            assert await names(onceward_broker) == []

        async def test_driver(onceward_driver):
            driver = onceward_driver(make_app())
            driver.pipe("numbers", 3)
            assert driver.table("totals") == {"all": 3}

        def test_cluster(onceward_cluster):
            cluster = onceward_cluster(make_app, workers=2)
            cluster.send("numbers", value=3)
            cluster.wait_until_processed()
            assert cluster.table("totals") == {"all": 3}
        """,
        *ASYNCIO,
    )
    result.assert_outcomes(passed=4)


# markers


def test_a_simulated_test_is_called_with_every_outcome(run: Runner, simulate: Calls) -> None:
    result = run(
        """
        import pytest
        from app import make_app
        seen = []

        @pytest.mark.simulate(make_app, input={"numbers": [(None, 1)]}, seeds=20, workers=2)
        def test_right(outcome, tmp_path):
            assert tmp_path.is_dir()
            seen.append(outcome.seed)

        def test_seen():
            assert seen == [0, 1]
        """
    )
    result.assert_outcomes(passed=2)
    (options,) = simulate.options
    assert options["app"].__name__ == "make_app"
    del options["app"], options["command"]
    assert options == {"input": {"numbers": [(None, 1)]}, "seeds": 20, "workers": 2}


def test_a_failure_shows_the_verdict_the_line_and_the_command(run: Runner, simulate: Calls) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.simulate("app:make_app")
        def test_wrong(outcome):
            assert outcome.seed < 1, "too many"
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "_* test_wrong _*",
            "exactly-once was broken",
            "too many*",
            "*test_it.py:5: assert outcome.seed < 1*",
            "*pytest test_it.py::test_wrong --seed 1 --seeds 1",
        ]
    )
    result.stdout.no_fnmatch_line("*def run_marked*")


def test_another_exception_of_the_test_is_named(run: Runner, simulate: Calls) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.simulate("app:make_app")
        def test_wrong(outcome):
            {}["missing"]
        """
    )
    result.stdout.fnmatch_lines(["KeyError: 'missing'", "*test_it.py:5: *"])


def test_options_of_the_command_line_come_first(
    run: Runner, simulate: Calls, crash_matrix: Calls
) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.crash_matrix("app:make_app", pairs=4)
        @pytest.mark.simulate("app:make_app", seeds=20)
        def test_both(outcome):
            pass
        """,
        "--seeds", "5", "--seed", "77", "--crash-budget", "9", "--onceward-jobs", "1",
    )  # fmt: skip
    result.assert_outcomes(passed=1)
    (options,) = simulate.options
    assert options["command"](3) == "pytest test_it.py::test_both --seed 3 --seeds 1"
    assert {**options, "command": None} == {
        "app": "app:make_app", "command": None, "seeds": 5, "seed": 77, "jobs": 1,
    }  # fmt: skip
    assert crash_matrix.options == [
        {
            "app": "app:make_app",
            "command": "pytest test_it.py::test_both",
            "pairs": 4,
            "budget": 9,
            "jobs": 1,
        },
    ]


def test_one_run_of_a_matrix_can_be_asked_for(run: Runner, crash_matrix: Calls) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.crash_matrix("app:make_app")
        def test_right():
            pass
        """,
        "--crash-at", "broker:12:power_off", "--onceward-jobs", "1",
    )  # fmt: skip
    result.assert_outcomes(passed=1)
    (options,) = crash_matrix.options
    assert options["at"] == "broker:12:power_off"


def test_junit_gets_the_number_of_runs_and_the_speed(run: Runner, simulate: Calls) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.simulate("app:make_app", seeds=20)
        def test_right():
            pass
        """,
        "--junitxml=report.xml",
    )
    result.assert_outcomes(passed=1)
    report = (run.pytester.path / "report.xml").read_text()
    assert '<property name="onceward_seeds" value="20"' in report
    assert '<property name="onceward_seeds_per_minute" value="1234"' in report


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("@pytest.mark.simulate()\ndef test(): pass", "*simulate needs the app*"),
        ("@pytest.mark.simulate('a:b')\nasync def test(): pass", "*make it a plain function"),
        ("def test(outcome): pass", "*`outcome` is for tests marked simulate or crash_matrix"),
    ],
)
def test_wrong_use_is_told(run: Runner, simulate: Calls, test: str, reason: str) -> None:
    result = run(f"import pytest\n{test}", *ASYNCIO)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([reason])
    assert simulate.options == []


# being installed


def test_markers_are_known_and_options_are_in_the_help(run: Runner) -> None:
    result = run("", "--markers")
    result.stdout.fnmatch_lines(
        ["@pytest.mark.simulate(app, *", "@pytest.mark.crash_matrix(app, *"]
    )
    result = run("", "--help")
    result.stdout.fnmatch_lines(["onceward:*", "*--seeds=N*", "*--crash-budget=N*"])


def test_another_plugins_seed_option_is_left_to_it(run: Runner) -> None:
    run.pytester.makepyfile(
        taken="def pytest_addoption(parser):\n    parser.addoption('--seed', dest='theirs')\n"
    )
    run.pytester.syspathinsert()
    first = ["-p", "taken"]
    run.options = [*first, *run.options]
    result = run("def test(): pass", "--seed", "x", "--onceward-seed", "4", "--seeds", "3")
    result.assert_outcomes(passed=1)


def test_the_plugin_is_imported_without_the_engine_and_quickly() -> None:
    code = (
        "import sys, time, pytest\n"
        "before = set(sys.modules)\n"
        "start = time.process_time()\n"
        f"import {PLUGIN}\n"
        "print(time.process_time() - start)\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    command = [sys.executable, "-c", code]
    fresh, *_ = sorted(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n", 1)
        for _ in range(3)
    )
    seconds, modules = float(fresh[0]), fresh[1]
    ours = [name for name in eval(modules) if name.startswith("onceward")]
    assert ours == ["onceward", "onceward.streams", "onceward.streams.testing", PLUGIN]
    assert float(seconds) < 0.02  # measured: 0.002
