"""How records reach agent code: a feed per agent and task, a slot per coroutine reading from it.

A slot's coroutine runs from one record to the next without anything of ours in between, except one
comparison of ``index`` with ``limit``: the limit is the end of the block, or lower when the commit
cycle wants a cut. A coroutine that reached the limit is *parked* on a future until there is more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, Final

from onceward.broker.client import TopicPartition

from .block import Block, Headers, RecordAt
from .kernel import FeedState, SlotState, values
from .output import Outputs

if TYPE_CHECKING:
    from ..sinks.effects import Effects
    from ..sinks.sink import Sink
    from ..state import StoreTransaction
    from ..table import Table
    from ..topology import Node
    from .task import Task


class _Wake:
    def __repr__(self) -> str:
        return "WAKE"


WAKE: Final = _Wake()
"""Yielded by ``Slot.records`` instead of a value: the slot's alarm rang, or held records must go
on."""


class Feed(FeedState):
    """One agent (stage) within a task: the block it is handling and how far it got.

    ``index`` is the next record to hand out, ``limit`` where handing out stops.
    """

    __slots__ = ("flush_held", "node", "parked", "slots", "task")

    block: Block | None

    def __init__(self, task: Task, node: Node) -> None:
        self.task = task
        self.node = node
        self.block = None
        self.values = []
        self.index = 0
        self.limit = 0
        self.parked = 0
        self.flush_held = False
        self.slots: list[Slot] = []

    @property
    def is_parked(self) -> bool:
        """Every coroutine waits for more: no record is half done."""
        if self.index < self.limit or self.parked != len(self.slots):
            return False
        return not (self.flush_held and any(slot.held for slot in self.slots))

    def deliver(self, block: Block) -> None:
        """Start a block. The previous one must be finished."""
        self.block = block
        self.values = block.values
        self.index = 0
        self.limit = len(block)
        self.wake()

    def stop_at(self, limit: int, *, flush_held: bool) -> None:
        """Ask for a cut before record ``limit``."""
        self.limit = limit
        self.flush_held = flush_held  # also what is held only now, behind an operator that waits
        self.wake()

    def go_on(self) -> None:
        """The cut is over."""
        self.flush_held = False
        if self.block is not None:
            self.limit = len(self.block)
        self.wake()

    def wake(self) -> None:
        for slot in self.slots:
            slot.wake()


class Slot(SlotState):
    """One coroutine of an agent: what it is handling and where its effects go (an ``Emitter``)."""

    __slots__ = (
        "alarm",
        "coroutine",
        "held",
        "stage",
        "stores",
        "task",
        "waiter",
    )

    block: Block | None
    effects: dict[Sink, Effects]
    feed: Feed
    outputs: Outputs
    tables: dict[Table, StoreTransaction]

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.task = feed.task
        self.stage = feed.node.stage
        self.outputs = feed.task.outputs
        self.stores: dict[str, StoreTransaction] = feed.task.stores
        self.tables = feed.task.tables
        self.effects = feed.task.sinks.effects
        self.agent = feed.node.name
        self.block = None
        self.index = 0
        self.held: list[RecordAt] = []
        self.alarm: float | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.coroutine: asyncio.Task[None] | None = None
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        self.done = done  # awaiting it, once per send, costs no Python call

    def records(self) -> AsyncIterator[Any]:
        """Decoded values as the error policy needs them; WAKE when the alarm rang or held records
        must be handled."""
        return self.tracked_values() if self.task.is_tracked else values(self, WAKE)

    async def tracked_values(self) -> AsyncIterator[Any]:
        """``kernel.values`` where each record's effects can be undone (policy ``dead_letter``)."""
        feed, task = self.feed, self.task
        while True:
            index = feed.index
            if index >= feed.limit:
                if await self.park():
                    yield WAKE
                continue
            feed.index = index + 1
            self.index = index
            self.block = feed.block
            if task.dead_letter_known_failure(self):
                continue
            if not self.held:
                task.mark()
            yield feed.values[index]

    async def park(self) -> bool:
        """Wait for more records. True: the alarm rang or held records must be handled now."""
        feed = self.feed
        if feed.flush_held and self.held:
            return True
        loop = asyncio.get_running_loop()
        waiter = self.waiter = loop.create_future()
        timer = None
        if self.alarm is not None and self.may_ring:
            timer = loop.call_at(self.alarm, self.wake)
        feed.parked += 1
        feed.task.slot_parked(feed)
        try:
            await waiter
        finally:
            feed.parked -= 1
            self.waiter = None
            if timer is not None:
                timer.cancel()
        if feed.flush_held and self.held:
            return True
        return self.alarm is not None and loop.time() >= self.alarm and self.may_ring

    @property
    def may_ring(self) -> bool:
        """Alarms wait for the end of a commit cycle: effects after the cut would be torn from
        it."""
        return not self.task.is_cutting

    def wake(self) -> None:
        """Resume the parked coroutine, if it is."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def hold(self) -> None:
        """The current record is kept by the agent's ``take`` and not handled yet."""
        if self.block is not None:
            self.held.append(RecordAt(self.block, self.index))

    def release(self) -> None:
        """The held records are handled."""
        self.held = []

    def in_hand(self) -> list[RecordAt]:
        """The records the coroutine is handling: what an exception in it is about."""
        if self.held:
            return list(self.held)
        return [] if self.block is None else [RecordAt(self.block, self.index)]

    def cut_off(self) -> None:
        """Whatever the coroutine still does while it is being cancelled has no effect."""
        self.outputs = Outputs()
        self.stores = {}
        self.tables = {}
        self.effects = {}

    # Emitter

    def timestamp_ms(self) -> int:
        block = self.block
        return self.task.stream_time if block is None else block.timestamps[self.index]

    def sent(self) -> Awaitable[None]:
        return self.done

    # the current record, for events

    @property
    def tp(self) -> TopicPartition:
        return self._current().tp

    @property
    def offset(self) -> int:
        return self._current().offsets[self.index]

    @property
    def raw_key(self) -> bytes | None:
        return self._current().keys[self.index]

    @property
    def raw_value(self) -> bytes | None:
        return self._current().raw_values[self.index]

    @property
    def headers(self) -> Headers:
        return self._current().headers_of(self.index)

    def key(self) -> Any:
        """The decoded key of the current record. Raises DecodeError."""
        raw = self.raw_key
        return None if raw is None else self.decode_key(self.tp.topic, raw, self.headers)

    def decode_key(self, topic: str, raw: bytes, headers: Headers) -> Any:
        return self.task.decode_key(topic, raw, headers)

    def current_record(self) -> RecordAt:
        return RecordAt(self._current(), self.index)

    def _current(self) -> Block:
        if self.block is None:
            raise RuntimeError("no record has been received yet")
        return self.block
