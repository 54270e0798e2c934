"""One worker: fetch, let the agents run, commit; and what rebalances, errors, signals change."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceward.broker.client import (
    Consumer,
    ErrorCode,
    FetchedBatch,
    KafkaError,
    MemberFenced,
    NoOffsetForPartition,
    Producer,
    TopicPartition,
)

from ..config import ErrorPolicy
from ..errors import ConfigurationError, WorkerError
from ..sinks.errors import SinkUnavailable
from ..state import StoreTransaction
from ..topology import TopicNeed, Topology
from .assignor import TaskAssignor, parse_assignment_data
from .backoff import Backoff
from .commit import CommitCycle, Cut, recoverable
from .declare import create, declare_topics, partition_counts, written_topics
from .kafka import Kafka
from .outage import Outage
from .output import TopicOutput
from .schemas import prepare_schemas
from .sinks import Sinks
from .slots import WorkerSlot
from .task import Task
from .task_manager import TaskManager
from .timers import BackgroundRunner
from .worker_context import WorkerContext

if TYPE_CHECKING:
    from ..app import App

logger = logging.getLogger(__name__)

_IDLE_FETCH_MS = 100
_BUSY_FETCH_MS = 10
_EARLY_FETCH_MS = 20
_SETTLE_PATIENCE_S = 0.5


class Engine:
    """Runs an app in one worker slot until ``stop`` is called or something fails.

    ``run`` raises WorkerError for what must stop the worker (exit code 1). Kafka errors that may
    pass are survived: everything since the last commit is undone and run again.
    """

    def __init__(self, app: App, topology: Topology, kafka: Kafka, slot: WorkerSlot) -> None:
        settings = app.conf
        self._app = app
        self._topology = topology
        self._settings = settings
        self._kafka = kafka
        self._slot = slot
        self._context = WorkerContext(kafka.now_ms)
        self._counts: dict[str, int] = {}
        self._assignor = TaskAssignor(topology.groups(), slot.identity)
        self._consumer = self._make_consumer()
        self._sinks = sinks = Sinks(topology.sinks, settings, topology.shared_topics)
        self._cycle = CommitCycle(
            settings.processing_guarantee, self._consumer, self._make_producer, sinks,
            topology.source_positions,
        )  # fmt: skip
        self._tasks = TaskManager(topology, settings, kafka, self._consumer, slot, sinks, self)
        self._background = BackgroundRunner(
            self._context,
            app=app,
            now_ms=kafka.now_ms,
            is_leader=self.is_leader,
            on_failure=self._fail,
        )
        self._failure: WorkerError | None = None
        self._rewind_reason: str | None = None
        self._stopping = False
        self._subscribed = False
        self._late: set[Task] = set()
        self._event = asyncio.Event()
        self._backoff = Backoff()
        self._outage = Outage(logger, "committed again")
        self._rewinds_in_a_row = 0
        self._fetch_backoff = Backoff()
        self._next_commit = 0.0
        self._committing: asyncio.Task[bool] | None = None

    # what others ask

    @property
    def tasks(self) -> TaskManager:
        return self._tasks

    @property
    def commits(self) -> int:
        return self._cycle.commits

    def is_leader(self) -> bool:
        """Whether this worker has the first partition of the first topic: one worker does."""
        topics = self._topology.source_topics
        return not topics or self._tasks.task_of(TopicPartition(topics[0], 0)) is not None

    def open_partitions(self, table: str) -> list[StoreTransaction]:
        """The partitions of a table this worker owns."""
        return [task.stores[table] for task in self._tasks if table in task.stores]

    def stop(self) -> None:
        """Finish the records in hand, commit, leave. Returns at once; ``run`` ends."""
        self._stopping = True
        self._event.set()

    # TaskEvents

    def task_progressed(self, task: Task) -> None:
        self._event.set()

    def task_wants_commit(self, task: Task) -> None:
        self._consumer.nudge()
        self._event.set()

    def task_failed(self, task: Task, error: WorkerError) -> None:
        self._fail(error)

    def task_needs_rewind(self, task: Task, reason: str) -> None:
        self._rewind_reason = reason
        self._event.set()

    def _fail(self, error: WorkerError) -> None:
        if self._failure is None:
            self._failure = error
        self._event.set()

    # the loop

    async def run(self) -> None:
        """Until ``stop``. Raises WorkerError, ConfigurationError, KafkaError (never started)."""
        try:
            await self._start()
            while not self._stopping:
                await self._turn()
            await self._background.stop()
            await self._commit(self._tasks.running, wait=True)
        except asyncio.CancelledError:
            await self._abandon_commit()
            raise
        finally:
            await self._shut_down()
        self._raise_failure()

    async def _start(self) -> None:
        await self._kafka.start()
        await prepare_schemas(self._app, self._topology)
        self._counts = await declare_topics(
            self._kafka.admin(), self._topology, self._written_topics(), self._settings
        )
        await self._sinks.start()
        await self._cycle.start()
        await self._consumer.start()
        topics = self._topology.source_topics
        if topics:
            self._consumer.subscribe(topics, self)
            self._subscribed = True
        self._app.on_engine_started(self)
        self._background.start(self._app.backgrounds)
        logger.info("worker %s started on topics %s", self._slot.identity, ", ".join(topics))

    async def _turn(self) -> None:
        self._raise_failure()
        if self._committing is not None and self._committing.done():
            await self._settle()
        if self._rewind_reason is not None:
            await self._rewind()
        batches = await self._fetch()
        if batches:
            await self._accept(batches)
        await asyncio.sleep(0)
        await self._send_early()
        while self._tasks.are_full and not (self._commit_is_due() or self._is_interrupted()):
            self._event.clear()
            await self._wait_for_event(self._until_commit())
        if self._commit_is_due() and await self._has_settled():
            await self._commit(self._tasks.running)

    async def _fetch(self) -> list[FetchedBatch]:
        """Fetched records of tasks that have room; waits for a bounded time."""
        if not self._topology.source_topics:
            self._event.clear()  # or it would spin after its first commit
            await self._wait_for_event(self._until_commit())
            return []
        pausing = self._tasks.pause_full()
        if self._tasks.are_full:
            timeout_ms = 0
        elif pausing:
            timeout_ms = _BUSY_FETCH_MS
        else:
            idle_ms = _IDLE_FETCH_MS if self._cycle.is_transactional else _EARLY_FETCH_MS
            timeout_ms = max(0, min(idle_ms, math.ceil(self._until_commit() * 1000)))
        try:
            batches = await self._consumer.fetch(timeout_ms=timeout_ms)
        except (MemberFenced, NoOffsetForPartition) as error:
            raise WorkerError(f"this worker cannot go on: {error}") from error
        except KafkaError as error:
            if not recoverable(error):
                raise WorkerError(f"the cluster refuses to go on: {error}") from error
            logger.warning("fetching: %s; trying again", error)
            await self._fetch_backoff.wait()
            return []
        self._fetch_backoff.reset()
        return batches

    async def _accept(self, batches: Sequence[FetchedBatch]) -> None:
        try:
            await self._cycle.before_processing(
                {batch.tp: batch.records.next_offset for batch in batches}
            )
        except KafkaError as error:
            self._rewind_reason = f"committing before processing: {error}"
            return
        for batch in batches:
            self._tasks.add(batch)

    async def _wait_for_event(self, timeout: float) -> None:
        if timeout <= 0:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass

    # committing

    async def _send_early(self) -> None:
        """At least once and at most once: outputs go out as they come, offsets at the commit."""
        if self._cycle.is_transactional or self._settings.on_agent_error is not ErrorPolicy.STOP:
            return  # a transaction, or a record's undo, takes them all together
        tasks = [task for task in self._tasks.running if task.outputs]
        if not tasks or self._failure is not None or self._rewind_reason is not None:
            return
        try:
            await self._learn_counts(tasks, {})
            await self._cycle.send_early(tasks, self._counts)
        except KafkaError as error:
            self._rewind_reason = f"sending: {error}"

    def _until_commit(self) -> float:
        return self._next_commit - asyncio.get_running_loop().time()

    def _commit_is_due(self) -> bool:
        if self._until_commit() <= 0:
            return True
        if any(task.is_cutting and task not in self._late for task in self._tasks.running):
            return True
        handled = sum(task.records_since_commit for task in self._tasks.running)
        return handled >= self._settings.commit_records

    async def _commit(self, tasks: Sequence[Task], *, wait: bool = False) -> None:
        """One commit cycle over the tasks that reach a cut in time; with ``wait`` over all of them,
        and to its end.

        A task that is late keeps its cut requested and joins a later cycle: it is not waited for
        again. Without ``wait`` agents go on while the cut is written, where that is allowed.
        """
        await self._settle()
        candidates = [task for task in tasks if task.is_cutting or task.is_dirty]
        for task in candidates:
            task.request_cut()
        await self._wait_for_cut(candidates, wait=wait)
        if self._failure is not None or self._rewind_reason is not None:
            return
        ready = [task for task in candidates if task.is_parked]
        self._late = set(candidates) - set(ready)
        dirty = [task for task in ready if task.is_dirty]
        sent = self._context.take()
        try:
            if dirty or sent:
                await self._learn_counts(dirty, sent)
                cut = self._cycle.cut(dirty, sent, self._counts)
                if self._cycle.may_overlap and not wait:
                    self._committing = asyncio.create_task(self._write(cut, sent), name="commit")
                    self._committing.add_done_callback(lambda _: self._event.set())
                elif not await self._write(cut, sent):
                    return
        except KafkaError as error:
            self._on_commit_failed(error, sent)
            return
        finally:
            self._next_commit = asyncio.get_running_loop().time() + self._settings.commit_interval
        for task in ready:
            task.end_cut()

    async def _write(self, cut: Cut, sent: dict[str, TopicOutput]) -> bool:
        """Commit a cut; after a failure everything is due to run again."""
        try:
            await self._cycle.write(cut)
        except (KafkaError, SinkUnavailable) as error:
            self._on_commit_failed(error, sent)
            return False
        except WorkerError as error:
            self._context.give_back(sent)
            self._fail(error)
            return False
        self._context.committed()
        self._outage.over()
        self._backoff.reset()
        self._rewinds_in_a_row = 0
        return True

    def _on_commit_failed(
        self, error: KafkaError | SinkUnavailable, sent: dict[str, TopicOutput]
    ) -> None:
        self._context.give_back(sent)
        if isinstance(error, KafkaError) and not recoverable(error):
            self._fail(WorkerError(f"the cluster refuses a transaction of this app: {error}"))
        self._rewind_reason = f"committing: {error}"

    async def _settle(self) -> None:
        """Wait for the commit that is being written: before the next one, and before tasks stop."""
        committing = self._committing
        if committing is not None:
            await asyncio.wait([committing])
            self._committing = None
            committing.result()

    async def _has_settled(self) -> bool:
        """Whether the commit that is being written ends soon.

        If not, as with a slow database, no more records are handled, since what they do would wait
        in memory, but the worker goes on answering its group.
        """
        if self._committing is not None:
            await asyncio.wait([self._committing], timeout=_SETTLE_PATIENCE_S)
            if not self._committing.done():
                for task in self._tasks.running:
                    task.request_cut()
                return False
        return True

    async def _wait_for_cut(self, tasks: Sequence[Task], *, wait: bool) -> None:
        loop = asyncio.get_running_loop()
        patience = self._settings.commit_interval
        if wait:
            patience = self._settings.broker_rebalance_timeout / 2
        deadline = loop.time() + patience
        while True:
            waiting = [task for task in tasks if not task.is_parked]
            if not wait:
                waiting = [task for task in waiting if task not in self._late]
            over = self._failure is not None or self._rewind_reason is not None
            if not waiting or over or loop.time() >= deadline:
                return
            self._event.clear()
            await self._wait_for_event(deadline - loop.time())

    async def _learn_counts(self, tasks: Sequence[Task], sent: dict[str, TopicOutput]) -> None:
        """Partition counts of topics that were not declared before the start."""
        names = {name for task in tasks for name in task.outputs.topics} | set(sent)
        unknown = names - set(self._counts)
        if not unknown:
            return
        admin = self._kafka.admin()
        self._counts |= await partition_counts(admin, unknown)
        missing = [TopicNeed(name, None, None, {}) for name in sorted(unknown - set(self._counts))]
        try:
            self._counts |= await create(admin, missing, self._settings)
        except ConfigurationError as error:
            self._fail(WorkerError(str(error)))
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error

    async def _rewind(self) -> None:
        """Undo everything since the last commit and run it again."""
        await self._settle()
        reason, self._rewind_reason = self._rewind_reason, None
        self._outage.tell(f"running again from the last commit: {reason}")
        self._late = set()
        for task in self._tasks:
            await task.suspend()
        if self._rewinds_in_a_row > 0:
            await self._backoff.wait()
        self._rewinds_in_a_row += 1
        while not self._stopping:
            try:
                await self._cycle.recover()
                break
            except KafkaError as error:
                if not recoverable(error):
                    raise WorkerError(f"the cluster refuses this worker: {error}") from error
                logger.warning("recovering: %s; trying again", error)
                await self._backoff.wait()
        else:
            return
        await self._tasks.rewind()

    # RebalanceListener: called by the consumer from within fetch

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what these partitions caused, then let go of them."""
        logger.info("revoked: %s", _names(partitions))
        await self._settle()
        tasks = self._tasks.affected(partitions)
        if self._rewind_reason is None:
            await self._commit([task for task in self._tasks.running if task in tasks], wait=True)
        await self._tasks.close(tasks)

    async def on_assigned(self, partitions: Sequence[TopicPartition], user_data: bytes) -> None:
        """Make tasks; they run once they are brought up."""
        if partitions:
            logger.info("assigned: %s", _names(partitions))
        await self._settle()
        await self._tasks.assigned(partitions, parse_assignment_data(user_data).fence)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others may own these already: nothing of them may be committed."""
        logger.warning("lost: %s", _names(partitions))
        await self._settle()
        await self._tasks.close(self._tasks.affected(partitions))

    # the ends

    async def _abandon_commit(self) -> None:
        """Whether it took effect is for the next start to find out."""
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.wait([self._committing])
            self._committing = None

    async def _shut_down(self) -> None:
        await self._background.stop()
        try:
            await self._settle()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        await self._tasks.close_all()
        try:
            if self._subscribed:
                await self._consumer.leave_group()
        except KafkaError as error:
            logger.warning("leaving the group: %s", error)
        await self._consumer.stop()
        try:
            await self._cycle.close()
        except KafkaError as error:
            logger.warning("closing the producer: %s", error)
        await self._sinks.close()
        await self._kafka.close()
        self._app.on_engine_stopped(self)

    def _is_interrupted(self) -> bool:
        return self._stopping or self._failure is not None or self._rewind_reason is not None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _written_topics(self) -> list[TopicNeed]:
        """Declared topics no agent reads, and the dead letter topic when a policy needs it."""
        settings = self._settings
        policies = (settings.on_agent_error, settings.on_decode_error)
        is_needed = ErrorPolicy.DEAD_LETTER in policies or self._sinks.may_dead_letter
        dead_letters = settings.dead_letter_topic if is_needed else None
        return written_topics(self._app.declared_topics(), self._topology, dead_letters)

    def _make_consumer(self) -> Consumer:
        settings = self._settings
        return self._kafka.consumer(
            group_id=settings.id,
            group_instance_id=self._slot.identity,
            isolation="read_committed",
            auto_offset_reset="none",
            session_timeout_ms=int(settings.broker_session_timeout * 1000),
            heartbeat_interval_ms=int(settings.broker_heartbeat_interval * 1000),
            rebalance_timeout_ms=int(settings.broker_rebalance_timeout * 1000),
            assignors=[self._assignor],
            connection_grace_ms=int(settings.connection_grace * 1000),
        )

    def _make_producer(self) -> Producer:
        settings = self._settings
        return self._kafka.producer(
            transactional_id=self._slot.identity if self._cycle.is_transactional else None,
            transaction_timeout_ms=int(settings.transaction_timeout * 1000),
            compression=settings.producer_compression_type or "none",
        )


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in partitions)
