"""The coordinators' only door to the log: a port, implemented by the composition root.

Times and offsets are Kafka's. Appends are synchronous (page cache); ``committed`` is the only wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ..types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from .result import Record


class LoadedBatch(NamedTuple):
    """One batch read back at start.

    marker: ``None`` for data; else the end of ``producer_id``'s transaction, ``True`` = commit
        (``records`` is empty then).
    producer_id: -1 unless the batch is transactional.
    offset of ``records[i]``: ``base_offset + i`` (coordinator batches have no holes; a compacted
        batch is yielded in pieces).
    """

    base_offset: int
    producer_id: int
    producer_epoch: int
    marker: bool | None
    records: list[Record]


class LogWriter(Protocol):
    """Appends to and reads the partitions of one internal topic."""

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        transactional: bool = False,
        guard: object | None = None,
    ) -> tuple[int, int]:
        """Append one batch; returns (base offset, last offset). Raises ``KafkaError``.

        The first batch of a transaction needs the ``guard`` that the log gave out before the
        transaction was verified: INVALID_TXN_STATE without it, or when a marker came in between.
        """
        ...

    def append_marker(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> int:
        """Append the control batch that ends a transaction; returns its offset.

        Raises ``KafkaError``.
        """
        ...

    async def committed(self, partition: int, offset: int) -> None:
        """Return when the high watermark is above ``offset``.

        Returns without suspending when it already is. Raises ``KafkaError`` if the log is closing.
        """
        ...

    def read_all(self, partition: int) -> Iterator[LoadedBatch]:
        """Every batch of the partition in order, markers included. Raises ``KafkaError``."""
        ...
