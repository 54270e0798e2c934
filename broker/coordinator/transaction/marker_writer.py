"""Writes the end markers of decided transactions, retrying until each partition has its own.

The outcome is in the log before anything here runs, so there is no way back: an error means to try
again, except those that say a newer coordinator or producer owns the partition. Follows Kafka's
``TransactionMarkerChannelManager``.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from typing import Protocol

from ...errors import ErrorCode, KafkaError
from ...types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from .transaction_metadata import TransactionMetadata
from .transaction_state import TransactionState

FIRST_BACKOFF_S = 0.02
LAST_BACKOFF_S = 1.0

_logger = logging.getLogger(__name__)


class MarkerSink(Protocol):
    """The data partitions' end of a transaction: a port."""

    def write_marker(
        self,
        tp: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> Awaitable[None]:
        """Append an end marker; done when it is committed. Either step raises ``KafkaError``."""
        ...


class GroupTransactions(Protocol):
    """The group coordinator as transactions see it: a port."""

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that holds the group's offsets."""
        ...

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
        """``write_marker`` for ``__consumer_offsets``: its pending offsets are decided."""
        ...


class _Outcome(enum.Enum):
    """What came of one attempt to write one marker."""

    WRITTEN = enum.auto()
    RETRY = enum.auto()
    ABANDONED = enum.auto()


_WRITTEN_ERRORS = frozenset(
    {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
"""The log cannot hold transactional records, so there is nothing to end."""

_FENCED_ERRORS = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


@dataclass(slots=True, eq=False)
class Completion:
    """One decided transaction and the partitions that still lack its marker."""

    partition: int
    """Of ``__transaction_state``."""
    prepared: TransactionMetadata
    remaining: list[TopicPartition]


class MarkerWriter:
    """Runs one task per decided transaction.

    on_written(completion): all markers are committed; may raise ``KafkaError``, then it is retried.
    on_failure: receives the exception of a task that broke (a bug of ours).
    """

    def __init__(
        self,
        *,
        sink: MarkerSink,
        groups: GroupTransactions,
        partition_exists: Callable[[TopicPartition], bool],
        coordinator_epoch: int,
        on_written: Callable[[Completion], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._sink = sink
        self._groups = groups
        self._partition_exists = partition_exists
        self._coordinator_epoch = coordinator_epoch
        self._on_written = on_written
        self._on_failure = on_failure
        self._running: dict[asyncio.Task[None], Completion] = {}

    def send(self, partition: int, prepared: TransactionMetadata) -> None:
        """Write the markers of ``prepared`` in the background."""
        completion = Completion(partition, prepared, sorted(prepared.partitions))
        task = asyncio.get_running_loop().create_task(
            self._complete(completion), name=f"markers-{prepared.transactional_id}"
        )
        self._running[task] = completion
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Give up what is under way; it is taken up again when the log is loaded."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def remaining(self, prepared: TransactionMetadata) -> Set[TopicPartition]:
        """Partitions of a decided transaction that still lack their marker."""
        for completion in self._running.values():
            if completion.prepared is prepared:
                return frozenset(completion.remaining)
        return prepared.partitions

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if task.cancelled():
            return
        bug = task.exception()
        if bug is not None:
            self._on_failure(bug)

    async def _complete(self, completion: Completion) -> None:
        backoff_s = FIRST_BACKOFF_S
        while not await self._attempt(completion):
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, LAST_BACKOFF_S)

    async def _attempt(self, completion: Completion) -> bool:
        """Write what is missing, then report; returns whether there is nothing left to do.

        All appends of a round are made before the first wait: they share the logs' flushes.
        """
        prepared = completion.prepared
        targets = list(completion.remaining)
        outcomes = await asyncio.gather(*(self._write(prepared, tp) for tp in targets))
        if _Outcome.ABANDONED in outcomes:
            return True
        completion.remaining = [
            tp for tp, outcome in zip(targets, outcomes, strict=True) if outcome is _Outcome.RETRY
        ]
        if completion.remaining:
            return False
        try:
            self._on_written(completion)
        except KafkaError as error:
            # This coordinator is gone or going: whoever loads the partition next starts over.
            return error.code is ErrorCode.NOT_COORDINATOR
        return True

    async def _write(self, prepared: TransactionMetadata, tp: TopicPartition) -> _Outcome:
        try:
            if tp.topic == CONSUMER_OFFSETS_TOPIC:
                await self._groups.complete_transaction(
                    tp.partition,
                    producer_id=prepared.producer_id,
                    producer_epoch=prepared.producer_epoch,
                    coordinator_epoch=self._coordinator_epoch,
                    commit=prepared.state is TransactionState.PREPARE_COMMIT,
                    transaction_version=prepared.client_transaction_version,
                )
            elif self._partition_exists(tp):
                await self._sink.write_marker(
                    tp,
                    producer_id=prepared.producer_id,
                    producer_epoch=prepared.producer_epoch,
                    coordinator_epoch=self._coordinator_epoch,
                    commit=prepared.state is TransactionState.PREPARE_COMMIT,
                    transaction_version=prepared.client_transaction_version,
                )
            # else: the partition was deleted, and its part of the transaction with it.
        except KafkaError as error:
            return _outcome_of(prepared, tp, error)
        return _Outcome.WRITTEN


def _outcome_of(prepared: TransactionMetadata, tp: TopicPartition, error: KafkaError) -> _Outcome:
    if error.code in _WRITTEN_ERRORS:
        return _Outcome.WRITTEN
    if error.code in _FENCED_ERRORS:
        _logger.warning("marker of %s for %s is fenced: %s", prepared, tp, error)
        return _Outcome.ABANDONED
    if not error.retriable:
        _logger.error("marker of %s for %s failed: %s", prepared, tp, error)
    return _Outcome.RETRY
