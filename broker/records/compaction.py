"""A batch without some of its records, for the log cleaner.

Base offset, last offset delta, sequences and epochs stay, so no offset and no sequence changes:
what is removed leaves holes, and an emptied batch still says which offsets and sequences it was.
Source: ``MemoryRecords.filterTo`` of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Buffer
from .batch import BatchHeader
from .compression import Compression, compress, decompress
from .kernel import kernel
from .layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptBatch,
)

NO_TIMESTAMP = -1
_LARGEST_SHIFT = 28


def retained(
    batch: Buffer, header: BatchHeader, keep: Sequence[bool], timestamps: Sequence[int]
) -> bytes:
    """The batch with the records for which ``keep`` is true, and not transactional any more.

    Whoever reads it must not need the marker of its transaction: it is for data whose fate is
    settled. ``timestamps`` (ms) are those of all records. Raises CorruptBatch.
    """
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    count = sum(keep)
    attributes = header.attributes & ~TRANSACTIONAL
    max_timestamp = header.max_timestamp
    if count != len(keep):
        payload = memoryview(_kept_payload(payload, header.compression, keep))
        if not count:
            attributes &= ~COMPRESSION_MASK
            max_timestamp = NO_TIMESTAMP
        elif not header.attributes & LOG_APPEND_TIME:
            max_timestamp = max(
                timestamp for timestamp, kept in zip(timestamps, keep, strict=True) if kept
            )
    head = bytearray(
        HEADER.pack(
            header.base_offset,
            HEADER_SIZE + len(payload) - LENGTH_OVERHEAD,
            header.partition_leader_epoch,
            header.magic,
            0,
            attributes,
            header.last_offset_delta,
            header.base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
    )
    crc = kernel.crc32c(payload, kernel.crc32c(memoryview(head)[ATTRIBUTES_OFFSET:]))
    head[ATTRIBUTES_OFFSET - 4 : ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return bytes(head) + bytes(payload)


def _kept_payload(payload: Buffer, compression: Compression, keep: Sequence[bool]) -> bytes:
    if not any(keep):
        return b""
    data = memoryview(decompress(compression, payload))
    parts = []
    position = 0
    for kept in keep:
        end = _end_of_record(data, position)
        if kept:
            parts.append(data[position:end])
        position = end
    return compress(compression, b"".join(parts))


def _end_of_record(data: memoryview, position: int) -> int:
    """Where the record at ``position`` ends: it begins with its length as a zigzag varint."""
    length = shift = 0
    start = position
    while True:
        if position >= len(data) or shift > _LARGEST_SHIFT:
            raise CorruptBatch(f"the length of the record at {start} is cut off")
        byte = data[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    end = position + (length >> 1)
    if length & 1 or end > len(data):
        raise CorruptBatch(f"the record at {start} does not fit its batch")
    return end
