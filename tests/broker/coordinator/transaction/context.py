"""Test contexts: a shard under a hand-cranked clock, and a coordinator over a log in memory."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from onceward.broker.coordinator.loading import LoadedLog
from onceward.broker.coordinator.log_writer import LoadedBatch
from onceward.broker.coordinator.result import (
    Cancel,
    Effect,
    ProducerIdAndEpoch,
    Record,
    Result,
    Timer,
)
from onceward.broker.coordinator.transaction.config import TransactionConfig
from onceward.broker.coordinator.transaction.producer_ids import ProducerIds
from onceward.broker.coordinator.transaction.records import record_of
from onceward.broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from onceward.broker.coordinator.transaction.transaction_metadata import (
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    TransactionMetadata,
    first_metadata,
)
from onceward.broker.coordinator.transaction.transaction_shard import (
    ProducerAnswer,
    TransactionShard,
    TransactionTimeout,
)
from onceward.broker.coordinator.transaction.transaction_state import TransactionState
from onceward.broker.errors import ErrorCode
from onceward.broker.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from onceward.broker.types import TopicPartition

from .ports import LoopClock, MemoryLog, MemoryProducerIdStore, RecordingSink

R = TypeVar("R")

V1 = TRANSACTION_VERSION_1
V2 = TRANSACTION_VERSION_2
TIMEOUT_MS = 10_000
A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)


class ShardDialogue:
    """Runs an operation on a shard and replays its records at once, as the runtime does."""

    def __init__(
        self, config: TransactionConfig | None = None, first_producer_id: int = 100
    ) -> None:
        self.now_ms = 1_000_000
        self.log: list[Record] = []
        self.timers: dict[object, int] = {}
        self.effects: list[Effect] = []
        self.config = config or TransactionConfig()
        self._last_producer_id = first_producer_id - 1
        self.shard = self.new_shard()

    def new_shard(self) -> TransactionShard:
        return TransactionShard(config=self.config, next_producer_id=self._next_producer_id)

    def _next_producer_id(self) -> int:
        self._last_producer_id += 1
        return self._last_producer_id

    def run(self, result: Result[R]) -> R:
        for key, value in result.records:
            self.shard.replay(len(self.log), -1, key, value)
            self.log.append((key, value))
        for effect in result.effects:
            if isinstance(effect, Timer):
                self.timers[effect.key] = effect.deadline_ms
            elif isinstance(effect, Cancel):
                self.timers.pop(effect.key, None)
            else:
                self.effects.append(effect)
        return result.response  # type: ignore[return-value]

    def reload(self, prefix: int | None = None) -> None:
        """Crash: only the first ``prefix`` records are left."""
        self.log = self.log[:prefix]
        self.shard = self.new_shard()
        self.timers.clear()
        self.effects.clear()
        loaded = LoadedLog()
        loaded.add(LoadedBatch(0, -1, -1, None, self.log))
        for survivor in loaded.survivors():
            self.shard.replay(*survivor)
        self.run(self.shard.on_loaded(self.now_ms))

    def metadata(self, transactional_id: str = "t") -> TransactionMetadata:
        metadata = self.shard.get(transactional_id)
        assert metadata is not None
        return metadata

    def identity(self, transactional_id: str = "t") -> ProducerIdAndEpoch:
        return self.metadata(transactional_id).identity

    def set(self, metadata: TransactionMetadata) -> None:
        """Put an id into a state directly, as a record would."""
        self.run(Result(records=[record_of(metadata)]))

    def init(
        self,
        expected: ProducerIdAndEpoch | None = None,
        *,
        transactional_id: str = "t",
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerAnswer:
        return self.run(
            self.shard.init_producer_id(transactional_id, timeout_ms, expected, self.now_ms)
        )

    def add(
        self,
        producer: ProducerIdAndEpoch,
        *partitions: TopicPartition,
        version: int = V2,
        transactional_id: str = "t",
    ) -> ErrorCode:
        return self.run(
            self.shard.add_partitions(
                transactional_id, producer, partitions or (A0,), version, self.now_ms
            )
        )

    def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        version: int = V2,
        transactional_id: str = "t",
    ) -> ProducerAnswer:
        return self.run(
            self.shard.end_transaction(
                transactional_id,
                producer,
                commit=commit,
                client_version=version,
                now_ms=self.now_ms,
            )
        )

    def complete(self, transactional_id: str = "t") -> bool:
        """All markers of the transaction are written."""
        return self.run(self.shard.complete(self.metadata(transactional_id), self.now_ms))

    def transact(
        self, producer: ProducerIdAndEpoch, *, commit: bool = True, version: int = V2
    ) -> ProducerIdAndEpoch:
        """One whole transaction; returns the identity for the next."""
        assert self.add(producer, version=version) is ErrorCode.NONE
        answer = self.end(producer, commit=commit, version=version)
        assert answer.error is ErrorCode.NONE
        assert self.complete()
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def time_out(self, transactional_id: str = "t") -> None:
        """Let the ongoing transaction's timer fire at its deadline."""
        key = TransactionTimeout(transactional_id)
        self.now_ms = self.timers.pop(key)
        self.run(self.shard.on_timer(key, self.now_ms))


