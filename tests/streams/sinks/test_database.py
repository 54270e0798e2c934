"""Bad rows among many: found in few tries, and the rest in the order it was written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams.engine.block import Block
from onceward.streams.sinks import (
    Batch,
    DatabaseSink,
    SinkError,
    SinkUnavailable,
    Strength,
)
from onceward.streams.sinks.effects import Effects
from onceward.streams.sinks.positions import Advance, Position, Start

TP = TopicPartition("orders", 0)


class Counting(DatabaseSink):
    """One table of unique numbers above 0. Counts tries and statements."""

    def __init__(self, path: Path) -> None:
        super().__init__("numbers")
        self.path = path
        self.tries = 0
        self.statements = 0

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)

    def prepare(self) -> None:
        self.create_positions()
        self.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER UNIQUE CHECK (n > 0))")

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        self.statements += 1
        return super().execute(statement, parameters)

    def apply(self, batch: Batch) -> None:
        self.tries += 1
        for index, n in enumerate(batch.values):
            if n == 13:
                batch.refuse(index, "thirteen")
        rows = [(n,) for n in batch.values if n != 13]
        batch.connection.executemany("INSERT INTO t (n) VALUES (?)", rows)

    def found(self) -> list[int]:
        with sqlite3.connect(self.path) as connection:
            return [row[0] for row in connection.execute("SELECT n FROM t ORDER BY rowid")]


def batch_of(numbers: Sequence[int], *, dead_letters: bool = True) -> Batch:
    effects, size = Effects(), len(numbers)
    block = Block(TP, [None] * size, [None] * size, list(range(size)), [0] * size, None, size)
    for index, n in enumerate(numbers):
        effects.add(n, block, index, "etl")
    return Batch("app", "sink", effects.take(), dead_letters)


async def test_one_bad_row_in_a_hundred_costs_few_tries_and_no_order(tmp_path: Path) -> None:
    sink = Counting(tmp_path / "t.db")
    numbers = [-n if n % 100 == 50 else n for n in range(101, 10_101)]
    batch = batch_of(numbers)
    await sink.commit(batch, [])
    assert sink.found() == [n for n in numbers if n > 0]
    assert [at for at, _ in batch.refused] == list(range(49, 10_000, 100))
    assert sink.tries < 1_300
    assert sink.statements < 2_600
    await sink.close()


class WithoutSavepoints(Counting):
    """As a database where an error ends the transaction."""

    has_savepoints = False

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        assert "SAVEPOINT" not in statement
        return super().execute(statement, parameters)


@pytest.mark.parametrize("kind", [Counting, WithoutSavepoints])
async def test_halving_finds_what_writing_row_by_row_would(
    tmp_path: Path, kind: type[Counting]
) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        numbers = [rng.randint(-1, rng.choice([20, 60])) for _ in range(rng.randint(1, 40))]
        sink = kind(tmp_path / f"{seed}.db")
        batch = batch_of(numbers)
        await sink.commit(batch, [])
        taken: list[int] = []
        refused = []
        for index, n in enumerate(numbers):
            if n <= 0 or n == 13 or n in taken:
                refused.append(index)
            else:
                taken.append(n)
        assert sink.found() == taken
        assert sorted(at for at, _ in batch.refused) == refused
        await sink.close()


@pytest.mark.parametrize("kind", [Counting, WithoutSavepoints])
async def test_a_bad_row_stops_at_once_without_dead_letters_and_nothing_lands(
    tmp_path: Path, kind: type[Counting]
) -> None:
    sink = kind(tmp_path / "t.db")
    with pytest.raises(SinkError, match="orders-0 at offset 2: IntegrityError: CHECK constraint"):
        await sink.commit(batch_of([1, 2, -3, 4], dead_letters=False), [])
    assert sink.found() == []
    await sink.close()


async def test_a_part_of_a_batch_has_its_effects_keys_and_refuses_for_itself() -> None:
    batch = batch_of([5, 6, 7, 8])
    part = batch.only([1, 3])
    assert part.values == [6, 8]
    assert [effect.key for effect in part] == [effect.key for effect in batch][1::2]
    part.refuse(1, "eight")
    assert (part.refused, batch.refused) == ([(1, "eight")], [])
    assert part.place(1) == "orders-0 at offset 3"


@pytest.mark.parametrize(
    ("strength", "consequence"),
    [
        (Strength.TRANSACTIONAL, "Nothing since the last commit was written; correct the table"),
        (Strength.IDEMPOTENT_BY_KEY, "may be there, and will be repeated with the same keys"),
        (Strength.AT_LEAST_ONCE, "may be there, and may be repeated"),
    ],
)
async def test_a_refusal_says_what_became_of_the_others(
    strength: Strength, consequence: str
) -> None:
    batch = batch_of([5], dead_letters=False)
    batch.strength = strength
    with pytest.raises(SinkError, match=rf"orders-0 at offset 0: no\. .*{consequence}"):
        batch.refuse(0, "no")


async def test_positions_can_be_read_without_preparing_anything(tmp_path: Path) -> None:
    sink = Counting(tmp_path / "t.db")
    with pytest.raises((SinkError, SinkUnavailable), match="no such table"):
        await sink.positions("app")
    claim = (await sink.take_over("app", {TP: Start(None, 3)}))[TP]
    await sink.commit(batch_of([1, 2]), [Advance(TP, 3, claim.epoch, 7, 2)])
    assert await sink.positions("app") == {TP: Position(7, 1, 2)}
    assert await sink.positions("another") == {}
    await sink.take_over("app", {TP: Start(7, 7)})
    assert await sink.positions("app") == {TP: Position(7, 2, 2)}
    await sink.close()
