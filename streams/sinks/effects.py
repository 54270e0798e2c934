"""What agents wrote to a sink and which record caused it: collected per task, handed over at a cut.
Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from onceward.broker.client import TopicPartition

from ..engine.block import Block, RecordAt
from ..engine.kernel import EffectLists
from .errors import SinkError

Origin = tuple[int, Block, int, str]
"""See ``kernel.EffectLists``."""

_CHECK_EVERY: Final = 64
"""Values between two looks at how much waits, if they are small."""
_FEWEST_ROWS: Final = 16
_OVERHEAD_BYTES: Final = 16


class Strength(enum.StrEnum):
    """What a crash at any moment does to the effects of a sink.

    TRANSACTIONAL      nothing: effects and position change together, every effect appears once,
                       under every processing guarantee but at most once
    IDEMPOTENT_BY_KEY  effects are repeated with the same key, and the system ignores the second
    AT_LEAST_ONCE      effects since the last commit may be repeated

    Under at most once a crash loses the effects since the last commit with any sink.
    """

    TRANSACTIONAL = "transactional"
    IDEMPOTENT_BY_KEY = "idempotent by key"
    AT_LEAST_ONCE = "at least once"


_AFTER_REFUSAL: Final[Mapping[Strength, str]] = {
    Strength.TRANSACTIONAL: "Nothing since the last commit was written; correct the table",
    Strength.IDEMPOTENT_BY_KEY: "Other effects since the last commit may be there, and will be "
    "repeated with the same keys; correct the system",
    Strength.AT_LEAST_ONCE: "Other effects since the last commit may be there, and may be "
    "repeated; correct the system",
}


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


class Effects(EffectLists):
    """What one task wrote to one sink since the last cut: ``kernel.EffectLists`` that know how much
    of it may wait."""

    __slots__ = ("_bytes", "_marked", "_room", "_rows")

    def __init__(self) -> None:
        self.values = []
        self.origins = []
        self.last_block = self.last_agent = None
        self.next_index = 0
        self.check_at = 1
        self._marked = 0
        self._room: Room | None = None
        self._rows = self._bytes = 0  # what the room knows of

    def __len__(self) -> int:
        return len(self.values)

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
        del self.values[size:]
        while self.origins and self.origins[-1][0] >= size:
            self.origins.pop()
        self.last_block = None

    def take(self) -> Written:
        """Hand over everything collected and start empty."""
        taken = Written(self.values, self.origins)
        self.clear()
        return taken

    def clear(self) -> None:
        self.values, self.origins = [], []
        self.last_block = None
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
    """Effects in the order they were written: values, and where they come from as in
    ``kernel.EffectLists``."""

    values: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    _records: list[RecordAt] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def records(self) -> list[RecordAt]:
        """The record behind each value."""
        if self._records is None:
            self._records = [
                RecordAt(block, at)
                for count, block, index, _ in self._runs()
                for at in range(index, index + count)
            ]
        return self._records

    def counts(self) -> Counter[TopicPartition]:
        """How many values there are by the partition of their record."""
        counts: Counter[TopicPartition] = Counter()
        for count, block, _, _ in self._runs():
            counts[block.tp] += count
        return counts

    def extend(self, other: Written) -> None:
        size = len(self.values)
        self.values += other.values
        for start, block, index, agent in other.origins:
            self.origins.append((size + start, block, index, agent))
        self._records = None

    def part(self, start: int, stop: int) -> Written:
        """Effects ``start`` to ``stop`` (exclusive)."""
        origins = []
        at = 0
        for count, block, index, agent in self._runs():
            first, last = max(at, start), min(at + count, stop)
            if first < last:
                origins.append((first - start, block, index + first - at, agent))
            at += count
        return Written(self.values[start:stop], origins)

    def only(self, indexes: Sequence[int]) -> Written:
        """The effects at ``indexes``."""
        kept = Effects()
        agents = [agent for count, _, _, agent in self._runs() for _ in range(count)]
        for at in indexes:
            kept.add(self.values[at], *self.records[at], agents[at])
        return kept.take()

    def ids(self) -> Iterator[EffectId]:
        """One per effect, in order."""
        counts: dict[tuple[TopicPartition, int, str], int] = {}
        for count, block, index, agent in self._runs():
            tp = block.tp
            for offset in block.offsets[index : index + count]:
                number = counts.get((tp, offset, agent), 0)
                counts[tp, offset, agent] = number + 1
                yield EffectId(tp.topic, tp.partition, offset, agent, number)

    def _runs(self) -> Iterator[tuple[int, Block, int, str]]:
        """Origins with the count of their values instead of the first one's number."""
        ends = [start for start, *_ in self.origins[1:]] + [len(self.values)]
        for (start, block, index, agent), end in zip(self.origins, ends, strict=False):
            yield end - start, block, index, agent


class Refusal(NamedTuple):
    """The system does not take effect number ``at`` of the batch, and why."""

    at: int
    reason: str


@dataclass(slots=True)
class Batch:
    """Effects for ``Sink.apply``, in the order they were written.

    ``values`` is enough for most sinks; iterating gives whole ``Effect``s. ``connection`` is the
    open transaction's, where the helper has one. ``sink`` is its description, and ``strength`` its
    strength, for messages.
    """

    app: str
    sink: str
    written: Written
    dead_letters: bool = False
    shared_topics: frozenset[str] = frozenset()
    connection: Any = None
    refused: list[Refusal] = field(default_factory=list)
    start: int = 0
    strength: Strength = Strength.TRANSACTIONAL
    _ids: list[EffectId] | None = None
    _whole: Batch | None = None
    _places: Sequence[int] = ()

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
            if self._whole is None:
                self._ids = list(self.written.ids())
            else:
                whole = self._whole.ids()
                self._ids = [whole[at] for at in self._places]
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
                f"{self.sink} refuses what was written for {self.place(index)}: {reason}. "
                f"{_AFTER_REFUSAL[self.strength]} or the agent and start the worker again, or set "
                'on_error="dead_letter"'
            )
        self.refused.append(Refusal(self.start + index, reason))

    def part(self, start: int, stop: int) -> Batch:
        """Effects ``start`` to ``stop`` (exclusive), with the same keys; what it refuses, this one
        does."""
        return Batch(
            self.app,
            self.sink,
            self.written.part(start, stop),
            self.dead_letters,
            self.shared_topics,
            self.connection,
            self.refused,
            self.start + start,
            self.strength,
            _whole=self,
            _places=range(start, stop),
        )

    def only(self, indexes: Sequence[int]) -> Batch:
        """The effects at ``indexes``, with the same keys; what it refuses is its own."""
        return Batch(
            self.app,
            self.sink,
            self.written.only(indexes),
            self.dead_letters,
            self.shared_topics,
            self.connection,
            strength=self.strength,
            _whole=self,
            _places=indexes,
        )

    def _key(self, id_: EffectId) -> str:
        number = f"{id_.agent}/{id_.number}" if id_.topic in self.shared_topics else id_.number
        return f"{self.app}:{id_.topic}:{id_.partition}:{id_.offset}:{number}"
