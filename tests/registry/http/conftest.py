"""The REST interface in this process, on a registry in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from onceward.registry.http.application import RegistryApp
from onceward.registry.service import RegistryService

from ..direct import memory_service
from .rest import Rest


@pytest_asyncio.fixture
async def service() -> RegistryService:
    return memory_service()


@pytest_asyncio.fixture
async def rest(service: RegistryService) -> AsyncIterator[Rest]:
    transport = httpx.ASGITransport(RegistryApp(service, max_body_bytes=200_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://registry.test") as client:
        yield Rest(client)
