"""What a consumer does between ``subscribe`` or ``assign`` and the next ``unsubscribe``.

The client's consumer is polled; aiokafka's works in the background. The session's task is what
polls: it runs rebalances and keeps one batch per partition at hand, so that the program may come
whenever it likes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import ErrorCode
from ...errors import KafkaError as ClientError
from ...types import TopicPartition
from ..cluster import Client
from ..consumer import Consumer
from ..errors import NoOffsetForPartition
from ..group import GroupMetadata
from ..offsets import OffsetAndMetadata
from ..positions import FetchedBatch
from .abc import ConsumerRebalanceListener
from .errors import CommitFailedError, translated
from .interest import Interest, Selection
from .options import ConsumerOptions
from .signal import Signal

_logger = logging.getLogger(__name__)

POSITION_TICK_MS = 20
"""How often a missing position is looked for: the client does not tell when it found one."""

_MEMBERSHIP_CHANGED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Marks(NamedTuple):
    """What the last fetch of a partition told, and when (ms)."""

    high_watermark: int
    last_stable_offset: int
    at: int


class Buffered:
    """A fetched batch of which the records before ``index`` were handed out."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: FetchedBatch) -> None:
        self.batch = batch
        self.index = 0

    @property
    def remaining(self) -> int:
        return len(self.batch.records) - self.index

    @property
    def position(self) -> int:
        records = self.batch.records
        return records.offsets[self.index] if self.remaining else records.next_offset


