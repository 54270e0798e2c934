"""The port of a system outside of Kafka that agents write to.

An own sink is a subclass of ``Sink`` (the system offers nothing, or takes the same key twice as
once) or of ``database.DatabaseSink`` (it has transactions) with one method, ``apply``. The helper
around it does the rest: it collects what agents write, calls ``apply`` at a commit, keeps the
positions, skips what is there already after a crash and fences workers that lost a partition.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from onceward.broker.client import TopicPartition

from ..config import ErrorPolicy, choice
from ..engine.feed import Slot
from ..engine.kernel import SinkWrite
from ..errors import ConfigurationError, OutsideAgentError
from .effects import Batch
from .effects import Strength as Strength
from .errors import SinkError
from .positions import Advance, Claim, Position, Start


class Sink(SinkWrite, ABC):
    """A declared sink; ``name`` is unique in its app and must stay the same over restarts.

    ``on_error``: ``stop`` or ``dead_letter``, for effects the system refuses; default: the app's
    ``on_agent_error``. Everything but ``write`` is called by the engine, one call at a time per
    worker. Raises ConfigurationError.
    """

    strength: Strength = Strength.AT_LEAST_ONCE

    batch_rows: int = 20_000
    batch_bytes: int = 16 * 1024 * 1024
    """A worker commits when so much waits for the sink, and at the app's ``commit_interval`` at the
    latest. While a commit takes longer the same again may wait, then no more records are handled.
    Set them in a subclass or on a sink."""

    def __init__(self, name: str, *, on_error: str | None = None) -> None:
        if not name:
            raise ConfigurationError("a sink needs a name")
        self.name = name
        self.target: Sink = self
        """What the engine drives: a test may put a stand-in here."""
        self.on_error = None if on_error is None else choice(ErrorPolicy, "on_error", on_error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def describe(self) -> str:
        """For messages: the sink and where it leads."""
        return f"sink {self.name!r}"

    # for agents

    def delete(self, key: Any) -> Awaitable[None]:
        """Write a tombstone: ``write(None, key=key)``."""
        return self.write(None, key=key)

    def encode(self, value: Any, key: Any, slot: Slot) -> Any:
        """What is kept of a written value until the commit; it must not change afterwards.

        Called within the agent, so what it raises is the agent's error.
        """
        return dict(value) if type(value) is dict else value

    # for the engine

    async def start(self) -> None:
        """Connect and check. Raises SinkError, SinkUnavailable."""
        return

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        return

    @abstractmethod
    def apply(self, batch: Batch) -> Awaitable[None] | None:
        """Make the effects of ``batch`` happen, in order and durably.

        Plain or async. ``batch.refuse(index, reason)`` for a value the system does not take. Raises
        SinkUnavailable when it should be tried again; any other exception stops the worker.
        """

    async def deliver(self, batch: Batch) -> None:
        """``apply`` of a sink without transactions."""
        waiting = self.apply(batch)
        if inspect.isawaitable(waiting):
            await waiting

    def _outside(self, in_agent: bool) -> OutsideAgentError:
        if in_agent:
            return OutsideAgentError(
                f"sink {self.name!r} was not seen in this agent when the app started; name it in "
                "the agent's function, or declare it: @app.agent(topic, sink=[...])"
            )
        return OutsideAgentError(
            f"sink {self.name!r} can only be written to by an agent handling an event: the event's "
            "position is what makes the write happen once"
        )


class TransactionalSink(Sink):
    """A sink that changes effects and positions together. See ``DatabaseSink`` for the usual
    way."""

    strength: Strength = Strength.TRANSACTIONAL

    @abstractmethod
    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        """Become the owner of these partitions: from now on every other worker's commit is
        refused.

        A partition that was never here begins at ``position``. Raises SinkUnavailable.
        """

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        """Where this sink is with what ``app`` reads; changes nothing. Called without ``start``.

        Raises SinkUnavailable, SinkError.
        """
        raise SinkError(f"{self.describe()} does not tell its positions")

    @abstractmethod
    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        """Apply ``batch`` and move the positions, all or nothing, by compare-and-set.

        Raises SinkFenced (nothing happened), SinkUnavailable (nobody knows), SinkError.
        """
