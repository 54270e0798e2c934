"""``AppDriver``: an app in a unit test, without a broker, sockets or waiting.

The engine, its tasks, the commit cycle and the tables are the real ones; beneath them is a cluster
in memory, and the clock stands still unless it is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final

from onceward.broker.client import KafkaError, TopicPartition, partition_keys

from ..agent import Agent
from ..app import App
from ..engine.block import Headers
from ..engine.schemas import schema_codecs
from ..errors import AgentError, WorkerError
from ..sources import Source
from ..table import Table
from ..topic import GivenHeaders, Topic
from .driven import DrivenEngine, DriverSlot, SinkRecorder, make_driven_engine
from .memory import MemoryCluster, MemoryKafka
from .records import OutputRecord, decoded, encoded, encoded_headers, topic_of
from .stepping import SteppingLoop, Stuck, Verdict

_ENDLESS: Final = 1_000_000
"""Rows after which a source that was given no number counts as one without an end."""
START: Final = datetime(2024, 1, 1, tzinfo=UTC)


class DriverError(Exception):
    """The driver cannot do what it was asked to; the message says why."""


class AppDriver:
    """Runs ``app`` as its only worker::

        with AppDriver(app) as driver:
            driver.pipe("orders", key="a", value=Order(id="1", account="a", amount=600))
            assert driver.table("totals") == {"a": 600}

    Every ``pipe`` handles the record, commits, and lets what was sent flow on to further agents;
    with ``autocommit=False`` (or ``commit=False`` in a call) nothing is committed until ``commit``.
    What a worker fails with is raised by the call that led to it: an exception of an agent or timer
    as it is. Works in plain and in async tests. The clock of timers, crontabs and ``asyncio.sleep``
    is ``now``; it starts at ``start`` and moves only in ``advance``, and while a record is being
    handled that sleeps. State is kept in memory whatever the app's store, and so are the schemas of
    a schema registry. Sinks are replaced by ``sink`` unless ``record_sinks=False``.
    """

    def __init__(
        self,
        app: App,
        *,
        start: datetime | float = START,
        autocommit: bool = True,
        record_sinks: bool = True,
    ) -> None:
        self.app = app
        self._start = start.timestamp() if isinstance(start, datetime) else float(start)
        self._autocommit = autocommit
        self._record_sinks = record_sinks
        self._cluster = MemoryCluster()
        self._slot = DriverSlot(app.conf.id)
        self._recorder = SinkRecorder()
        self._undo = ExitStack()
        self._topics: dict[str | Topic | Agent, Topic] = {}
        self._read: dict[str, int] = {}
        self._turn = 0
        self._eager = False
        self._loop: SteppingLoop | None = None
        self._engine: DrivenEngine | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopped_by: BaseException | None = None

    # lifetime

    def __enter__(self) -> AppDriver:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start the worker. Raises ConfigurationError and what the app's tasks raise."""
        if self._loop is not None:
            raise DriverError("the driver is open already")
        conf = self.app.conf
        self._undo.callback(setattr, conf, "topic_allow_declare", conf.topic_allow_declare)
        conf.topic_allow_declare = True  # nobody else can create topics here
        registries: dict[str, Any] = {}
        for codec in schema_codecs(self.app):
            self._undo.callback(codec.stand_in(registries))
        if self._record_sinks:
            self._undo.enter_context(self._recorder.installed(self.app))
        self._loop = SteppingLoop()
        try:
            self._start_worker()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop without committing. Idempotent."""
        loop, self._loop = self._loop, None
        self._undo.close()
        if loop is not None:
            loop.shut_down()
            if self._running is not None and not self._running.cancelled():
                self._running.exception()  # was raised to the user, or is of no interest now

    def crash(self) -> None:
        """Drop everything that is not committed, then start again from what is.

        Unlike with SIGKILL the agents' ``finally`` blocks run; what they send or write has no
        effect. Starting handles again what was not committed.
        """
        loop = self._open_loop()
        running = self._running
        if running is not None and not running.done():
            running.cancel()
            loop.run(lambda: Verdict.DONE if running.done() else Verdict.BUSY)
        self._start_worker()

    # in

    def pipe(
        self,
        topic: str | Topic | Agent,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: float | datetime | None = None,
        headers: GivenHeaders | None = None,
        commit: bool | None = None,
    ) -> None:
        """Write one record to a topic and handle it. Keys and values as the topic's types, or
        encoded as bytes.

        Without ``key`` and ``partition`` records take the partitions in turn, as a producer's do.
        ``timestamp`` in seconds since the epoch (default: ``now``). ``commit``: see the class.
        Raises what handling it raises.
        """
        self.pipe_many(
            topic,
            [(key, value)],
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            commit=commit,
        )

    def pipe_many(
        self,
        topic: str | Topic | Agent,
        records: Iterable[tuple[Any, Any]],
        *,
        partition: int | None = None,
        timestamp: float | datetime | None = None,
        headers: GivenHeaders | None = None,
        commit: bool | None = None,
    ) -> None:
        """``pipe`` for many ``(key, value)``: written at once, then handled."""
        self._check_running()
        target = self._topic(topic)
        self._append(target, records, partition, timestamp, encoded_headers(headers))
        self._settle(commit)

    def _append(
        self,
        topic: Topic,
        records: Iterable[tuple[Any, Any]],
        partition: int | None,
        timestamp: float | datetime | None,
        headers: Headers,
    ) -> None:
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for key, value in records:
            keys.append(encoded(topic.encode_key, key))
            values.append(encoded(topic.encode_value, value))
        if not keys:
            return
        when = timestamp.timestamp() if isinstance(timestamp, datetime) else timestamp
        stamp = self._now_ms() if when is None else round(when * 1000)
        places = self._places(topic.name, keys, partition)
        for number in sorted(set(places)):
            mine = [at for at, place in enumerate(places) if place == number]
            self._cluster.append(
                TopicPartition(topic.name, number),
                [keys[at] for at in mine],
                [values[at] for at in mine],
                [stamp] * len(mine),
                [headers] * len(mine) if headers else None,
            )

    def _places(self, topic: str, keys: list[bytes | None], partition: int | None) -> list[int]:
        count = len(self._cluster.logs[topic])
        if partition is not None:
            if not 0 <= partition < count:
                raise DriverError(f"topic {topic!r} has {count} partitions, not {partition}")
            return [partition] * len(keys)
        places = partition_keys(keys, count)
        for index, place in enumerate(places):
            if place < 0:
                places[index] = self._turn % count
                self._turn += 1
        return places

    def run_source(
        self,
        source: str | Source,
        *,
        rows: int | None = None,
        split: str | None = None,
        commit: bool | None = None,
    ) -> None:
        """Let a source give rows, and handle them. A source gives none before this is called.

        ``rows``: until each split gave so many (more, where a chunk of a file is more) or ended;
        time passes while it waits. Without: until it ends or waits for time to pass; it goes on in
        ``advance``. ``split``: only this one. Raises KeyError, and what the source fails with.
        """
        self._check_running()
        name = source if isinstance(source, str) else source.name
        if name not in self.app.sources:
            known = ", ".join(sorted(self.app.sources)) or "none"
            raise KeyError(f"there is no source {name!r}; sources are: {known}")
        engine = self._running_engine()
        chosen = [each for each in engine.splits(name) if split in (None, each.split_name)]
        for each in chosen:
            each.allow(_ENDLESS if rows is None else rows)
        self._eager = rows is not None
        try:
            self._settle(commit)
        finally:
            self._eager = False
        if rows is None and any(each.is_spent for each in chosen):
            raise DriverError(f"source {name!r} gives rows without an end: say rows=")

    # time

    @property
    def now(self) -> float:
        """The driver's clock, in seconds since the epoch."""
        return self._start + (0.0 if self._loop is None else self._loop.time())

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass: timers, crontabs and ``take(within=...)`` do what is due meanwhile."""
        self._check_running()
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        self._settle(None, self._open_loop().time() + length)

    def commit(self) -> None:
        """Commit, and let what was sent flow on."""
        self._check_running()
        self._settle(True)

    # out

    def output(self, topic: str | Topic | Agent) -> list[OutputRecord]:
        """Every committed record of a topic, in the order of writing. Raises DecodeError."""
        target = self._topic(topic)
        found: list[OutputRecord] = []
        for partition, batch in self._cluster.visible(target.name):
            offsets = range(batch.base_offset, batch.next_offset)
            found += decoded(
                target,
                partition,
                batch.keys,
                batch.values,
                offsets,
                batch.timestamps,
                batch.headers,
            )
        return found

    def read_output(self, topic: str | Topic | Agent) -> list[OutputRecord]:
        """The records of ``output`` that no earlier call returned."""
        records = self.output(topic)
        name = self._topic(topic).name
        start, self._read[name] = self._read.get(name, 0), len(records)
        return records[start:]

    def table(self, table: str | Table, partition: int | None = None) -> TableView:
        """The committed content of a table, or of one partition of it. Raises KeyError."""
        found = self.app.tables.get(table) if isinstance(table, str) else table
        if found is None:
            known = ", ".join(sorted(self.app.tables)) or "none"
            raise KeyError(f"there is no table {table!r}; tables are: {known}")
        return TableView(found, self._slot, partition)

    def sink(self, sink: Any) -> list[Any]:
        """What agents gave to a sink (the object, or its class's name), committed.

        For a plain callable (or its name): every value it was called with. Raises KeyError.
        """
        return list(self._recorder.find(sink).committed)

    # the worker

    def _start_worker(self) -> None:
        loop = self._open_loop()
        kafka = MemoryKafka(self._cluster, self._now_ms)
        self._stopped_by = None
        self._engine = loop.run_coroutine(make_driven_engine(self.app, kafka, self._slot))
        self._running = loop.create_task(self._engine.run())
        self._settle(None)

    def _settle(self, commit: bool | None, until: float | None = None) -> None:
        """Run until everything is handled. Raises what the worker fails with."""
        commits = self._autocommit if commit is None else commit
        try:
            self._open_loop().run(lambda: self._judge(commits), until=until)
        except Stuck as error:
            raise DriverError(f"{error}: {self._waiting()}") from None
        running = self._running
        if running is not None and running.done() and self._stopped_by is None:
            self._stopped_by = running.exception() or DriverError("the worker stopped by itself")
            raise _original(self._stopped_by)

    def _judge(self, commits: bool) -> Verdict:
        engine, running = self._engine, self._running
        if engine is None or running is None or running.done():
            return Verdict.DONE
        if not engine.needs_turn:
            if engine.is_busy or (engine.is_reading and self._may_wait_for_rows):
                return Verdict.BUSY
            if commits and engine.has_uncommitted:
                engine.commit_wanted = True
            elif not engine.consumer.has_more:
                return Verdict.DONE
        engine.nudge()
        return Verdict.AGAIN

    @property
    def _may_wait_for_rows(self) -> bool:
        return self._eager or self._open_loop().has_jobs

    def _running_engine(self) -> DrivenEngine:
        if self._engine is None:
            raise DriverError("the driver is not open: use it with `with`")
        return self._engine

    def _waiting(self) -> str:
        """What every task of the app waits for."""
        lines = []
        for task in sorted(asyncio.all_tasks(self._open_loop()), key=asyncio.Task.get_name):
            places = _places_of(task.get_coro())
            if places:
                lines.append(f"\n  {task.get_name()}: {' > '.join(places)}")
        return "".join(lines)

    def _check_running(self) -> None:
        self._open_loop()
        if self._stopped_by is not None:
            reason = self._stopped_by
            raise DriverError(f"the worker stopped: {reason}. crash() starts it again") from reason

    def _open_loop(self) -> SteppingLoop:
        if self._loop is None:
            raise DriverError("the driver is not open: use it with `with`")
        return self._loop

    def _now_ms(self) -> int:
        return round(self.now * 1000)

    def _topic(self, topic: str | Topic | Agent) -> Topic:
        known = self._topics.get(topic)
        if known is None:
            known = topic_of(self.app, topic, self._cluster.logs)
            self._topics[topic] = known
        return known


class TableView(Mapping[Any, Any]):
    """Committed keys and values of a table, decoded; compares equal to a dict of them."""

    def __init__(self, table: Table, slot: DriverSlot, partition: int | None) -> None:
        self._table = table
        self._partitions = {
            number: store
            for (name, number), store in sorted(slot.stores.items())
            if name == table.name and partition in (None, number)
        }

    def __getitem__(self, key: Any) -> Any:
        """Raises KeyError, and DriverError when partitions have different values for the key."""
        raw = self._table.encode_key(key)
        found = {n: data for n, s in self._partitions.items() if (data := s.get(raw)) is not None}
        if not found:
            raise KeyError(key)
        if len(found) > 1:
            raise DriverError(
                f"{self._table.name}[{key!r}] has a value in each of the partitions "
                f"{', '.join(map(str, found))}: records about it came with different keys, or "
                "without, and every partition has its own table. Send them with one key (or "
                f"group_by it), or look at one partition: table({self._table.name!r}, partition=n)"
            )
        return self._table.decode_value(next(iter(found.values())))

    def __iter__(self) -> Iterator[Any]:
        raws = {raw: None for store in self._partitions.values() for raw, _ in store.items()}
        return (self._table.decode_key(raw) for raw in raws)

    def __len__(self) -> int:
        return len({raw for store in self._partitions.values() for raw, _ in store.items()})

    def __repr__(self) -> str:
        return repr(dict(self))


def _original(error: BaseException) -> BaseException:
    """The user's own exception where the worker stopped because of one."""
    cause = error.__cause__
    ours = isinstance(error, AgentError) or type(error) is WorkerError
    if not ours or cause is None or isinstance(cause, KafkaError):
        return error
    cause.add_note(str(error))
    return cause


def _places_of(coroutine: Any) -> list[str]:
    """Where a suspended coroutine waits: functions and lines, outermost first."""
    places = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return places
