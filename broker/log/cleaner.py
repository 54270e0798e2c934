"""Compaction: of each key only the newest record stays (``cleanup.policy=compact``).

One pass reads the *dirty* segments (those behind the last pass) into a map of key -> newest offset
and then rewrites all cleanable segments, oldest first. Records keep their offsets.

What goes: records with a newer one of the same key, records without a key, aborted data, COMMIT
markers, and tombstones once ``delete.retention.ms`` passed since the pass that first met them. What
stays: ABORT markers (readers take the index of aborted transactions together with them) and the
last batch of each rewritten segment, emptied if need be, so that a segment ends where the next
begins. Committed data is not transactional any more, since its marker goes.

Only sealed segments below the last stable offset are touched: everything there is settled, durable
and never written again. Sources: Kafka's ``LogCleaner``, KIP-58 and KIP-354.

``clean`` is a generator so that nothing here waits: it yields None for "let others run" and a file
for "sync this before you go on".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ..records.batch import read_header
from ..records.codec import decode
from ..records.compaction import retained
from ..records.control import parse_end_marker
from ..storage.filesystem import File, FileSystem
from ..storage.segment import TEMPORARY_SUFFIX, Segment, StoredBatch
from ..storage.snapshot import AbortedTransaction
from ..storage.sparse_index import SparseIndex
from ..types import Buffer
from .config import LogConfig

CHECKPOINT_FILE = "cleaner-checkpoint"
_VERSION = 1
_BYTES_PER_TURN = 64 << 10
_MAX_KEYS = 4_000_000
_MAX_PASSES = 100
_MAX_OFFSETS = (1 << 31) - 1


class NotCleaned(Exception):
    """A pass was given up with the log as it was; the next one may succeed."""


class CleanedUpTo(NamedTuple):
    """A pass cleaned everything below ``offset``, at ``at_ms``."""

    offset: int
    at_ms: int


class Passes:
    """The passes that were made: where the dirty part begins, and how long tombstones were seen.

    Kept in a file that is there before the first pass changes anything, for recovery to know that
    offsets may be missing, and is written again after each pass.
    """

    def __init__(self, passes: Sequence[CleanedUpTo] = ()) -> None:
        self._passes = list(passes)

    @classmethod
    def read(cls, fs: FileSystem, directory: str) -> Passes:
        path = f"{directory}/{CHECKPOINT_FILE}"
        if not fs.exists(path):
            return cls()
        try:
            content = json.loads(fs.read(path))
        except ValueError:
            return cls()
        if content.get("version") != _VERSION:
            return cls()
        return cls([CleanedUpTo(*each) for each in content["passes"]])

    def write(self, fs: FileSystem, directory: str) -> None:
        """Raises NotCleaned."""
        content = json.dumps({"version": _VERSION, "passes": self._passes})
        try:
            fs.write_atomic(f"{directory}/{CHECKPOINT_FILE}", content.encode())
        except OSError as error:
            raise NotCleaned(str(error)) from error

    @property
    def dirty_from(self) -> int:
        return max((each.offset for each in self._passes), default=0)

    def forgotten_below(self, now_ms: int, delete_retention_ms: int) -> int:
        """Tombstones below this offset were there long enough for every reader to see them."""
        seen = [each.offset for each in self._passes if each.at_ms + delete_retention_ms <= now_ms]
        return max(seen, default=0)

    def add(self, offset: int, now_ms: int, delete_retention_ms: int) -> None:
        forgotten = self.forgotten_below(now_ms, delete_retention_ms)
        self._passes = [each for each in self._passes if each.offset >= forgotten]
        if len(self._passes) >= _MAX_PASSES:
            # Fewer entries only make tombstones stay longer.
            del self._passes[1::2]
        self._passes.append(CleanedUpTo(offset, now_ms))


def was_compacted(fs: FileSystem, directory: str) -> bool:
    """Whether a pass may have left gaps between the offsets of this log."""
    return fs.exists(f"{directory}/{CHECKPOINT_FILE}")


class Plan(NamedTuple):
    """What one pass works on."""

    clean: list[Segment]
    dirty: list[Segment]


def plan(
    segments: Sequence[Segment], passes: Passes, config: LogConfig, now_ms: int
) -> Plan | None:
    """Whether a pass over these sealed and settled segments is worth it (None: not yet)."""
    clean = [segment for segment in segments if segment.next_offset <= passes.dirty_from]
    dirty: list[Segment] = []
    lag = config.min_compaction_lag_ms
    for segment in segments[len(clean) :]:
        if lag and segment.max_timestamp > now_ms - lag:
            break
        dirty.append(segment)
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    ratio = dirty_bytes / max(1, sum(segment.size for segment in clean) + dirty_bytes)
    overdue = 0 <= dirty[0].index.first_timestamp < now_ms - config.max_compaction_lag_ms
    if ratio < config.min_cleanable_dirty_ratio and not overdue:
        return None
    return Plan(clean, dirty)


class Aborted:
    """Which data of settled transactions was aborted."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for transaction in transactions:
            spans = self._spans.setdefault(transaction.producer_id, [])
            spans.append((transaction.first_offset, transaction.last_offset))

    def has(self, batch: StoredBatch) -> bool:
        header = batch.header
        return header.is_transactional and any(
            first <= header.base_offset < last
            for first, last in self._spans.get(header.producer_id, ())
        )


