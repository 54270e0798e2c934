from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import Admin, Client, NewTopic

from ...peers.conftest import java_kafka

__all__ = ["java_kafka"]

TOPIC_NUMBERS = itertools.count(1)
NewTopicFixture = Callable[..., Awaitable[str]]

CONFIG = {"group.min.session.timeout.ms": 100}


def new_client(bootstrap: str, **options: Any) -> Client:
    return Client(bootstrap, clock=lambda: int(time.time() * 1000), rng=Random(1), **options)


@pytest.fixture(params=["onceward", pytest.param("kafka", marks=pytest.mark.peers)])
async def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a cluster: our broker, and (``-m peers``) Apache Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("java_kafka").bootstrap
        return
    async with Broker(str(tmp_path / "data"), config=CONFIG) as broker:
        yield broker.bootstrap


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    async with new_client(bootstrap) as running:
        yield running


@pytest.fixture
def new_topic(client: Client) -> NewTopicFixture:
    """``await new_topic(partitions=1, **configs)``: a topic of a name not used before."""

    async def create(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(TOPIC_NUMBERS)}-{time.time_ns()}"
        topic = NewTopic(
            name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()}
        )
        assert await Admin(client).create_topics([topic]) == {name: None}
        return name

    return create