STORED = ProducerIdAndEpoch(100, 10)


def in_state(state: TransactionState, *, version: int) -> ShardDialogue:
    """An id with the stored identity in a state; epoch 9 was this client's before."""
    dialogue = ShardDialogue()
    open_states = (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    )
    dialogue.set(
        dataclasses.replace(
            first_metadata("t", STORED.producer_id, TIMEOUT_MS, dialogue.now_ms),
            state=state,
            producer_epoch=STORED.producer_epoch,
            last_producer_epoch=STORED.producer_epoch - 1,
            partitions=frozenset({A0}) if state in open_states else frozenset(),
            start_ms=-1 if state is TransactionState.EMPTY else dialogue.now_ms,
            client_transaction_version=version,
        )
    )
    return dialogue


class CoordinatorDialogue:
    """A client's side of a ``TransactionCoordinator`` for the transactional id "t"."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        *,
        config: TransactionConfig | None = None,
        deleted: Collection[TopicPartition] = (),
        store: MemoryProducerIdStore | None = None,
        coordinator_epoch: int = 7,
    ) -> None:
        self.log = log or MemoryLog(auto_commit=True)
        self.sink = RecordingSink()
        self.store = store or MemoryProducerIdStore()
        self.deleted = set(deleted)
        self.failures: list[BaseException] = []
        self.clock = LoopClock()
        self.coordinator = TransactionCoordinator(
            writer=self.log,
            producer_ids=ProducerIds(self.store),
            sink=self.sink,
            groups=self.sink,
            partition_exists=lambda tp: tp not in self.deleted,
            coordinator_epoch=coordinator_epoch,
            clock=self.clock,
            on_failure=self.failures.append,
            config=config or TransactionConfig(busy_wait_ms=0),
        )

    async def __aenter__(self) -> CoordinatorDialogue:
        await self.coordinator.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.coordinator.stop()
        assert not self.failures

    async def init(
        self,
        *,
        transactional_id: str | None = "t",
        timeout_ms: int = TIMEOUT_MS,
        expected: tuple[int, int] = (-1, -1),
        version: int = 5,
    ) -> InitProducerIdResponse:
        return await self.coordinator.init_producer_id(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            ),
            version,
        )

    async def producer(
        self, *, timeout_ms: int = TIMEOUT_MS, expected: tuple[int, int] = (-1, -1)
    ) -> tuple[int, int]:
        response = await self.init(timeout_ms=timeout_ms, expected=expected)
        assert response.error_code == 0
        return response.producer_id, response.producer_epoch

    async def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        version: int = 3,
        connection_id: int | None = None,
    ) -> list[int]:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or (A0,):
            topics.setdefault(topic, []).append(index)
        response = await self.coordinator.add_partitions(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                        name=topic, partitions=indexes
                    )
                    for topic, indexes in topics.items()
                ],
            ),
            version,
            connection_id=connection_id,
        )
        return _codes(response)

    async def add_offsets(
        self, producer: tuple[int, int], *, version: int = 3, connection_id: int | None = None
    ) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="t",
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id="g",
        )
        response = await self.coordinator.add_offsets(request, version, connection_id=connection_id)
        return response.error_code

    async def produce(
        self, producer: tuple[int, int], *partitions: TopicPartition, add: bool = True
    ) -> Mapping[TopicPartition, ErrorCode]:
        return await self.coordinator.verify_or_add("t", *producer, partitions or (A0,), add=add)

    async def end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool = True,
        version: int = 5,
        connection_id: int | None = None,
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        return await self.coordinator.end_txn(request, version, connection_id=connection_id)

    async def describe(
        self, transactional_id: str = "t"
    ) -> DescribeTransactionsResponse.TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = await self.coordinator.describe_transactions(request)
        return response.transaction_states[0]

    async def state(self) -> str:
        return (await self.describe()).transaction_state

    async def until_state(self, wanted: str) -> None:
        """Returns when the id is in that state."""

        async def reached() -> bool:
            return await self.state() == wanted

        await until(reached)


def _codes(response: AddPartitionsToTxnResponse) -> list[int]:
    return [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(5000):
        if await condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


async def settle() -> None:
    """Let everything that can run without waiting for time or a commit run."""
    for _ in range(30):
        await asyncio.sleep(0)
