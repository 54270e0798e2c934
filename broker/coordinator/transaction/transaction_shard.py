"""The transaction coordinator's decisions for the transactional ids of one log partition.

Pure: ``now_ms`` is an argument and producer ids come from a function. Every operation looks at the
newest written state and returns a ``Result``; ``replay`` is the only mutator of what survives.
Follows Kafka's ``TransactionCoordinator`` with KIP-360 (continuing under an old epoch), KIP-890
(transactions version 2) and the epoch overflow rules of KAFKA-18660 and KAFKA-20090.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ErrorCode
from ...types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ..result import (
    Cancel,
    DomainEffect,
    Effect,
    ProducerIdAndEpoch,
    Record,
    Result,
    Timer,
    TimerKey,
)
from .config import TransactionConfig
from .records import decode_record, record_of, tombstone_of
from .transaction_metadata import (
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    TRANSACTION_VERSION_2,
    TransactionMetadata,
    first_metadata,
)
from .transaction_state import END_TXN_V1, END_TXN_V2, Identity, TransactionState

TOMBSTONES_PER_BATCH = 1000


@dataclass(frozen=True, slots=True)
class SendMarkers(DomainEffect):
    """This id's outcome is committed: write its markers, then ``complete`` it."""

    transactional_id: str


class TransactionTimeout(NamedTuple):
    """Timer: the ongoing transaction of an id may have run too long."""

    transactional_id: str


class ExpirationCheck(NamedTuple):
    """Timer: forget ids nobody has used for long."""


