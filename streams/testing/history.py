"""What happened in a run, as data: the only thing the checker sees.

A history is written down by an observer outside the system under test (network taps, a reader,
the logs read back at the end) and judged by ``checker.check``. Times are virtual seconds of the
run's clock; keys and values are the serialised bytes, so that judging needs no codec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

COMMITTED = "committed"
ABORTED = "aborted"
OPEN = "open"


class Position(NamedTuple):
    """One record's place in a log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as it lies in the log at the end of the run; control records are left out.

    ``status`` is ``"committed"`` (also for non-transactional records), ``"aborted"`` or ``"open"``.
    ``transaction`` names the transaction that wrote it, the same on every partition, where the
    observer can tell (with KIP-890 each transaction has an epoch of its own:
    ``"producer_id/epoch"``); empty means unknown or none.
    """

    position: Position
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    status: str = COMMITTED
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record the test fed in. ``acked_at`` None: the outcome is unknown, it may be there once."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    sent_at: float
    acked_at: float | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A record delivered to a read_committed reader while the run went on.

    ``reader`` is one consumer instance: one that starts over gets another name.
    """

    reader: str
    at: float
    position: Position
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A committed offset as it was seen from outside: one that took effect, not one asked for.

    ``at``: by the run's clock, like every other time, so that the journey can show it.
    """

    group: str
    topic: str
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``host``; ``positions`` are the records it touched.

    ``what`` is free text for the reader of a verdict, except for the words judged or marked:
    ``"worker failed"`` (an exception that nothing in the plan explains) is an anomaly;
    ``"end_txn commit"`` (the request reached the broker), with the records written in the
    transaction as ``positions``, dates a commit and says what belongs together; a first word
    that is a kind of ``faults.Fault``, or one of ``restart heal resume``, is marked as a fault.
    """

    at: float
    host: str
    what: str
    detail: str = ""
    positions: tuple[Position, ...] = ()


@dataclass
class History:
    """All that is known about one run.

    ``inputs`` are in the order in which one idempotent producer per topic sent them.
    ``log``: (topic, partition) -> its records by offset; altogether empty: it was not read back.
    ``commits``: per partition in the order in which they took effect. ``tables``: name ->
    partition -> content at its owner at the end; ``changelogs``: table -> topic. ``waiting``: what
    every task waited for, when the run made no progress. ``expected_commits``: (topic, partition)
    -> the offset ``group`` must have committed at the end, in practice the end of each input
    partition.
    """

    inputs: list[Sent] = field(default_factory=list)
    log: dict[tuple[str, int], list[LogRecord]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    tables: dict[str, dict[int, dict[bytes, bytes]]] = field(default_factory=dict)
    changelogs: dict[str, str] = field(default_factory=dict)
    sinks: dict[str, list[Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    group: str = ""
    expected_commits: dict[tuple[str, int], int] = field(default_factory=dict)

    def topic(self, name: str, status: str | None = COMMITTED) -> list[LogRecord]:
        """Records of a topic by (partition, offset); ``status`` None: whatever became of them."""
        return [
            record
            for (topic, _), records in sorted(self.log.items())
            if topic == name
            for record in records
            if status is None or record.status == status
        ]

    def find(self, position: Position) -> LogRecord | None:
        """The record at ``position``, if the log has one."""
        for record in self.log.get((position.topic, position.partition), ()):
            if record.position == position:
                return record
        return None


class Level(StrEnum):
    """How much of an output is the same in every fault-free run, strongest first."""

    SEQUENCE = "sequence per key"
    MULTISET = "multiset"
    LAST = "last value per key"
    NONE = "nothing"


@dataclass
class Expectation:
    """What a correct run ends with; see ``project`` and ``project_sink`` for the shapes.

    ``outputs``: topic -> (level, projection of its committed records on that level).
    ``tables``: name -> partition -> content (a key may live in several partitions).
    ``sinks``: name -> (level, projection). What is not listed is not compared.
    ``differences``: topic -> an example of what the reference runs do not agree on.
    """

    outputs: dict[str, tuple[Level, Any]] = field(default_factory=dict)
    tables: dict[str, dict[int, dict[bytes, bytes]]] = field(default_factory=dict)
    sinks: dict[str, tuple[Level, Any]] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)


@dataclass
class Anomaly:
    """One way in which a run was wrong. ``expected`` and ``found`` are for a short comparison."""

    kind: str
    sentence: str
    key: bytes | None = None
    positions: list[Position] = field(default_factory=list)
    expected: Sequence[Any] | None = None
    found: Sequence[Any] | None = None


Keyed = tuple[int, bytes | None]
"""A key within its partition: order means nothing across partitions."""


def project(level: Level, records: Iterable[LogRecord]) -> Any:
    """What ``level`` says about committed ``records``, given in the order of the log.

    SEQUENCE: {(partition, key): [value, ...]}; LAST: {(partition, key): value};
    MULTISET: Counter of (key, value); NONE: None.
    """
    if level is Level.SEQUENCE:
        sequences: dict[Keyed, list[bytes | None]] = {}
        for record in records:
            sequences.setdefault((record.position.partition, record.key), []).append(record.value)
        return sequences
    if level is Level.LAST:
        return {(record.position.partition, record.key): record.value for record in records}
    if level is Level.MULTISET:
        return Counter((record.key, record.value) for record in records)
    return None


def project_sink(level: Level, effects: Sequence[Any]) -> Any:
    """What ``level`` says about a sink's effects.

    SEQUENCE: the list itself; MULTISET: Counter of ``frozen`` effects; LAST, for effects that are
    (key, value) pairs: {frozen key: value}; NONE: None.
    """
    if level is Level.SEQUENCE:
        return list(effects)
    if level is Level.MULTISET:
        return Counter(frozen(effect) for effect in effects)
    if level is Level.LAST:
        return {frozen(effect[0]): effect[1] for effect in effects}
    return None


def frozen(value: Any) -> Any:
    """A hashable stand-in, equal for equal values: dicts, lists and sets become tuples."""
    if isinstance(value, Mapping):
        pairs = [(frozen(key), frozen(item)) for key, item in value.items()]
        return _Frozen(("dict", *sorted(pairs, key=repr)))
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return _Frozen(("set", *sorted((frozen(item) for item in value), key=repr)))
    return value


class _Frozen(tuple[Any, ...]):
    """Shown to people as what it stands for."""

    __slots__ = ()

    def __repr__(self) -> str:
        kind, *items = self
        if kind == "dict":
            items = [f"{key!r}: {item!r}" for key, item in items]
        else:
            items = [repr(item) for item in items]
        return f"{{{', '.join(items)}}}" if items or kind == "dict" else "set()"
