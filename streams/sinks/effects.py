"""What agents wrote to a sink and which record caused it: collected per task, handed over at a cut.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from onceward.broker.client import TopicPartition

from ..engine.block import Block, RecordAt
from .errors import SinkError

_CHECK_EVERY: Final = 64
"""Values between two looks at how much waits, if they are small."""
_FEWEST_ROWS: Final = 16
_OVERHEAD_BYTES: Final = 16


class EffectId(NamedTuple):
    """Says which effect of an app's sink it is, the same on every run of the same record.

    ``number`` counts from 0 what ``agent`` wrote for the record at ``offset``.
    """

    topic: str
    partition: int
    offset: int
    agent: str
    number: int


class Effect(NamedTuple):
    """One write. ``value`` is what ``Sink.encode`` made of it.

    ``key`` is its idempotency key ``app:topic:partition:offset:n``, equal whenever the record is
    run again and different for every other effect; where several agents read the topic ``n`` is
    ``agent/n``.
    """

    value: Any
    id: EffectId
    key: str


class Room:
    """What may wait in memory for the next commit of one sink, over all tasks of a worker.

    ``bytes`` is an estimate from a sample of the values, see ``size_of``.
    """

    __slots__ = ("_most_rows", "bytes", "max_bytes", "max_rows", "rows")

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._most_rows = max_rows
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.rows = 0
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= self.max_rows or self.bytes >= self.max_bytes

    def left(self, row_bytes: int) -> int:
        """How many more rows of this size there is room for."""
        return min(self.max_rows - self.rows, (self.max_bytes - self.bytes) // max(row_bytes, 1))

    def shrink(self, rows: int) -> None:
        """So many rows were more than the sink could take in time."""
        self.max_rows = max(_FEWEST_ROWS, min(self.max_rows, rows // 2))

    def grow(self) -> None:
        """The sink took what it was given."""
        self.max_rows = min(self.max_rows * 2, self._most_rows)


class Effects:
    """What one task wrote to one sink since the last cut: parallel lists.

    Whoever has ``check_at`` values in it must call ``is_full``.
    """

    __slots__ = (
        "_bytes",
        "_marked",
        "_room",
        "_rows",
        "agents",
        "blocks",
        "check_at",
        "indexes",
        "values",
    )

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.blocks: list[Block] = []
        self.indexes: list[int] = []
        self.agents: list[str] = []
        self.check_at = 1
        self._marked = 0
        self._room: Room | None = None
        self._rows = self._bytes = 0  # what the room knows of

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: Any, block: Block, index: int, agent: str) -> None:
        """``value`` is caused by record ``index`` of ``block``."""
        self.values.append(value)
        self.blocks.append(block)
        self.indexes.append(index)
        self.agents.append(agent)

    def wait_in(self, room: Room) -> None:
        """What is added counts there until it is taken. Only while there is nothing."""
        self._room = room

    def is_full(self) -> bool:
        """Whether the sink has enough for a commit."""
        room, size = self._room, len(self.values)
        if room is None:
            self.check_at = size + _CHECK_EVERY
            return False
        row_bytes = size_of(self.values[-1])
        self._count(room, size - self._rows, (size - self._rows) * row_bytes)
        self.check_at = size + max(1, min(_CHECK_EVERY, room.left(row_bytes)))
        return room.is_full

    def mark(self) -> None:
        """The next record begins: ``roll_back`` undoes to here."""
        self._marked = len(self.values)

    def roll_back(self) -> None:
        """Undo everything since ``mark``."""
        size = self._marked
        for column in (self.values, self.blocks, self.indexes, self.agents):
            del column[size:]

    def take(self) -> Written:
        """Hand over everything collected and start empty."""
        records = [RecordAt(block, at) for block, at in zip(self.blocks, self.indexes, strict=True)]
        taken = Written(self.values, records, self.agents)
        self.clear()
        return taken

    def clear(self) -> None:
        self.values, self.blocks, self.indexes, self.agents = [], [], [], []
        self.check_at = 1
        self._marked = 0
        if self._room is not None:
            self._count(self._room, -self._rows, -self._bytes)

    def _count(self, room: Room, rows: int, size: int) -> None:
        self._rows += rows
        self._bytes += size
        room.rows += rows
        room.bytes += size


def size_of(value: Any) -> int:
    """About how many bytes a written value takes: text and bytes by their length."""
    if isinstance(value, str | bytes | bytearray):
        return len(value) + _OVERHEAD_BYTES
    if isinstance(value, dict):
        return _OVERHEAD_BYTES + sum(map(size_of, value.values()))
    if isinstance(value, tuple | list):
        return _OVERHEAD_BYTES + sum(map(size_of, value))
    if isinstance(value, msgspec.Struct):
        return size_of(msgspec.structs.astuple(value))
    return _OVERHEAD_BYTES


@dataclass(slots=True)
class Written:
    """Effects in the order they were written: values, the records behind them, the agents."""

    values: list[Any] = field(default_factory=list)
    records: list[RecordAt] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, other: Written) -> None:
        self.values += other.values
        self.records += other.records
        self.agents += other.agents

    def only(self, indexes: Sequence[int]) -> Written:
        """The effects at ``indexes``."""
        return Written(
            [self.values[at] for at in indexes],
            [self.records[at] for at in indexes],
            [self.agents[at] for at in indexes],
        )

    def ids(self) -> Iterator[EffectId]:
        """One per effect, in order."""
        counts: dict[tuple[TopicPartition, int, str], int] = {}
        for record, agent in zip(self.records, self.agents, strict=True):
            tp, offset = record.block.tp, record.offset
            number = counts.get((tp, offset, agent), 0)
            counts[tp, offset, agent] = number + 1
            yield EffectId(tp.topic, tp.partition, offset, agent, number)


class Refusal(NamedTuple):
    """The system does not take effect number ``at`` of the batch, and why."""

    at: int
    reason: str


@dataclass(slots=True)
class Batch:
    """Effects for ``Sink.apply``, in the order they were written.

    ``values`` is enough for most sinks; iterating gives whole ``Effect``s. ``connection`` is the
    open transaction's, where the helper has one. ``sink`` is its description, for messages.
    """

    app: str
    sink: str
    written: Written
    dead_letters: bool = False
    shared_topics: frozenset[str] = frozenset()
    connection: Any = None
    refused: list[Refusal] = field(default_factory=list)
    start: int = 0
    _ids: list[EffectId] | None = None

    def __len__(self) -> int:
        return len(self.written)

    def __iter__(self) -> Iterator[Effect]:
        for value, id_ in zip(self.written.values, self.ids(), strict=True):
            yield Effect(value, id_, self._key(id_))

    @property
    def values(self) -> list[Any]:
        return self.written.values

    def ids(self) -> list[EffectId]:
        """One per effect, in order."""
        if self._ids is None:
            self._ids = list(self.written.ids())
        return self._ids

    def place(self, index: int) -> str:
        """Where the effect comes from, for people: ``orders-0 at offset 17``."""
        record = self.written.records[index]
        return f"{record.block.tp} at offset {record.offset}"

    def refuse(self, index: int, reason: str) -> None:
        """The system does not take the effect at ``index``, and it is not applied.

        Its record goes to the dead letter topic, or, under the policy ``stop``, SinkError is
        raised.
        """
        if not self.dead_letters:
            raise SinkError(
                f"{self.sink} refuses what was written for {self.place(index)}: {reason}. Nothing "
                "since the last commit was written; correct the table or the agent and start the "
                'worker again, or set on_error="dead_letter"'
            )
        self.refused.append(Refusal(self.start + index, reason))

    def part(self, start: int, stop: int) -> Batch:
        """Effects ``start`` to ``stop`` (exclusive), with the same keys; what it refuses, this one
        does."""
        written = self.written
        return Batch(
            self.app,
            self.sink,
            Written(
                written.values[start:stop],
                written.records[start:stop],
                written.agents[start:stop],
            ),
            self.dead_letters,
            self.shared_topics,
            self.connection,
            self.refused,
            self.start + start,
            self.ids()[start:stop],
        )

    def _key(self, id_: EffectId) -> str:
        number = f"{id_.agent}/{id_.number}" if id_.topic in self.shared_topics else id_.number
        return f"{self.app}:{id_.topic}:{id_.partition}:{id_.offset}:{number}"
