"""One task: the agents of a sub-topology on one partition number, fed block by block.

At most one block is being handled at a time, by every agent that reads its topic. The task is at a
*cut* when all its coroutines are parked: then its outputs, its tables' writes and its positions are
the effects of exactly the same records.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from onceward.broker.client import FetchedBatch, TopicPartition

from ..config import ErrorPolicy
from ..errors import UndecodableRecord, WorkerError
from ..state import StoreTransaction
from . import dead_letter
from .block import Block, Headers, RecordAt
from .context import CURRENT
from .failures import agent_error, first_undecodable
from .feed import Feed, Slot
from .output import Outputs
from .partition_group import PartitionGroup
from .schemas import key_of, payloads
from .sinks import TaskSinks

if TYPE_CHECKING:
    from ..topology import SubTopology

logger = logging.getLogger(__name__)

_CANCEL_PATIENCE_S = 10.0
BLOCK_RECORDS = 512
"""Records handled between two turns of the event loop, unless the agent awaits something."""


class TaskId(NamedTuple):
    """Kafka Streams' task id: ``0_3`` is partition 3 of sub-topology 0."""

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"


class TaskState(enum.Enum):
    """What a task does, and what leads out of the state.

    CREATED    nothing; ``restoring``
    RESTORING  stores roll forward, records may be buffered; ``start`` once positions are known
    RUNNING    agents handle records; ``suspend`` (rewind) leads back to RESTORING
    CLOSED     nothing, for ever
    """

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    CLOSED = "closed"


_MOVES = {
    TaskState.CREATED: {TaskState.RESTORING, TaskState.CLOSED},
    TaskState.RESTORING: {TaskState.RUNNING, TaskState.RESTORING, TaskState.CLOSED},
    TaskState.RUNNING: {TaskState.RESTORING, TaskState.CLOSED},
    TaskState.CLOSED: {TaskState.CLOSED},
}


class TaskEvents(Protocol):
    """What a task tells its worker; plain calls, never awaited."""

    def task_progressed(self, task: Task) -> None:
        """At a cut, done with a block, or out of records."""

    def task_wants_commit(self, task: Task) -> None:
        """It stops for a commit by itself."""

    def task_failed(self, task: Task, error: WorkerError) -> None:
        """The worker must stop."""

    def task_needs_rewind(self, task: Task, reason: str) -> None:
        """Everything since the last commit must be undone and run again."""


class Policies(NamedTuple):
    """What happens to bad records."""

    on_decode_error: ErrorPolicy
    on_agent_error: ErrorPolicy
    dead_letter_topic: str


