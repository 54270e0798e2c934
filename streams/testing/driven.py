"""What the driver puts around and under a real engine: when it commits, where its stores are, and
sinks that write nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..agent import Agent
from ..app import App
from ..engine.engine import Engine
from ..engine.slots import WorkerSlot
from ..engine.sources import SourceTask
from ..engine.task import Task
from ..probe import learn_stages
from ..sinks import Batch, Sink
from ..state import MemoryStore
from ..topic import Topic
from ..topology import sinks_used, topology_of
from .memory import MemoryConsumer, MemoryKafka

_FOREVER_S = 1e9


class DrivenEngine(Engine):
    """The engine, except that it commits when ``commit_wanted`` is set and not by the clock."""

    def __init__(self, app: App, kafka: MemoryKafka, slot: WorkerSlot) -> None:
        topology = topology_of(app)
        super().__init__(app, topology, kafka, slot)
        self.consumer: MemoryConsumer = kafka.members[0]
        self.commit_wanted = False
        self.tasks.allow_rows(0)  # until the test says so

    @property
    def needs_turn(self) -> bool:
        """Whether there is something that the engine does when it does not wait for records."""
        committing = self._committing
        return self._is_interrupted() or (committing is not None and committing.done())

    @property
    def is_busy(self) -> bool:
        """Whether something is half done: starting, handling a record, writing a transaction."""
        if self._committing is not None or not self.tasks.is_settled:
            return True
        return not all(task.is_parked for task in self.tasks)

    def splits(self, source: str) -> list[SourceTask]:
        """The splits of a source, in order."""
        found = [split for split in self.tasks.sources if split.source.name == source]
        return sorted(found, key=lambda split: split.id.partition)

    @property
    def is_reading(self) -> bool:
        """Whether a source may give rows now and has not ended."""
        return any(not (split.has_ended or split.is_held) for split in self.tasks.sources)

    @property
    def has_uncommitted(self) -> bool:
        return bool(self._context.outputs) or any(task.is_dirty for task in self.tasks)

    def nudge(self) -> None:
        """Make it take a turn."""
        self._event.set()
        self.consumer.nudge()

    def _until_commit(self) -> float:
        return 0.0 if self.commit_wanted else _FOREVER_S

    def _commit_is_due(self) -> bool:
        return self.commit_wanted

    async def _commit(self, tasks: Sequence[Task], *, wait: bool = False) -> None:
        self.commit_wanted = False
        await super()._commit(tasks, wait=wait)


async def make_driven_engine(app: App, kafka: MemoryKafka, slot: WorkerSlot) -> DrivenEngine:
    """As ``make_engine``."""
    for agent in app.agents.values():
        await learn_stages(agent)
    return DrivenEngine(app, kafka, slot)


class LastingStore(MemoryStore):
    """Committed state that is still there after ``close``, as files are."""

    def close(self) -> None: ...


class DriverSlot(WorkerSlot):
    """A slot without files. Of a ``rocksdb://`` app the stores outlive a crash, as they do."""

    def __init__(self, app_id: str) -> None:
        super().__init__(0, f"{app_id}-driver-0", Path(), -1)
        self.stores: dict[tuple[str, int], LastingStore] = {}

    def open_store(self, scheme: str, table: str, partition: int) -> LastingStore:
        if scheme == "memory://" or (table, partition) not in self.stores:
            self.stores[table, partition] = LastingStore()
        return self.stores[table, partition]

    def release(self) -> None: ...


class RecordedSink(Sink):
    """Stands for a sink: keeps what is written, once the commit cycle delivers it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.committed: list[Any] = []

    def apply(self, batch: Batch) -> None:
        self.committed += batch.values


class CalledSink:
    """Stands for a plain callable used as a sink: it is called, and what it got is kept.

    A callable takes no part in transactions: what it got stays, whatever is run again.
    """

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.committed: list[Any] = []
        self._call = call

    def __call__(self, value: Any) -> Any:
        self.committed.append(value)
        return self._call(value)


class SinkRecorder:
    """Replaces the sinks of an app's agents while it is installed; by the identity of the
    original."""

    def __init__(self) -> None:
        self._by_sink: dict[int, RecordedSink | CalledSink] = {}
        self._names: dict[str, int] = {}

    def find(self, sink: Any) -> RecordedSink | CalledSink:
        """By the object, a function's name or a class's name. Raises KeyError."""
        number = self._names.get(sink, 0) if isinstance(sink, str) else id(sink)
        found = self._by_sink.get(number)
        if found is None:
            known = ", ".join(sorted(self._names)) or "none"
            raise KeyError(f"no agent has the sink {sink!r}; sinks are: {known}")
        return found

    @contextmanager
    def installed(self, app: App) -> Iterator[None]:
        with ExitStack() as undo:
            for agent in app.agents.values():
                self._install(agent, undo)
            yield

    def _install(self, agent: Agent, undo: ExitStack) -> None:
        for named in sinks_used(agent):  # agents may call sink.write themselves
            self._recorded(named, undo)
        originals, deliver = agent._sinks, agent._deliver
        if all(isinstance(sink, Topic | Agent | Sink) for sink in originals):
            return
        agent._sinks, agent._deliver = [], []
        undo.callback(setattr, agent, "_sinks", originals)
        undo.callback(setattr, agent, "_deliver", deliver)
        for sink in originals:
            is_ours = isinstance(sink, Topic | Agent | Sink)
            agent.add_sink(sink if is_ours else self._recorded(sink, undo))

    def _recorded(self, sink: Any, undo: ExitStack) -> RecordedSink | CalledSink:
        known = self._by_sink.get(id(sink))
        if known is not None:
            return known
        recorded: RecordedSink | CalledSink
        if isinstance(sink, Sink):
            recorded = RecordedSink(sink.name)
            undo.callback(setattr, sink, "target", sink.target)
            sink.target = recorded
        else:
            recorded = CalledSink(getattr(sink, "write", sink))
        self._by_sink[id(sink)] = recorded
        self._names[getattr(sink, "__name__", type(sink).__name__)] = id(sink)
        return recorded
