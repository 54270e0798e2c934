"""One segment: a file of consecutive record batches, named by the offset of the first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ..records.batch import HEADER_SIZE, MAGIC, BatchHeader, CorruptBatch, crc_is_valid, read_header
from ..types import Buffer
from .filesystem import File, FileSystem
from .sparse_index import INDEX_INTERVAL, SparseIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TEMPORARY_SUFFIX = ".tmp"

_SCAN_CHUNK = 1 << 20
# Base offset, batch length and last offset delta: all a reader must know of a batch.
_FRAME = Struct(">qi11xi")
_LENGTH_OVERHEAD = 12
_MIN_LENGTH = HEADER_SIZE - _LENGTH_OVERHEAD


class StoredBatch(NamedTuple):
    """A whole batch found in a segment."""

    position: int
    header: BatchHeader
    data: memoryview


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """A segment file with its index. ``size`` is the end of its last whole batch, in bytes.

    The file may be longer than ``size`` for a while (failed append, unclean stop); nobody reads
    there and the next append cuts it.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        file: File,
        index: SparseIndex | None = None,
    ) -> None:
        self._fs = fs
        self.base_offset = base_offset
        self.path = f"{directory}/{segment_name(base_offset)}{LOG_SUFFIX}"
        self.file = file
        self.size = file.size()
        self.next_offset = base_offset
        self._index_path = f"{directory}/{segment_name(base_offset)}{INDEX_SUFFIX}"
        self._index = index
        self._index_cached = index is None
        """Whether the cache file, if there is one, says what the index says."""

    @classmethod
    def create(cls, fs: FileSystem, directory: str, base_offset: int) -> Segment:
        """A new, empty segment; what a failed attempt left under its name is overwritten."""
        path = f"{directory}/{segment_name(base_offset)}{LOG_SUFFIX}"
        file = fs.open(path, create=True)
        if file.size():
            file.truncate(0)
        segment = cls(fs, directory, base_offset, file)
        segment._remove_cached_index()
        segment._index = SparseIndex(base_offset)
        return segment

    @property
    def index(self) -> SparseIndex:
        """Loaded at first use: from the cache file if it fits, else from the batch headers."""
        if self._index is None:
            self._index = self._cached_index() or self._rebuilt_index()
        return self._index

    @property
    def max_timestamp(self) -> int:
        return self.index.max_timestamp

    def append(self, data: Buffer, header: BatchHeader) -> None:
        """Write one batch, whose ``header`` is as written. Raises OSError with nothing changed."""
        index = self.index
        if self._index_cached:
            self._remove_cached_index()
        if self.file.size() != self.size:
            self.file.truncate(self.size)
        try:
            self.file.append((data,))
        except OSError:
            # If this fails too, the next append tries again before it writes.
            with contextlib.suppress(OSError):
                self.file.truncate(self.size)
            raise
        index.add(header)
        self.size += header.size
        self.next_offset = header.next_offset

    def read(
        self, offset: int, *, limit: int, max_bytes: int, min_one: bool
    ) -> tuple[memoryview, int] | None:
        """Whole batches from the one with ``offset`` on, below ``limit``, and the next offset.

        At most ``max_bytes``, but the first batch always when ``min_one``. None when none fits.
        """
        position = self.index.position_for_offset(offset)
        while True:
            # The batch begins less than one interval behind its index entry.
            ahead = min(max_bytes + INDEX_INTERVAL + _FRAME.size, self.size - position)
            data = memoryview(self.file.pread(position, ahead))
            start = end = _position_of(data, offset)
            if not start or start + _FRAME.size <= len(data):
                break
            # The offset was compacted away: the batch behind the gap may begin further on.
            position += start
        next_offset = offset
        while end + _FRAME.size <= len(data):
            base_offset, length, last_offset_delta = _FRAME.unpack_from(data, end)
            batch_end = end + length + _LENGTH_OVERHEAD
            if base_offset >= limit or length < _MIN_LENGTH:
                break
            if batch_end - start > max_bytes:
                if end == start and min_one:
                    whole = self.file.pread(position + start, batch_end - start)
                    return memoryview(whole), base_offset + last_offset_delta + 1
                break
            end = batch_end
            next_offset = base_offset + last_offset_delta + 1
        return (data[start:end], next_offset) if end > start else None

    def batches(self, position: int = 0, *, chunk: int = _SCAN_CHUNK) -> Iterator[StoredBatch]:
        """Batches from a batch boundary on, up to the first place that cannot be a whole batch.

        Only sizes are checked. The file is read as far as it goes, also beyond ``size``.
        """
        end = self.file.size()
        while end - position >= HEADER_SIZE:
            data = memoryview(self.file.pread(position, min(chunk, end - position)))
            at = 0
            while len(data) - at >= HEADER_SIZE:
                try:
                    header = read_header(data, at)
                except CorruptBatch:
                    return
                if header.size > len(data) - at:
                    break
                yield StoredBatch(position + at, header, data[at : at + header.size])
                at += header.size
            position += at
            if not at or len(data) - at >= HEADER_SIZE:
                needed = read_header(data, at).size
                if needed > end - position:
                    return
                chunk = max(chunk, needed)

    def recover(self, *, gaps: bool = False) -> Iterator[StoredBatch]:
        """Check every batch and rebuild the index; afterwards ``size`` is where the good bytes end.

        A good batch has a valid CRC and follows the one before, without a gap in the offsets unless
        compaction may have left some.
        """
        self.size = 0
        self._index = index = SparseIndex(self.base_offset)
        self._remove_cached_index()
        for batch in self.batches():
            header = batch.header
            if (
                header.base_offset < index.next_offset
                or (header.base_offset > index.next_offset and not gaps)
                or header.last_offset_delta < 0
                or header.magic != MAGIC
                or not crc_is_valid(batch.data, 0, header.size)
            ):
                break
            index.add(header)
            self.size = index.size
            yield batch
        self.next_offset = index.next_offset

    def cut(self) -> int:
        """Remove what is in the file behind ``size``. Returns how many bytes that was."""
        surplus = self.file.size() - self.size
        if surplus:
            self.file.truncate(self.size)
        return surplus

    def rewrite(self) -> None:
        """Put a durable copy of the good bytes in the place of the file, whatever the kernel
        believes to be on the disk. Durable after ``fsync_dir``. Raises OSError with the old file in
        place.
        """
        temporary = self.path + TEMPORARY_SUFFIX
        copy = self._fs.open(temporary, create=True)
        try:
            copy.truncate(0)
            for position in range(0, self.size, _SCAN_CHUNK):
                chunk = min(_SCAN_CHUNK, self.size - position)
                copy.append((self.file.pread(position, chunk),))
            copy.fsync_now()
        finally:
            copy.close()
        self._fs.rename(temporary, self.path)
        self.file.close()
        self.file = self._fs.open(self.path)

    def write_index_cache(self) -> None:
        """Keep the index in a file (not synced: it is checked when read)."""
        if self._index_cached:
            return
        temporary = self._index_path + TEMPORARY_SUFFIX
        file = self._fs.open(temporary, create=True)
        file.truncate(0)
        file.append((self.index.encode(),))
        file.close()
        self._fs.rename(temporary, self._index_path)
        self._index_cached = True

    def remove(self) -> None:
        self.file.close()
        self._fs.remove(self.path)
        self._remove_cached_index()

    def _cached_index(self) -> SparseIndex | None:
        if not self._fs.exists(self._index_path):
            return None
        data = self._fs.read(self._index_path)
        return SparseIndex.decode(data, self.base_offset, self.size)

    def _rebuilt_index(self) -> SparseIndex:
        self._remove_cached_index()
        index = SparseIndex(self.base_offset)
        for batch in self.batches():
            if batch.position >= self.size:
                break
            index.add(batch.header)
        return index

    def _remove_cached_index(self) -> None:
        if self._fs.exists(self._index_path):
            self._fs.remove(self._index_path)
        self._index_cached = False


def _position_of(data: memoryview, offset: int) -> int:
    """Where in ``data`` (which begins with a batch) the batch with ``offset`` begins."""
    position = 0
    while position + _FRAME.size <= len(data):
        base_offset, length, last_offset_delta = _FRAME.unpack_from(data, position)
        if base_offset + last_offset_delta >= offset or length < _MIN_LENGTH:
            break
        position += length + _LENGTH_OVERHEAD
    return position
