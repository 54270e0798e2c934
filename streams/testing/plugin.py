"""The pytest plugin: fixtures, and the markers ``simulate`` and ``crash_matrix``.

Imported by every pytest run where onceward is installed, so it imports nothing of onceward before a
test uses it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .blocking import BlockingCluster
    from .driver import AppDriver

_OPTIONS: Final = (
    ("--seeds", int, "N", "runs of every test marked simulate, whatever the marker says"),
    ("--seed", int, "S", "the seed of the first run of every test marked simulate"),
    ("--crash-budget", int, "N", "runs of every test marked crash_matrix"),
    ("--crash-at", str, "HOST:STEP,...", "only this run of every test marked crash_matrix"),
    ("--onceward-jobs", int, "N", "processes that run simulations; default: one per core"),
)
_MARKERS: Final = (
    "simulate(app, input=None, seeds=100, workers=3, ...): run the app on a simulated cluster under"
    " a different fault plan per seed and judge every run; the test is called with each `outcome`",
    "crash_matrix(app, input=None, budget=None, ...): run the app once per I/O step and crash a"
    " process there; the test is called with each `outcome`",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onceward", "onceward: exactly-once under faults")
    for name, kind, metavar, text in _OPTIONS:
        long = name if name.startswith("--onceward") else f"--onceward-{name[2:]}"
        options: dict[str, Any] = {
            "dest": long[2:].replace("-", "_"), "type": kind, "metavar": metavar, "help": text,
        }  # fmt: skip
        names = [name] if name == long else [name, long]
        try:
            group.addoption(*names, default=None, **options)
        except (ValueError, argparse.ArgumentError):  # another plugin has the short name
            group.addoption(long, default=None, **options)


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A marked test is not called once but for every run."""
    if not any(pyfuncitem.iter_markers("simulate")) and not any(
        pyfuncitem.iter_markers("crash_matrix")
    ):
        return None
    from .marked import run_marked

    run_marked(pyfuncitem)
    return True


@pytest.fixture
def outcome(request: pytest.FixtureRequest) -> Any:
    """The run to look at, in tests marked ``simulate`` or ``crash_matrix``."""
    node = request.node
    if node.get_closest_marker("simulate") or node.get_closest_marker("crash_matrix"):
        return None  # the marker's runs put theirs in its place
    return pytest.fail("`outcome` is for tests marked simulate or crash_matrix", pytrace=False)


@pytest.fixture
def onceward_broker() -> Iterator[str]:
    """The address of a fresh broker: ``host:port`` for any Kafka client. Runs in a thread."""
    from .local import LocalCluster

    with LocalCluster() as cluster:
        yield cluster.bootstrap


@pytest.fixture
def onceward_cluster() -> Iterator[Callable[..., BlockingCluster]]:
    """A function that starts a ``LocalCluster`` (same arguments) and gives it, in a thread.

    In async tests that want to await it, use ``LocalCluster`` itself.
    """
    from .local import LocalCluster

    with ExitStack() as undo:

        def start(*args: Any, **options: Any) -> BlockingCluster:
            return undo.enter_context(LocalCluster(*args, **options))

        yield start


@pytest.fixture
def onceward_driver() -> Iterator[Callable[..., AppDriver]]:
    """A function that opens an ``AppDriver`` (same arguments); it is closed after the test."""
    from .driver import AppDriver

    with ExitStack() as undo:

        def drive(*args: Any, **options: Any) -> AppDriver:
            return undo.enter_context(AppDriver(*args, **options))

        yield drive
