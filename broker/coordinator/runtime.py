"""Runs replicated state machines ("shards"), one per partition of an internal topic.

A write is decided, appended and replayed in one synchronous step; its answer and effects are parked
until the log committed it. ``Shard.replay`` is thus the only mutator of what must survive, and the
recovery path is the same code. Reads see the newest state but answer only when everything they saw
is committed.

Append precedes replay and a failed fsync stops the broker, so nothing is ever undone (Kafka's
``CoordinatorRuntime`` replays first and needs snapshots to roll back).
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ..errors import ErrorCode, KafkaError
from ..types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Clock,
    TopicPartition,
    coordinator_partition,
)
from .loading import LoadedLog
from .log_writer import LogWriter
from .result import Cancel, DomainEffect, Effect, Reply, Result, Timer, TimerKey, Token
from .timer import Timers

R = TypeVar("R")
TIMER_RETRY_MS = 500
_LOADED_PER_TURN = 256
NOBODY = Token(0)
"""The token of an operation without a caller; replies to it go nowhere."""


class Shard(Protocol):
    """The replicated state machine of one partition. All methods are synchronous."""

    def replay(self, offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply one appended record; ``producer_id`` -1 = not part of a transaction."""
        ...

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Apply the end of a transaction whose records were replayed before."""
        ...

    def on_loaded(self, now_ms: int) -> Result[None]:
        """The log was replayed to its end: arm timers, resume what was under way."""
        ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[None]:
        """A timer fired. A key that means nothing any more is answered with an empty result."""
        ...


S = TypeVar("S", bound=Shard)
Operation = Callable[[S, int, Token], Result[R]]


class PartitionState(enum.Enum):
    """State of one partition of the coordinator.

    INITIAL: ``start`` was not called. Requests: COORDINATOR_LOAD_IN_PROGRESS. ``start`` -> LOADING.
    LOADING: the log is being replayed. Requests: COORDINATOR_LOAD_IN_PROGRESS.
        log end reached -> ACTIVE; unreadable log or a bug -> FAILED; ``stop`` -> CLOSED.
    ACTIVE: requests are served, timers run.
        the log closes under it or a bug -> FAILED; ``stop`` -> CLOSED.
    FAILED: nothing is served until the broker restarts. Requests: NOT_COORDINATOR, parked ones too.
        ``stop`` -> CLOSED.
    CLOSED: stopped. Requests: NOT_COORDINATOR, parked ones too. Final.
    """

    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


LEGAL_MOVES: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.INITIAL: frozenset({PartitionState.LOADING, PartitionState.CLOSED}),
    PartitionState.LOADING: frozenset(
        {PartitionState.ACTIVE, PartitionState.FAILED, PartitionState.CLOSED}
    ),
    PartitionState.ACTIVE: frozenset({PartitionState.FAILED, PartitionState.CLOSED}),
    PartitionState.FAILED: frozenset({PartitionState.CLOSED}),
    PartitionState.CLOSED: frozenset(),
}

_NOT_COORDINATOR = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_NOT_AVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_SERVER_ERROR = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }
)


def coordinator_error(error: KafkaError) -> KafkaError:
    """A log's error in a coordinator's words (Kafka: ``CoordinatorOperationExceptionHelper``)."""
    if error.code in _NOT_COORDINATOR:
        return KafkaError(ErrorCode.NOT_COORDINATOR, error.message)
    if error.code in _NOT_AVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _SERVER_ERROR:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
    return error


class _Parked(NamedTuple):
    """What happens once ``offset`` is committed."""

    offset: int
    effects: list[Effect]
    reply: Reply | None


class _Partition(Generic[S]):
    """Everything the runtime keeps per partition."""

    def __init__(self, index: int, shard: S, timers: Timers) -> None:
        self.index = index
        self.shard = shard
        self.timers = timers
        self.state = PartitionState.INITIAL
        self.loaded = 0
        self.last_written = -1
        self.last_committed = -1
        self.waiters: dict[Token, asyncio.Future[Any]] = {}
        self.parked: deque[_Parked] = deque()
        self.wake = asyncio.Event()
        self.delivery: asyncio.Task[None] | None = None

    def move_to(self, state: PartitionState) -> None:
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(f"partition {self.index}: {self.state.name} -> {state.name}")
        self.state = state

    def close(self, state: PartitionState, error: KafkaError) -> None:
        """Leave service: no timer fires any more and nobody waits for ever."""
        self.move_to(state)
        self.timers.cancel_all()
        self.parked.clear()
        for future in self.waiters.values():
            if not future.done():
                future.set_exception(error)
        self.waiters.clear()


class CoordinatorRuntime(Generic[S]):
    """Serves one shard per partition of ``topic``.

    on_effect: receives ``(partition, effect)`` for every ``DomainEffect``, after commit.
    on_failure: receives the exception of a shard that broke (a bug of ours). That operation fails
        with the same exception and the partition serves nothing any more; the broker is expected
        to stop.
    """

    def __init__(
        self,
        *,
        topic: str,
        partitions: int,
        writer: LogWriter,
        shard_factory: Callable[[int], S],
        clock: Clock,
        on_effect: Callable[[int, DomainEffect], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.topic = topic
        self._writer = writer
        self._clock = clock
        self._on_effect = on_effect
        self._on_failure = on_failure
        self._last_token = 0
        self._partitions = [
            self._new_partition(index, shard_factory(index)) for index in range(partitions)
        ]

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    def partition_for(self, key: str) -> int:
        """The partition that owns a group or transactional id."""
        return coordinator_partition(key, len(self._partitions))

    def state(self, partition: int) -> PartitionState:
        return self._partitions[partition].state

    async def start(self) -> None:
        """Replay every partition; returns when each is ACTIVE or FAILED."""
        for context in self._partitions:
            context.move_to(PartitionState.LOADING)
        for context in self._partitions:
            await self._load(context)

    async def stop(self) -> None:
        """Stop serving; every parked caller gets NOT_COORDINATOR. Idempotent."""
        deliveries = []
        for context in self._partitions:
            if context.state is not PartitionState.CLOSED:
                context.close(PartitionState.CLOSED, self._refusal(context.index))
            if context.delivery is not None:
                context.delivery.cancel()
                deliveries.append(context.delivery)
                context.delivery = None
        # A delivery that broke was reported through on_failure when it did.
        await asyncio.gather(*deliveries, return_exceptions=True)

    async def write(self, partition: int, operation: Operation[S, R]) -> R:
        """Decide, append, replay; then wait for the commit, carry out effects and answer.

        Everything up to replay happens before this suspends. Raises ``KafkaError``: the
        operation's, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, or that of the refusing log.
        Cancelling the caller abandons only the answer.
        """
        context = self._active(partition)
        token, future = self._new_waiter(context)
        try:
            self._execute(context, operation, token)
            return cast(R, await future)
        finally:
            context.waiters.pop(token, None)
            if future.done() and not future.cancelled():
                future.exception()  # the operation's own error comes first: this one is not lost

    def submit(self, partition: int, operation: Operation[S, Any]) -> None:
        """A write without a caller: done when this returns, effects follow after commit.

        Raises ``KafkaError`` as ``write`` does.
        """
        self._execute(self._active(partition), operation, None)

    async def read(self, partition: int, operation: Callable[[S, int], R]) -> R:
        """Evaluate ``operation(shard, now_ms)`` now; answer when what it saw is committed."""
        context = self._active(partition)
        with self._bug_stops(context):
            response = operation(context.shard, self._clock())
        if self._nothing_outstanding(context):
            return response
        await self._await_commit(context)
        return response

    async def complete_transaction(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """Append the marker of a producer's transaction, replay it and wait for the commit."""
        context = self._active(partition)
        with self._bug_stops(context):
            try:
                offset = self._writer.append_marker(
                    partition,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    coordinator_epoch=coordinator_epoch,
                    commit=commit,
                    transaction_version=transaction_version,
                )
            except KafkaError as error:
                raise coordinator_error(error) from error
            context.last_written = offset
            context.shard.replay_marker(producer_id, commit)
        await self._await_commit(context)

    # -- loading ----------------------------------------------------------------------------------

    def _new_partition(self, index: int, shard: S) -> _Partition[S]:
        def on_expired(key: TimerKey) -> None:
            self._timer_fired(index, key)

        return _Partition(index, shard, Timers(clock=self._clock, on_expired=on_expired))

    async def _load(self, context: _Partition[S]) -> None:
        try:
            await self._replay_log(context)
            if context.state is not PartitionState.LOADING:
                return
            context.move_to(PartitionState.ACTIVE)
            context.delivery = asyncio.get_running_loop().create_task(
                self._deliver(context), name=f"{self.topic}-{context.index}-delivery"
            )
            self._execute(context, lambda shard, now_ms, _token: shard.on_loaded(now_ms), None)
        except KafkaError as error:
            context.close(PartitionState.FAILED, coordinator_error(error))

    async def _replay_log(self, context: _Partition[S]) -> None:
        log = LoadedLog()
        for batch in self._writer.read_all(context.index):
            log.add(batch)
            if not await self._goes_on_loading(context):
                return
        for offset, producer_id, key, value in log.survivors():
            with self._bug_stops(context):
                context.shard.replay(offset, producer_id, key, value)
            if not await self._goes_on_loading(context):
                return
        context.last_written = log.last_offset

    async def _goes_on_loading(self, context: _Partition[S]) -> bool:
        """Now and then let others run; False when the partition was closed meanwhile."""
        context.loaded += 1
        if context.loaded % _LOADED_PER_TURN == 0:
            await asyncio.sleep(0)
        return context.state is PartitionState.LOADING

    # -- one write --------------------------------------------------------------------------------

    def _active(self, partition: int) -> _Partition[S]:
        context = self._partitions[partition]
        if context.state is not PartitionState.ACTIVE:
            raise self._refusal(partition)
        return context

    def _refusal(self, partition: int) -> KafkaError:
        state = self._partitions[partition].state
        name = TopicPartition(self.topic, partition)
        if state in (PartitionState.INITIAL, PartitionState.LOADING):
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is being loaded")
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"{name} is not served here")

    def _new_waiter(self, context: _Partition[S]) -> tuple[Token, asyncio.Future[Any]]:
        self._last_token += 1
        token = Token(self._last_token)
        future = asyncio.get_running_loop().create_future()
        context.waiters[token] = future
        return token, future

    def _execute(
        self, context: _Partition[S], operation: Operation[S, Any], token: Token | None
    ) -> None:
        with self._bug_stops(context):
            result = operation(context.shard, self._clock(), NOBODY if token is None else token)
            result = self._append(context, result)
            after_commit = self._apply_timers(context, result.effects)
            reply = None
            if token is not None and not result.parked:
                reply = Reply(token, result.response)
            parked = _Parked(context.last_written, after_commit, reply)
            if self._nothing_outstanding(context):
                self._carry_out(context, parked)
            elif after_commit or reply is not None:
                context.parked.append(parked)
                context.wake.set()

    def _append(self, context: _Partition[S], result: Result[Any]) -> Result[Any]:
        """Append and replay the records; returns the result that counts."""
        if not result.records:
            return result
        producer_id, producer_epoch = result.transactional or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        try:
            base_offset, last_offset = self._writer.append(
                context.index,
                result.records,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=result.transactional is not None,
                guard=result.guard,
            )
        except KafkaError as error:
            if result.refused is None:
                raise coordinator_error(error) from error
            return self._append(context, result.refused(coordinator_error(error)))
        context.last_written = last_offset
        try:
            for delta, (key, value) in enumerate(result.records):
                context.shard.replay(base_offset + delta, producer_id, key, value)
        except KafkaError as error:
            # The record is in the log already: refusing it now is not an answer but a bug.
            raise RuntimeError(f"replay refused a record at {base_offset}") from error
        return result

    def _apply_timers(self, context: _Partition[S], effects: list[Effect]) -> list[Effect]:
        """Set and cancel timers now, in order with the state they belong to; returns the others."""
        after_commit: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Timer):
                context.timers.schedule(effect.key, effect.deadline_ms)
            elif isinstance(effect, Cancel):
                context.timers.cancel(effect.key)
            else:
                after_commit.append(effect)
        return after_commit

    def _timer_fired(self, partition: int, key: TimerKey) -> None:
        context = self._partitions[partition]
        try:
            self.submit(partition, lambda shard, now_ms, _token: shard.on_timer(key, now_ms))
        except KafkaError:
            # The log refused the records of the expiry: try again, as Kafka's runtime does.
            if context.state is PartitionState.ACTIVE:
                context.timers.schedule(key, self._clock() + TIMER_RETRY_MS)

    # -- delivery ---------------------------------------------------------------------------------

    def _nothing_outstanding(self, context: _Partition[S]) -> bool:
        return not context.parked and context.last_written <= context.last_committed

    async def _await_commit(self, context: _Partition[S]) -> None:
        """Queue behind everything written so far: answers keep the order of the log."""
        token, future = self._new_waiter(context)
        context.parked.append(_Parked(context.last_written, [], Reply(token, None)))
        context.wake.set()
        try:
            await future
        finally:
            context.waiters.pop(token, None)

    async def _deliver(self, context: _Partition[S]) -> None:
        """Carry out what is parked, in order, as the log commits it.

        A task of its own: effects must happen even if the caller that caused them is gone.
        """
        with self._bug_stops(context):
            while context.state is PartitionState.ACTIVE:
                if not context.parked:
                    context.wake.clear()
                    await context.wake.wait()
                    continue
                offset = context.parked[0].offset
                if offset > context.last_committed:
                    try:
                        await self._writer.committed(context.index, offset)
                    except KafkaError as error:
                        context.close(PartitionState.FAILED, coordinator_error(error))
                        return
                    context.last_committed = max(context.last_committed, offset)
                while context.parked and context.parked[0].offset <= context.last_committed:
                    self._carry_out(context, context.parked.popleft())

    def _carry_out(self, context: _Partition[S], parked: _Parked) -> None:
        for effect in parked.effects:
            if isinstance(effect, Reply):
                self._answer(context, effect)
            elif isinstance(effect, DomainEffect):
                if self._on_effect is None:
                    raise RuntimeError(f"nobody handles {type(effect).__name__}")
                self._on_effect(context.index, effect)
        if parked.reply is not None:
            self._answer(context, parked.reply)

    def _answer(self, context: _Partition[S], reply: Reply) -> None:
        future = context.waiters.pop(reply.token, None)
        if future is None or future.done():
            return
        if isinstance(reply.response, KafkaError):
            future.set_exception(reply.response)
        else:
            future.set_result(reply.response)

    @contextmanager
    def _bug_stops(self, context: _Partition[S]) -> Iterator[None]:
        """Let every exception through; one that is no answer takes the partition out of service."""
        try:
            yield
        except (KafkaError, asyncio.CancelledError):
            raise
        except BaseException as bug:
            self._report(context, bug)
            raise

    def _report(self, context: _Partition[S], bug: BaseException) -> None:
        if context.state not in (PartitionState.FAILED, PartitionState.CLOSED):
            context.close(PartitionState.FAILED, self._refusal(context.index))
        if self._on_failure is not None:
            self._on_failure(bug)
