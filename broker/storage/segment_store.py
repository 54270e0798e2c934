"""The segments of one partition, oldest first; the last one is active and takes the appends."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

from ..records.batch import BatchHeader
from ..types import Buffer
from .filesystem import File, FileSystem
from .segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    Segment,
    StoredBatch,
    segment_name,
)
from .sparse_index import SparseIndex

_logger = logging.getLogger(__name__)

_OFFSET_DIGITS = 20
_MAX_RELATIVE_OFFSET = (1 << 31) - 1
REPLACEMENT_SUFFIX = ".swap"
_REPLACEMENT = re.compile(r"(\d{20})-(\d{20})" + re.escape(REPLACEMENT_SUFFIX))
_OF_A_SEGMENT = frozenset({LOG_SUFFIX, INDEX_SUFFIX})


class SegmentStore:
    """Files, positions and offsets; what the batches mean is the log's business.

    Opening trusts sealed segments. The active one's end is not known until ``recover`` scanned it
    or ``trust_end`` was told.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.fs = fs
        self.directory = directory
        self._segments: list[Segment] = []
        self._unsynced: list[Segment] = []

    def open(self, first_offset: int) -> None:
        """Find the segments; an empty directory gets one that begins at ``first_offset``."""
        self._finish_replacements()
        names = self.fs.list(self.directory)
        bases = sorted(
            int(name[:_OFFSET_DIGITS])
            for name in names
            if name.endswith(LOG_SUFFIX) and name[:-4].isdigit() and len(name) == _OFFSET_DIGITS + 4
        )
        known = {segment_name(base) for base in bases}
        for name in names:
            orphan = name.endswith(INDEX_SUFFIX) and name.removesuffix(INDEX_SUFFIX) not in known
            if orphan or name.endswith(TEMPORARY_SUFFIX):
                self.fs.remove(f"{self.directory}/{name}")
        for base in bases:
            file = self.fs.open(f"{self.directory}/{segment_name(base)}{LOG_SUFFIX}")
            self._segments.append(Segment(self.fs, self.directory, base, file))
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            segment.next_offset = following.base_offset
        if not self._segments:
            self._segments.append(Segment.create(self.fs, self.directory, first_offset))

    def replace(self, segments: Sequence[Segment], temporary: str, index: SparseIndex) -> None:
        """Put the durable file ``temporary`` in the place of sealed neighbours.

        Its batches must lie in their offsets and reach to their end. Either all of them are
        replaced or none, whenever the power fails. After an OSError the next ``open`` decides.
        """
        first, last = segments[0], segments[-1]
        number = self._segments.index(first)
        bounds = f"{segment_name(first.base_offset)}-{segment_name(last.next_offset)}"
        self.fs.rename(temporary, f"{self.directory}/{bounds}{REPLACEMENT_SUFFIX}")
        self.fs.fsync_dir(self.directory)
        # From here on the new file is the log, after a crash too.
        for segment in segments:
            segment.file.close()
        self._finish_replacements()
        file = self.fs.open(first.path)
        new = Segment(self.fs, self.directory, first.base_offset, file, index)
        new.next_offset = last.next_offset
        new.write_index_cache()
        self._segments[number : number + len(segments)] = [new]

    def _finish_replacements(self) -> None:
        """Remove what a replacement stands for, durably, before it takes the name of the first."""
        for name in self.fs.list(self.directory):
            match = _REPLACEMENT.fullmatch(name)
            if match is None:
                continue
            base, end = int(match[1]), int(match[2])
            for old in self.fs.list(self.directory):
                stem, _, suffix = old.partition(".")
                within = stem.isdigit() and base <= int(stem) < end
                if within and f".{suffix}" in _OF_A_SEGMENT and old != f"{match[1]}{LOG_SUFFIX}":
                    self.fs.remove(f"{self.directory}/{old}")
            self.fs.fsync_dir(self.directory)
            self.fs.rename(
                f"{self.directory}/{name}", f"{self.directory}/{segment_name(base)}{LOG_SUFFIX}"
            )
            self.fs.fsync_dir(self.directory)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> int:
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def trust_end(self, end_offset: int) -> None:
        """The active segment is whole and ends at ``end_offset`` (after a clean stop)."""
        self.active.next_offset = end_offset

    def recover(
        self, first: int, *, rewrite: bool = False, gaps: bool = False
    ) -> Iterator[StoredBatch]:
        """Check the segments from number ``first`` on, and cut the log at the first bad byte.

        Yields every good batch. Later segments than the bad one are removed. Everything that was
        checked is synced at the end, so that what is kept is durable; with ``rewrite`` into new
        files, for a sync writes nothing that the kernel takes for written. ``gaps``: the log was
        compacted.
        """
        number = first
        while number < len(self._segments):
            segment = self._segments[number]
            end_expected = segment.next_offset if segment is not self.active else None
            yield from segment.recover(gaps=gaps)
            surplus = segment.cut()
            if surplus or end_expected not in (None, segment.next_offset):
                self._drop_after(number, surplus)
            if rewrite:
                segment.rewrite()
            else:
                segment.file.fsync_now()
            number += 1

    def _drop_after(self, number: int, surplus: int) -> None:
        """Segment ``number`` was cut: what followed it is no log any more."""
        segment = self._segments[number]
        later = self._segments[number + 1 :]
        _logger.warning(
            "log %s is damaged or torn at offset %d (segment %d, position %d): dropped %d bytes "
            "there and %d later segments of %d bytes",
            self.directory,
            segment.next_offset,
            segment.base_offset,
            segment.size,
            surplus,
            len(later),
            sum(other.file.size() for other in later),
        )
        del self._segments[number + 1 :]
        for other in reversed(later):
            other.remove()

    def restart_at(self, offset: int) -> None:
        """Throw every segment away and begin an empty log at ``offset``."""
        for segment in reversed(self._segments):
            segment.remove()
        self._segments = [Segment.create(self.fs, self.directory, offset)]
        self._unsynced = []
        self.active.file.fsync_now()
        self.fs.fsync_dir(self.directory)

    def needs_roll(self, header: BatchHeader, *, max_bytes: int, max_age_ms: int) -> bool:
        """Whether the batch ``header`` (with its offsets) must begin a new segment."""
        active = self._segments[-1]
        if not active.size:
            return False
        if active.size + header.size > max_bytes:
            return True
        if header.last_offset - active.base_offset > _MAX_RELATIVE_OFFSET:
            return True
        first = active.index.first_timestamp
        return first >= 0 and header.max_timestamp - first > max_age_ms

    def roll(self) -> None:
        """Seal the active segment and begin a new one. Raises OSError with nothing changed."""
        sealed = self.active
        new = Segment.create(self.fs, self.directory, sealed.next_offset)
        self._segments.append(new)
        # The new file's name must become durable with the next sync even when nothing follows.
        self._mark_unsynced(new)
        try:
            sealed.write_index_cache()
        except OSError as error:
            _logger.warning("no index cache for %s: %s", sealed.path, error)

    def append(self, data: Buffer, header: BatchHeader) -> None:
        """Append one batch as written. Raises OSError with nothing changed."""
        active = self._segments[-1]
        active.append(data, header)
        self._mark_unsynced(active)

    def _mark_unsynced(self, segment: Segment) -> None:
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def unsynced_files(self) -> list[File]:
        return [segment.file for segment in self._unsynced]

    def synced_to(self, offset: int) -> None:
        """Every append below ``offset`` is durable."""
        end = self.end_offset
        self._unsynced = [
            segment
            for segment in self._unsynced
            if (end if segment is self._segments[-1] else segment.next_offset) > offset
        ]

    def sync_now(self) -> None:
        """Make everything durable, blocking."""
        for segment in self._unsynced:
            segment.file.fsync_now()
        self._unsynced = []

    def segment_number(self, offset: int) -> int:
        """Number of the segment that has ``offset`` (the first one for older offsets)."""
        low, high = 0, len(self._segments) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle - 1
        return low

    def read(
        self, offset: int, *, limit: int, max_bytes: int, min_one: bool
    ) -> tuple[list[Buffer], int]:
        """Whole batches from the one with ``offset`` on, below ``limit``, and the next offset."""
        records: list[Buffer] = []
        number = self.segment_number(offset)
        while offset < limit and number < len(self._segments):
            segment = self._segments[number]
            found = segment.read(offset, limit=limit, max_bytes=max_bytes, min_one=min_one)
            if found is None:
                break
            data, offset = found
            records.append(data)
            max_bytes -= len(data)
            min_one = False
            if max_bytes <= 0 or offset < segment.next_offset:
                break
            number += 1
        return records, offset

    def batches(self, offset: int) -> Iterator[StoredBatch]:
        """Every batch from the one with ``offset`` to the end of the log as it is now."""
        end = self.end_offset
        for segment in self._segments[self.segment_number(offset) :]:
            for batch in segment.batches(segment.index.position_for_offset(offset)):
                if batch.header.base_offset >= end:
                    return
                if batch.header.next_offset > offset:
                    yield batch

    def drop_oldest(self) -> int:
        """Remove the oldest segment (never the active one). Returns its size."""
        segment = self._segments.pop(0)
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        segment.remove()
        return segment.size

    def write_index_cache(self) -> None:
        self.active.write_index_cache()

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()
