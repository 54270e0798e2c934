"""Sink positions: up to where an app's records have taken effect in a database, and whose they are.

A row per (app, sink, topic, partition) in ``onceward_positions`` changes in the transaction that
writes the rows. ``epoch`` counts take-overs: only the last owner may move the position, and only
from where it knows it to be. What a database refused is kept in ``onceward_refused`` in the same
transaction until the dead letter topic has it for certain. Pure: SQL goes out through a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onceward.broker.client import TopicPartition

from ..errors import WorkerError
from .effects import EffectId

Execute = Callable[[str, Sequence[Any]], Any]
"""Runs one statement; returns a DB-API cursor."""
ExecuteMany = Callable[[str, Sequence[Sequence[Any]]], int]
"""Runs a statement once per row of parameters, all sent at once; returns how many rows it changed
altogether."""


@dataclass(slots=True)
class Claim:
    """A partition taken over: everything below ``next_offset`` has taken effect in the sink.

    ``refused``: effects at or above the group's committed offset that the sink did not take.
    """

    next_offset: int
    epoch: int
    refused: Mapping[EffectId, str] = field(default_factory=dict)


class Advance(NamedTuple):
    """The position of ``tp`` goes from ``expected`` to ``next_offset`` under ``epoch``, with so
    many ``effects``."""

    tp: TopicPartition
    expected: int
    epoch: int
    next_offset: int
    effects: int = 0


class Position(NamedTuple):
    """What a sink knows of a partition: the position, how many owners there were, and how many
    effects it was given (rows it refused among them)."""

    next_offset: int
    epoch: int
    effects: int


class Start(NamedTuple):
    """Where a partition is on the Kafka side: the committed offset if there is one, where the
    engine goes on without a sink, and the first offset that is still there. Partitions with the
    same ``task`` are read together: one effect may come from records of several of them."""

    committed: int | None
    position: int
    beginning: int = 0
    task: str = ""


def resume_at(sink: str, tp: TopicPartition, claim: Claim, start: Start, *, before: bool) -> int:
    """Where to go on reading so that ``sink`` misses nothing.

    ``before``: offsets are committed before processing (at most once), so the sink may be behind.
    Raises WorkerError when the sink is behind what the group has committed.
    """
    if start.committed is None:
        return max(min(start.position, claim.next_offset), start.beginning)
    if claim.next_offset < start.committed and not before:
        raise WorkerError(
            f"{sink} has {tp} only up to offset {claim.next_offset}, but the group has committed "
            f"{start.committed}: the database is older than Kafka's offsets, as after restoring a "
            f"backup, and rows would be missing. Set the group's offset to {claim.next_offset} to "
            "have them written, or delete the partition's row in onceward_positions to go on "
            "without them"
        )
    return start.position


def check_end(sink: str, tp: TopicPartition, claim: Claim, end: int) -> None:
    """Raises WorkerError when ``tp`` ends before the sink's position: it is another topic."""
    if claim.next_offset > end:
        raise WorkerError(
            f"{sink} has {tp} up to offset {claim.next_offset}, but the topic ends at {end}: was "
            "it deleted and created again? Records would be taken for written ones. Delete the "
            "partition's row in onceward_positions to write the new topic's records"
        )


