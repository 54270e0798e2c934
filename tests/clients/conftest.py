from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .broker_process import BrokerProcess


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module: they use names of their own and never stop it."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert broker.log() == "", "a healthy broker has nothing to warn of"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker this test may kill."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """A name no other test uses."""
    numbers = itertools.count()
    return lambda prefix: f"{prefix}-{next(numbers)}"
