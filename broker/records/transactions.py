"""Which batches a read_committed reader sees (the consumer's half of KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence

from .batch import crc_is_valid, iter_headers
from .control import ControlType, read_control_type
from .layout import MAGIC, CorruptBatch


def committed_ranges(
    buf: memoryview, aborted: Sequence[tuple[int, int]], *, check_crcs: bool
) -> tuple[list[tuple[int, int]], int]:
    """Byte ranges of ``buf`` without the data of aborted transactions, and the offset after all.

    ``aborted`` holds ``(producer_id, first_offset)``. As in Kafka's consumer a producer is skipped
    from the first offset of its aborted transaction to its ABORT marker, and only its transactional
    batches are. Batches inside a range keep their neighbours: each range is decoded in one call.
    """
    pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    active: set[int] = set()
    ranges: list[tuple[int, int]] = []
    start = end = next_offset = 0
    for position, header in iter_headers(buf):
        end = position + header.size
        if header.base_offset < 0 or header.last_offset_delta < 0:
            raise CorruptBatch("the offsets of a batch are out of range")
        next_offset = header.next_offset
        while pending and pending[-1][1] <= header.last_offset:
            active.add(pending.pop()[0])
        if header.producer_id not in active:
            continue
        if header.magic != MAGIC:
            raise CorruptBatch(f"magic {header.magic} is not supported")
        if check_crcs and not crc_is_valid(buf, position, header.size):
            raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} is wrong")
        if header.is_control:
            if read_control_type(buf[position:end]) == ControlType.ABORT:
                active.discard(header.producer_id)
        elif header.is_transactional:
            if start < position:
                ranges.append((start, position))
            start = end
    if start < end:
        ranges.append((start, end))
    return ranges, next_offset
