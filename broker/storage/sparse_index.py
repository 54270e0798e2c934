"""A segment's index: one entry per few kilobytes, searched by offset and by timestamp.

It lives in memory. The ``.index`` file holds a copy from when the segment was sealed or closed; it
is a cache that is checked when read and can be rebuilt from the batch headers at any time.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from ..records.batch import BatchHeader

INDEX_INTERVAL = 4096
"""Bytes of batches per entry: a batch begins less than this behind the entry that leads to it."""

_MAGIC = b"OWX1"
_PREFIX = Struct(">4sI")
_HEAD = Struct(">qqqqI")


class SparseIndex:
    """Offsets and file positions of some batches, and the largest timestamp before each of them."""

    __slots__ = (
        "_max_timestamps_before",
        "_offsets",
        "_positions",
        "_since_entry",
        "first_timestamp",
        "max_timestamp",
        "next_offset",
        "size",
    )

    def __init__(self, base_offset: int) -> None:
        self._since_entry = INDEX_INTERVAL
        self._offsets = array("q")
        self._positions = array("q")
        self._max_timestamps_before = array("q")
        self.size = 0
        """Bytes of the segment that are indexed."""
        self.next_offset = base_offset
        self.first_timestamp = -1
        """Largest timestamp of the first batch: what rolling by time counts from."""
        self.max_timestamp = -1

    def add(self, header: BatchHeader) -> None:
        """The batch ``header`` follows what is indexed."""
        if self._since_entry >= INDEX_INTERVAL:
            self._since_entry = 0
            self._offsets.append(header.base_offset)
            self._positions.append(self.size)
            self._max_timestamps_before.append(self.max_timestamp)
        self._since_entry += header.size
        if not self.size:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
        self.size += header.size
        self.next_offset = header.next_offset

    def position_for_offset(self, offset: int) -> int:
        """A batch boundary at or before the batch with ``offset``."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_for_timestamp(self, timestamp: int) -> int:
        """A batch boundary; every batch before it has only timestamps below ``timestamp``."""
        entry = bisect_left(self._max_timestamps_before, timestamp) - 1
        return self._positions[entry] if entry >= 0 else 0

    def encode(self) -> bytes:
        body = _HEAD.pack(
            self.size,
            self.next_offset,
            self.first_timestamp,
            self.max_timestamp,
            len(self._offsets),
        ) + b"".join(
            _big_endian(column).tobytes()
            for column in (self._offsets, self._positions, self._max_timestamps_before)
        )
        return _PREFIX.pack(_MAGIC, zlib.crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes, base_offset: int, size: int) -> SparseIndex | None:
        """None unless ``data`` is an undamaged index of exactly ``size`` bytes of segment."""
        if len(data) < _PREFIX.size + _HEAD.size:
            return None
        magic, crc = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if magic != _MAGIC or zlib.crc32(body) != crc:
            return None
        index = cls(base_offset)
        index.size, index.next_offset, index.first_timestamp, index.max_timestamp, entries = (
            _HEAD.unpack_from(body)
        )
        if index.size != size:
            return None
        columns = body[_HEAD.size :]
        for number, column in enumerate(
            (index._offsets, index._positions, index._max_timestamps_before)
        ):
            column.frombytes(columns[number * entries * 8 : (number + 1) * entries * 8])
            if sys.byteorder == "little":
                column.byteswap()
        return index


def _big_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
