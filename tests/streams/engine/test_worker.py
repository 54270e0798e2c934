"""Starting a worker while its broker is away."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.broker import Broker
from onceward.broker.client import KafkaError
from onceward.streams import App
from onceward.streams.engine.worker import PatientCluster, run_worker


@pytest.fixture
def reserved() -> Iterator[socket.socket]:
    """A port that refuses connections: bound, but nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def address_of(bound: socket.socket) -> str:
    return f"127.0.0.1:{bound.getsockname()[1]}"


def cluster_at(address: str, timeout_ms: int) -> PatientCluster:
    return PatientCluster(
        address,
        client_id="test",
        request_timeout_ms=timeout_ms,
        clock=lambda: 0,
        rng=random.Random(1),
        notice_s=0.01,
    )


async def test_a_broker_that_is_away_at_the_start_is_waited_for_and_mentioned(
    reserved: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = address_of(reserved)
    cluster = cluster_at(address, 20_000)
    with caplog.at_level(logging.WARNING):
        starting = asyncio.create_task(cluster.start())
        while not caplog.messages:
            await asyncio.sleep(0.01)
    assert caplog.messages[0] == f"waiting for a broker at {address}, for 20 s more"
    assert not starting.done()
    reserved.close()
    async with Broker(tmp_path / "data", listen=address):
        await starting
        await cluster.close()


async def test_a_broker_that_stays_away_ends_the_start_with_one_sentence(
    reserved: socket.socket,
) -> None:
    address = address_of(reserved)
    cluster = cluster_at(address, 100)
    with pytest.raises(KafkaError) as caught:
        await cluster.start()
    await cluster.close()
    sentence = str(caught.value)
    assert sentence.startswith(f"NETWORK_EXCEPTION: no broker at {address} within 0.1 s: ")
    assert caught.value.__cause__ is None


def test_threads_take_turns_sooner_unless_the_program_has_its_own_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", chosen.append)
    monkeypatch.setattr(asyncio, "run", lambda serving: serving.close())
    for interval in (0.005, 0.02):
        monkeypatch.setattr(sys, "getswitchinterval", lambda interval=interval: interval)
        assert run_worker(App("none")) == 0
    assert chosen == [0.0005]
