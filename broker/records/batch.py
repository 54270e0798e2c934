"""Batch headers: reading them, and giving a batch its offsets without touching its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..types import Buffer
from .compression import Compression
from .kernel import kernel
from .layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
)

__all__ = [
    "HEADER_SIZE",
    "MAGIC",
    "BatchHeader",
    "CorruptBatch",
    "crc_is_valid",
    "increment_sequence",
    "iter_headers",
    "read_header",
    "stamp",
    "stamp_log_append_time",
]

_PREFIX_SIZE = 16
_LAST_SEQUENCE = 2**31 - 1


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records. ``size`` is the whole batch in bytes."""

    base_offset: int
    size: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch, also when compaction removed its last records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 when the batch has no sequences."""
        if self.base_sequence < 0:
            return self.base_sequence
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        """Raises ``KafkaError(UNSUPPORTED_COMPRESSION_TYPE)`` for ids Kafka does not define."""
        return Compression.from_id(self.attributes & COMPRESSION_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is ``max_timestamp``, whatever the record says."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0


def increment_sequence(sequence: int, increment: int) -> int:
    """``sequence + increment``, wrapping from 2**31 - 1 to 0 as Kafka's sequences do."""
    return (sequence + increment) & _LAST_SEQUENCE


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at ``position``; its records may be missing, its CRC is not checked.

    Raises ``CorruptBatch`` when fewer than 61 bytes are there or the batch claims to be shorter.
    """
    if position < 0 or len(buf) - position < HEADER_SIZE:
        raise CorruptBatch(f"{len(buf) - position} bytes are too few for a batch header")
    base_offset, length, *rest = HEADER.unpack_from(buf, position)
    size = length + LENGTH_OVERHEAD
    if size < HEADER_SIZE:
        raise CorruptBatch(f"a batch cannot have {size} bytes")
    return BatchHeader(base_offset, size, *rest)


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch in ``buf``; an incomplete one at the end is ignored.

    Raises ``CorruptBatch`` when a batch claims an impossible size.
    """
    position = 0
    while len(buf) - position >= HEADER_SIZE:
        header = read_header(buf, position)
        if header.size > len(buf) - position:
            return
        yield position, header
        position += header.size


def crc_is_valid(buf: Buffer, position: int, size: int) -> bool:
    """Whether the CRC-32C of the batch at ``position`` matches its ``size`` bytes."""
    if size < HEADER_SIZE or position < 0 or len(buf) - position < size:
        return False
    covered = memoryview(buf)[position + ATTRIBUTES_OFFSET : position + size]
    return bool(kernel.crc32c(covered) == read_header(buf, position).crc)


def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """The batch at its place in the log: a new 16-byte prefix, the rest by reference.

    Base offset and leader epoch are outside the CRC, so nothing else changes.
    """
    view = memoryview(batch)
    prefix = bytearray(view[:_PREFIX_SIZE])
    prefix[:LENGTH_OFFSET] = base_offset.to_bytes(8, "big", signed=True)
    prefix[LENGTH_OVERHEAD:] = leader_epoch.to_bytes(4, "big", signed=True)
    return [bytes(prefix), view[_PREFIX_SIZE:]]


def stamp_log_append_time(
    batch: Buffer, base_offset: int, leader_epoch: int, now_ms: int
) -> list[Buffer]:
    """Like ``stamp``, and makes ``now_ms`` the timestamp of every record (``LogAppendTime``).

    Attributes and max timestamp are inside the CRC, which is computed anew over the whole batch.
    """
    header = read_header(batch)
    records = memoryview(batch)[HEADER_SIZE:]
    stamped = bytearray(
        HEADER.pack(
            base_offset,
            header.size - LENGTH_OVERHEAD,
            leader_epoch,
            header.magic,
            0,
            header.attributes | LOG_APPEND_TIME,
            header.last_offset_delta,
            header.base_timestamp,
            now_ms,
            *header[9:],
        )
    )
    crc = kernel.crc32c(records, kernel.crc32c(memoryview(stamped)[ATTRIBUTES_OFFSET:]))
    stamped[ATTRIBUTES_OFFSET - 4 : ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return [bytes(stamped), records]
