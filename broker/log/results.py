"""What a partition log answers: the values that cross the border between a log and its users."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ..types import Buffer

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
NO_TIMESTAMP = -1
UNKNOWN_OFFSET = -1
UNDEFINED_EPOCH = -1


class Origin(enum.Enum):
    """Who appends (Kafka's ``AppendOrigin``)."""

    CLIENT = "client"
    """A Produce request: every check applies."""
    COORDINATOR = "coordinator"
    """Our group or transaction coordinator: every check but those of sequences."""


class Isolation(enum.IntEnum):
    """How far a reader may see; the numbers are those of the wire."""

    READ_UNCOMMITTED = 0
    """Up to the high watermark."""
    READ_COMMITTED = 1
    """Up to the last stable offset, with the list of aborted transactions."""


class AppendResult(NamedTuple):
    """Where a batch is in the log.

    ``duplicate``: nothing was appended, the offsets are those of the original; the answer to the
    producer still waits until the original is flushed. ``log_append_time`` is -1 for CreateTime.
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class ReadResult(NamedTuple):
    """Whole batches from one read.

    ``records`` joined is a sequence of whole batches (empty when there is nothing to read yet);
    ``next_offset`` is where to go on. ``aborted`` holds (producer_id, first_offset) of each aborted
    transaction that overlaps what was returned; None for read_uncommitted.
    """

    records: list[Buffer]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None

    @property
    def size(self) -> int:
        """Bytes in ``records``."""
        return sum(len(buffer) for buffer in self.records)


class ProducerInfo(NamedTuple):
    """One producer as DescribeProducers shows it (-1: none)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
