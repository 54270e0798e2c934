"""What a partition knows of its producers: idempotence, fencing and open transactions.

All rules live in ``ProducerEntry``: the ``check_*`` methods decide and change nothing, the
``apply_*`` methods change and decide nothing. The log checks, appends, and only then applies;
recovery applies the batches it finds.

Source: Kafka's ``ProducerAppendInfo``, ``ProducerStateEntry``,
``ProducerStateManager`` (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..errors import ErrorCode, KafkaError
from ..records.batch import BatchHeader
from ..storage.snapshot import AbortedTransaction, BatchMetadata, ProducerSnapshot
from ..types import NO_PRODUCER_EPOCH, NO_SEQUENCE
from .results import NO_TIMESTAMP, UNKNOWN_OFFSET, ProducerInfo

REMEMBERED_BATCHES = 5
"""Batches per producer that are recognised as duplicates: clients have at most 5 in flight."""

_LAST_SEQUENCE = (1 << 31) - 1
_LAST_EPOCH = (1 << 15) - 1
_NO_COORDINATOR_EPOCH = -1


class VerificationGuard:
    """Proof that the coordinator was asked about a producer on this partition (KIP-890).

    Compared by identity. A marker drops it, so a batch that was verified before an abort cannot
    slip in behind the abort's marker.
    """

    __slots__ = ("first_checked_ms", "lowest_sequence", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, lowest_sequence: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.first_checked_ms: int | None = None

    def note(self, producer_epoch: int, base_sequence: int) -> None:
        """One more batch waits for this verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)


