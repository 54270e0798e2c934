"""The aborted-transaction index of one partition (Kafka's ``TransactionIndex``), in memory.

Its durable form is in the log itself (the ABORT markers) and in the snapshots.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from ..storage.snapshot import AbortedTransaction


class AbortedTransactions:
    """Aborted transactions in the order of their markers."""

    def __init__(self) -> None:
        self._transactions: list[AbortedTransaction] = []

    def load(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Start over with these, in the order of their markers."""
        self._transactions = list(transactions)

    def append(self, transaction: AbortedTransaction) -> None:
        self._transactions.append(transaction)

    def since(self, offset: int) -> tuple[AbortedTransaction, ...]:
        """Those whose marker is at ``offset`` or later."""
        return tuple(self._transactions[self._first_ending_at(offset) :])

    def overlapping(self, offset: int, upper_bound: int) -> list[tuple[int, int]]:
        """(producer_id, first_offset) of those with data or marker in [offset, upper_bound)."""
        found = []
        for number in range(self._first_ending_at(offset), len(self._transactions)):
            transaction = self._transactions[number]
            if transaction.first_offset < upper_bound:
                found.append((transaction.producer_id, transaction.first_offset))
            if transaction.last_stable_offset >= upper_bound:
                break  # whatever ended later began at or above the upper bound
        return found

    def prune(self, log_start_offset: int) -> None:
        """Forget those that lie wholly below the log start."""
        del self._transactions[: self._first_ending_at(log_start_offset)]

    def _first_ending_at(self, offset: int) -> int:
        return bisect_left(self._transactions, offset, key=lambda entry: entry.last_offset)
