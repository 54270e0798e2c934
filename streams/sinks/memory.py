"""A transactional database in memory, for tests: as exact as a real one, and full of places to
crash."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from onceward.broker.client import TopicPartition

from .effects import Batch, EffectId
from .errors import SinkFenced
from .positions import Advance, Claim, Position, Start
from .rows import Deletion, Row
from .sink import Sink, TransactionalSink
from .table import Mode, TableRows

Step = Callable[[str, str], None]
"""Called with what happens ("take_over", "commit", "committed") and the sink's name. Raising before
a ``commit`` makes it not happen; raising at ``committed`` loses only the answer."""


class MemoryDatabase:
    """Tables, positions and refusals by sink name; outlives the sinks that use it.

    ``on_step``: see ``Step``. ``latency`` in seconds of each call, of a commit half before it takes
    effect and half after.
    """

    def __init__(
        self, *, on_step: Step | None = None, latency: Callable[[], float] | None = None
    ) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.positions: dict[tuple[str, str, TopicPartition], Claim] = {}
        self.effects: Counter[tuple[str, str, TopicPartition]] = Counter()
        self.refused: dict[tuple[str, str], dict[EffectId, str]] = {}
        self.commits = 0
        self._on_step = on_step
        self._latency = latency

    def rows(self, name: str) -> list[Row]:
        """What a reader of the table sees, in the order it was written."""
        return list(self.tables.get(name, []))

    async def wait(self) -> None:
        """Half a call's latency."""
        if self._latency is None:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._latency() / 2)

    def step(self, what: str, name: str) -> None:
        if self._on_step is not None:
            self._on_step(what, name)


class MemorySink(TableRows, TransactionalSink):
    """Rows in a ``MemoryDatabase``: one given, shared by several workers, or one of its own.

    ``key``, ``mode`` and ``on_error`` as with other table sinks; ``check`` may refuse a row by
    returning why. Inserting is without constraints.
    """

    def __init__(
        self,
        name: str,
        *,
        database: MemoryDatabase | None = None,
        key: str | Sequence[str] | None = None,
        mode: str | None = None,
        on_error: str | None = None,
        check: Callable[[Row], str | None] | None = None,
    ) -> None:
        super().__init__(name, key=key, mode=mode, on_error=on_error)
        self.database = MemoryDatabase() if database is None else database
        self._check = check

    def describe(self) -> str:
        return f"sink {self.name!r} (in memory)"

    @classmethod
    def instead_of(cls, sink: Sink, database: MemoryDatabase) -> MemorySink:
        """Put a sink in ``database`` in the place of a declared one: the engine uses it from then
        on. A simulation does this so that no program writes to its real database."""
        key, mode = (sink.key, sink.mode) if isinstance(sink, TableRows) else ((), None)
        made = cls(sink.name, database=database, key=key, mode=mode)
        made.on_error = sink.on_error
        sink.target = made
        return made

    @property
    def rows(self) -> list[Row]:
        """What a reader sees."""
        return self.database.rows(self.name)

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        database = self.database
        await database.wait()
        database.step("take_over", self.name)
        refused = database.refused.setdefault((app, self.name), {})
        claims = {}
        for tp, start in sorted(starts.items()):
            known = database.positions.get((app, self.name, tp), Claim(start.position, 0))
            owned = Claim(known.next_offset, known.epoch + 1)
            database.positions[app, self.name, tp] = owned
            if start.committed is not None:
                _forget(refused, tp, start.committed)
            mine = {id_: why for id_, why in refused.items() if id_[:2] == tp}
            claims[tp] = Claim(owned.next_offset, owned.epoch, mine)
        await database.wait()
        return claims

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        return {
            place[2]: Position(claim.next_offset, claim.epoch, self.database.effects[place])
            for place, claim in self.database.positions.items()
            if place[:2] == (app, self.name)
        }

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        database = self.database
        await database.wait()
        database.step("commit", self.name)
        for tp, expected, epoch, *_ in advances:
            current = database.positions.get((batch.app, self.name, tp))
            if current is None or (current.next_offset, current.epoch) != (expected, epoch):
                raise SinkFenced(f"{self.describe()}: {tp} belongs to another worker now")
        previous = database.rows(self.name)
        try:
            self.apply(batch)
        except BaseException:
            database.tables[self.name] = previous
            raise
        refused = database.refused.setdefault((batch.app, self.name), {})
        for tp, expected, epoch, next_offset, effects in advances:
            place = (batch.app, self.name, tp)
            database.positions[place] = Claim(next_offset, epoch)
            database.effects[place] += effects
            _forget(refused, tp, expected)
        refused.update({batch.ids()[index]: why for index, why in batch.refused})
        database.commits += 1
        database.step("committed", self.name)
        await database.wait()

    def apply(self, batch: Batch) -> None:
        table = self.database.tables.setdefault(self.name, [])
        for index, value in enumerate(batch.values):
            if isinstance(value, Deletion):
                table[:] = [row for row in table if not self._has_key(row, value.key)]
                continue
            why = None if self._check is None else self._check(value)
            if why is not None:
                batch.refuse(index, why)
                continue
            at = self._find(table, value) if self.mode is Mode.UPSERT else None
            if at is None:
                table.append(value)
            else:
                table[at] = {**table[at], **value}

    def _find(self, table: list[Row], row: Row) -> int | None:
        key = {column: row[column] for column in self.key}
        return next((at for at, other in enumerate(table) if self._has_key(other, key)), None)

    @staticmethod
    def _has_key(row: Row, key: Row) -> bool:
        return all(row.get(column) == value for column, value in key.items())


def _forget(refused: dict[EffectId, str], tp: TopicPartition, below: int) -> None:
    for id_ in [id_ for id_ in refused if id_[:2] == tp and id_.offset < below]:
        del refused[id_]
