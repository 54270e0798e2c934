"""The schema registry with its topic on Apache Kafka."""

from __future__ import annotations

from random import Random
from typing import Any

import httpx
import pytest

from onceward.broker.client import Admin, Client
from onceward.registry.config import RegistryConfig
from onceward.registry.server import Registry

from .kafka import JavaKafka

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


async def register(registry: Registry, subject: str, number: int) -> Any:
    body = {"schema": f'{{"type":"fixed","name":"F{number}","size":1}}'}
    async with httpx.AsyncClient(base_url=registry.url, timeout=60) as http:
        answer = await http.post(f"/subjects/{subject}/versions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


async def test_leader_follower_takeover_and_restart(java_kafka: JavaKafka) -> None:
    config = RegistryConfig(port=0, topic="registry-schemas", group_id="registry-group")

    def client() -> Client:
        return Client(java_kafka.bootstrap, clock=lambda: 1_700_000_000_000, rng=Random(1))

    async with client() as one, client() as two:
        first = Registry(one, config)
        await first.start()
        async with Registry(two, config) as second:
            assert [await register(second, "a", 1), await register(first, "b", 2)] == [1, 2]
            await first.stop()
            assert await register(second, "c", 3) == 3
        described = await Admin(two).describe_configs("registry-schemas")
        assert described["cleanup.policy"].value == "compact"
        async with Registry(two, config) as again:
            assert await register(again, "d", 4) == 4
            assert sorted(again.machine.state.subjects) == ["a", "b", "c", "d"]
