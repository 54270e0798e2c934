"""The runtime, with a shard that only remembers and a log that commits when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from onceward.broker.coordinator import runtime as runtime_module
from onceward.broker.coordinator.log_writer import LoadedBatch
from onceward.broker.coordinator.result import (
    Cancel,
    DomainEffect,
    ProducerIdAndEpoch,
    Record,
    Reply,
    Result,
    Timer,
    Token,
)
from onceward.broker.coordinator.runtime import (
    LEGAL_MOVES,
    CoordinatorRuntime,
    PartitionState,
)
from onceward.broker.errors import ErrorCode, KafkaError

NOW = 1_000


class MemoryLog:
    """A LogWriter of one list per partition. ``commit()`` moves the high watermark to the end."""

    def __init__(self, partitions: int = 1) -> None:
        self.batches: list[list[LoadedBatch]] = [[] for _ in range(partitions)]
        self.end = [0] * partitions
        self.high_watermark = [0] * partitions
        self.refusal: KafkaError | None = None
        self.unreadable: set[int] = set()
        self.closed = False
        self._moved = asyncio.Event()

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        guard: object | None = None,
    ) -> tuple[int, int]:
        self._refuse()
        assert transactional == (producer_id >= 0)
        base = self.end[partition]
        batch = LoadedBatch(base, producer_id, producer_epoch, None, list(records))
        self.batches[partition].append(batch)
        self.end[partition] += len(records)
        return base, self.end[partition] - 1

    def append_marker(
        self, partition: int, *, producer_id: int, producer_epoch: int, commit: bool, **_: Any
    ) -> int:
        self._refuse()
        base = self.end[partition]
        self.batches[partition].append(LoadedBatch(base, producer_id, producer_epoch, commit, []))
        self.end[partition] += 1
        return base

    def _refuse(self) -> None:
        if self.refusal is not None:
            error, self.refusal = self.refusal, None
            raise error

    def commit(self) -> None:
        self.high_watermark = list(self.end)
        self._moved.set()

    def close(self) -> None:
        self.closed = True
        self._moved.set()

    async def committed(self, partition: int, offset: int) -> None:
        while self.high_watermark[partition] <= offset:
            if self.closed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "closing")
            self._moved.clear()
            await self._moved.wait()

    def read_all(self, partition: int) -> Iterator[LoadedBatch]:
        if partition in self.unreadable:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
        yield from self.batches[partition]


class Memory:
    """A shard that remembers what was replayed."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.fired: list[Any] = []
        self.fired_event = asyncio.Event()
        self.on_fire: Callable[[Any], Result[None]] = lambda _key: Result()
        self.loaded_at: int | None = None

    def replay(self, offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        if key == b"bug":
            raise LookupError("replay")
        if key == b"late":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self.seen.append((offset, producer_id, key))

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        self.seen.append((producer_id, commit))

    def on_loaded(self, now_ms: int) -> Result[None]:
        self.loaded_at = now_ms
        return Result(effects=[Timer("loaded", now_ms + 3_600_000)])

    def on_timer(self, key: Any, now_ms: int) -> Result[None]:
        self.fired.append(key)
        self.fired_event.set()
        return self.on_fire(key)


class Note(DomainEffect):
    """An effect of this test's domain."""


class World:
    """A running coordinator with everything a test wants to see."""

    def __init__(self, partitions: int = 1) -> None:
        self.log = MemoryLog(partitions)
        self.shards: list[Memory] = []
        self.effects: list[tuple[int, DomainEffect]] = []
        self.failures: list[BaseException] = []
        self.runtime: CoordinatorRuntime[Memory] = CoordinatorRuntime(
            topic="__memory",
            partitions=partitions,
            writer=self.log,
            shard_factory=self._new_shard,
            clock=lambda: NOW,
            on_effect=lambda partition, effect: self.effects.append((partition, effect)),
            on_failure=self.failures.append,
        )

    def _new_shard(self, _partition: int) -> Memory:
        self.shards.append(Memory())
        return self.shards[-1]

    @property
    def shard(self) -> Memory:
        return self.shards[0]

    def write(self, *keys: bytes, response: Any = "done", **options: Any) -> asyncio.Task[Any]:
        """A write of records with these keys, started at once."""
        result: Result[Any] = Result([(key, b"") for key in keys], response, **options)
        return self.start(lambda _shard, _now, _token: result)

    def start(self, operation: Callable[[Memory, int, Token], Result[Any]]) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.runtime.write(0, operation))


async def turn() -> None:
    """Let everything that is ready run."""
    for _ in range(8):
        await asyncio.sleep(0)


