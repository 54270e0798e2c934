"""The tasks of one worker: made and closed with the assignment, brought up before they run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

from onceward.broker.client import Consumer, FetchedBatch, KafkaError, TopicPartition

from ..config import Settings
from ..errors import WorkerError
from ..sinks.errors import SinkUnavailable
from ..sinks.positions import Start
from ..state import StoreTransaction
from ..topology import SubTopology, Topology
from .backoff import Backoff
from .bounded import Bounds, within
from .commit import recoverable
from .kafka import Kafka
from .outage import Outage
from .restore import restore
from .schemas import SchemaFetcher, learn_tables
from .sinks import Sinks
from .slots import WorkerSlot
from .sources import SourceTask
from .task import Policies, Task, TaskEvents, TaskId, TaskState

logger = logging.getLogger(__name__)


class TaskManager:
    """Tasks by id and by input partition.

    Bringing up (fencing dead owners, reading committed offsets, restoring stores) runs beside the
    worker's loop, so the worker stays in its group however long it takes; the partitions are paused
    meanwhile. Every change of the set starts it again: restoring goes on where it was.
    """

    def __init__(
        self,
        topology: Topology,
        settings: Settings,
        kafka: Kafka,
        consumer: Consumer,
        slot: WorkerSlot,
        sinks: Sinks,
        events: TaskEvents,
    ) -> None:
        self._by_topic = topology.by_topic()
        self._settings = settings
        self._kafka = kafka
        self._consumer = consumer
        self._slot = slot
        self._sinks = sinks
        self._events = events
        self._tasks: dict[TaskId, Task] = {}
        self._by_input: dict[TopicPartition, Task] = {}
        self._to_fence: set[str] = set()
        self._rows_allowed: int | None = None
        self.bounds: Bounds = {}
        """Records from here on are left alone."""
        self.schemas = SchemaFetcher(events.task_failed)
        self._bringing_up: asyncio.Task[None] | None = None
        self._outage = Outage(logger, "tasks are up again")

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    @property
    def running(self) -> list[Task]:
        return [task for task in self if task.state is TaskState.RUNNING]

    @property
    def is_settled(self) -> bool:
        """Whether every task runs."""
        return all(task.state is TaskState.RUNNING for task in self)

    @property
    def generation(self) -> int:
        """The generation of the group this worker knows: an older one than the others' has it think
        that it owns what it lost."""
        return self._consumer.group_metadata.generation_id

    @property
    def sources(self) -> list[SourceTask]:
        """The splits of sources, running or not."""
        return [task for task in self if isinstance(task, SourceTask)]

    def allow_rows(self, rows: int | None) -> None:
        """How many rows every split may take from now on: for tests that decide when sources
        run."""
        self._rows_allowed = rows
        for task in self.sources:
            task.allow(rows)

    def task_of(self, tp: TopicPartition) -> Task | None:
        return self._by_input.get(tp)

    def affected(self, partitions: Iterable[TopicPartition]) -> list[Task]:
        """Tasks that read any of these partitions."""
        found = {id(t): t for tp in partitions if (t := self._by_input.get(tp)) is not None}
        return list(found.values())

    def add(self, batch: FetchedBatch) -> None:
        """Hand fetched records to their task. Records of a task that is not up yet are fetched
        again."""
        task = self._by_input.get(batch.tp)
        if task is None or task.state is not TaskState.RUNNING:
            return
        end = self.bounds.get(batch.tp)
        kept = batch if end is None else within(batch, end)
        if kept is not None:
            self._sinks.fetched(batch.tp, batch.high_watermark)
            self.schemas.add(task, kept)

    @property
    def are_full(self) -> bool:
        """Whether every task has enough to do."""
        tasks = self.running
        limit = self._settings.buffer_records
        return bool(tasks) and all(task.group.buffered >= limit for task in tasks)

    def pause_full(self) -> bool:
        """Stop fetching for tasks that have enough; returns whether any is paused."""
        limit = self._settings.buffer_records
        pause: list[TopicPartition] = []
        resume: list[TopicPartition] = []
        paused = self._consumer.paused
        for task in self.running:
            if task.group.buffered >= limit or task in self.schemas:
                behind = task.group.behind
                pause.extend(tp for tp in task.inputs if tp not in paused and tp not in behind)
            elif task.group.buffered <= limit // 2:
                resume.extend(tp for tp in task.inputs if tp in paused)
        if pause:
            self._consumer.pause(pause)
        if resume:
            self._consumer.resume(resume)
        return bool(pause) or len(paused) > len(resume)

    async def assigned(self, partitions: Collection[TopicPartition], fence: Iterable[str]) -> None:
        """Make the tasks of new partitions and start bringing them up."""
        self._to_fence.update(fence)
        groups: dict[TaskId, list[TopicPartition]] = {}
        subs: dict[TaskId, SubTopology] = {}
        for tp in sorted(partitions):
            sub = self._by_topic.get(tp.topic)
            if sub is None or tp in self._by_input:
                continue
            task_id = TaskId(sub.id, tp.partition)
            groups.setdefault(task_id, []).append(tp)
            subs[task_id] = sub
        if not groups:
            return
        fresh = [tp for tps in groups.values() for tp in tps]
        self._consumer.pause(fresh)
        for tp in fresh:
            self._consumer.seek(tp, 0)  # a place to be until the committed offset is known
        for task_id, tps in groups.items():
            old = self._tasks.pop(task_id, None)
            if old is not None:  # the same task with more inputs
                tps = sorted({*tps, *old.inputs})
                await self._close(old)
            task = self._make(task_id, subs[task_id], tps)
            self._tasks[task_id] = task
            self._by_input.update(dict.fromkeys(tps, task))
        await self.bring_up()

    async def close(self, tasks: Iterable[Task]) -> None:
        """Close tasks; what they did not commit is dropped."""
        closing = list(tasks)
        if not closing:
            return
        await self._stop_bringing_up()
        for task in closing:
            await self._close(task)
        if not self.is_settled:
            await self.bring_up()

    async def close_all(self) -> None:
        await self._stop_bringing_up()
        for task in self:
            await self._close(task)

    async def rewind(self) -> None:
        """Drop what is not committed and bring every task up again."""
        await self._stop_bringing_up()
        for task in self:
            await task.suspend()
        await self.bring_up()

    async def bring_up(self) -> None:
        """Start bringing up every task that does not run."""
        await self._stop_bringing_up()
        waiting = [task for task in self if task.state is not TaskState.RUNNING]
        if not waiting:
            return
        for task in waiting:
            task.restoring()
            self.schemas.forget(task)
        self._consumer.pause([tp for task in waiting for tp in task.inputs])
        self._bringing_up = asyncio.get_running_loop().create_task(
            self._bring_up(waiting), name="bring-up"
        )
        self._bringing_up.add_done_callback(self._brought_up)

    async def _bring_up(self, tasks: list[Task]) -> None:
        backoff = Backoff()
        while True:
            try:
                if self._to_fence:
                    fenced = sorted(self._to_fence)
                    logger.info("fencing %s", ", ".join(fenced))
                    await self._kafka.admin().fence_producers(fenced)
                    self._to_fence.difference_update(fenced)
                starts = await self._starts([tp for task in tasks for tp in task.inputs])
                positions = await self._sinks.take_over(tasks, starts, self._consumer)
                await restore(self._kafka, self._changelogs(tasks))
                break
            except (KafkaError, SinkUnavailable) as error:
                if isinstance(error, KafkaError) and not recoverable(error):
                    raise
                self._outage.tell(f"bringing up tasks: {error}; trying again")
                await backoff.wait()
        self._outage.over()
        await learn_tables(t for task in tasks for t in task.sub_topology.tables.values())
        for task in tasks:
            mine = {tp: positions[tp] for tp in task.inputs}
            for tp, offset in mine.items():
                self._consumer.seek(tp, offset)
            task.start(mine)
            self._consumer.resume(task.inputs)

    async def _starts(self, inputs: list[TopicPartition]) -> dict[TopicPartition, Start]:
        """Where to go on: committed offsets, else what ``consumer_auto_offset_reset`` says."""
        committed = await self._consumer.committed(inputs, require_stable=True)
        starts = await self._consumer.beginning_offsets(inputs)
        reset = self._settings.consumer_auto_offset_reset
        positions: dict[TopicPartition, int] = {}
        unknown: list[TopicPartition] = []
        for tp in inputs:
            found = committed.get(tp)
            if found is not None and found.offset >= starts[tp]:
                positions[tp] = found.offset
                continue
            if found is not None:
                logger.warning(
                    "%s: records %d to %d were deleted before they were read",
                    tp, found.offset, starts[tp] - 1,
                )  # fmt: skip
            if reset == "none":
                raise WorkerError(
                    f"{tp} has no committed offset and consumer_auto_offset_reset=none"
                )
            if found is None and reset == "latest":
                unknown.append(tp)
            else:
                positions[tp] = starts[tp]
        if unknown:
            positions |= await self._consumer.end_offsets(unknown)
        return {
            tp: Start(
                None if (at := committed.get(tp)) is None else at.offset, positions[tp], starts[tp]
            )
            for tp in inputs
        }

    def _brought_up(self, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            return
        cause = done.exception()
        if cause is None:
            return
        error = cause if isinstance(cause, WorkerError) else WorkerError(f"start failed: {cause}")
        error.__cause__ = cause if error is not cause else cause.__cause__
        for task in self:
            self._events.task_failed(task, error)
            return

    async def _stop_bringing_up(self) -> None:
        running, self._bringing_up = self._bringing_up, None
        if running is not None and not running.done():
            running.cancel()
            await asyncio.wait([running])

    def _make(self, task_id: TaskId, sub: SubTopology, tps: list[TopicPartition]) -> Task:
        stores = self._open_stores(sub, task_id.partition)
        settings = self._settings
        if sub.source is not None:
            task = SourceTask(task_id, sub, tps, stores, settings, self._events, self._kafka.now_ms)
            task.allow(self._rows_allowed)
            return task
        policies = Policies(
            settings.on_decode_error, settings.on_agent_error, settings.dead_letter_topic
        )
        return Task(task_id, sub, tps, stores, policies, self._events)

    def _open_stores(self, sub: SubTopology, partition: int) -> dict[str, StoreTransaction]:
        return {
            name: StoreTransaction(
                self._slot.open_store(self._settings.store, name, partition),
                table.encode_value,
                table.decode_value,
            )
            for name, table in sub.tables.items()
        }

    @staticmethod
    def _changelogs(tasks: list[Task]) -> Mapping[TopicPartition, StoreTransaction]:
        return {
            TopicPartition(task.sub_topology.tables[name].changelog_name, task.id.partition): store
            for task in tasks
            for name, store in task.stores.items()
        }

    async def _close(self, task: Task) -> None:
        self._tasks.pop(task.id, None)
        self.schemas.forget(task)
        for tp in task.inputs:
            if self._by_input.get(tp) is task:
                del self._by_input[tp]
        await task.close()