class Sieve(NamedTuple):
    """Which records stay."""

    newest: dict[bytes | None, int]
    aborted: Aborted
    log_start: int
    forgotten_below: int

    def sift(self, batch: StoredBatch, *, must_stay: bool) -> Buffer | None:
        """The batch as it stays, or None. Raises CorruptBatch."""
        header = batch.header
        if header.is_control:
            return batch.data if must_stay or not _is_commit(batch) else None
        records = decode(batch.data)
        if self.aborted.has(batch) or header.last_offset < self.log_start:
            keep = [False] * len(records)
        else:
            newest, start, forgotten = self.newest, self.log_start, self.forgotten_below
            keep = [
                key is not None
                and offset >= newest.get(key, start)
                and (value is not None or offset >= forgotten)
                for key, value, offset in zip(
                    records.keys, records.values, records.offsets, strict=True
                )
            ]
        if all(keep) and keep and not header.is_transactional:
            return batch.data
        if not (any(keep) or must_stay):
            return None
        return retained(batch.data, header, keep, records.timestamps)


def _is_commit(batch: StoredBatch) -> bool:
    return batch.header.records_count > 0 and parse_end_marker(batch.data).commit


class Compactable(Protocol):
    """What a pass needs of a log."""

    config: LogConfig
    directory: str

    @property
    def log_start_offset(self) -> int: ...

    def settled_segments(self) -> list[Segment]:
        """Sealed segments, oldest first, whose records are durable and their fate known."""
        ...

    def aborted_transactions(self) -> Sequence[AbortedTransaction]: ...

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether these are still segments of the log, which is open."""
        ...

    def replace_segments(
        self, segments: Sequence[Segment], temporary: str, index: SparseIndex
    ) -> None:
        """Put the file ``temporary``, which is durable, in the place of neighbours."""
        ...


def clean(log: Compactable, fs: FileSystem, now_ms: int) -> Iterator[File | None]:
    """One pass over a log, if it is worth it: None asks for a pause, a file to be synced.

    Raises CorruptBatch and NotCleaned with the log as it was, or as it is after some of its groups;
    OSError from ``replace_segments``, which leaves the log to the recovery of the next start.
    """
    passes = Passes.read(fs, log.directory)
    planned = plan(log.settled_segments(), passes, log.config, now_ms)
    if planned is None:
        return
    aborted = Aborted(log.aborted_transactions())
    newest: dict[bytes | None, int] = {}
    dirty = planned.dirty
    for number, segment in enumerate(dirty):
        for pause in _read_newest(segment, aborted, newest):
            yield pause
            if not log.holds(dirty):
                raise NotCleaned("its segments went away")
        if len(newest) >= _MAX_KEYS:
            dirty = dirty[: number + 1]
            break
    end = dirty[-1].next_offset
    forgotten = passes.forgotten_below(now_ms, log.config.delete_retention_ms)
    sieve = Sieve(newest, aborted, log.log_start_offset, forgotten)
    if not was_compacted(fs, log.directory):
        passes.write(fs, log.directory)
    for group in groups([*planned.clean, *dirty], log.config.segment_bytes):
        yield from _clean_group(log, fs, group, sieve)
    passes.add(end, now_ms, log.config.delete_retention_ms)
    passes.write(fs, log.directory)


def _clean_group(
    log: Compactable, fs: FileSystem, group: Sequence[Segment], sieve: Sieve
) -> Iterator[File | None]:
    if not log.holds(group):
        raise NotCleaned("its segments went away")
    temporary = group[0].path + TEMPORARY_SUFFIX
    rewriting = _Rewriting(group, sieve)
    try:
        file = fs.open(temporary, create=True)
        try:
            file.truncate(0)
            for pause in rewriting.write(file):
                yield pause
                if not log.holds(group):
                    raise NotCleaned("its segments went away")
            if rewriting.is_changed:
                yield file
        finally:
            file.close()
    except OSError as error:
        _remove(fs, temporary)
        raise NotCleaned(str(error)) from error
    if rewriting.is_changed:
        if not log.holds(group):
            raise NotCleaned("its segments went away")
        log.replace_segments(group, temporary, rewriting.index)
    _remove(fs, temporary)


def _remove(fs: FileSystem, path: str) -> None:
    """If it is there; a left-over costs space until the next pass or start."""
    with contextlib.suppress(OSError):
        if fs.exists(path):
            fs.remove(path)


def _read_newest(
    segment: Segment, aborted: Aborted, newest: dict[bytes | None, int]
) -> Iterator[None]:
    """Note the newest offset of each key."""
    since_pause = 0
    for batch in segment.batches():
        if not (batch.header.is_control or aborted.has(batch)):
            records = decode(batch.data)
            newest.update(zip(records.keys, records.offsets, strict=True))
        since_pause += len(batch.data)
        if since_pause >= _BYTES_PER_TURN:
            since_pause = 0
            yield


def groups(segments: Sequence[Segment], max_bytes: int) -> Iterator[list[Segment]]:
    """Neighbours that fit one segment together."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if group and (
            size + segment.size > max_bytes
            or segment.next_offset - group[0].base_offset > _MAX_OFFSETS
        ):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


class _Rewriting:
    """What stays of neighbours, in one file.

    ``is_changed`` is asked rather than whether the file is smaller: what must go may leave a larger
    one (compressed anew), and data whose marker goes from the next segment changes in place.
    """

    def __init__(self, group: Sequence[Segment], sieve: Sieve) -> None:
        self.index = SparseIndex(group[0].base_offset)
        self.is_changed = len(group) > 1
        self._group = group
        self._sieve = sieve

    def write(self, file: File) -> Iterator[None]:
        last_offset = self._group[-1].next_offset - 1
        kept: list[Buffer] = []
        since_pause = 0
        for segment in self._group:
            for batch in segment.batches():
                must_stay = batch.header.last_offset >= last_offset
                stays = self._sieve.sift(batch, must_stay=must_stay)
                self.is_changed = self.is_changed or stays is not batch.data
                if stays is not None:
                    kept.append(stays)
                    self.index.add(read_header(stays))
                since_pause += len(batch.data)
                if since_pause >= _BYTES_PER_TURN:
                    file.append(kept)
                    kept = []
                    since_pause = 0
                    yield
        file.append(kept)
