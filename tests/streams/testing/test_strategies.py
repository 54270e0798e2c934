"""Hypothesis strategies for apps."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import Phase, find, given, settings

from onceward.streams import App, Record, Stream
from onceward.streams.testing import AppDriver
from onceward.streams.testing.strategies import fault_plans, inputs, records


class Order(Record):
    account: str
    amount: int


def totals_app() -> App:
    app = App("totals", topic_partitions=1)
    totals = app.Table("totals", default=int)

    @app.agent(app.topic("orders", value_type=Order))
    async def total(stream: Stream[Order]) -> None:
        async for order in stream:
            totals[order.account] += order.amount

    return app


APP = totals_app()


@settings(max_examples=20, deadline=None)
@given(inputs(APP))
def test_an_app_can_be_driven_with_any_input(
    given_inputs: dict[str, list[tuple[bytes, Order]]],
) -> None:
    with AppDriver(APP) as driver:
        for topic, pairs in given_inputs.items():
            driver.pipe_many(topic, pairs)
        expected: dict[str, int] = {}
        for _, order in given_inputs["orders"]:
            expected[order.account] = expected.get(order.account, 0) + order.amount
        assert driver.table("totals") == expected


def test_what_is_found_is_made_small() -> None:
    quick = settings(max_examples=500, database=None, phases=(Phase.generate, Phase.shrink))
    small = find(records(Order), lambda order: order.amount >= 3, settings=quick)
    assert small == Order("account-0", 3)


@settings(max_examples=20, deadline=None)
@given(fault_plans(workers=2))
def test_fault_plans_name_the_hosts_of_the_cluster(plan: list[object]) -> None:
    targets = {getattr(fault, "target", None) for fault in plan}
    assert targets <= {"broker", "worker-0", "worker-1", "client"}


def test_without_hypothesis_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\nimport onceward.streams.testing.strategies"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs hypothesis: pip install hypothesis" in ran.stderr


def test_a_key_and_a_value_are_drawn_for_a_topic() -> None:
    topic = APP.topic("orders", value_type=Order)
    key, value = find(records(topic), lambda _: True, settings=settings(database=None))
    assert key == b"k0"
    assert isinstance(value, Order)
    with pytest.raises(Exception, match="cannot be made up"):
        find(records(APP.topic("untyped")), lambda _: True, settings=settings(database=None))