class Session:
    """Positions are those of the program: behind the last record that was handed out."""

    def __init__(
        self,
        client: Client,
        options: ConsumerOptions,
        interest: Interest,
        *,
        news: Signal,
        after: Awaitable[None] | None = None,
    ) -> None:
        """``news`` is notified after every change; ``after`` is an older session that is ending."""
        self._client = client
        self._options = options
        self._interest = interest
        self._news = news
        self._after = after
        self._selection = Selection(client, options, interest)
        self._buffers: dict[TopicPartition, Buffered] = {}
        self._marks: dict[TopicPartition, Marks] = {}
        self._paused: set[TopicPartition] = set()
        self._error: ClientError | None = None
        self._error_taken = asyncio.Event()
        self._committing = asyncio.Lock()
        self._rebalancing = False
        self._revoked_since_assigned = False
        self._read_at = asyncio.get_running_loop().time()
        self._reader_came = asyncio.Event()
        self.readers = 0
        self.in_listener = False
        self.assigned = asyncio.Event()
        self._consumer = self._new_consumer()
        self._apply_interest()
        self._tasks = [asyncio.create_task(self._run())]
        if options.enable_auto_commit and options.group_id is not None:
            self._tasks.append(asyncio.create_task(self._commit_regularly()))

    def _new_consumer(self) -> Consumer:
        options = self._options
        return Consumer(
            self._client,
            group_id=options.group_id,
            group_instance_id=options.group_instance_id,
            isolation=options.isolation_level,
            auto_offset_reset=options.auto_offset_reset,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms or options.session_timeout_ms,
            assignors=options.assignors(),
            fetch_min_bytes=options.fetch_min_bytes,
            fetch_max_bytes=options.fetch_max_bytes,
            max_partition_fetch_bytes=options.max_partition_fetch_bytes,
            fetch_max_wait_ms=options.fetch_max_wait_ms,
            check_crcs=options.check_crcs,
            stable_offset_timeout_ms=options.request_timeout_ms,
        )

    # what is read

    @property
    def topics(self) -> frozenset[str]:
        return self._selection.topics

    @property
    def group_metadata(self) -> GroupMetadata:
        return self._consumer.group_metadata

    @property
    def has_assignment(self) -> bool:
        return self.assigned.is_set() or self.in_listener

    @property
    def settled(self) -> bool:
        """Assigned, or without anything to be assigned as long as no topic matches."""
        return self.assigned.is_set() or self._selection.matches_nothing

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment if self.has_assignment else frozenset()

    def change(self, interest: Interest) -> None:
        """Other topics or partitions of the same kind."""
        self._interest = interest
        self._selection = Selection(self._client, self._options, interest)
        self._apply_interest()
        self._news.notify()

    def _apply_interest(self) -> None:
        if self._interest.partitions is not None:
            self._consumer.assign(self._interest.partitions)
            self._forget_all_but(self._consumer.assignment)
            self.assigned.set()
            self._consumer.resume(())
            return
        self.assigned.clear()
        self._rebalancing = True
        if self._selection.in_group and self._interest.pattern is None:
            self._consumer.subscribe(self._interest.topics, self)

    async def _follow_topics(self) -> None:
        """Topics that match the pattern; without a group all their partitions."""
        await self._selection.touch_topics()
        if self._interest.partitions is not None:
            return
        if self._selection.in_group:
            topics = await self._selection.new_topics()
            if topics is not None:
                self._consumer.subscribe(topics, self)
            return
        partitions = await self._selection.new_partitions()
        if partitions is not None:
            self._consumer.assign(partitions)
            self._forget_all_but(self._consumer.assignment)
            self._rebalancing = False
            self.assigned.set()
            self._news.notify()

    def _forget_all_but(self, partitions: Collection[TopicPartition]) -> None:
        for tp in (self._buffers.keys() | self._marks.keys() | self._paused).difference(partitions):
            self._buffers.pop(tp, None)
            self._marks.pop(tp, None)
            self._paused.discard(tp)

    # the task

    async def _run(self) -> None:
        try:
            if self._after is not None:
                await self._after
            await self._serve()
        finally:
            self._news.notify()

    async def _serve(self) -> None:
        while True:
            try:
                await self._follow_topics()
                batches = await self._consumer.fetch(timeout_ms=self._tick_ms())
                self._store(batches)
                if not batches:
                    await self._look_up_marks()
            except ClientError as error:
                await self._hand_over(error)
            if self._is_idle():
                await self._leave_until_read()

    def _tick_ms(self) -> int:
        missing = any(self._consumer.position(tp) is None for tp in self._consumer.assignment)
        limit = self._options.consumer_timeout_ms
        return min(limit, POSITION_TICK_MS) if missing else limit

    def _store(self, batches: Iterable[FetchedBatch]) -> None:
        now = self._client.clock()
        for batch in batches:
            self._marks[batch.tp] = Marks(batch.high_watermark, batch.last_stable_offset, now)
            if len(batch.records):
                self._buffers[batch.tp] = Buffered(batch)
                # The next batch is on its way already; it stays with the client's consumer until
                # this one was read.
                self._consumer.pause((batch.tp,))
        self._news.notify()

    async def _look_up_marks(self) -> None:
        """A partition without new records has a high watermark too, but no fetch tells it."""
        consumer = self._consumer
        unknown = [
            tp
            for tp in consumer.assignment
            if tp not in self._marks and consumer.position(tp) is not None
        ]
        if not unknown:
            return
        ends = await consumer.end_offsets(unknown, "read_uncommitted")
        stable = await consumer.end_offsets(unknown, "read_committed")
        now = self._client.clock()
        for tp in consumer.assignment.intersection(unknown):
            self._marks.setdefault(tp, Marks(ends[tp], stable[tp], now))

    async def _hand_over(self, error: ClientError) -> None:
        backoff = self._options.retry_backoff_ms / 1000
        if error.retriable:
            _logger.warning("reading goes on after: %s", error)
            await asyncio.sleep(backoff)
            return
        self._error = error
        self._error_taken.clear()
        self._news.notify()
        if isinstance(error, NoOffsetForPartition):
            # The other partitions are read meanwhile.
            await asyncio.sleep(backoff)
        else:
            await self._error_taken.wait()

    def raise_error(self, wanted: Collection[TopicPartition] = ()) -> None:
        """What went wrong in the background: once, then reading goes on.

        A missing offset matters only to those who want that partition (``wanted`` empty = every),
        and not any more once the program has sought one.
        """
        error = self._error
        if isinstance(error, NoOffsetForPartition):
            assigned = error.partitions & self._consumer.assignment
            missing = {tp for tp in assigned if self._consumer.position(tp) is None}
            if not missing:
                error = self._error = None
            elif wanted and missing.isdisjoint(wanted):
                error = None
        if error is not None:
            self._error = None
            self._error_taken.set()
            raise translated(error) from error
        if self._tasks[0].done() and not self._tasks[0].cancelled():
            self._tasks[0].result()

    # the limit between two reads

    def on_read(self) -> None:
        """The program asked for records; ``readers`` counts the calls that are waiting."""
        self._read_at = asyncio.get_running_loop().time()
        self._reader_came.set()

    def _is_idle(self) -> bool:
        if self.readers or not (self._selection.in_group and self.assigned.is_set()):
            return False
        idle = asyncio.get_running_loop().time() - self._read_at
        return idle * 1000 > self._options.max_poll_interval_ms

    async def _leave_until_read(self) -> None:
        _logger.warning("leaving the group: nothing was read for max_poll_interval_ms")
        self._reader_came.clear()
        await self.on_revoked(sorted(self._consumer.assignment))
        await self._consumer.leave_group()
        await self._reader_came.wait()
        self._consumer = self._new_consumer()
        self._apply_interest()

    # rebalances: the client's listener

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._rebalancing = True
        self._revoked_since_assigned = True
        if self._options.enable_auto_commit:
            await self._commit_quietly()
        await self._call("on_partitions_revoked", partitions)
        self._forget_all_but(self._consumer.assignment.difference(partitions))

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._rebalancing = True
        self._revoked_since_assigned = True
        self._forget_all_but(self._consumer.assignment.difference(partitions))
        lost = "on_partitions_lost"
        if not hasattr(self._interest.listener, lost):
            lost = "on_partitions_revoked"
        await self._call(lost, partitions)

    async def on_assigned(self, partitions: Sequence[TopicPartition], user_data: bytes) -> None:
        if not self._revoked_since_assigned and not self.assigned.is_set():
            # aiokafka announces every rebalance this way, the first one too.
            await self._call("on_partitions_revoked", ())
        self._revoked_since_assigned = False
        self.assigned.set()
        await self._call("on_partitions_assigned", partitions)
        self._rebalancing = False
        self._news.notify()

    async def _call(self, method: str, partitions: Iterable[TopicPartition]) -> None:
        listener: ConsumerRebalanceListener | None = self._interest.listener
        if listener is None:
            return
        # While it runs the session stands still: it, and whoever it waits for, must not wait for
        # the session.
        self.in_listener = True
        try:
            result: Any = getattr(listener, method)(set(partitions))
            if inspect.isawaitable(result):
                await result
        finally:
            self.in_listener = False

    # records

    def take(
        self, wanted: Collection[TopicPartition], limit: int | None
    ) -> list[tuple[Buffered, int]]:
        """Buffers with the number of their records to hand out now, at most ``limit`` in all.

        ``wanted`` empty = every partition. Say ``advance`` for what was handed out.
        """
        if self._rebalancing:
            return []
        taken: list[tuple[Buffered, int]] = []
        for tp, buffered in self._buffers.items():
            if tp in self._paused or (wanted and tp not in wanted):
                continue
            count = buffered.remaining if limit is None else min(buffered.remaining, limit)
            taken.append((buffered, count))
            if limit is not None:
                limit -= count
                if not limit:
                    break
        return taken

    def advance(self, buffered: Buffered, count: int) -> None:
        """``count`` records were handed out."""
        buffered.index += count
        if not buffered.remaining:
            self._drop_buffer(buffered.batch.tp)

    def _drop_buffer(self, tp: TopicPartition) -> None:
        if self._buffers.pop(tp, None) is not None and tp not in self._paused:
            self._consumer.resume((tp,))

    def pause(self, tp: TopicPartition) -> None:
        """Hand out nothing of it. As ``resume`` and ``seek`` for assigned partitions only."""
        self._consumer.pause((tp,))
        self._paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        self._paused.discard(tp)
        if tp not in self._buffers:
            self._consumer.resume((tp,))
        self._news.notify()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def marks(self, tp: TopicPartition) -> Marks | None:
        return self._marks.get(tp)

    # positions

    def position(self, tp: TopicPartition) -> int | None:
        """None while it is not known. KeyError when the partition is not assigned."""
        buffered = self._buffers.get(tp)
        return self._consumer.position(tp) if buffered is None else buffered.position

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._consumer.seek(tp, offset)
        self._drop_buffer(tp)
        self._consumer.resume(())
        self._news.notify()

    async def find_position(self, tp: TopicPartition) -> None:
        """For a listener that asks before reading begins: what the client would do after it."""
        options, consumer = self._options, self._consumer
        committed = None
        if options.group_id is not None:
            stable = options.isolation_level == "read_committed"
            committed = (await consumer.committed([tp], require_stable=stable))[tp]
        if committed is not None:
            offset = committed.offset
        elif options.auto_offset_reset == "none":
            raise NoOffsetForPartition(frozenset([tp]), "no committed offset")
        elif options.auto_offset_reset == "earliest":
            offset = (await consumer.beginning_offsets([tp]))[tp]
        else:
            offset = (await consumer.end_offsets([tp]))[tp]
        if consumer.position(tp) is None:
            consumer.seek(tp, offset)

    # commits

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that are known."""
        positions = {tp: self.position(tp) for tp in self._consumer.assignment}
        return {tp: OffsetAndMetadata(at) for tp, at in positions.items() if at is not None}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises CommitFailedError when the partitions may belong to somebody else now."""
        try:
            await self._consumer.commit(offsets)
        except ClientError as error:
            if error.code in _MEMBERSHIP_CHANGED:
                raise CommitFailedError(
                    f"the group has rebalanced ({error.code.name}): the partitions may belong to "
                    "another member now; commit more often or read fewer records at a time"
                ) from error
            raise translated(error) from error

    async def _commit_quietly(self) -> None:
        async with self._committing:
            try:
                await self._consumer.commit(self.consumed())
            except ClientError as error:
                _logger.warning("auto commit of group %r: %s", self._options.group_id, error)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._options.auto_commit_interval_ms / 1000)
            if self.assigned.is_set() and not self._rebalancing:
                await self._commit_quietly()

    # the end

    async def close(self) -> None:
        """Commit what was read if that is automatic, then leave the group."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._options.enable_auto_commit and self._options.group_id is not None:
            await self._commit_quietly()
        try:
            await self._consumer.stop()
        except ClientError as error:
            _logger.warning("leaving group %r: %s", self._options.group_id, error)