class CompletedTransaction(NamedTuple):
    """A transaction with data here whose marker is at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer on one partition, from its first batch or marker here on."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = _NO_COORDINATOR_EPOCH
        self.current_txn_first_offset = UNKNOWN_OFFSET
        self.last_timestamp = NO_TIMESTAMP
        self.batches: deque[BatchMetadata] = deque(maxlen=REMEMBERED_BATCHES)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def in_transaction(self) -> bool:
        return self.current_txn_first_offset != UNKNOWN_OFFSET

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with exactly this epoch and these sequences."""
        if header.producer_epoch != self.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def check_epoch(self, producer_epoch: int) -> None:
        if producer_epoch < self.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer {self.producer_id} is smaller than the last "
                f"seen epoch {self.producer_epoch}",
            )

    def check_sequence(self, producer_epoch: int, base_sequence: int) -> None:
        """A new epoch starts at 0, the same epoch goes on."""
        last = self.last_sequence if producer_epoch == self.producer_epoch else NO_SEQUENCE
        expected = 0 if last == _LAST_SEQUENCE else last + 1
        if base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {self.producer_id} with epoch {producer_epoch} sent sequence "
                f"{base_sequence}, expected {expected}",
            )

    def check_transactional(self, transactional: bool) -> None:
        if self.in_transaction and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {self.producer_id} sent a non-transactional batch inside a transaction",
            )

    def check_marker(
        self, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """TV2 markers carry a bumped epoch; an equal one is a retry whose transaction is over."""
        if transaction_version >= 2 and producer_epoch == self.producer_epoch:
            # 32767 cannot be bumped: the coordinator goes on with a new producer id.
            if self.in_transaction and producer_epoch != _LAST_EPOCH:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"The marker for producer {self.producer_id} has its epoch {producer_epoch} "
                    "while its transaction is open",
                )
        else:
            self.check_epoch(producer_epoch)
        if coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} is smaller than {self.coordinator_epoch}",
            )

    def apply_batch(self, header: BatchHeader, base_offset: int, timestamp: int) -> bool:
        """The batch is in the log at ``base_offset``. True when it began a transaction."""
        self._take_epoch(header.producer_epoch)
        if header.base_sequence >= 0:
            last_offset = base_offset + header.last_offset_delta
            self.batches.append(
                BatchMetadata(
                    header.base_sequence,
                    header.last_sequence,
                    last_offset,
                    header.last_offset_delta,
                    timestamp,
                )
            )
        self.last_timestamp = timestamp
        if header.is_transactional and not self.in_transaction:
            self.current_txn_first_offset = base_offset
            return True
        return False

    def apply_marker(self, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """The marker is in the log. Returns the first offset of what it ended, -1 for nothing."""
        first_offset = self.current_txn_first_offset
        self._take_epoch(producer_epoch)
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = UNKNOWN_OFFSET
        self.last_timestamp = timestamp
        return first_offset

    def _take_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()


class ProducerStates:
    """Every producer of one partition, and the transactions that hold back the stable offset."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        # In order of first offset, because transactions begin in log order.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # Ended, but their marker is not below the high watermark yet; in order of marker offset.
        self._unflushed: deque[CompletedTransaction] = deque()
        self._guards: dict[int, VerificationGuard] = {}

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.in_transaction and entry.producer_epoch == producer_epoch

    def guard_for(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> VerificationGuard | None:
        """The guard to hold while the coordinator is asked; None when a transaction is open."""
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = VerificationGuard(producer_id, producer_epoch, base_sequence)
            self._guards[producer_id] = guard
        else:
            guard.note(producer_epoch, base_sequence)
        return guard

    def check_client_batch(
        self, header: BatchHeader, guard: VerificationGuard | None, transaction_version: int
    ) -> BatchMetadata | None:
        """The original if this is a duplicate; None means append it. Raises KafkaError."""
        entry = self._entries.get(header.producer_id)
        if entry is not None:
            duplicate = entry.duplicate_of(header)
            if duplicate is not None:
                return duplicate
            entry.check_epoch(header.producer_epoch)
        if header.is_transactional:
            self._check_verified(header, guard)
            if entry is None:
                self._check_first_sequence(header, transaction_version)
        if entry is not None:
            entry.check_sequence(header.producer_epoch, header.base_sequence)
            entry.check_transactional(header.is_transactional)
        return None

    def check_coordinator_batch(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Our own coordinator: no sequences, but epochs fence and transactions are verified."""
        entry = self._entries.get(header.producer_id)
        if entry is not None:
            entry.check_epoch(header.producer_epoch)
        if header.is_transactional:
            self._check_verified(header, guard)
        if entry is not None:
            entry.check_transactional(header.is_transactional)

    def _check_verified(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        if self.has_open_transaction(header.producer_id, header.producer_epoch):
            return
        if guard is None or self._guards.get(header.producer_id) is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has no transaction open on this partition",
            )

    def _check_first_sequence(self, header: BatchHeader, transaction_version: int) -> None:
        """Without producer state any sequence would do: what must not be overtaken is known only
        from the batches that wait for verification, and version 2 always begins at 0."""
        guard = self._guards.get(header.producer_id)
        overtakes = guard is not None and header.base_sequence > guard.lowest_sequence
        if overtakes or (transaction_version >= 2 and header.base_sequence != 0):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} begins here with sequence {header.base_sequence}",
            )

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        entry = self._entries.get(producer_id)
        if entry is not None:
            entry.check_marker(producer_epoch, coordinator_epoch, transaction_version)

    def apply_batch(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """``timestamp`` (ms) is when the producer was last heard of: what expiry goes by."""
        entry = self._entry(header.producer_id)
        if entry.apply_batch(header, base_offset, timestamp):
            self._ongoing[header.producer_id] = base_offset
        if header.is_transactional:
            self._guards.pop(header.producer_id, None)

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        commit: bool,
        offset: int,
        timestamp: int,
    ) -> CompletedTransaction | None:
        """The marker is at ``offset``. None when it ended nothing here."""
        self._guards.pop(producer_id, None)
        first_offset = self._entry(producer_id).apply_marker(
            producer_epoch, coordinator_epoch, timestamp
        )
        if first_offset == UNKNOWN_OFFSET:
            return None
        self._ongoing.pop(producer_id, None)
        completed = CompletedTransaction(producer_id, first_offset, offset, not commit)
        self._unflushed.append(completed)
        return completed

    def _entry(self, producer_id: int) -> ProducerEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        return entry

    def aborted(self, completed: CompletedTransaction) -> AbortedTransaction:
        """The index entry of an aborted transaction, made when its marker is appended."""
        stable = next(iter(self._ongoing.values()), completed.last_offset + 1)
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )

    def settle(self, high_watermark: int) -> None:
        """Markers below the high watermark are durable: their transactions are over."""
        while self._unflushed and self._unflushed[0].last_offset < high_watermark:
            self._unflushed.popleft()

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or not settled."""
        first = next(iter(self._ongoing.values()), None)
        for completed in self._unflushed:
            if first is None or completed.first_offset < first:
                first = completed.first_offset
        return first

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction, and guards, that are this old."""
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if not entry.in_transaction and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        for guard in list(self._guards.values()):
            if guard.first_checked_ms is None:
                guard.first_checked_ms = now_ms
            elif now_ms - guard.first_checked_ms >= expiration_ms:
                del self._guards[guard.producer_id]

    def infos(self) -> list[ProducerInfo]:
        return [
            ProducerInfo(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for entry in self._entries.values()
        ]

    def snapshot(self) -> Iterator[ProducerSnapshot]:
        for entry in self._entries.values():
            yield ProducerSnapshot(
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
                entry.last_timestamp,
                tuple(entry.batches),
            )

    def load(self, snapshots: Iterable[ProducerSnapshot]) -> None:
        """Start over from a snapshot."""
        self._entries.clear()
        self._ongoing.clear()
        self._unflushed.clear()
        self._guards.clear()
        for snapshot in snapshots:
            entry = self._entry(snapshot.producer_id)
            entry.producer_epoch = snapshot.producer_epoch
            entry.coordinator_epoch = snapshot.coordinator_epoch
            entry.current_txn_first_offset = snapshot.current_txn_first_offset
            entry.last_timestamp = snapshot.last_timestamp
            entry.batches.extend(snapshot.batches)
        open_entries = [entry for entry in self._entries.values() if entry.in_transaction]
        for entry in sorted(open_entries, key=lambda entry: entry.current_txn_first_offset):
            self._ongoing[entry.producer_id] = entry.current_txn_first_offset
