"""Runs a scenario with a planted fault, seed after seed, until the kit catches it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from onceward.streams.testing.expectation import ReferenceFailed
from onceward.streams.testing.history import Expectation
from onceward.streams.testing.runner import Died, Runner, run_in_child
from onceward.streams.testing.scenario import Prepared
from onceward.streams.testing.simulation import Simulation

from ..sim.registry_runs import run_seed
from .mutation import Mutation
from .scenarios import scenario_named

_LIMIT_S = 240.0
REGISTRIES = "registries"
"""The scenario that is no app."""


class Catch(NamedTuple):
    """``tried`` seeds up to the one that showed the fault, by these kinds and sentences."""

    seed: int
    tried: int
    anomalies: list[tuple[str, str]]

    @property
    def kind(self) -> str:
        """Of the likeliest cause."""
        return self.anomalies[0][0]


class Hunt(ABC):
    """One scenario, to be run with a fault or without."""

    def __init__(self, *, jobs: int | None = None) -> None:
        self._jobs = jobs

    def first(self, mutation: Mutation | None, seeds: Sequence[int]) -> Catch | None:
        """The first of ``seeds`` at which something is wrong; without a mutation nothing may be."""
        if mutation is not None:
            with pytest.MonkeyPatch.context() as patch:
                mutation.plant(patch)  # here, where it is seen when it cannot be
        found: dict[int, list[tuple[str, str]]] = {}
        left = list(seeds)

        def run(seed: int) -> list[tuple[str, str]]:
            return self._run(mutation, seed)

        runner = Runner(run, jobs=self._jobs, batch=10, limit_s=_LIMIT_S)
        for seed, result in runner.results(seeds):
            if isinstance(result, Died):
                result = [("died", result.reason)]
            found[seed] = result
            while left and left[0] in found:
                anomalies = found[left.pop(0)]
                if anomalies:
                    return self._catch(seeds, len(seeds) - len(left), anomalies)
        return None

    @staticmethod
    def _catch(seeds: Sequence[int], tried: int, anomalies: list[tuple[str, str]]) -> Catch:
        return Catch(seeds[tried - 1], tried, anomalies)

    # in a child

    @abstractmethod
    def _run(self, mutation: Mutation | None, seed: int) -> list[tuple[str, str]]:
        """Kinds and sentences of what is wrong with the run of a seed."""


class AppHunt(Hunt):
    """An app, on simulated workers. What to expect of its runs comes from correct code."""

    def __init__(self, scenario: str, *, jobs: int | None = None) -> None:
        super().__init__(jobs=jobs)
        self._circumstances = scenario_named(scenario)
        self._simulation = Simulation(Prepared(self._circumstances.scenario))
        known = run_in_child(self._expectation, 0, limit_s=_LIMIT_S)
        if not isinstance(known, Expectation):
            raise ReferenceFailed(f"{scenario}: {known}")
        self._simulation.references.add(0, known)

    def _run(self, mutation: Mutation | None, seed: int) -> list[tuple[str, str]]:
        with pytest.MonkeyPatch.context() as patch:
            self._circumstances.arrange(patch)
            if mutation is not None:
                mutation.plant(patch)
            outcome = self._simulation.run(seed)
        return [(anomaly.kind, anomaly.sentence) for anomaly in outcome.anomalies]

    def _expectation(self, number: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            self._circumstances.arrange(patch)
            return self._simulation.references.of(number)


class RegistryHunt(Hunt):
    """Schema registries and clients of theirs."""

    def _run(self, mutation: Mutation | None, seed: int) -> list[tuple[str, str]]:
        with pytest.MonkeyPatch.context() as patch:
            if mutation is not None:
                mutation.plant(patch)
            outcome = run_seed(seed)
        return [(anomaly.kind, anomaly.sentence) for anomaly in outcome.anomalies]


def hunt_in(scenario: str, *, jobs: int | None = None) -> Hunt:
    """The hunt of a scenario, by its name. Raises KeyError."""
    if scenario == REGISTRIES:
        return RegistryHunt(jobs=jobs)
    return AppHunt(scenario, jobs=jobs)
