"""Tests marked ``simulate`` or ``crash_matrix``: called for every run that was judged right."""

from __future__ import annotations

import inspect
import os
import shlex
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from .. import testing as kit
from ..errors import StreamsError

Check = Callable[[Any], None]


def run_marked(item: pytest.Function) -> None:
    """Fails the test with the verdict of the first wrong run and the command that repeats it."""
    if inspect.iscoroutinefunction(inspect.unwrap(item.obj)):  # pytest-asyncio wraps it
        pytest.fail(
            "a test marked simulate or crash_matrix is called when a run is over: make it a plain "
            "function",
            pytrace=False,
        )
    verdict = None
    try:
        for marker in item.iter_markers("simulate"):
            _simulate(item, marker)
        for marker in item.iter_markers("crash_matrix"):
            _crash_matrix(item, marker)
    except (AssertionError, StreamsError) as error:
        verdict = str(error)
    if verdict is not None:  # outside of the handler: it says everything, what led to it nothing
        pytest.fail(verdict, pytrace=False)


def _simulate(item: pytest.Function, marker: pytest.Mark) -> None:
    options = {"command": _command(item), **_options(item, marker)}
    config = item.config
    for option, name in (("onceward_seeds", "seeds"), ("onceward_seed", "seed")):
        if config.getoption(option) is not None:
            options[name] = config.getoption(option)
    report = kit.simulate(_app(marker), check=_check(item), **options)
    item.user_properties += [
        ("onceward_seeds", report.seeds),
        ("onceward_seeds_per_minute", round(report.seeds_per_minute)),
    ]


def _crash_matrix(item: pytest.Function, marker: pytest.Mark) -> None:
    options = {"command": f"pytest {shlex.quote(item.nodeid)}", **_options(item, marker)}
    for option, name in (("onceward_crash_budget", "budget"), ("onceward_crash_at", "at")):
        if item.config.getoption(option) is not None:
            options[name] = item.config.getoption(option)
    report = kit.crash_matrix(_app(marker), check=_check(item), **options)
    item.user_properties += [("onceward_runs", report.runs), ("onceward_pairs", report.pairs)]


def _app(marker: pytest.Mark) -> Any:
    if len(marker.args) != 1:
        pytest.fail(
            f"@pytest.mark.{marker.name} needs the app: an App, 'module:app', or a function that "
            "makes one",
            pytrace=False,
        )
    return marker.args[0]


def _options(item: pytest.Function, marker: pytest.Mark) -> dict[str, Any]:
    options = dict(marker.kwargs)
    jobs = item.config.getoption("onceward_jobs")
    if jobs is None and "jobs" not in options:
        jobs = _share_of_cores(item.config)
    if jobs is not None:
        options["jobs"] = jobs
    return options


def _share_of_cores(config: pytest.Config) -> int | None:
    """Under pytest-xdist several workers share the machine."""
    workers = getattr(config, "workerinput", {}).get("workercount")
    return None if workers is None else max(1, (os.cpu_count() or 1) // workers)


def _check(item: pytest.Function) -> Check:
    """The test function, as what looks at one run."""
    names = item._fixtureinfo.argnames
    arguments = {name: item.funcargs[name] for name in names if name != "outcome"}

    def check(outcome: Any) -> None:
        run = {"outcome": outcome} if "outcome" in names else {}
        try:
            item.obj(**arguments, **run)
        except Exception as error:
            raise AssertionError(_told(error, str(item.path))) from error

    return check


def _told(error: Exception, path: str) -> str:
    """What the test raised, and at which of its lines: the run happens in another process."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = [each for each in frames if each.filename == path][-1:] or frames[-1:]
    name = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{name}{error}\n  {frame[0].filename}:{frame[0].lineno}: {frame[0].line}"


def _command(item: pytest.Function) -> Callable[[int], str]:
    return lambda seed: f"pytest {shlex.quote(item.nodeid)} --seed {seed} --seeds 1"
