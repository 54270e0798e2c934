"""kill -9 of registries in mid-registration, judged by what clients were told.

No id stands for two schemas, nothing acknowledged is lost, and clients that retry succeed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .broker_process import BrokerUnderFire
from .registry_load import Client, Refused, Told, judge, request
from .registry_process import RegistryUnderFire

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("ONCEWARD_KILLS", "3"))
CLIENTS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerUnderFire]:
    broker = BrokerUnderFire(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    yield broker
    broker.stop()


def is_leader(registry: RegistryUnderFire) -> bool:
    """A forwarded request is only taken by the instance that leads."""
    forwarded = {"X-Forward": "true"}
    try:
        request(registry.url, "PUT", "/config/probe", {"compatibility": "NONE"}, **forwarded)
    except Refused:
        return False
    return True


def leader_of(registries: list[RegistryUnderFire]) -> RegistryUnderFire:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for registry in registries:
            if is_leader(registry):
                return registry
        time.sleep(0.05)
    raise AssertionError("no registry leads")


def under_load(
    registries: list[RegistryUnderFire],
    rng: random.Random,
    broker: BrokerUnderFire | None = None,
) -> Told:
    """Kill the registry that leads, or ``broker``, again and again; returns what the clients were
    told."""
    for registry in registries:
        registry.start()
    request(leader_of(registries).url, "PUT", "/config", {"compatibility": "NONE"})
    told, done = Told(), threading.Event()
    urls = [registry.url for registry in registries]
    clients = [Client(urls, f"c{index}", told, done) for index in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for _ in range(KILLS):
            before = told.registered
            victim = broker or leader_of(registries)
            while told.registered < before + CLIENTS:  # all of them are at it
                assert all(client.failure is None for client in clients), clients[0].failure
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.3))
            victim.kill()
            victim.start()
    finally:
        done.set()
        for client in clients:
            client.join(90)
    assert not any(client.is_alive() for client in clients), "a client hangs"
    failures = [client.failure for client in clients if client.failure is not None]
    assert not failures, failures
    print(f"{told.registered} registrations, {told.erased} erased, retries {dict(told.retries)}")
    return told


def test_a_killed_broker_costs_nothing_but_time(broker: BrokerUnderFire, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed={seed} kills of the broker={KILLS}")
    registry = RegistryUnderFire(broker.address, tmp_path / "registry.log")
    try:
        told = under_load([registry], random.Random(seed), broker)
        judge(told, registry.url)
        registry.kill()
        registry.start()
        judge(told, registry.url)
    finally:
        registry.stop()


@pytest.mark.parametrize("instances", [1, 2])
def test_no_id_is_given_twice_and_nothing_acknowledged_is_lost(
    broker: BrokerUnderFire, tmp_path: Path, instances: int
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed={seed} kills={KILLS} instances={instances}")
    registries = [
        RegistryUnderFire(broker.address, tmp_path / f"registry{index}.log")
        for index in range(instances)
    ]
    try:
        told = under_load(registries, random.Random(seed))
        assert told.retries, "no kill hit a request"
        for registry in registries:
            judge(told, registry.url)
        for registry in registries:  # and once more from nothing but the topic
            registry.kill()
            registry.start()
        judge(told, registries[-1].url)
    finally:
        for registry in registries:
            registry.stop()
