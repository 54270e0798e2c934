"""The schema registry of a ``LocalCluster``."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onceward.broker.client import Client

from ..app import App
from ..engine.schemas import schema_codecs
from ..errors import ConfigurationError


@asynccontextmanager
async def local_registry(bootstrap: str) -> AsyncIterator[str]:
    """A registry on a free port, which keeps its schemas in that broker; gives its URL.

    Raises ConfigurationError when the extra is missing, RegistryError, KafkaError, OSError.
    """
    try:
        from onceward.registry.config import RegistryConfig
        from onceward.registry.server import Registry
    except ImportError as error:
        raise ConfigurationError(
            f"a registry needs {error.name}: pip install 'onceward[registry]'"
        ) from error
    client = Client(
        bootstrap,
        client_id="registry",
        clock=lambda: time.time_ns() // 1_000_000,
        rng=random.Random(),
    )
    await client.start()
    try:
        async with Registry(client, RegistryConfig(port=0)) as registry:
            yield registry.url
    finally:
        await client.close()


def point_to(app: App, url: str) -> None:
    """Serializers that name a registry ask this one; what is in memory stays there."""
    for codec in schema_codecs(app):
        codec.use_url(url)
