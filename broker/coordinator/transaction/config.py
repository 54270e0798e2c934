"""Settings of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """All times in ms; the defaults are Kafka's.

    partitions: of ``__transaction_state``.
    busy_wait_ms: how long InitProducerId, the Add requests and the produce path wait for the
        previous transaction's markers before they answer 51.
    """

    partitions: int = 1
    max_timeout_ms: int = 15 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    expiration_check_interval_ms: int = 60 * 60 * 1000
    busy_wait_ms: int = 100

    @classmethod
    def from_kafka(
        cls, settings: Mapping[str, str | int], *, partitions: int = 1
    ) -> TransactionConfig:
        """Take the keys that concern transactions from a broker's settings; raises ValueError."""
        values = {KEYS[key]: int(value) for key, value in settings.items() if key in KEYS}
        return cls(partitions=partitions, **values)


KEYS: Mapping[str, str] = {
    "transaction.max.timeout.ms": "max_timeout_ms",
    "transactional.id.expiration.ms": "transactional_id_expiration_ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "expiration_check_interval_ms",
    "add.partitions.to.txn.retry.backoff.max.ms": "busy_wait_ms",
}
"""Kafka key -> field of ``TransactionConfig``."""