class PositionTable:
    """The statements over ``onceward_positions`` and ``onceward_refused`` of one app and sink.

    ``placeholder`` is the driver's (``?`` or ``%s``), ``quote`` what surrounds an identifier.
    """

    def __init__(
        self, app: str, sink: str, *, placeholder: str = "?", quote: str = '"', text: str = "TEXT"
    ) -> None:
        self._owner = (app, sink)
        self._mark = placeholder
        self._text = text
        self._partition = f"{quote}partition{quote}"
        self._offset = f"{quote}offset{quote}"
        mine = f"app = {placeholder} AND sink = {placeholder}"
        self._mine = f"{mine} AND topic = {placeholder} AND {self._partition} = {placeholder}"

    def create(self, execute: Execute) -> None:
        """Create what is missing."""
        text = self._text
        place = f"app {text} NOT NULL, sink {text} NOT NULL, topic {text} NOT NULL"
        execute(
            f"CREATE TABLE IF NOT EXISTS onceward_positions ({place}, {self._partition} INTEGER "
            "NOT NULL, next_offset BIGINT NOT NULL, epoch BIGINT NOT NULL, "
            "effects BIGINT NOT NULL, "
            f"PRIMARY KEY (app, sink, topic, {self._partition}))",
            (),
        )
        execute(
            f"CREATE TABLE IF NOT EXISTS onceward_refused ({place}, {self._partition} INTEGER "
            f"NOT NULL, {self._offset} BIGINT NOT NULL, agent {text} NOT NULL, "
            "number INTEGER NOT NULL, reason TEXT NOT NULL, "
            f"PRIMARY KEY (app, sink, topic, {self._partition}, {self._offset}, agent, number))",
            (),
        )

    def take_over(self, execute: Execute, tp: TopicPartition, start: Start) -> Claim | None:
        """Become the owner. None when another one did in this very moment."""
        where = (*self._owner, *tp)
        found = execute(
            f"SELECT next_offset, epoch FROM onceward_positions WHERE {self._mine}", where
        ).fetchone()
        if found is None:
            marks = ", ".join([self._mark] * 7)
            execute(
                f"INSERT INTO onceward_positions (app, sink, topic, {self._partition}, "
                f"next_offset, epoch, effects) VALUES ({marks})",
                (*where, start.position, 1, 0),
            )
            return Claim(start.position, 1)
        next_offset, epoch = found
        moved = execute(
            f"UPDATE onceward_positions SET epoch = {self._mark} "
            f"WHERE {self._mine} AND epoch = {self._mark}",
            (epoch + 1, *where, epoch),
        )
        if moved.rowcount != 1:
            return None
        if start.committed is not None:
            self._forget_refused(execute, tp, start.committed)
        rows = execute(
            f"SELECT {self._offset}, agent, number, reason FROM onceward_refused "
            f"WHERE {self._mine}",
            where,
        ).fetchall()
        refused = {
            EffectId(tp.topic, tp.partition, offset, agent, number): reason
            for offset, agent, number, reason in rows
        }
        return Claim(next_offset, epoch + 1, refused)

    def read(self, execute: Execute) -> dict[TopicPartition, Position]:
        """All positions of this app and sink, without becoming their owner."""
        found = execute(
            f"SELECT topic, {self._partition}, next_offset, epoch, effects FROM onceward_positions "
            f"WHERE app = {self._mark} AND sink = {self._mark}",
            self._owner,
        ).fetchall()
        return {TopicPartition(row[0], row[1]): Position(*row[2:]) for row in found}

    def advance(
        self,
        execute: Execute,
        advances: Sequence[Advance],
        execute_many: ExecuteMany | None = None,
    ) -> TopicPartition | None:
        """Move positions; returns the first partition that is not ours any more."""
        statement = (
            f"UPDATE onceward_positions SET next_offset = {self._mark}, "
            f"effects = effects + {self._mark} "
            f"WHERE {self._mine} AND epoch = {self._mark} AND next_offset = {self._mark}"
        )
        rows = [
            (next_offset, effects, *self._owner, *tp, epoch, expected)
            for tp, expected, epoch, next_offset, effects in advances
        ]
        if execute_many is None:
            for advance, row in zip(advances, rows, strict=True):
                if execute(statement, row).rowcount != 1:
                    return advance.tp
            return None
        if not rows or execute_many(statement, rows) == len(rows):
            return None
        there = self.read(execute)
        for tp, _, epoch, next_offset, _ in advances:
            found = there.get(tp)
            if found is None or (found.epoch, found.next_offset) != (epoch, next_offset):
                return tp
        return advances[0].tp

    def keep_refused(
        self,
        execute: Execute,
        refused: Iterable[tuple[EffectId, str]],
        advances: Iterable[Advance],
    ) -> None:
        """Remember what was refused; what older commits refused is in the dead letter topic."""
        for advance in advances:
            self._forget_refused(execute, advance.tp, advance.expected)
        marks = ", ".join([self._mark] * 8)
        for id_, reason in refused:
            execute(
                f"INSERT INTO onceward_refused (app, sink, topic, {self._partition}, "
                f"{self._offset}, agent, number, reason) VALUES ({marks})",
                (*self._owner, *id_, reason),
            )

    def _forget_refused(self, execute: Execute, tp: TopicPartition, below: int) -> None:
        execute(
            f"DELETE FROM onceward_refused WHERE {self._mine} AND {self._offset} < {self._mark}",
            (*self._owner, *tp, below),
        )
