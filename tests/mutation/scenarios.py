"""The apps, inputs and circumstances under which planted faults are hunted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import Producer, TopicPartition
from onceward.broker.coordinator.transaction.marker_writer import MarkerWriter
from onceward.broker.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from onceward.streams.testing.scenario import Scenario
from onceward.streams.testing.sim import Host
from onceward.streams.testing.sim.disk import SimDisk, SimFile

from . import apps

_WORD_COUNT = Path(__file__).parents[2] / "examples" / "word_count.py"

_SHORT = {"broker_session_timeout": 1.0}
_ALLOW_SHORT = {"group.min.session.timeout.ms": "500"}
"""Paused workers are replaced, and come back as zombies."""

Pairs = Mapping[str, list[tuple[Any, Any]]]
Arrange = Callable[[pytest.MonkeyPatch], None]


class Circumstances:
    """A scenario, and what holds for correct and for faulty code alike."""

    def __init__(self, scenario: Scenario, arrange: Arrange | None = None) -> None:
        self.scenario = scenario
        self._arrange = arrange

    def arrange(self, patch: pytest.MonkeyPatch) -> None:
        if self._arrange is not None:
            self._arrange(patch)


def _lines(count: int, *, keys: Sequence[bytes | None] = (None,)) -> Pairs:
    rng = random.Random("lines")
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    return {"lines": [(rng.choice(keys), " ".join(rng.choices(words, k=3))) for _ in range(count)]}


def _orders(count: int) -> Pairs:
    rng = random.Random("orders")
    return {"orders": [(f"customer-{rng.randrange(6)}", number) for number in range(count)]}


def _small_batches(patch: pytest.MonkeyPatch) -> None:
    """A few records fill a batch, so that many are in flight at a time."""
    _with_defaults(patch, max_batch_bytes=110)


def _transactions_version_1(patch: pytest.MonkeyPatch) -> None:
    """As with a cluster before Kafka 4: EndTxn is not repeated when no answer comes."""
    _with_defaults(patch, max_transaction_version=1)


def _slow_disk(patch: pytest.MonkeyPatch) -> None:
    """Much is written between two syncs, and in small pieces."""
    made = SimDisk.__init__

    def slow(self: SimDisk, host: Host | None = None) -> None:
        made(self, host)
        self.slow_fsync(0.03, 1.0)

    patch.setattr(SimDisk, "__init__", slow)
    _small_batches(patch)


def _slow_decisions(patch: pytest.MonkeyPatch) -> None:
    """The log of the transactions' fates is on a disk that is slower than that of the data."""
    sync = SimFile.fsync

    async def late(self: SimFile) -> None:
        if TRANSACTION_STATE_TOPIC in self._path:
            await asyncio.sleep(0.1)
        await sync(self)

    patch.setattr(SimFile, "fsync", late)


def _slow_markers(patch: pytest.MonkeyPatch) -> None:
    """Markers come late, on data partitions later than on the offsets' partition."""
    write = MarkerWriter._write

    async def late(self: MarkerWriter, prepared: Any, tp: TopicPartition) -> Any:
        await asyncio.sleep(0.1 if tp.topic == CONSUMER_OFFSETS_TOPIC else 0.2)
        return await write(self, prepared, tp)

    patch.setattr(MarkerWriter, "_write", late)


def _with_defaults(patch: pytest.MonkeyPatch, **values: Any) -> None:
    defaults: dict[str, Any] = dict(Producer.__init__.__kwdefaults__ or {})
    patch.setattr(Producer.__init__, "__kwdefaults__", {**defaults, **values})


def scenario_named(name: str) -> Circumstances:
    """The circumstances of this name; all but ``payments`` have the README's word count.

    words: nothing special. payments: agents that wait, a table and a database; workers are replaced
    after a second. zombies: workers are replaced after a second. bursts: batches of one record.
    slow disk: like bursts, syncs take long and transactions may not. slow decisions: what became of
    a transaction is on disk later than its data. segments: logs roll all the time. impatient: a
    short transaction timeout. slow markers: partitions learn late how a transaction ended. version
    1: the transactions of older clusters. Raises KeyError.
    """
    words = Scenario(f"{_WORD_COUNT}:app", _lines(40))
    if name == "words":
        return Circumstances(words)
    if name == "payments":
        return Circumstances(
            Scenario(apps.payments, _orders(60), settings=_SHORT, broker_config=_ALLOW_SHORT)
        )
    if name == "bursts":
        return Circumstances(Scenario(words.app, _lines(80, keys=[b"here"])), _small_batches)
    if name == "slow disk":
        slow = Scenario(
            words.app, _lines(80, keys=[b"here"]), settings={"transaction_timeout": 1.0}
        )
        return Circumstances(slow, _slow_disk)
    if name == "slow decisions":
        short = {"transaction_timeout": 0.6}
        return Circumstances(Scenario(words.app, _lines(40), settings=short), _slow_decisions)
    if name == "segments":
        small = {"log.segment.bytes": "1024"}
        return Circumstances(Scenario(words.app, _lines(40), broker_config=small), _small_batches)
    if name == "impatient":
        short = {"transaction_timeout": 0.4}
        return Circumstances(Scenario(words.app, _lines(40), settings=short))
    if name == "zombies":
        return Circumstances(
            Scenario(words.app, _lines(40), settings=_SHORT, broker_config=_ALLOW_SHORT)
        )
    if name == "slow markers":
        return Circumstances(words, _slow_markers)
    if name == "version 1":
        return Circumstances(words, _transactions_version_1)
    raise KeyError(name)