class Task:
    """See the module. ``stores`` are open and owned: closing the task closes them."""

    def __init__(
        self,
        task_id: TaskId,
        sub_topology: SubTopology,
        inputs: list[TopicPartition],
        stores: Mapping[str, StoreTransaction],
        policies: Policies,
        events: TaskEvents,
    ) -> None:
        self.id = task_id
        self.sub_topology = sub_topology
        self.inputs = inputs
        self.stores: dict[str, StoreTransaction] = dict(stores)
        self.tables = {sub_topology.tables[name]: store for name, store in stores.items()}
        self.outputs = Outputs()
        self.sinks = TaskSinks(sub_topology.sinks)
        self.group = PartitionGroup(inputs)
        self.state = TaskState.CREATED
        self.records_since_commit = 0
        self._policies = policies
        self._events = events
        self._decoders: dict[str, Callable[[bytes], Any]] = {
            name: topic.decode_value for name, topic in sub_topology.sources.items()
        }
        self._feeds: dict[str, list[Feed]] = {}
        self._block: Block | None = None
        self._consumed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._cutting = False
        self._advancing = False
        self._output_mark: Mapping[str, int] = {}
        self._failed = False
        self._fetched: dict[TopicPartition, int] = {}
        self._known_failures: dict[tuple[str, TopicPartition, int], dead_letter.Failure] = {}

    # lifecycle

    def restoring(self) -> None:
        self._move(TaskState.RESTORING)

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start fresh agent coroutines at ``positions``; everything buffered before is dropped."""
        self._move(TaskState.RUNNING)
        self._drop_effects()
        self._consumed = dict(positions)
        self._committed = dict(positions)
        self._fetched = dict(positions)
        self.group.limits = self.sinks.limits(positions)
        self._cutting = False
        for node in self.sub_topology.nodes:
            feed = Feed(self, node)
            for topic in node.sources:
                self._feeds.setdefault(topic, []).append(feed)
            for _ in range(node.concurrency):
                self._start_slot(feed)
        self._advance_soon()

    async def suspend(self) -> None:
        """Stop the agents and drop what is not committed."""
        await self._stop_agents()
        self._drop_effects()
        if self.state is TaskState.RUNNING:
            self._move(TaskState.RESTORING)

    async def close(self) -> None:
        """Stop the agents, drop what is not committed, close the stores. Idempotent."""
        if self.state is TaskState.CLOSED:
            return
        self._move(TaskState.CLOSED)
        await self._stop_agents()
        self._drop_effects()
        for store in self.stores.values():
            store.store.close()

    # records

    def add(self, batch: FetchedBatch) -> None:
        """Buffer fetched records of one of the inputs."""
        records = batch.records
        if records.offsets and records.offsets[0] < self._fetched[batch.tp]:
            raise RuntimeError(f"{batch.tp}: offset {records.offsets[0]} was fetched before")
        self._fetched[batch.tp] = records.next_offset
        self.group.add(batch)
        if self.state is TaskState.RUNNING and not self._cutting:
            self._advance_soon()

    @property
    def is_tracked(self) -> bool:
        """Whether the effects of single records can be undone."""
        return self._policies.on_agent_error is ErrorPolicy.DEAD_LETTER

    def decode_key(self, topic: str, raw: bytes, headers: Headers) -> Any:
        """Raises DecodeError."""
        return key_of(self.sub_topology.sources[topic], raw, headers)

    @property
    def stream_time(self) -> int:
        return self.group.stream_time

    # the commit cycle

    @property
    def is_cutting(self) -> bool:
        return self._cutting

    @property
    def is_parked(self) -> bool:
        return all(feed.is_parked for feeds in self._feeds.values() for feed in feeds)

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to commit."""
        if self.outputs or any(store.is_dirty for store in self.stores.values()):
            return True
        is_moved = self.records_since_commit > 0 or self.positions() != self._committed
        return is_moved or self._reached_sinks()

    def request_cut(self) -> None:
        """Let every agent finish the record in hand, then park. ``task_progressed`` tells when."""
        if self._cutting:
            return
        self._cutting = True
        is_at_sinks = self._reached_sinks()
        active = [] if self._block is None else self._active(self._block)
        limit = max((feed.index for feed in active), default=0)
        for feed in self._all_feeds():
            flush_held = is_at_sinks or not self._may_hold(feed)
            feed.stop_at(limit if feed in active else feed.limit, flush_held=flush_held)

    def ask_for_commit(self) -> None:
        """Stop after the record in hand: what it causes waits in memory."""
        if not self._cutting:
            self.request_cut()
            self._events.task_wants_commit(self)

    def end_cut(self) -> None:
        """Go on after the commit."""
        if not self._cutting:
            return
        self._cutting = False
        self._try_finish_block()  # what it ends is behind the cut: nothing may ask for another one
        if self._reached_sinks() and not any(s.held for f in self._all_feeds() for s in f.slots):
            self.group.limits = self.sinks.limits(self._consumed)
        for feed in self._all_feeds():
            feed.go_on()
        self._advance_soon()

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset per input: everything below is done. Only meaningful at a cut.

        Records an agent holds back in ``take`` are not done.
        """
        positions = dict(self._consumed)
        block = self._block
        if block is not None:
            done = max(feed.index for feed in self._active(block))
            positions[block.tp] = block.position(done)
        for feed in self._all_feeds():
            for slot in feed.slots:
                for record in slot.held:
                    tp = record.block.tp
                    positions[tp] = min(positions[tp], record.offset)
        return positions

    def changed_positions(self) -> dict[TopicPartition, int]:
        """Positions that differ from the committed ones."""
        return {tp: at for tp, at in self.positions().items() if self._committed.get(tp) != at}

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """These positions are committed, with every effect up to them."""
        self._committed.update(positions)

    # called by feeds and slots

    def slot_parked(self, feed: Feed) -> None:
        """A coroutine is about to wait: go on with the next block, or tell about the cut."""
        if not feed.is_parked:
            return
        if self._cutting:
            if self.is_parked:
                self._events.task_progressed(self)
        elif self._block is not None and self._try_finish_block():
            self._advance_soon()

    def mark(self) -> None:
        """The next record begins: ``dead_letter`` undoes to here."""
        self._output_mark = self.outputs.mark()
        self.sinks.mark()
        for store in self.stores.values():
            store.mark()

    def dead_letter_known_failure(self, slot: Slot) -> bool:
        """Whether the slot's record failed before a rewind; it is dead-lettered then."""
        if not self._known_failures:
            return False
        key = (slot.feed.node.name, slot.tp, slot.offset)
        failure = self._known_failures.get(key)
        if failure is None:
            return False
        self._dead_letter([slot.current_record()], failure)
        return True

    # blocks

    def _advance_soon(self) -> None:
        """Deliver the next block in the next turn of the event loop, so that others get theirs."""
        if not self._advancing:
            self._advancing = True
            asyncio.get_running_loop().call_soon(self._advance)

    def _advance(self) -> None:
        self._advancing = False
        if self._cutting or self.state is not TaskState.RUNNING:
            return
        if self._block is not None and not self._try_finish_block():
            return
        while (block := self.group.next_block(BLOCK_RECORDS)) is not None:
            if not block.offsets:
                self._consumed[block.tp] = block.next_offset
                continue
            if not self._decode(block):
                if self._failed:
                    return
                continue
            self._block = block
            self.records_since_commit += len(block)
            for feed in self._active(block):
                feed.deliver(block)
            break
        for tp in self.group.held_back() if self._block is None else ():
            self._consumed[tp] = max(self._consumed[tp], self.group.limits[tp])
        self._events.task_progressed(self)

    def _try_finish_block(self) -> bool:
        block = self._block
        if block is None or not all(feed.is_parked for feed in self._active(block)):
            return False
        if any(feed.index < len(block) for feed in self._active(block)):
            return False
        self._finish_block()
        return True

    def _finish_block(self) -> None:
        block = self._block
        if block is not None:
            self._consumed[block.tp] = block.next_offset
            self._block = None

    def _decode(self, block: Block) -> bool:
        """Fill in the values. A bad record further on cuts the block; a bad first one is dealt
        with."""
        decode = self._decoders[block.tp.topic]
        raw, values = payloads(self.sub_topology.sources[block.tp.topic], block), block.values
        try:
            values.extend([None if data is None else decode(data) for data in raw])
            return True
        except Exception as error:  # noqa: BLE001 - codecs are user code and raise what they like
            bad, cause = first_undecodable(decode, raw, values, error)
        if bad > 0:
            self.group.push_back(block.part(bad, len(block)))
            head = block.part(0, bad)
            block.keys, block.raw_values = head.keys, head.raw_values
            block.offsets, block.timestamps = head.offsets, head.timestamps
            block.headers, block.next_offset = head.headers, head.next_offset
            return True
        self._undecodable(RecordAt(block, 0), cause)
        return False

    def _undecodable(self, record: RecordAt, cause: BaseException) -> None:
        block = record.block
        tp = block.tp
        if self._policies.on_decode_error is ErrorPolicy.STOP:
            reason = f"{type(cause).__name__}: {cause}"
            error = UndecodableRecord(tp.topic, tp.partition, record.offset, reason)
            error.__cause__ = cause
            self._fail(error)
            return
        self._dead_letter([record], dead_letter.Failure.of(cause, None))
        self.records_since_commit += 1
        self._consumed[tp] = block.position(1)
        if len(block) > 1:
            rest = block.part(1, len(block))
            rest.values = []
            self.group.push_back(rest)

    # agents

    def _start_slot(self, feed: Feed) -> None:
        slot = Slot(feed)
        feed.slots.append(slot)
        context = contextvars.copy_context()
        context.run(CURRENT.set, slot)
        name = f"{feed.node.name}-{self.id}"
        coroutine = feed.node.agent.run(slot)
        slot.coroutine = asyncio.get_running_loop().create_task(
            coroutine, name=name, context=context
        )
        slot.coroutine.add_done_callback(lambda done: self._slot_done(slot, done))

    def _slot_done(self, slot: Slot, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            return
        cause = done.exception()
        if self.state is not TaskState.RUNNING or slot not in slot.feed.slots:
            return
        if cause is None and slot.block is not None:
            self._restart(slot)  # the agent left its loop: the record in hand is done
            return
        if cause is None:
            cause = RuntimeError("the agent returned without reading its stream")
        records = slot.in_hand()
        agent = slot.feed.node.agent.name
        if not records or self._policies.on_agent_error is ErrorPolicy.STOP:
            self._fail(agent_error(agent, records, cause))
            return
        failure = dead_letter.Failure.of(cause, agent)
        if self._is_sole(records[-1].block.tp.topic):
            self.outputs.roll_back(self._output_mark)
            self.sinks.roll_back()
            for store in self.stores.values():
                store.roll_back()
            self._dead_letter(records, failure)
            self._restart(slot)
            return
        for record in records:
            key = (slot.feed.node.name, record.block.tp, record.offset)
            self._known_failures[key] = failure
        self._events.task_needs_rewind(self, f"agent {agent!r} raised")

    def _restart(self, slot: Slot) -> None:
        """A failed slot that is not restarted is never parked, so nothing of it can be
        committed."""
        slot.feed.slots.remove(slot)
        self._start_slot(slot.feed)

    def _dead_letter(self, records: list[RecordAt], failure: dead_letter.Failure) -> None:
        for record in records:
            dead_letter.emit(self.outputs, self._policies.dead_letter_topic, record, failure)

    def _fail(self, error: WorkerError) -> None:
        self._failed = True
        self._events.task_failed(self, error)

    def _reached_sinks(self) -> bool:
        """Whether what some sink has already was run again, and nothing behind it."""
        limits = self.group.limits
        if not limits or self._block is not None:
            return False
        return all(self._consumed[tp] >= limit for tp, limit in limits.items())

    def _active(self, block: Block) -> list[Feed]:
        return self._feeds.get(block.tp.topic, [])

    def _all_feeds(self) -> list[Feed]:
        return list({id(feed): feed for feeds in self._feeds.values() for feed in feeds}.values())

    def _is_sole(self, topic: str) -> bool:
        """Whether one coroutine handles the topic: its effects can be told from all others."""
        feeds = self._feeds.get(topic, [])
        return len(feeds) == 1 and feeds[0].node.concurrency == 1

    def _may_hold(self, feed: Feed) -> bool:
        return all(self._is_sole(topic) for topic in feed.node.sources)

    async def _stop_agents(self) -> None:
        running = [
            slot.coroutine
            for feed in self._all_feeds()
            for slot in feed.slots
            if slot.coroutine is not None
        ]
        for feed in self._all_feeds():
            for slot in feed.slots:
                slot.cut_off()
        self._feeds = {}
        for coroutine in running:
            coroutine.cancel()
        if running:
            _, stubborn = await asyncio.wait(running, timeout=_CANCEL_PATIENCE_S)
            for coroutine in stubborn:
                logger.error("%s ignores being cancelled; what it does is dropped", coroutine)

    def _drop_effects(self) -> None:
        self.outputs.take()
        self.sinks.clear()
        for store in self.stores.values():
            store.drop()
        self.group.clear()
        self._block = None
        self._feeds = {}
        self._cutting = False
        self.records_since_commit = 0

    def _move(self, state: TaskState) -> None:
        if state not in _MOVES[self.state]:
            raise RuntimeError(f"task {self.id}: {self.state.name} cannot become {state.name}")
        self.state = state
