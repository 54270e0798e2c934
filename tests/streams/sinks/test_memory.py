"""The database in memory: what it promises to the simulation."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams.engine.block import Block
from onceward.streams.sinks import (
    Deletion,
    MemoryDatabase,
    MemorySink,
    SinkError,
    SinkFenced,
    SqliteSink,
)
from onceward.streams.sinks.effects import Batch, Effects
from onceward.streams.sinks.positions import Advance, Claim, Start

TP = TopicPartition("orders", 0)


def batch(*values: Any, dead_letters: bool = False) -> Batch:
    size = len(values)
    block = Block(
        TP, [None] * size, [None] * size, list(range(size)), [0] * size, None, size
    )  # fmt: skip
    effects = Effects()
    for index, value in enumerate(values):
        effects.add(value, block, index, "etl")
    return Batch("app", "a sink", effects.take(), dead_letters)


async def test_rows_and_position_change_together_or_not_at_all() -> None:
    sink = MemorySink("rows", key="id", check=lambda row: "bad" if row["n"] < 0 else None)
    claim = (await sink.take_over("app", {TP: Start(None, 0)}))[TP]
    await sink.commit(batch({"id": 1, "n": 1}), [Advance(TP, 0, claim.epoch, 1)])
    with pytest.raises(SinkError, match="orders-0 at offset 1: bad"):
        await sink.commit(
            batch({"id": 1, "n": 2}, {"id": 2, "n": -1}), [Advance(TP, 1, claim.epoch, 3)]
        )
    assert sink.rows == [{"id": 1, "n": 1}]
    assert sink.database.positions["app", "rows", TP] == Claim(1, 1)


async def test_a_commit_from_elsewhere_than_the_position_or_by_a_former_owner_is_fenced() -> None:
    database = MemoryDatabase()
    first, second = (MemorySink("rows", database=database) for _ in range(2))
    await first.take_over("app", {TP: Start(None, 0)})
    await second.take_over("app", {TP: Start(None, 0)})
    for expected, epoch in ((0, 1), (4, 2)):
        with pytest.raises(SinkFenced):
            await first.commit(batch({"a": 1}), [Advance(TP, expected, epoch, 5)])
    await second.commit(batch({"a": 1}), [Advance(TP, 0, 2, 5)])
    assert database.rows("rows") == [{"a": 1}]


async def test_steps_come_before_and_after_a_commit_and_may_end_it() -> None:
    steps: list[str] = []

    def step(what: str, name: str) -> None:
        steps.append(f"{what} {name}")
        if len(steps) in (2, 4):
            raise ConnectionError

    database = MemoryDatabase(on_step=step, latency=lambda: 0.0)
    sink = MemorySink("rows", database=database)
    await sink.take_over("app", {TP: Start(None, 0)})
    with pytest.raises(ConnectionError):
        await sink.commit(batch({"a": 1}), [Advance(TP, 0, 1, 1)])
    assert database.rows("rows") == []
    with pytest.raises(ConnectionError):
        await sink.commit(batch({"a": 1}), [Advance(TP, 0, 1, 1)])
    assert steps == ["take_over rows", "commit rows", "commit rows", "committed rows"]
    assert database.rows("rows") == [{"a": 1}]


async def test_a_stand_in_has_the_keys_and_mode_of_the_declared_sink() -> None:
    declared = SqliteSink("rows.db", table="totals", key="account", on_error="dead_letter")
    database = MemoryDatabase()
    made = MemorySink.instead_of(declared, database)
    assert declared.target is made
    await made.take_over("app", {TP: Start(None, 0)})
    values = [
        {"account": "a", "n": 1},
        {"account": "b", "n": 2},
        {"account": "a", "n": 3},
        Deletion({"account": "b"}),
    ]
    await made.commit(batch(*values), [Advance(TP, 0, 1, 4)])
    assert database.rows("totals") == [{"account": "a", "n": 3}]