async def error_of(awaitable: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await asyncio.wait_for(awaitable, 5)
    return caught.value.code


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.runtime.start()
    yield world
    await world.runtime.stop()


# -- writes ---------------------------------------------------------------------------------------


async def test_a_write_is_answered_when_it_is_committed(world: World) -> None:
    write = world.write(b"a", b"b")
    await turn()
    assert not write.done()
    world.log.commit()
    assert await write == "done"


async def test_a_write_is_replayed_before_it_is_committed(world: World) -> None:
    world.write(b"a", b"b")
    await turn()
    assert world.shard.seen == [(0, -1, b"a"), (1, -1, b"b")]
    assert [batch.records for batch in world.log.batches[0]] == [[(b"a", b""), (b"b", b"")]]


async def test_the_operation_is_given_the_time_and_its_token(world: World) -> None:
    seen: list[Any] = []

    def operation(_shard: Memory, now_ms: int, token: Token) -> Result[None]:
        seen.append((now_ms, token))
        return Result()

    await world.runtime.write(0, operation)
    await world.runtime.write(0, operation)
    assert seen[0][0] == NOW
    assert seen[0][1] != seen[1][1]


async def test_answers_keep_the_order_of_the_log(world: World) -> None:
    order: list[int] = []
    writes = [world.write(b"%d" % index) for index in range(3)]
    for index, write in enumerate(writes):
        write.add_done_callback(lambda _, index=index: order.append(index))  # type: ignore[misc]
    await turn()
    world.log.commit()
    await asyncio.gather(*writes)
    await turn()
    assert order == [0, 1, 2]


async def test_a_write_without_records_is_answered_behind_what_it_may_have_seen(
    world: World,
) -> None:
    assert await world.write() == "done"
    world.write(b"a")
    empty = world.write(response="empty")
    await turn()
    assert not empty.done()
    world.log.commit()
    assert await empty == "empty"


async def test_a_transactional_result_is_appended_for_its_producer(world: World) -> None:
    world.write(b"a", transactional=ProducerIdAndEpoch(7, 3))
    await turn()
    (batch,) = world.log.batches[0]
    assert (batch.producer_id, batch.producer_epoch) == (7, 3)
    assert world.shard.seen == [(0, 7, b"a")]


async def test_an_expected_error_is_the_answer_and_nothing_is_written(world: World) -> None:
    def refuse(_shard: Memory, _now: int, _token: Token) -> Result[None]:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    assert await error_of(world.runtime.write(0, refuse)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.log.end == [0]
    assert world.runtime.state(0) is PartitionState.ACTIVE
    assert world.failures == []


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_a_log_that_refuses_is_answered_in_the_words_of_a_coordinator(
    world: World, refusal: ErrorCode, answer: ErrorCode
) -> None:
    world.log.refusal = KafkaError(refusal)
    assert await error_of(world.write(b"a")) is answer
    assert world.shard.seen == []


async def test_a_result_may_decide_anew_when_the_log_refuses(world: World) -> None:
    world.log.refusal = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    errors: list[ErrorCode] = []

    def refused(error: KafkaError) -> Result[str]:
        errors.append(error.code)
        return Result([(b"small", b"")], "second")

    write = world.write(b"huge", response="first", refused=refused)
    await turn()
    world.log.commit()
    assert await write == "second"
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert world.shard.seen == [(0, -1, b"small")]


async def test_submit_writes_without_waiting(world: World) -> None:
    world.runtime.submit(0, lambda _shard, _now, _token: Result([(b"a", b"")]))
    assert world.shard.seen == [(0, -1, b"a")]


# -- effects --------------------------------------------------------------------------------------


async def test_a_parked_caller_is_answered_by_another_operation_after_its_commit(
    world: World,
) -> None:
    tokens: list[Token] = []

    def park(_shard: Memory, _now: int, token: Token) -> Result[str]:
        tokens.append(token)
        return Result(parked=True)

    parked = world.start(park)
    await turn()
    world.write(b"a", effects=[Reply(tokens[0], "late")])
    await turn()
    assert not parked.done()
    world.log.commit()
    assert await parked == "late"


async def test_an_error_as_reply_is_raised_at_the_caller(world: World) -> None:
    def park(_shard: Memory, _now: int, token: Token) -> Result[str]:
        error = KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        return Result(parked=True, effects=[Reply(token, error)])

    assert await error_of(world.start(park)) is ErrorCode.FENCED_INSTANCE_ID


async def test_effects_happen_even_if_the_caller_is_gone(world: World) -> None:
    note = Note()
    write = world.write(b"a", effects=[note, Reply(Token(99), "nobody")])
    await turn()
    write.cancel()
    await turn()
    assert world.effects == []
    world.log.commit()
    await turn()
    assert world.effects == [(0, note)]


# -- reads ----------------------------------------------------------------------------------------


async def test_a_read_answers_at_once_when_everything_is_committed(world: World) -> None:
    assert await world.runtime.read(0, lambda shard, now: (shard.seen, now)) == ([], NOW)


async def test_a_read_sees_the_newest_state_but_waits_until_it_is_committed(
    world: World,
) -> None:
    world.write(b"a")
    await turn()
    read = asyncio.ensure_future(world.runtime.read(0, lambda shard, _now: list(shard.seen)))
    await turn()
    assert not read.done()
    world.write(b"b")
    await turn()
    world.log.commit()
    assert await read == [(0, -1, b"a")]


# -- timers ---------------------------------------------------------------------------------------


async def fired(world: World) -> list[Any]:
    await asyncio.wait_for(world.shard.fired_event.wait(), 5)
    await turn()
    return world.shard.fired


async def test_a_timer_fires_as_an_ordinary_write(world: World) -> None:
    world.shard.on_fire = lambda key: Result([(str(key).encode(), b"")])
    world.write(effects=[Timer("t", NOW + 5)])
    assert await fired(world) == ["t"]
    assert world.shard.seen == [(0, -1, b"t")]


async def test_a_timer_is_set_before_the_records_are_committed(world: World) -> None:
    world.write(b"a", effects=[Timer("t", NOW)])
    assert await fired(world) == ["t"]


async def test_setting_a_timer_again_moves_it(world: World) -> None:
    world.write(effects=[Timer("t", NOW), Timer("t", NOW + 3_600_000), Timer("u", NOW + 1)])
    assert await fired(world) == ["u"]


async def test_a_cancelled_timer_does_not_fire(world: World) -> None:
    world.write(effects=[Timer("t", NOW), Cancel("t"), Cancel("unset"), Timer("u", NOW + 1)])
    assert await fired(world) == ["u"]


async def test_a_timer_whose_records_are_refused_fires_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "TIMER_RETRY_MS", 1)
    world.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.shard.on_fire = lambda _key: Result([(b"expired", b"")])
    world.write(effects=[Timer("t", NOW)])
    await fired(world)
    world.shard.fired_event.clear()
    assert await fired(world) == ["t", "t"]
    assert world.shard.seen == [(0, -1, b"expired")]


# -- transactions ---------------------------------------------------------------------------------


async def complete(world: World) -> None:
    await world.runtime.complete_transaction(
        0, producer_id=7, producer_epoch=3, coordinator_epoch=1, commit=True, transaction_version=2
    )


async def test_a_marker_is_appended_replayed_and_awaited(world: World) -> None:
    ending = asyncio.ensure_future(complete(world))
    await turn()
    assert world.shard.seen == [(7, True)]
    assert not ending.done()
    world.log.commit()
    await ending


async def test_a_refused_marker_is_not_replayed(world: World) -> None:
    world.log.refusal = KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert await error_of(complete(world)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert world.shard.seen == []


# -- loading --------------------------------------------------------------------------------------


async def test_nothing_is_served_before_the_log_is_loaded() -> None:
    world = World()
    assert world.runtime.state(0) is PartitionState.INITIAL
    assert await error_of(world.write(b"a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for index in range(400):
        world.log.append(0, [(b"%d" % index, b"")])
    loading = asyncio.ensure_future(world.runtime.start())
    await asyncio.sleep(0)
    assert world.runtime.state(0) is PartitionState.LOADING
    assert await error_of(world.write(b"a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    assert len(world.shard.seen) == 400
    await world.runtime.stop()


async def test_loading_replays_the_newest_record_of_each_key_in_order() -> None:
    world = World()
    world.log.append(0, [(b"a", b"old"), (b"b", None)])
    world.log.append(0, [(b"c", b"")], producer_id=7, producer_epoch=0, transactional=True)
    world.log.append(0, [(b"a", b"new")])
    world.log.append_marker(0, producer_id=7, producer_epoch=0, commit=False)
    world.log.append(0, [(b"d", b"")], producer_id=8, producer_epoch=0, transactional=True)
    await world.runtime.start()
    assert world.shard.seen == [(1, -1, b"b"), (3, -1, b"a"), (5, 8, b"d")]
    assert world.shard.loaded_at == NOW
    read = asyncio.ensure_future(world.runtime.read(0, lambda shard, _now: len(shard.seen)))
    await turn()
    assert not read.done(), "what was loaded is not committed yet"
    world.log.commit()
    assert await read == 3
    await world.runtime.stop()


async def test_an_unreadable_partition_fails_alone() -> None:
    world = World(partitions=2)
    world.log.unreadable.add(0)
    await world.runtime.start()
    assert world.runtime.state(0) is PartitionState.FAILED
    assert world.runtime.state(1) is PartitionState.ACTIVE
    assert await error_of(world.write(b"a")) is ErrorCode.NOT_COORDINATOR
    assert await world.runtime.read(1, lambda _shard, _now: "served") == "served"
    await world.runtime.stop()


async def test_stopping_while_loading_ends_the_loading() -> None:
    world = World()
    for index in range(400):
        world.log.append(0, [(b"%d" % index, b"")])
    loading = asyncio.ensure_future(world.runtime.start())
    await asyncio.sleep(0)
    await world.runtime.stop()
    await loading
    assert world.runtime.state(0) is PartitionState.CLOSED


# -- the end --------------------------------------------------------------------------------------


async def test_stop_rejects_everybody_who_waits(world: World) -> None:
    parked = world.start(lambda _shard, _now, _token: Result(parked=True))
    written = world.write(b"a")
    await turn()
    read = asyncio.ensure_future(world.runtime.read(0, lambda _shard, _now: None))
    await turn()
    await world.runtime.stop()
    for call in (parked, written, read):
        assert await error_of(call) is ErrorCode.NOT_COORDINATOR
    assert await error_of(world.write(b"b")) is ErrorCode.NOT_COORDINATOR
    await world.runtime.stop()


async def test_no_timer_fires_after_stop(world: World) -> None:
    world.write(effects=[Timer("t", NOW + 1)])
    await turn()
    await world.runtime.stop()
    await asyncio.sleep(0.01)
    assert world.shard.fired == []


async def test_a_log_that_closes_fails_the_partition_and_everybody_who_waits(
    world: World,
) -> None:
    write = world.write(b"a")
    await turn()
    world.log.close()
    assert await error_of(write) is ErrorCode.NOT_COORDINATOR
    assert world.runtime.state(0) is PartitionState.FAILED
    assert world.failures == []


# -- bugs -----------------------------------------------------------------------------------------


def broken(_shard: Memory, _now: int, _token: Token) -> Result[None]:
    raise LookupError("decide")


async def test_a_bug_in_an_operation_is_not_swallowed(world: World) -> None:
    parked = world.write(b"a")
    await turn()
    with pytest.raises(LookupError):
        await world.runtime.write(0, broken)
    assert [str(failure) for failure in world.failures] == ["decide"]
    assert world.runtime.state(0) is PartitionState.FAILED
    assert await error_of(parked) is ErrorCode.NOT_COORDINATOR


async def test_a_bug_in_replay_is_not_swallowed(world: World) -> None:
    with pytest.raises(LookupError):
        await world.write(b"bug")
    assert world.runtime.state(0) is PartitionState.FAILED


async def test_a_replay_that_answers_an_error_is_a_bug(world: World) -> None:
    with pytest.raises(RuntimeError):
        await world.write(b"late")
    assert len(world.failures) == 1


async def test_a_bug_in_a_read_is_not_swallowed(world: World) -> None:
    def question(_shard: Memory, _now: int) -> None:
        raise LookupError("read")

    with pytest.raises(LookupError):
        await world.runtime.read(0, question)
    assert len(world.failures) == 1


async def test_a_bug_in_a_timer_is_reported(world: World) -> None:
    reported: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(context["exception"]))

    def explode(_key: Any) -> Result[None]:
        raise LookupError("timer")

    world.shard.on_fire = explode
    world.write(effects=[Timer("t", NOW)])
    await fired(world)
    loop.set_exception_handler(None)
    assert [str(failure) for failure in world.failures] == ["timer"]
    assert reported == world.failures
    assert world.runtime.state(0) is PartitionState.FAILED


async def test_a_bug_in_an_effect_is_reported() -> None:
    world = World()
    world.runtime = CoordinatorRuntime(
        topic="__memory",
        partitions=1,
        writer=world.log,
        shard_factory=lambda _partition: Memory(),
        clock=lambda: NOW,
        on_failure=world.failures.append,
    )
    await world.runtime.start()
    write = world.write(b"a", effects=[Note()])
    await turn()
    world.log.commit()
    assert await error_of(write) is ErrorCode.NOT_COORDINATOR
    assert len(world.failures) == 1
    await world.runtime.stop()


async def test_a_bug_while_loading_is_not_swallowed() -> None:
    world = World()
    world.log.append(0, [(b"bug", b"")])
    with pytest.raises(LookupError):
        await world.runtime.start()
    assert world.runtime.state(0) is PartitionState.FAILED
    await world.runtime.stop()


def test_a_closed_partition_stays_closed() -> None:
    assert LEGAL_MOVES[PartitionState.CLOSED] == frozenset()
    assert set(LEGAL_MOVES) == set(PartitionState)


async def test_groups_are_spread_as_kafka_does() -> None:
    assert World(partitions=50).runtime.partition_for("my-group") == 12
