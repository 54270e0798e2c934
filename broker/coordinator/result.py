"""What an operation on a coordinator shard returns: a decision as data.

An operation reads the shard and returns a ``Result``: the records to append, the answer, and the
*effects* to carry out. The runtime appends the records, replays them onto the shard, waits until
they are committed and only then answers. The shard holds no futures and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, NewType, TypeVar

from ..errors import KafkaError

R = TypeVar("R")

Record = tuple[bytes, bytes | None]
"""Key and value of one record of the coordinator's topic; a ``None`` value is a tombstone."""

Token = NewType("Token", int)
"""Names one waiting caller of ``CoordinatorRuntime.write``. A shard may keep it and reply later."""

TimerKey = Hashable
"""Names a timer of one shard. Setting a key again moves its deadline."""


class ProducerIdAndEpoch(NamedTuple):
    """The producer whose transaction a batch of records belongs to."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a parked caller, after commit. A ``KafkaError`` as response is raised at the caller.

    A token nobody waits for any more (its caller was cancelled) is ignored.
    """

    token: Token
    response: Any


@dataclass(frozen=True, slots=True)
class Timer:
    """Call ``Shard.on_timer(key)`` once at ``deadline_ms`` of the runtime's clock."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Forget the timer ``key``; a key that is not set is fine."""

    key: TimerKey


class DomainEffect:
    """Base of the effects only one coordinator knows; handed to ``on_effect`` after commit."""

    __slots__ = ()


Effect = Reply | Timer | Cancel | DomainEffect


@dataclass(slots=True)
class Result(Generic[R]):
    """A decision.

    records: appended as one batch, then replayed, in the same synchronous step as the decision.
    response: the answer to the caller, given after commit. Unused when ``parked``.
    parked: the answer comes later, as a ``Reply`` with the caller's token.
    effects: ``Timer`` and ``Cancel`` happen at once after replay, all others after commit, in order
        and before the response.
    transactional: append the records as a transactional batch of this producer.
    guard: what the log gave for verifying that transaction, for its first batch in the partition.
    refused: asked for another decision when the log refuses the records (nothing was replayed).
        Without it the error goes to the caller.
    """

    records: list[Record] = field(default_factory=list)
    response: R | None = None
    parked: bool = False
    effects: list[Effect] = field(default_factory=list)
    transactional: ProducerIdAndEpoch | None = None
    guard: object | None = None
    refused: Callable[[KafkaError], Result[R]] | None = None
