"""A real registry on a real broker, in this process."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from onceward.broker import Broker
from onceward.broker.client import Client
from onceward.registry.config import RegistryConfig
from onceward.registry.server import Registry


class Running(NamedTuple):
    """Addresses of the two."""

    broker: str
    url: str


@asynccontextmanager
async def registry_on(broker: str, port: int = 0) -> AsyncIterator[Registry]:
    async with (
        Client(broker, client_id="registry", clock=_now_ms, rng=random.Random()) as client,
        Registry(client, RegistryConfig(port=port)) as registry,
    ):
        yield registry


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with (
        Broker(data_dir=str(tmp_path / "broker")) as broker,
        registry_on(broker.bootstrap) as registry,
    ):
        yield Running(broker.bootstrap, registry.url)