class ProducerAnswer(NamedTuple):
    """An error code and, when it is NONE, the producer id and epoch to use from now on."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class _Newest(NamedTuple):
    """The newest connection that spoke for a producer id and epoch."""

    identity: ProducerIdAndEpoch
    connection_id: int


_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionShard:
    """All transactional ids of one partition of ``__transaction_state``."""

    def __init__(self, *, config: TransactionConfig, next_producer_id: Callable[[], int]) -> None:
        self._config = config
        self._next_producer_id = next_producer_id
        self._transactions: dict[str, TransactionMetadata] = {}
        self._newest_connections: dict[str, _Newest] = {}

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        return self._transactions

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        return self._transactions.get(transactional_id)

    # --- InitProducerId ---------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
    ) -> Result[ProducerAnswer]:
        """A new epoch for the caller, fencing whoever had the last; 51 while a transaction ends.

        ``expected`` is what the caller had (KIP-360): 90 if somebody else took over since. Unlike
        Kafka that is also checked before a transaction is aborted, so a replaced producer cannot
        abort its successor's transaction on the way to its 90.
        """
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        current = self.get(transactional_id)
        if current is None:
            created = first_metadata(transactional_id, self._next_producer_id(), timeout_ms, now_ms)
            return _initialized(created)
        if current.state.is_prepared:
            return _refused(_BUSY)
        if expected is not None and not _may_continue(current, expected):
            return _refused(ErrorCode.PRODUCER_FENCED)
        if current.state is TransactionState.ONGOING:
            return self._fence_ongoing(current, expected, now_ms)
        target = self._next_epoch(current, expected)
        if target is None:
            return _refused(ErrorCode.PRODUCER_FENCED)
        identity, last_epoch = target
        return _initialized(current.initialize(timeout_ms, now_ms, identity, last_epoch))

    def _fence_ongoing(
        self, current: TransactionMetadata, expected: ProducerIdAndEpoch | None, now_ms: int
    ) -> Result[ProducerAnswer]:
        if expected is not None and expected != current.identity:
            return _refused(ErrorCode.PRODUCER_FENCED)
        # The caller is told 51 and asks again: the same client then continues with the epoch of the
        # abort, anybody else gets one more bump.
        last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        result = self._abort(current, last_epoch, now_ms)
        return Result(
            records=result.records, response=ProducerAnswer(_BUSY), effects=result.effects
        )

    def _next_epoch(
        self, current: TransactionMetadata, expected: ProducerIdAndEpoch | None
    ) -> tuple[ProducerIdAndEpoch, int] | None:
        """The identity to hand out and the epoch that recognises a retry; None = caller is fenced.

        A retry gets what the lost answer had. The one exception is MAX_EPOCH, reached by a version
        1 abort: it only fences and is never handed out.
        """
        if expected is None:
            last_epoch = NO_PRODUCER_EPOCH
        elif expected == current.identity:
            last_epoch = current.producer_epoch
        elif expected.producer_epoch == current.last_producer_epoch:
            if current.producer_epoch != MAX_EPOCH:
                return current.identity, current.last_producer_epoch
            last_epoch = expected.producer_epoch
        else:
            return None
        if current.is_exhausted:
            return ProducerIdAndEpoch(self._next_producer_id(), 0), last_epoch
        bumped = ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1)
        return bumped, last_epoch

    # --- AddPartitionsToTxn, AddOffsetsToTxn, the produce path ------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Result[ErrorCode]:
        """Put partitions into the caller's transaction, starting it if none is open."""
        current = self.get(transactional_id)
        if current is None:
            return Result(response=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.state.is_prepared:
            return Result(response=_BUSY)
        refusal = _identity_error(current, producer)
        if refusal is not ErrorCode.NONE:
            return Result(response=refusal)
        starts = current.state is not TransactionState.ONGOING
        if not starts and current.partitions.issuperset(partitions):
            return Result(response=ErrorCode.NONE)
        moved = current.add_partitions(partitions, client_version, now_ms)
        effects: list[Effect] = []
        if starts:
            effects.append(Timer(TransactionTimeout(transactional_id), moved.deadline_ms))
        return Result(records=[record_of(moved)], response=ErrorCode.NONE, effects=effects)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> Result[dict[TopicPartition, ErrorCode]]:
        """Whether the caller may write to these partitions: 120 for one not in its transaction."""
        current = self.get(transactional_id)
        if current is None:
            refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            refusal = _identity_error(current, producer)
            if refusal is ErrorCode.NONE and current.state.is_prepared:
                refusal = _BUSY
            if refusal is ErrorCode.NONE:
                return Result(response=_membership(current, partitions))
        return Result(response=dict.fromkeys(partitions, refusal))

    # --- EndTxn -----------------------------------------------------------------------------------

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        client_version: int,
        now_ms: int,
    ) -> Result[ProducerAnswer]:
        """Decide the outcome. The answer holds as soon as the Prepare record is committed."""
        current = self.get(transactional_id)
        if current is None:
            return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if client_version >= TRANSACTION_VERSION_2:
            answer = _end_answer_v2(current, producer, commit)
        else:
            answer = _end_answer_v1(current, producer, commit)
        if answer is ErrorCode.NONE:
            return Result(response=ProducerAnswer(answer, *current.identity))
        if answer is not None:
            return _refused(answer)
        rotates = client_version >= TRANSACTION_VERSION_2 and current.is_exhausted
        moved = current.prepare_end(
            commit=commit,
            client_version=client_version,
            next_producer_id=self._next_producer_id() if rotates else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        return Result(
            records=[record_of(moved)],
            response=ProducerAnswer(ErrorCode.NONE, *moved.next_identity),
            effects=_prepared_effects(transactional_id),
        )

    def complete(self, prepared: TransactionMetadata, now_ms: int) -> Result[bool]:
        """All markers of ``prepared`` are written. False if that is not what the id is doing now.

        Compared by object: under version 1 two transactions in a row look alike, and markers of the
        first must not complete the second (KAFKA-16352).
        """
        if self.get(prepared.transactional_id) is not prepared:
            return Result(response=False)
        return Result(records=[record_of(prepared.complete(now_ms))], response=True)

    # --- connections ------------------------------------------------------------------------------

    def admits_connection(
        self, transactional_id: str, producer: ProducerIdAndEpoch, connection_id: int
    ) -> bool:
        """Whether no newer connection has spoken for this producer yet.

        Version 1 keeps one epoch over many transactions, so a request held up on a connection its
        client gave up can hit the next transaction (KAFKA-17754). Clients use one coordinator
        connection at a time: an older one is left over. Requests with any other identity are
        admitted here, they fail for what they say. Not replayed: connections end with the process.
        """
        current = self.get(transactional_id)
        if current is None or producer != current.identity:
            return True
        newest = self._newest_connections.get(transactional_id)
        if newest is not None and newest.identity == producer:
            if connection_id < newest.connection_id:
                return False
            if connection_id == newest.connection_id:
                return True
        self._newest_connections[transactional_id] = _Newest(producer, connection_id)
        return True

    # --- the runtime's side -----------------------------------------------------------------------

    def replay(self, offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply one record of ``__transaction_state``."""
        transactional_id, metadata = decode_record(key, value)
        if metadata is not None:
            self._transactions[transactional_id] = metadata
        else:
            self._transactions.pop(transactional_id, None)
            self._newest_connections.pop(transactional_id, None)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Nothing: the records here are never part of a transaction themselves."""

    def on_loaded(self, now_ms: int) -> Result[None]:
        """Finish what was decided, watch what is open."""
        effects: list[Effect] = [
            Timer(ExpirationCheck(), now_ms + self._config.expiration_check_interval_ms)
        ]
        for transactional_id, metadata in self._transactions.items():
            if metadata.state.is_prepared:
                effects.append(SendMarkers(transactional_id))
            elif metadata.state is TransactionState.ONGOING:
                effects.append(Timer(TransactionTimeout(transactional_id), metadata.deadline_ms))
        return Result(effects=effects)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[None]:
        """Abort a transaction that ran too long, or forget ids that are idle for too long."""
        if isinstance(key, TransactionTimeout):
            return self._check_timeout(key, now_ms)
        return self._forget_idle_ids(now_ms)

    def _check_timeout(self, key: TransactionTimeout, now_ms: int) -> Result[None]:
        current = self.get(key.transactional_id)
        if current is None or current.state is not TransactionState.ONGOING:
            return Result()
        if now_ms < current.deadline_ms:
            return Result(effects=[Timer(key, current.deadline_ms)])
        # A slow version 2 client may continue afterwards; one of version 1 is fenced, as in Kafka.
        recoverable = current.client_transaction_version >= TRANSACTION_VERSION_2
        last_epoch = current.producer_epoch if recoverable else NO_PRODUCER_EPOCH
        return self._abort(current, last_epoch, now_ms)

    def _abort(
        self, current: TransactionMetadata, last_producer_epoch: int, now_ms: int
    ) -> Result[None]:
        rotates = (
            current.client_transaction_version >= TRANSACTION_VERSION_2 and current.is_exhausted
        )
        moved = current.prepare_fencing_abort(
            last_producer_epoch=last_producer_epoch,
            next_producer_id=self._next_producer_id() if rotates else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        effects = _prepared_effects(current.transactional_id)
        return Result(records=[record_of(moved)], effects=effects)

    def _forget_idle_ids(self, now_ms: int) -> Result[None]:
        idle_since_ms = now_ms - self._config.transactional_id_expiration_ms
        tombstones: list[Record] = [
            tombstone_of(metadata.transactional_id)
            for metadata in self._transactions.values()
            if metadata.state.is_idle and metadata.last_update_ms <= idle_since_ms
        ]
        next_check_ms = now_ms + self._config.expiration_check_interval_ms
        if len(tombstones) > TOMBSTONES_PER_BATCH:
            del tombstones[TOMBSTONES_PER_BATCH:]
            next_check_ms = now_ms
        return Result(records=tombstones, effects=[Timer(ExpirationCheck(), next_check_ms)])


def _refused(error: ErrorCode) -> Result[ProducerAnswer]:
    return Result(response=ProducerAnswer(error))


def _initialized(metadata: TransactionMetadata) -> Result[ProducerAnswer]:
    answer = ProducerAnswer(ErrorCode.NONE, *metadata.identity)
    return Result(records=[record_of(metadata)], response=answer)


def _prepared_effects(transactional_id: str) -> list[Effect]:
    return [Cancel(TransactionTimeout(transactional_id)), SendMarkers(transactional_id)]


def _may_continue(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """The epoch is looked at later; a rotated producer id is known by the epoch it ended with."""
    if expected.producer_id == current.producer_id:
        return True
    rotated = expected.producer_id == current.previous_producer_id
    return rotated and expected.producer_epoch >= LAST_CLIENT_EPOCH


def _identity_error(current: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    if producer.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _membership(
    current: TransactionMetadata, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    return {
        tp: ErrorCode.NONE if tp in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for tp in partitions
    }


def _end_answer_v1(
    current: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool
) -> ErrorCode | None:
    """The answer of EndTxn v0-4, None when the transaction is to be ended."""
    refusal = _identity_error(current, producer)
    if refusal is not ErrorCode.NONE:
        return refusal
    return END_TXN_V1.get((current.state, commit))


def _end_answer_v2(
    current: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool
) -> ErrorCode | None:
    """The answer of EndTxn v5, None when the transaction is to be ended."""
    if current.state.is_prepared:
        return _BUSY
    identity = current.identify(*producer)
    if identity is Identity.UNKNOWN:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity is Identity.FENCED:
        return ErrorCode.PRODUCER_FENCED
    return END_TXN_V2.get((current.state, commit, identity))
