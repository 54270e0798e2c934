"""A split of a source as a task: its input is the topic of its own positions, its state what they
are, and beside it runs one coroutine that takes rows. See ``sources.source`` for the whole."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from onceward.broker.client import FetchedBatch, TopicPartition

from ..config import ErrorPolicy, Settings
from ..errors import OutsideAgentError, WorkerError
from ..sources.encoding import Encoded, RowEncoder, reason_of, shown
from ..sources.errors import SourceError, SourceUnavailable
from ..sources.rows import BadRow, Row, Rows
from ..sources.source import Source, Split
from ..state import StoreTransaction
from ..topic import headers_of
from .backoff import Backoff
from .context import CURRENT, Emitter
from .output import Outputs
from .task import Policies, Task, TaskEvents, TaskId

if TYPE_CHECKING:
    from ..topology import SubTopology

logger = logging.getLogger(__name__)

_TURN_ROWS = 512
"""Rows taken one by one between two turns of the event loop."""
_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of keys and values that may wait for one transaction."""
_CANCEL_PATIENCE_S = 10.0


class _NoEmitter:
    """What a source's function cannot do: its effects are the rows it yields."""

    stores: dict[str, StoreTransaction] | None = None

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def outputs(self) -> Outputs:
        raise OutsideAgentError(
            f"source {self._name!r} sends: a source yields rows, and only what it yields is sent "
            "exactly once. Send from an agent that reads its topic"
        )


