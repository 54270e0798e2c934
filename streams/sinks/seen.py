"""Remembering which effects a system without transactions has had, so that few are repeated.

No store beside a system can make its effects exact: a crash between an effect and the note of it
leaves open whether it happened. What can be had: a commit that only Kafka lost repeats nothing, one
that was interrupted repeats the effects in hand and not everything since the last commit, and a
worker that lost a partition does not begin with any of its effects. Within an interrupted commit
an effect is known by its key, so lists (``take``) that are cut elsewhere the second time are new.
"""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onceward.broker.client import TopicPartition

from ..engine.feed import Slot
from ..errors import ConfigurationError
from .database import DatabaseSink
from .effects import Batch, EffectId, Refusal
from .errors import SinkFenced
from .positions import Advance
from .sink import Sink, Strength

Seen = dict[EffectId, str | None]
"""Effects that were had, with the reason if they were refused."""


class SeenKeys(DatabaseSink):
    """A sink around ``sink``, to be written to in its place: ``connect`` says where it remembers.

    ``chunk`` effects are given to ``sink.apply`` at once and then noted, which is one transaction:
    so many at most are repeated after a crash, and 1 repeats only the one in hand. All workers must
    share the database. What is noted is forgotten with the next commit. Raises ConfigurationError.
    """

    strength: Strength = Strength.AT_LEAST_ONCE

    def __init__(self, sink: Sink, *, chunk: int = 100, timeout: float = 10.0) -> None:
        if sink.strength is Strength.TRANSACTIONAL:
            raise ConfigurationError(
                f"sink {sink.name!r} has transactions: they say what was written better"
            )
        if chunk < 1:
            raise ConfigurationError("chunk must be at least 1")
        super().__init__(sink.name, on_error=sink.on_error, timeout=timeout)
        self.sink = sink
        self.batch_rows, self.batch_bytes = sink.batch_rows, sink.batch_bytes
        self._chunk = chunk

    @abstractmethod
    def connect(self) -> Any:
        """As ``DatabaseSink.connect``."""

    def describe(self) -> str:
        return self.sink.describe()

    def encode(self, value: Any, key: Any, slot: Slot) -> Any:
        return self.sink.encode(value, key, slot)

    async def start(self) -> None:
        await self.sink.start()
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.sink.close()

    def prepare(self) -> None:
        self.create_positions()
        text, quote = self.key_text, self.quote
        partition, offset = f"{quote}partition{quote}", f"{quote}offset{quote}"
        self.execute(
            f"CREATE TABLE IF NOT EXISTS onceward_seen (app {text} NOT NULL, sink {text} NOT NULL, "
            f"topic {text} NOT NULL, {partition} INTEGER NOT NULL, {offset} BIGINT NOT NULL, "
            f"agent {text} NOT NULL, number INTEGER NOT NULL, reason TEXT, "
            f"PRIMARY KEY (app, sink, topic, {partition}, {offset}, agent, number))"
        )

    def apply(self, batch: Batch) -> None:
        raise NotImplementedError("effects go to the sink inside")

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        app, ids = batch.app, batch.ids()
        seen = await self._run(lambda: self._in_transaction(lambda: self._begin(app, advances)))
        batch.refused += [
            Refusal(at, why) for at, id_ in enumerate(ids) if (why := seen.get(id_)) is not None
        ]
        fresh = [at for at, id_ in enumerate(ids) if id_ not in seen]
        for start in range(0, len(fresh), self._chunk):
            await self._deliver(batch, fresh[start : start + self._chunk])
        await self._run(lambda: self._in_transaction(lambda: self._end_cut(batch, advances)))

    async def _deliver(self, batch: Batch, indexes: Sequence[int]) -> None:
        part = batch.only(indexes)
        await self.sink.deliver(part)
        reasons = dict(part.refused)
        had: Seen = {id_: reasons.get(at) for at, id_ in enumerate(part.ids())}
        await self._run(lambda: self._in_transaction(lambda: self._note(batch.app, had)))
        batch.refused += [Refusal(indexes[at], why) for at, why in part.refused]

    # within the thread

    def _begin(self, app: str, advances: Iterable[Advance]) -> Seen:
        """What an interrupted commit has done already. Raises SinkFenced."""
        current = self._positions(app).read(self.execute)
        for tp, expected, epoch, *_ in advances:
            if tp not in current or current[tp][:2] != (expected, epoch):
                raise self._fenced(tp)
        quote = self.quote
        found = self.execute(
            f"SELECT topic, {quote}partition{quote}, {quote}offset{quote}, agent, number, reason "
            f"FROM onceward_seen WHERE app = {self.placeholder} AND sink = {self.placeholder}",
            (app, self.name),
        ).fetchall()
        return {EffectId(*row[:5]): row[5] for row in found}

    def _note(self, app: str, had: Seen) -> None:
        quote = self.quote
        marks = ", ".join([self.placeholder] * 8)
        for id_, reason in had.items():
            self.execute(
                f"INSERT INTO onceward_seen (app, sink, topic, {quote}partition{quote}, "
                f"{quote}offset{quote}, agent, number, reason) VALUES ({marks})",
                (app, self.name, *id_, reason),
            )

    def _end_cut(self, batch: Batch, advances: Sequence[Advance]) -> None:
        positions, quote, mark = self._positions(batch.app), self.quote, self.placeholder
        lost = positions.advance(self.execute, advances)
        if lost is not None:
            raise self._fenced(lost)
        if batch.refused:
            refused = [(batch.ids()[at], reason) for at, reason in batch.refused]
            positions.keep_refused(self.execute, refused, advances)
        for tp, _, _, next_offset, *_ in advances:
            self.execute(
                f"DELETE FROM onceward_seen WHERE app = {mark} AND sink = {mark} AND "
                f"topic = {mark} AND {quote}partition{quote} = {mark} AND "
                f"{quote}offset{quote} < {mark}",
                (batch.app, self.name, *tp, next_offset),
            )

    def _fenced(self, tp: TopicPartition) -> SinkFenced:
        return SinkFenced(f"{self.describe()}: {tp} belongs to another worker now")


class SqliteSeenKeys(SeenKeys):
    """Remembers in a SQLite database: for the workers of one machine."""

    def __init__(
        self, sink: Sink, path: str | Path, *, chunk: int = 100, timeout: float = 10.0
    ) -> None:
        super().__init__(sink, chunk=chunk, timeout=timeout)
        self.path = str(path)

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")
