"""Where to go on, and who may move a position: decided without a database, and in one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import WorkerError
from onceward.streams.engine.block import Block
from onceward.streams.sinks.effects import Batch, EffectId, Effects
from onceward.streams.sinks.errors import SinkError
from onceward.streams.sinks.positions import (
    Advance,
    Claim,
    Position,
    PositionTable,
    Start,
    check_end,
    resume_at,
)

TP = TopicPartition("orders", 0)


def test_a_sink_ahead_of_the_group_makes_it_run_again_from_the_groups_offset() -> None:
    assert resume_at("s", TP, Claim(9, 1), Start(5, 5), before=False) == 5


def test_a_sink_behind_the_group_is_an_error_unless_offsets_come_first() -> None:
    with pytest.raises(WorkerError, match="only up to offset 3, but the group has committed 5"):
        resume_at("s", TP, Claim(3, 1), Start(5, 5), before=False)
    assert resume_at("s", TP, Claim(3, 1), Start(5, 5), before=True) == 5


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (40, 9)])
def test_without_a_committed_offset_nothing_behind_the_sink_is_skipped(
    position: int, expected: int
) -> None:
    assert resume_at("s", TP, Claim(9, 1), Start(None, position), before=False) == expected


def test_records_that_were_deleted_unread_are_not_asked_for() -> None:
    assert resume_at("s", TP, Claim(9, 1), Start(None, 40, 12), before=False) == 12


def test_a_topic_that_ends_before_the_position_is_another_topic() -> None:
    check_end("s", TP, Claim(9, 1), 9)
    with pytest.raises(WorkerError, match="up to offset 9, but the topic ends at 8"):
        check_end("s", TP, Claim(9, 1), 8)


class Database:
    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)

    def execute(self, statement: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        return self.connection.execute(statement, parameters)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        return self.connection.executemany(statement, rows).rowcount

    def next_offset(self) -> int:
        rows = self.connection.execute("SELECT next_offset FROM onceward_positions").fetchall()
        assert len(rows) == 1
        return int(rows[0][0])


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    PositionTable("", "").create(made.execute)
    yield made
    made.connection.close()


def table(app: str = "app", sink: str = "rows") -> PositionTable:
    return PositionTable(app, sink)


def test_a_position_that_was_never_there_begins_where_the_group_is(database: Database) -> None:
    assert table().take_over(database.execute, TP, Start(7, 7)) == Claim(7, 1)


def test_only_the_last_owner_moves_the_position_and_only_from_where_it_is(
    database: Database,
) -> None:
    positions = table()
    first = positions.take_over(database.execute, TP, Start(None, 0))
    assert first is not None
    assert positions.advance(database.execute, [Advance(TP, 0, first.epoch, 4)]) is None
    second = positions.take_over(database.execute, TP, Start(0, 0))
    assert second == Claim(4, first.epoch + 1)
    assert positions.advance(database.execute, [Advance(TP, 4, first.epoch, 6)]) == TP
    assert positions.advance(database.execute, [Advance(TP, 0, second.epoch, 6)]) == TP
    assert positions.advance(database.execute, [Advance(TP, 4, second.epoch, 6)]) is None
    assert database.next_offset() == 6


def test_positions_moved_all_at_once_tell_which_one_was_lost(database: Database) -> None:
    positions = table()
    tps = [TopicPartition("orders", number) for number in range(3)]
    for tp in tps:
        positions.take_over(database.execute, tp, Start(None, 0))

    def advance(*advances: Advance) -> TopicPartition | None:
        database.connection.execute("SAVEPOINT here")
        lost = positions.advance(database.execute, advances, database.execute_many)
        end = "RELEASE here" if lost is None else "ROLLBACK TO here"
        database.connection.execute(end)
        return lost

    assert advance() is None
    assert advance(*[Advance(tp, 0, 1, 4, 2) for tp in tps]) is None
    positions.take_over(database.execute, tps[1], Start(0, 0))
    assert advance(*[Advance(tp, 4, 1, 6) for tp in tps]) == tps[1]
    assert advance(Advance(tps[0], 4, 1, 6), Advance(tps[2], 3, 1, 6)) == tps[2]
    assert advance(Advance(tps[0], 3, 1, 4)) == tps[0], "it is there already, but not from there"
    assert advance(Advance(TopicPartition("orders", 9), 4, 1, 6)) == ("orders", 9)
    assert positions.read(database.execute) == {
        tps[0]: Position(4, 1, 2), tps[1]: Position(4, 2, 2), tps[2]: Position(4, 1, 2)
    }  # fmt: skip


def test_apps_and_sinks_have_positions_of_their_own(database: Database) -> None:
    claims = [
        each.take_over(database.execute, TP, Start(None, at))
        for at, each in enumerate([table(), table(sink="other"), table(app="other")])
    ]
    assert claims == [Claim(0, 1), Claim(1, 1), Claim(2, 1)]


def test_refused_effects_are_kept_until_the_group_has_committed_them(database: Database) -> None:
    positions = table()
    claim = positions.take_over(database.execute, TP, Start(None, 0))
    assert claim is not None
    early, late = EffectId(*TP, 2, "etl", 0), EffectId(*TP, 5, "etl", 1)
    advance = Advance(TP, 0, claim.epoch, 6)
    positions.keep_refused(database.execute, [(early, "bad"), (late, "worse")], [advance])
    again = positions.take_over(database.execute, TP, Start(3, 3))
    assert again is not None
    assert again.refused == {late: "worse"}
    advance = Advance(TP, 6, again.epoch, 9)
    newest = EffectId(*TP, 8, "etl", 0)
    positions.keep_refused(database.execute, [(newest, "new")], [advance])
    last = positions.take_over(database.execute, TP, Start(6, 6))
    assert last is not None
    assert last.refused == {newest: "new"}


def block(size: int) -> Block:
    offsets = [10 + n for n in range(size)]
    return Block(TP, [None] * size, [None] * size, offsets, [0] * size, None, 10 + size)


def test_effects_are_numbered_per_record_and_agent() -> None:
    effects, records = Effects(), block(2)
    for value, index, agent in [("a", 0, "x"), ("b", 0, "x"), ("c", 0, "y"), ("d", 1, "x")]:
        effects.add(value, records, index, agent)
    batch = Batch("app", "sink", effects.take())
    assert [effect.key for effect in batch] == [
        f"app:orders:0:{place}" for place in ("10:0", "10:1", "10:0", "11:0")
    ]
    shared = Batch("app", "sink", batch.written, shared_topics=frozenset({"orders"}))
    assert [effect.key for effect in shared][:3] == [
        f"app:orders:0:10:{number}" for number in ("x/0", "x/1", "y/0")
    ]
    assert [effect.key for effect in batch.part(1, 4)] == [effect.key for effect in batch][1:]


def test_what_was_written_since_a_mark_can_be_undone() -> None:
    effects, records = Effects(), block(2)
    effects.add("a", records, 0, "x")
    effects.mark()
    effects.add("b", records, 1, "x")
    effects.add("c", records, 1, "x")
    effects.roll_back()
    assert effects.take().values == ["a"]
    assert len(effects) == 0


def test_a_part_of_a_batch_refuses_for_the_whole() -> None:
    effects, records = Effects(), block(4)
    for n in range(4):
        effects.add(n, records, n, "x")
    batch = Batch("app", "sink 's'", effects.take(), dead_letters=True)
    batch.part(1, 4).part(1, 3).refuse(0, "odd")
    assert [tuple(refusal) for refusal in batch.refused] == [(2, "odd")]
    batch.dead_letters = False
    with pytest.raises(SinkError, match=r"sink 's' refuses .* orders-0 at offset 13: no"):
        batch.part(2, 4).refuse(1, "no")
