"""What the coordinator knows about one transactional id, and every way it may change.

Pure: each method takes what it needs, time included, and returns the next value. A value equals a
record of ``__transaction_state``: replaying the log restores everything that is kept in memory.
Follows Kafka's ``TransactionMetadata``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ..result import ProducerIdAndEpoch
from .transaction_state import LEGAL_PREDECESSORS, Identity, TransactionState

NO_TIMESTAMP = -1

MAX_EPOCH = 32767
"""Only ever used to fence: no client is told an epoch above ``LAST_CLIENT_EPOCH``."""

LAST_CLIENT_EPOCH = MAX_EPOCH - 1

TRANSACTION_VERSION_1 = 0
"""What Kafka stores for clients that keep one epoch over many transactions."""

TRANSACTION_VERSION_2 = 2
"""Clients whose epoch grows with every transaction (KIP-890)."""


class IllegalTransition(Exception):
    """A move the table of states forbids: a bug of ours, never caught."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional id. Timestamps and the timeout in ms, -1 for no value.

    ``previous_producer_id`` is the producer id before the last move; ``next_producer_id``
    the one that takes over when a version 2 transaction at the end of the epochs is complete;
    ``last_producer_epoch`` the epoch the *same* client held before the last bump, -1 when the bump
    was made for somebody else. It is what recognises a retry.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    client_transaction_version: int = TRANSACTION_VERSION_1

    # --- questions --------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def deadline_ms(self) -> int:
        """When an ongoing transaction is aborted."""
        return self.start_ms + self.timeout_ms

    @property
    def is_exhausted(self) -> bool:
        """No later epoch may be given to a client under this producer id."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def next_identity(self) -> ProducerIdAndEpoch:
        """What the client uses in the transaction after this one."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.identity

    def identify(self, producer_id: int, producer_epoch: int) -> Identity:
        """Where a request's producer id and epoch stand; RETRY has a meaning for version 2 only.

        The epoch before a bump made for somebody else is FENCED, not a retry: a producer that was
        replaced must not learn its successor's epoch by repeating an abort.
        """
        if (producer_id, producer_epoch) == self.identity:
            return Identity.CURRENT
        was_last = producer_epoch == self.last_producer_epoch != NO_PRODUCER_EPOCH
        if producer_id == self.producer_id:
            bumped_once = self.producer_epoch == producer_epoch + 1
            return Identity.RETRY if was_last and bumped_once else Identity.FENCED
        rotated = producer_id == self.previous_producer_id and self.producer_epoch == 0
        if rotated and was_last and producer_epoch == LAST_CLIENT_EPOCH:
            return Identity.RETRY
        return Identity.UNKNOWN

    # --- moves ------------------------------------------------------------------------------------

    def initialize(
        self, timeout_ms: int, now_ms: int, identity: ProducerIdAndEpoch, last_producer_epoch: int
    ) -> TransactionMetadata:
        """The answer to InitProducerId: an empty transaction under ``identity``.

        An unchanged identity answers a retry, which must stay recognisable for the next one.
        """
        is_retry = identity == self.identity
        return self._move(
            TransactionState.EMPTY,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=self.previous_producer_id if is_retry else self.producer_id,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def add_partitions(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """The transaction with more partitions; starts it when none is open."""
        return self._move(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_transaction_version=client_version,
        )

    def prepare_end(
        self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """The client's decision. Version 2 bumps the epoch; at the last one it needs a next id."""
        changes: dict[str, Any] = {}
        if client_version >= TRANSACTION_VERSION_2:
            changes = self._bumped(next_producer_id, self.producer_epoch)
        elif self.state.is_idle:
            raise IllegalTransition(f"version 1 cannot end an empty transaction: {self}")
        return self._move(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_transaction_version=client_version,
            **changes,
        )

    def prepare_fencing_abort(
        self, *, last_producer_epoch: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """The coordinator's decision: abort under an epoch the client does not have.

        One bump in both versions (KAFKA-19367). Under version 1 the producer id stays even when
        MAX_EPOCH is reached; the next InitProducerId rotates it. Under version 2 it rotates as in
        ``prepare_end`` (KAFKA-20090). ``last_producer_epoch`` says who may continue: the stored
        epoch lets the same client recover, -1 fences it for good.
        """
        if self.client_transaction_version < TRANSACTION_VERSION_2:
            next_producer_id = NO_PRODUCER_ID
            changes = {
                "producer_epoch": self.producer_epoch + 1,
                "last_producer_epoch": last_producer_epoch,
            }
        else:
            changes = self._bumped(next_producer_id, last_producer_epoch)
        return self._move(TransactionState.PREPARE_ABORT, now_ms, **changes)

    def complete(self, now_ms: int) -> TransactionMetadata:
        """All markers are written: the transaction is over and the next identity takes effect."""
        identity = self.next_identity
        return self._move(
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def _bumped(self, next_producer_id: int, last_producer_epoch: int) -> dict[str, Any]:
        if self.is_exhausted != (next_producer_id != NO_PRODUCER_ID):
            raise IllegalTransition(f"next producer id {next_producer_id} does not fit {self}")
        return {
            "producer_epoch": self.producer_epoch + 1,
            "last_producer_epoch": last_producer_epoch,
            "next_producer_id": next_producer_id,
        }

    def _move(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        if self.state not in LEGAL_PREDECESSORS[state]:
            raise IllegalTransition(f"{self.state.title} -> {state.title}: {self}")
        changes.setdefault("previous_producer_id", self.producer_id)
        moved = dataclasses.replace(self, state=state, last_update_ms=now_ms, **changes)
        if moved.producer_id < 0 or not 0 <= moved.producer_epoch <= MAX_EPOCH:
            raise IllegalTransition(f"illegal producer id or epoch: {moved}")
        return moved


def first_metadata(
    transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """A transactional id seen for the first time, or again after it was forgotten."""
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
    )
