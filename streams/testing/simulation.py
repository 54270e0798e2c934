"""Runs an app under simulated faults, seed after seed, and judges every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..app import App
from .checker import check as judge
from .cluster import BROKER, CLIENT, REGISTRY, SimCluster
from .expectation import References
from .faults import Fault, draw_plan
from .history import Anomaly, Expectation, History
from .nemesis import Nemesis
from .scenario import Prepared
from .sim.errors import LivenessFailure
from .sim.loop import START_S
from .sim.world import World

FAULTS_S = 1.0
"""Faults start within this long after the first input was sent: while there is work."""
_LIMIT_S = 150.0
"""Virtual seconds in which a run must come to its end."""
_LIMIT_STEPS = 2_000_000


@dataclass
class Outcome:
    """One run: what happened, and what was found wrong with it."""

    seed: int | str
    app: App
    history: History
    faults: list[Fault] = field(default_factory=list)
    digest: str = ""
    virtual_s: float = 0.0
    callbacks: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    trace: list[str] | None = None

    def output(self, topic: str) -> list[tuple[Any, Any]]:
        """Decoded (key, value) pairs of the committed records of ``topic``, by partition and
        offset."""
        found = next(
            (each for each in self.app.declared_topics() if topic in each.names),
            None,
        ) or self.app.topic(topic)
        return [
            (_decoded(found.decode_key, record.key), _decoded(found.decode_value, record.value))
            for record in self.history.topic(topic)
        ]

    def table(self, name: str) -> dict[Any, Any]:
        """The decoded content of all partitions of a table, at their owners."""
        table = self.app.tables[name]
        return {
            table.decode_key(key): table.decode_value(value)
            for content in self.history.tables.get(name, {}).values()
            for key, value in content.items()
        }

    def sink(self, name: str) -> list[Any]:
        """What an external system got."""
        return self.history.sinks.get(name, [])


def _decoded(decode: Callable[[bytes], Any], data: bytes | None) -> Any:
    return None if data is None else decode(data)


Check = Callable[[Outcome], None]
"""A user's own assertions on one run."""


class Simulation:
    """Runs of one scenario, and what to expect of them. ``cluster``: what its hosts run."""

    def __init__(
        self,
        prepared: Prepared,
        check: Check | None = None,
        cluster: type[SimCluster] = SimCluster,
    ) -> None:
        self.prepared = prepared
        prepared.simulate_registry()
        self._check = check
        self._cluster = cluster
        self.references = References(self._reference)

    def run(self, seed: int, *, plan: Sequence[Fault] | None = None) -> Outcome:
        """One run, judged. ``plan`` None: the one that the seed draws."""
        expectation = self.references.of(self.prepared.input_number(seed))
        outcome = self.execute(seed, self.plan(seed) if plan is None else plan)
        self.judge(outcome, expectation)
        return outcome

    def plan(self, seed: int) -> list[Fault]:
        """The faults of a seed."""
        workers = range(self.prepared.scenario.workers)
        hosts = [BROKER, *(f"worker-{number}" for number in workers), CLIENT]
        if self.prepared.schemas is not None:
            hosts.append(REGISTRY)
        return draw_plan(random.Random(f"{seed}/plan"), hosts=hosts, duration_s=FAULTS_S)

    def execute(
        self,
        seed: int | str,
        plan: Sequence[Fault] = (),
        *,
        number: int | None = None,
        orderly: bool = False,
        prepare: Callable[[SimCluster], None] | None = None,
        keep_trace: bool = False,
    ) -> Outcome:
        """One run, not judged, fed with input ``number``; ``prepare`` may watch its cluster.

        ``orderly``: see ``SimCluster``.
        """
        world = World(seed, keep_trace=keep_trace)
        if number is None:
            number = self.prepared.input_number(seed)
        feeds = self.prepared.feeds(number)
        cluster = self._cluster(world, self.prepared, feeds, orderly=orderly)
        nemesis = Nemesis(cluster, plan)
        if prepare is not None:
            prepare(cluster)
        waiting: list[str] = []
        cluster.start()
        try:
            world.run(lambda: cluster.has_begun or cluster.is_over, max_virtual_s=_LIMIT_S)
            nemesis.begin()
            world.run(
                cluster.endings.__len__,
                max_virtual_s=_LIMIT_S,
                max_steps=_LIMIT_STEPS,
                stop_at_errors=True,
            )
        except LivenessFailure as failure:
            waiting = failure.waiting or [str(failure)]
        outcome = Outcome(
            seed,
            self.prepared.app,
            cluster.history(waiting),
            list(plan),
            world.digest,
            world.now - START_S,
            world.callbacks,
            trace=world.trace,
        )
        world.end()
        return outcome

    def judge(self, outcome: Outcome, expectation: Expectation | None) -> None:
        """Fill in the anomalies; the user's own check comes last."""
        outcome.anomalies = judge(outcome.history, expectation)
        if self._check is None or outcome.anomalies:
            return
        try:
            self._check(outcome)
        except AssertionError as error:
            sentence = f"the test's own check failed: {error or type(error).__name__}"
            outcome.anomalies = [Anomaly("check failed", sentence)]

    def _reference(self, name: str, number: int) -> History:
        return self.execute(name, number=number, orderly=True).history
