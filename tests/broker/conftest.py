from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward.broker import Broker

from .wire import Wire, connect


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker in this process, on a free port."""
    config = {"group.min.session.timeout.ms": 100}
    async with Broker(str(tmp_path / "data"), config=config) as running:
        yield running


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    """A connection to ``broker``."""
    async with await connect(broker) as connection:
        yield connection
