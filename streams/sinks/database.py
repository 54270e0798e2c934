"""Sinks over a DB-API driver: the transaction, the positions, bad rows, and the thread it all runs
in.

    class Ledger(DatabaseSink):
        def connect(self):
            return driver.connect(..., autocommit=True)

        def apply(self, batch):
            batch.connection.cursor().executemany("CALL book(?, ?)", batch.values)
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeVar

from onceward.broker.client import TopicPartition

from .effects import Batch
from .errors import SinkError, SinkFenced, SinkTimeout, SinkUnavailable
from .fault import check_text, column_at_fault
from .positions import Advance, Claim, Position, PositionTable, Start
from .sink import TransactionalSink

T = TypeVar("T")


class _Part(NamedTuple):
    """Effects ``start`` to ``stop`` (exclusive) of a batch that is yet to be applied.

    ``is_first``: of two halves of a part that failed. ``is_bad``: it is known to fail.
    """

    start: int
    stop: int
    is_first: bool = False
    is_bad: bool = False


class _RowRefused(SinkError):
    """Something in the batch is not taken, and the transaction is over."""


class DatabaseSink(TransactionalSink):
    """Implement ``connect`` and ``apply``; ``judge`` says what the driver's errors mean.

    Everything runs in one thread of the sink's own, one call at a time; a call that takes longer
    than ``timeout`` seconds is interrupted, where the driver can, and counts as unknown. When
    ``apply`` raises because of a row, the batch is halved within savepoints until the bad rows are
    alone, so it may be called several times with parts of a batch. Without savepoints the halves
    are tried in transactions that are rolled back.
    """

    placeholder: ClassVar[str] = "?"
    quote: ClassVar[str] = '"'
    key_text: ClassVar[str] = "TEXT"
    """A text type that may be part of a primary key."""
    has_savepoints: ClassVar[bool] = True

    def __init__(self, name: str, *, on_error: str | None = None, timeout: float = 10.0) -> None:
        super().__init__(name, on_error=on_error)
        self.timeout = timeout
        self._connection: Any = None
        self._is_prepared = False
        self._executor: ThreadPoolExecutor | None = None
        self._last: asyncio.Future[Any] | None = None
        self._users = 0

    # what a subclass says

    @abstractmethod
    def connect(self) -> Any:
        """A connection that begins no transactions by itself."""

    @abstractmethod
    def apply(self, batch: Batch) -> None:
        """Execute ``batch`` on ``batch.connection``; the transaction is open and not yours to
        end."""

    def prepare(self) -> None:
        """Called with a new connection: create or check tables. Raises SinkError."""

    def judge(self, error: Exception) -> SinkUnavailable | SinkError | None:
        """What an exception of the driver means; None: the row's fault."""
        if type(error).__name__ in ("InterfaceError", "OperationalError"):
            return SinkUnavailable(f"{self.describe()}: {error}")
        return None

    def reason(self, error: Exception) -> str:
        """An exception of the driver in one sentence."""
        return f"{type(error).__name__}: {error}"

    def check_value(self, column: str, value: Any) -> None:
        """Raises when the value of a column is not taken by itself, so that a refusal can name the
        column. No transaction depends on it."""
        check_text(column, value)

    def begin(self) -> None:
        self.execute("BEGIN")

    def interrupt(self) -> None:
        """Make the call that runs in the thread end early; called from another thread."""

    def forget_schema(self) -> None:
        """Something was rolled back: what is known about the tables may be wrong."""

    def advance(
        self, positions: PositionTable, advances: Sequence[Advance]
    ) -> TopicPartition | None:
        """Move the positions within the transaction; the first one that is not ours any more."""
        return positions.advance(self.execute, advances)

    # for subclasses

    @property
    def connection(self) -> Any:
        """The open connection. Only within the sink's thread."""
        return self._connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """Run one statement; returns the cursor. Only within the sink's thread."""
        cursor = self._connection.cursor()
        cursor.execute(statement, tuple(parameters))
        return cursor

    # TransactionalSink

    async def start(self) -> None:
        self._users += 1
        await self._run(lambda: None)

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users == 0:
            await self._end()

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        positions = self._positions(app)

        def work() -> dict[TopicPartition, Claim]:
            claims = {}
            for tp, start in sorted(starts.items()):
                claim = positions.take_over(self.execute, tp, start)
                if claim is None:
                    raise SinkUnavailable(f"{self.describe()}: {tp} is being taken over elsewhere")
                claims[tp] = claim
            return claims

        return await self._run(lambda: self._in_transaction(work))

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        table = self._positions(app)
        try:
            return await self._run(lambda: table.read(self.execute), prepare=False)
        finally:
            if self._users == 0:
                await self._end()

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        positions = self._positions(batch.app)

        def work() -> None:
            lost = self.advance(positions, advances)
            if lost is not None:
                raise SinkFenced(f"{self.describe()}: {lost} belongs to another worker now")
            batch.connection = self._connection
            if self.has_savepoints:
                self._apply(batch)
            else:
                self._apply_or_end(batch)
            if batch.refused:
                refused = [(batch.ids()[index], reason) for index, reason in batch.refused]
                positions.keep_refused(self.execute, refused, advances)

        try:
            await self._run(lambda: self._in_transaction(work))
        except _RowRefused:
            await self._run(lambda: self._sort_out(batch))
            await self._run(lambda: self._in_transaction(work))

    # within the thread

    def _apply(self, batch: Batch) -> None:
        """Apply in order; halve what fails until the bad rows are alone.

        What was applied is behind a savepoint, so it stays. A half whose other half went well must
        be the bad one, and is not tried as a whole again.
        """
        if not len(batch):
            return
        self.execute("SAVEPOINT onceward")
        parts = [_Part(0, len(batch))]
        while parts:
            start, stop, is_first, is_bad = parts.pop()
            middle = (start + stop) // 2
            halves = _Part(middle, stop), _Part(start, middle, is_first=True)
            if is_bad and stop - start > 1:
                parts += halves
                continue
            error = self._try(batch.part(start, stop))
            if error is None:
                if parts:  # the last one ends with the transaction
                    self.execute("RELEASE SAVEPOINT onceward")
                    self.execute("SAVEPOINT onceward")
                if is_first:
                    parts[-1] = parts[-1]._replace(is_bad=True)
                continue
            self.execute("ROLLBACK TO SAVEPOINT onceward")
            self.forget_schema()
            if stop - start > 1:
                parts += halves
            else:
                batch.refuse(start, self._reason_of_row(error, batch.values[start]))
                if not parts:
                    self.execute("RELEASE SAVEPOINT onceward")

    def _try(self, part: Batch) -> Exception | None:
        """The exception that is the fault of a row, if there is one. Raises what is not."""
        known = len(part.refused)
        try:
            self.apply(part)
        except Exception as error:
            if _is_ours(error):
                raise
            verdict = self.judge(error)
            if verdict is not None:
                raise verdict from error
            del part.refused[known:]
            return error
        return None

    def _reason_of_row(self, error: Exception, value: Any) -> str:
        text = self.reason(error)
        column = column_at_fault(value, self.check_value)
        if column is None or re.search(rf"[\"'.(]{re.escape(column)}\b", text):
            return text
        return f"{text} in column {column!r}"

    # without savepoints

    def _apply_or_end(self, batch: Batch) -> None:
        """What is not refused yet."""
        refused = {refusal.at for refusal in batch.refused}
        rest = [at for at in range(len(batch)) if at not in refused]
        error = self._try_only(batch, rest)
        if error is not None:
            raise _RowRefused(f"{self.describe()}: {self.reason(error)}") from error

    def _sort_out(self, batch: Batch) -> None:
        """Refuse rows that are not taken by themselves, then those not beside the others."""
        rest = self._taken(batch, [], list(range(len(batch))))
        if self._trial(batch, rest) is not None:
            self._taken(batch, [], rest, together=True)

    def _taken(
        self, batch: Batch, before: list[int], part: list[int], *, together: bool = False
    ) -> list[int]:
        """``before`` and what is taken of ``part``; the others are refused."""
        error = self._trial(batch, before + part if together else part)
        if error is None:
            refused = {refusal.at for refusal in batch.refused}
            return before + [at for at in part if at not in refused]
        if len(part) <= 1:
            for at in part:
                batch.refuse(at, self._reason_of_row(error, batch.values[at]))
            return before
        middle = len(part) // 2
        before = self._taken(batch, before, part[:middle], together=together)
        return self._taken(batch, before, part[middle:], together=together)

    def _trial(self, batch: Batch, indexes: list[int]) -> Exception | None:
        """What these rows meet in a transaction that is rolled back."""
        self.begin()
        try:
            return self._try_only(batch, indexes)
        finally:
            self.forget_schema()
            self.execute("ROLLBACK")

    def _try_only(self, batch: Batch, indexes: Sequence[int]) -> Exception | None:
        whole = len(indexes) == len(batch)
        part = batch if whole else batch.only(indexes)
        error = self._try(part)
        if error is None and not whole:
            for at, reason in part.refused:
                batch.refuse(indexes[at], reason)
        return error

    # transactions and connections

    def _in_transaction(self, work: Callable[[], T]) -> T:
        self.begin()
        try:
            result = work()
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        return result

    def _roll_back(self) -> None:
        self.forget_schema()
        try:
            self.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - the connection is in no state to go on with
            self._disconnect()

    def _connect(self, prepare: bool) -> None:
        if self._connection is None:
            self._connection = self.connect()
            self.forget_schema()
            self._is_prepared = False
        if prepare and not self._is_prepared:
            try:
                self.prepare()
            except BaseException:
                self._disconnect()
                raise
            self._is_prepared = True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # noqa: BLE001 - it is gone in any case
                return

    def _guarded(self, work: Callable[[], T], prepare: bool) -> T:
        try:
            self._connect(prepare)
            return work()
        except Exception as error:
            if _is_ours(error):
                raise
            verdict = self.judge(error)
            if verdict is None:
                verdict = SinkError(f"{self.describe()}: {self.reason(error)}")
            if isinstance(verdict, SinkUnavailable):
                self._disconnect()
            raise verdict from error

    # beside the thread

    async def _end(self) -> None:
        """Disconnect, and end the thread."""
        executor, self._executor = self._executor, None
        if executor is not None:
            closing = asyncio.get_running_loop().run_in_executor(executor, self._disconnect)
            await asyncio.wait([closing], timeout=self.timeout)
            executor.shutdown(wait=False)

    async def _run(self, work: Callable[[], T], *, prepare: bool = True) -> T:
        """Run in the sink's thread, at most for ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last], timeout=self.timeout)
            if not self._last.done():
                raise SinkUnavailable(f"{self.describe()} still does not answer")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, f"sink-{self.name}")
        future = loop.run_in_executor(self._executor, self._guarded, work, prepare)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._last = future
        await asyncio.wait([future], timeout=self.timeout)
        if future.done():
            return future.result()
        self.interrupt()
        raise SinkTimeout(f"{self.describe()} did not answer within {self.timeout:g} s")

    def _positions(self, app: str) -> PositionTable:
        return PositionTable(
            app, self.name, placeholder=self.placeholder, quote=self.quote, text=self.key_text
        )

    def create_positions(self) -> None:
        """The tables of the helper; for ``prepare``."""
        self._positions("").create(self.execute)


def _is_ours(error: Exception) -> bool:
    return isinstance(error, SinkUnavailable | SinkError)
