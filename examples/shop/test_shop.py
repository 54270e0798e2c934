"""From the quickest test to the hardest: copy this file, and change the names."""

from collections import Counter

import pytest
from shop import Order, Receipt, app

ORDERS = [
    (account, Order(f"{account}-{number}", account, 100 * number))
    for number in range(1, 11)
    for account in ("ada", "bob", "cleo")
]


def test_an_order_adds_up(onceward_driver):
    """No broker, no waiting: for everyday unit tests."""
    driver = onceward_driver(app)
    driver.pipe("orders", key="ada", value=Order("1", "ada", 600))
    driver.pipe("orders", key="ada", value=Order("2", "ada", 50))
    assert [record.value for record in driver.output("receipts")] == [
        Receipt("1", 1, 600),
        Receipt("2", 2, 650),
    ]
    assert driver.table("totals") == {"ada": 650}


@pytest.mark.simulate("shop:app", input={"orders": ORDERS}, seeds=100)
def test_every_order_has_one_receipt_whatever_fails(outcome):
    """Three workers and a broker on a simulated network, under a different fault plan per seed.

    Lost, repeated and torn results are found by themselves; what is asserted here comes on top.
    """
    issued = Counter(receipt.order for _, receipt in outcome.output("receipts"))
    assert issued == Counter(order.id for _, order in ORDERS)
    assert outcome.table("totals") == {"ada": 5500, "bob": 5500, "cleo": 5500}


@pytest.mark.crash_matrix("shop:app", input={"orders": ORDERS[:6]}, budget=200)
def test_a_crash_at_any_step_changes_nothing():
    """Every disk write, every sync and every message is a step at which a process dies."""
