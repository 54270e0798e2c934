"""Finding a record by its timestamp (ListOffsets).

The index leads to a stretch of a few kilobytes, batch headers to the batch, and only that batch is
decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..records.codec import decode
from ..storage.segment import Segment, StoredBatch
from ..storage.segment_store import SegmentStore

_CHUNK = 64 << 10


class TimestampedOffset(NamedTuple):
    """A record's place and time (ms)."""

    offset: int
    timestamp: int


def first_at_or_after(
    store: SegmentStore, timestamp: int, *, start: int, limit: int
) -> TimestampedOffset | None:
    """The first record in [start, limit) whose timestamp is ``timestamp`` or later."""
    for segment in store.segments[store.segment_number(start) :]:
        if segment.base_offset >= limit:
            return None
        if segment.max_timestamp < timestamp:
            continue
        position = max(
            segment.index.position_for_timestamp(timestamp),
            segment.index.position_for_offset(start),
        )
        for batch in _batches_below(segment, position, limit):
            if batch.header.max_timestamp >= timestamp and batch.header.last_offset >= start:
                found = _first_in_batch(batch, timestamp, start)
                if found is not None:
                    return found
    return None


def latest_timestamp(store: SegmentStore, *, start: int, limit: int) -> TimestampedOffset | None:
    """The first record in [start, limit) with the largest timestamp there."""
    largest = -1
    for segment in store.segments[store.segment_number(start) :]:
        if start <= segment.base_offset and segment.next_offset <= limit:
            largest = max(largest, segment.max_timestamp)
        elif segment.base_offset < limit:
            position = segment.index.position_for_offset(start)
            for batch in _batches_below(segment, position, limit):
                if batch.header.last_offset >= start:
                    largest = max(largest, batch.header.max_timestamp)
    if largest < 0:
        return None
    return first_at_or_after(store, largest, start=start, limit=limit)


def _batches_below(segment: Segment, position: int, limit: int) -> Iterator[StoredBatch]:
    for batch in segment.batches(position, chunk=_CHUNK):
        if batch.header.base_offset >= limit:
            return
        yield batch


def _first_in_batch(batch: StoredBatch, timestamp: int, start: int) -> TimestampedOffset | None:
    header = batch.header
    if header.is_control:
        return TimestampedOffset(header.base_offset, header.max_timestamp)
    records = decode(batch.data, start_offset=start, check_crcs=False)
    for offset, found in zip(records.offsets, records.timestamps, strict=True):
        if found >= timestamp:
            return TimestampedOffset(offset, found)
    return None