class SourceTask(Task):
    """``sub_topology.source`` is set."""

    def __init__(
        self,
        task_id: TaskId,
        sub_topology: SubTopology,
        inputs: list[TopicPartition],
        stores: Mapping[str, StoreTransaction],
        settings: Settings,
        events: TaskEvents,
        now_ms: Callable[[], int],
    ) -> None:
        policies = Policies(
            settings.on_decode_error, settings.on_agent_error, settings.dead_letter_topic
        )
        super().__init__(task_id, sub_topology, inputs, stores, policies, events)
        source = sub_topology.source
        if source is None:
            raise ValueError(f"sub-topology {sub_topology.id} has no source")
        self.source: Source = source
        self.has_ended = False
        self.allowance: int | None = None
        """Rows that may be taken from now on; None: no limit. A test's driver sets it."""
        self._now_ms = now_ms
        self._limit = settings.commit_records
        self._positions: dict[str, Any] = {}
        self._moved: set[str] = set()
        self._split = Split(source, task_id.partition, self._positions)
        self._encoder = RowEncoder(source.topic, source.key)
        self._bytes = 0
        self._turn = -1
        self._budget = 0
        """Rows that may be taken before looking again whether any may."""
        self._retried: tuple[type[Exception], ...] = (SourceUnavailable, *source.retry_on)
        self._latest_ms = -1
        self._room = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    # lifecycle

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read on behind the committed positions."""
        super().start(positions)
        self._budget = 0
        self._moved.clear()
        self._positions.clear()
        self._positions.update(self._restored())
        self._bytes = 0
        self.has_ended = False
        self._room = asyncio.Event()
        context = contextvars.copy_context()
        context.run(CURRENT.set, cast(Emitter, _NoEmitter(self.source.name)))
        self._reading = asyncio.get_running_loop().create_task(
            self._read(), name=f"source-{self.source.name}-{self._split.name}", context=context
        )
        self._reading.add_done_callback(self._done)

    async def _stop_agents(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and not reading.done():
            reading.cancel()
            _, stubborn = await asyncio.wait([reading], timeout=_CANCEL_PATIENCE_S)
            if stubborn:
                logger.error("%r ignores being cancelled; its rows are dropped", self._split)
        await super()._stop_agents()

    def _restored(self) -> dict[str, Any]:
        """Raises SourceError when the positions are those of other splits."""
        found: dict[str, Any] = {}
        for key, value in self._store.committed_items():
            split, _, part = key.decode().partition("/")
            if split != self._split.name:
                raise SourceError(
                    f"source {self.source.name!r}: split {self._split.name!r} is where split "
                    f"{split!r} was: keep the order of splits=, the positions go by it"
                )
            found[part] = value
        return found

    # records: the task's own positions come back as input, so that the group's offset follows them

    def add(self, batch: FetchedBatch) -> None:
        self._consumed[batch.tp] = max(self._consumed[batch.tp], batch.records.next_offset)

    # the commit cycle

    @property
    def stream_time(self) -> int:
        return self._latest_ms

    @property
    def is_dirty(self) -> bool:
        return bool(self._moved) or super().is_dirty

    @property
    def keyless_partition(self) -> int:
        """Where rows without a key go: to all partitions in turn, one transaction after another."""
        return self.id.partition + self._turn

    def request_cut(self) -> None:
        """A cut at once: no row is taken before ``end_cut``."""
        super().request_cut()
        self._budget = 0
        for part in sorted(self._moved):
            name = f"{self._split.name}/{part}" if part else self._split.name
            self._store.put(name.encode(), self._checked(self._positions[part]))
        self._moved.clear()

    def end_cut(self) -> None:
        self._bytes = 0
        super().end_cut()
        self._room.set()

    def changed_positions(self) -> dict[TopicPartition, int]:
        """All of them, changed or not: the offset carries the generation that fences zombies."""
        return self.positions()

    # rows

    @property
    def split_name(self) -> str:
        return self._split.name

    def allow(self, rows: int | None) -> None:
        """Set ``allowance``."""
        self.allowance = rows
        self._budget = 0
        self._room.set()

    @property
    def is_held(self) -> bool:
        """Whether no row may be taken now."""
        return self.is_cutting or self.is_spent or self._is_full

    @property
    def is_spent(self) -> bool:
        """Whether ``allowance`` is used up."""
        return self.allowance is not None and self.allowance <= 0

    @property
    def _is_full(self) -> bool:
        return self.records_since_commit >= self._limit

    async def _read(self) -> None:
        backoff = Backoff()
        while self.is_spent:
            self._room.clear()
            await self._room.wait()
        while True:
            before = dict(self._positions)
            try:
                await self._read_on()
                break
            except SourceError:
                raise
            except self._retried as error:
                if self._positions != before:
                    backoff.reset()
                logger.warning("%r: %s; trying again", self._split, reason_of(error))
                await backoff.wait()
        self.has_ended = True
        logger.info("%r has ended", self._split)
        self._events.task_progressed(self)

    async def _read_on(self) -> None:
        """From the last position to the end or a failure."""
        given = self.source.reader.read(self._split)
        me = asyncio.current_task()
        async with aclosing(cast(Any, given)):
            async for item in given:
                if self._reading is not me:
                    return  # it was cancelled, swallowed that, and yielded all the same
                if self._budget <= 0:
                    await self._make_room()
                if type(item) is Row:
                    self._take_row(item)
                    self._budget -= 1
                elif type(item) is Rows:
                    self._take_rows(item)
                    self._budget -= max(len(item.values), 1)
                else:
                    raise SourceError(
                        f"source {self.source.name!r} yielded {type(item).__name__}: yield "
                        "Row(position, value, key), or Rows for several with one position"
                    )

    async def _make_room(self) -> None:
        """Wait until rows may be taken; set how many, before others get their turn."""
        await asyncio.sleep(0)
        while self.is_held:
            self._room.clear()
            if self._is_full:
                self._events.task_wants_commit(self)
            await self._room.wait()
        self._turn += self.records_since_commit == 0
        self._budget = min(_TURN_ROWS, self._limit - self.records_since_commit)
        if self.allowance is not None:
            self._budget = min(self._budget, self.allowance)

    def _take_row(self, row: Row) -> None:
        positions = self._positions
        if row.position is None or ("" in positions and positions[""] == row.position):
            raise SourceError(
                f"source {self.source.name!r} yielded a row at position {row.position!r}, as the "
                "one before it: every row has a position of its own; give rows that share one as "
                "Rows(position, [...])"
            )
        try:
            key, value = self._encoder.row(row)
        except Exception as error:  # noqa: BLE001 - codecs and key functions are user code
            place = f"the row at position {row.position!r}"
            self._refuse(BadRow(place, reason_of(error), shown(row.value)), error)
        else:
            output = self.outputs.open(self.source.topic.name)
            if row.headers:
                output.headers[len(output.values)] = headers_of(row.headers)
            self._latest_ms = self._now_ms() if row.timestamp is None else _ms(row.timestamp)
            output.keys.append(key)
            output.values.append(value)
            output.timestamps.append(self._latest_ms)
            self._bytes += len(value or b"") + len(key or b"")
        positions[""] = row.position
        self._moved.add("")
        self._count(1)

    def _take_rows(self, rows: Rows) -> None:
        encoded = self._encoder.rows(rows)
        for bad in encoded.bad:
            self._refuse(bad, None)
        if encoded.values:
            output = self.outputs.open(self.source.topic.name)
            output.keys.extend(encoded.keys)
            output.values.extend(encoded.values)
            output.timestamps.extend(self._timestamps(rows, encoded))
            self._bytes += sum(map(len, filter(None, encoded.values)))
            self._bytes += sum(map(len, filter(None, encoded.keys)))
        self._count(len(encoded.values) + len(encoded.bad))
        if rows.position is None:
            raise SourceError(f"source {self.source.name!r} yielded rows without a position")
        self._positions[rows.part] = rows.position
        self._moved.add(rows.part)

    def _count(self, rows: int) -> None:
        self.records_since_commit += rows
        if self.allowance is not None:
            self.allowance -= rows
        if self._bytes >= _MAX_BYTES:  # as many as may wait
            self.records_since_commit = max(self.records_since_commit, self._limit)
            self._budget = 0

    def _timestamps(self, rows: Rows, encoded: Encoded) -> list[int]:
        if rows.timestamps is None:
            self._latest_ms = self._now_ms()
            return [self._latest_ms] * len(encoded.values)
        stamps = [_ms(seconds) for seconds in rows.timestamps]
        if encoded.kept is not None:
            stamps = [stamps[index] for index in encoded.kept]
        self._latest_ms = max(stamps)
        return stamps

    def _refuse(self, bad: BadRow, cause: BaseException | None) -> None:
        """Dead-letter a bad row, or raise SourceError."""
        if self.source.on_bad_row is ErrorPolicy.STOP:
            raise SourceError(
                f"source {self.source.name!r} ({self.source.reader.describe()}): {bad.place}: "
                f"{bad.reason}. Nothing from this row on is committed; correct it and start the "
                'worker again, or set on_bad_row="dead_letter"'
            ) from cause
        reasons: list[tuple[str, bytes | None]] = [
            ("onceward-error", bad.reason.encode("utf-8", "replace")),
            ("onceward-source", self.source.name.encode()),
            ("onceward-split", self._split.name.encode()),
            ("onceward-place", bad.place.encode("utf-8", "replace")),
        ]
        output = self.outputs.open(self._policies.dead_letter_topic)
        output.headers[len(output.values)] = tuple(reasons)
        output.keys.append(None)
        output.values.append(bad.raw)
        output.timestamps.append(self._now_ms())
        self._bytes += len(bad.raw)

    def _checked(self, position: Any) -> Any:
        """A position that comes back from the topic as it went in. Raises SourceError."""
        try:
            if msgspec.json.decode(msgspec.json.encode(position)) == position:
                return position
        except (TypeError, ValueError, msgspec.MsgspecError):
            pass
        raise SourceError(
            f"source {self.source.name!r} has the position {position!r}, which does not come back "
            "from JSON as it was: make it of int, float, str, bool, list and dict"
        )

    @property
    def _store(self) -> StoreTransaction:
        return self.stores[self.source.positions.name]

    def _done(self, done: asyncio.Task[None]) -> None:
        if done.cancelled() or done is not self._reading:
            return
        cause = done.exception()
        if cause is None:
            return
        if isinstance(cause, WorkerError):
            self._fail(cause)
            return
        at = self._positions.get("", None)
        where = f" after position {at!r}" if at is not None else ""
        error = SourceError(
            f"source {self.source.name!r} failed{where}: {type(cause).__name__}: {cause}. "
            "It goes on from its last position when the worker is started again"
        )
        error.__cause__ = cause
        self._fail(error)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
