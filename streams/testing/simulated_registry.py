"""The schema registry on a simulated machine: service, election, store, HTTP, all as they are."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from onceward.broker.client import Client

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from onceward.registry.server import Registry

    from .sim.host import Host

PORT = 8081
_REQUEST_TIMEOUT_MS = 10_000
"""As ``onceward registry``."""


@functools.cache
def load_registry() -> tuple[type[Registry], type[Any]]:
    """The registry's classes, with all that they would load later, in the middle of a run.

    Raises ConfigurationError when the extra is missing.
    """
    try:
        import uvicorn

        from onceward.registry.config import RegistryConfig
        from onceward.registry.server import Registry
    except ImportError as error:
        raise ConfigurationError(
            f"a registry needs {error.name}: pip install 'onceward[registry]'"
        ) from error
    uvicorn.Config(Registry, log_config=None, lifespan="off").load()
    return Registry, RegistryConfig


@asynccontextmanager
async def simulated_registry(
    host: Host, bootstrap: str, *, request_timeout_ms: int = _REQUEST_TIMEOUT_MS, **settings: Any
) -> AsyncIterator[Registry]:
    """A registry in the process that runs on ``host``; ``settings`` are those of RegistryConfig.

    Raises what ``Registry.start`` does.
    """
    registry_class, config_class = load_registry()
    client = Client(
        bootstrap,
        client_id=host.name,
        request_timeout_ms=request_timeout_ms,
        clock=host.wall_ms,
        rng=host.rng(),
    )
    await client.start()
    try:
        config = config_class(host=host.name, port=PORT, **settings)
        async with registry_class(client, config, bind=host.bound_socket) as registry:
            yield registry
    finally:
        await client.close()
