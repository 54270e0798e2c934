"""Apps whose schemas are in a registry, under faults that hit the registry as well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onceward.registry import Avro
from onceward.streams import App, Stream
from onceward.streams.errors import ConfigurationError
from onceward.streams.testing import crash_matrix, simulate
from onceward.streams.testing.runner import run_in_child
from onceward.streams.testing.scenario import Prepared, Scenario
from onceward.streams.testing.simulation import Outcome, Simulation

from . import avro_app
from .avro_app import ORDERS, Order

SEEDS = 20


def sums_are_right(outcome: Outcome) -> None:
    expected: dict[str, int] = {}
    for account, order in ORDERS["orders"]:
        expected[account] = expected.get(account, 0) + order.amount
    last = {key: total.sum for key, total in outcome.output("totals")}
    assert last == expected
    assert {key: total.sum for key, total in outcome.table("sums").items()} == expected


@pytest.mark.timeout(300)
@pytest.mark.parametrize("app", [avro_app.remote, avro_app.in_memory])
def test_an_app_with_avro_records_is_exactly_once_under_faults(app: Callable[[], App]) -> None:
    report = simulate(app, input=ORDERS, seeds=SEEDS, workers=2, check=sums_are_right)
    assert (report.seeds, report.uncompared) == (SEEDS, [])


@pytest.mark.timeout(300)
def test_it_survives_crashes_at_steps_of_the_registry_too() -> None:
    few = {"orders": ORDERS["orders"][:6]}
    report = crash_matrix(avro_app.remote, input=few, budget=15)
    assert report.runs == 15
    assert any(host == "registry" for host, _ in report.steps)


def test_the_registry_is_struck_as_the_workers_are() -> None:
    simulation = Simulation(Prepared(Scenario(avro_app.remote, ORDERS, workers=2)))
    struck = {fault.target for seed in range(30) for fault in simulation.plan(seed)}
    assert struck == {"broker", "worker-0", "worker-1", "registry", "client"}


def test_the_same_seed_is_the_same_history() -> None:
    simulation = Simulation(Prepared(Scenario(avro_app.remote, ORDERS, workers=2)))

    def digest(seed: int) -> str:
        return simulation.execute(seed, simulation.plan(seed)).digest

    first, second = run_in_child(digest, 3), run_in_child(digest, 3)
    assert first == second


def looks_up() -> App:
    app = App("looks-up")
    orders = app.topic(
        "orders", value_serializer=Avro(Order, registry=avro_app.REGISTRY, auto_register=False)
    )

    @app.agent(orders)
    async def take(stream: Stream[Order]) -> None:
        async for _ in stream:
            pass

    return app


def test_schemas_that_somebody_else_registers_are_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="the registry begins empty"):
        simulate(looks_up, input=ORDERS, seeds=1)
