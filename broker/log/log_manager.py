"""Every partition log of one data directory.

A partition lives in ``<topic>-<partition>/``. A deleted one is renamed to ``<number>~deleted`` at
once (``~`` is no legal character of a topic) and removed later. ``clean-shutdown`` exists only
between a clean stop and the next start and says how each log was left. ``failed-sync`` is there
from a failed sync until a start has written anew what the kernel may have dropped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence

from ..errors import KafkaError
from ..records.batch import CorruptBatch
from ..storage.filesystem import File, FileSystem, Lock
from ..storage.flusher import Flusher
from ..storage.tail_cache import TailBudget
from ..types import Clock, TopicPartition
from .cleaner import NotCleaned, clean
from .config import LogConfig
from .log_state import CleanEnd
from .partition_log import PartitionLog

_logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE = "clean-shutdown"
FAILED_SYNC_FILE = "failed-sync"
LOCK_FILE = ".lock"
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_DELETED_SUFFIX = "~deleted"
_VERSION = 1


class LogManager:
    """Opens, creates, deletes and closes partition logs.

    ``leader_epoch`` is this start's: higher than any earlier one here. The order of a clean
    stop: no more appends, ``await flusher.flush_all()``, end ``flusher.run()``, then ``close()``.
    """

    def __init__(
        self,
        fs: FileSystem,
        data_dir: str,
        *,
        flusher: Flusher[PartitionLog],
        clock: Clock,
        defaults: LogConfig,
        leader_epoch: int,
    ) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._flusher = flusher
        self._clock = clock
        self._defaults = defaults
        self._leader_epoch = leader_epoch
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._tail_budget = TailBudget()
        self._deleted: list[str] = []
        self._uncleanable: set[TopicPartition] = set()
        self._lock: Lock | None = None
        self._sync_failed = False

    def open(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Lock the directory and recover every partition in it.

        ``configs``: topic -> settings, where they differ from the defaults. Raises LockHeldError
        when another broker runs on this directory; OSError, also when a sync fails.
        """
        self._fs.makedirs(self._data_dir)
        self._lock = self._fs.lock(f"{self._data_dir}/{LOCK_FILE}")
        with self._noting_failed_sync():
            self._open_all(configs)

    def _open_all(self, configs: Mapping[str, LogConfig] | None) -> None:
        rewrite = self._fs.exists(f"{self._data_dir}/{FAILED_SYNC_FILE}")
        ends = self._take_clean_shutdown()
        if rewrite:
            _logger.warning("a sync failed in %s: writing the unsynced logs anew", self._data_dir)
            ends = None
        for name in self._fs.list(self._data_dir):
            if name.endswith(_DELETED_SUFFIX):
                self._deleted.append(name)
            elif match := _PARTITION_DIRECTORY.fullmatch(name):
                tp = TopicPartition(match[1], int(match[2]))
                config = configs.get(tp.topic, self._defaults) if configs else self._defaults
                end = ends.get(name) if ends is not None else None
                self._logs[tp] = self._open_log(tp, config, end, rewrite=rewrite)
        if ends is None:
            # Names made by a process that was killed may not be on disk yet.
            self._fs.fsync_dir(self._data_dir)
        if rewrite:
            self._fs.remove(f"{self._data_dir}/{FAILED_SYNC_FILE}")

    def _take_clean_shutdown(self) -> dict[str, CleanEnd] | None:
        """How the logs were left; the marker is gone, durably, before anything is written."""
        path = f"{self._data_dir}/{CLEAN_SHUTDOWN_FILE}"
        if not self._fs.exists(path):
            return None
        try:
            content = json.loads(self._fs.read(path))
        except ValueError:
            content = {}
        self._fs.remove(path)
        self._fs.fsync_dir(self._data_dir)
        if content.get("version") != _VERSION:
            return None
        return {name: CleanEnd(*end) for name, end in content["logs"].items()}

    def create(self, tp: TopicPartition, config: LogConfig | None = None) -> PartitionLog:
        """The log of ``tp``, new and empty unless it exists; ``config`` applies in both cases.

        The directory becomes durable with the first flush, before anything in it is acknowledged.
        """
        log = self._logs.get(tp)
        if log is None:
            self._fs.makedirs(f"{self._data_dir}/{tp}")
            log = self._open_log(tp, config or self._defaults, CleanEnd(0, 0))
            self._logs[tp] = log
        elif config is not None:
            log.config = config
        return log

    def _open_log(
        self,
        tp: TopicPartition,
        config: LogConfig,
        clean: CleanEnd | None,
        *,
        rewrite: bool = False,
    ) -> PartitionLog:
        return PartitionLog(
            self._fs,
            f"{self._data_dir}/{tp}",
            tp,
            config=config,
            leader_epoch=self._leader_epoch,
            now_ms=self._clock(),
            mark_dirty=self._flusher.mark_dirty,
            tail_budget=self._tail_budget,
            clean=clean,
            rewrite=rewrite,
        )

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        return self._logs.get(tp)

    def logs(self) -> Sequence[PartitionLog]:
        return list(self._logs.values())

    def delete(self, tp: TopicPartition) -> None:
        """Take the log away; no effect when there is none. Its files go with ``maintenance``."""
        log = self._logs.pop(tp, None)
        if log is None:
            return
        log.abandon()
        self._flusher.forget(log)
        name = self._next_deleted_name()
        self._fs.rename(log.directory, f"{self._data_dir}/{name}")
        self._fs.fsync_dir(self._data_dir)
        self._deleted.append(name)

    def _next_deleted_name(self) -> str:
        numbers = [int(name.removesuffix(_DELETED_SUFFIX)) for name in self._deleted]
        return f"{max(numbers, default=0) + 1}{_DELETED_SUFFIX}"

    def maintenance(self, now_ms: int) -> None:
        """Retention, expiry of producers, removal of deleted logs.

        A disk error on one log is logged and tried again next time.
        """
        for log in self.logs():
            log.expire_producers(now_ms)
            try:
                log.apply_retention(now_ms)
            except OSError as error:
                _logger.warning("retention of %s failed: %s", log.tp, error)
        while self._deleted:
            try:
                self._fs.remove_tree(f"{self._data_dir}/{self._deleted[-1]}")
            except OSError as error:
                _logger.warning("removal of a deleted log failed: %s", error)
                return
            self._deleted.pop()

    def clean(self, now_ms: int) -> Iterator[File | None]:
        """Compact what is worth it: None asks for a pause, a file to be synced.

        A log that cannot be read or written is logged and left as it is. Raises OSError when a
        replacement failed half-way: the broker must start anew.
        """
        for log in self.logs():
            if log.config.compacts and log.segment_count > 1 and log.tp not in self._uncleanable:
                try:
                    yield from clean(log, self._fs, now_ms)
                except CorruptBatch as error:
                    _logger.error("%s is damaged and not compacted any more: %s", log.tp, error)
                    self._uncleanable.add(log.tp)
                except (KafkaError, NotCleaned) as error:
                    _logger.warning("compaction of %s was given up: %s", log.tp, error)

    def note_failed_sync(self) -> None:
        """A sync failed: the next start must not take what it reads for what is on the disk.

        Linux marks the pages clean that it could not write: the process goes on reading them, and
        a later sync succeeds without writing them. The mark itself needs no sync: when the power
        fails the page cache is gone too, and what is read then is what is on the disk.
        """
        self._sync_failed = True
        path = f"{self._data_dir}/{FAILED_SYNC_FILE}"
        try:
            self._fs.open(path, create=True).close()
        except OSError as error:
            _logger.critical(
                "a sync failed and %s cannot be written (%s): start the machine anew before the "
                "broker, or write that file, or acknowledged records may be lost later",
                path,
                error,
            )

    @contextlib.contextmanager
    def _noting_failed_sync(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.note_failed_sync()
            raise

    def close(self) -> None:
        """Close every log; if all are durable, say so for the next start. Raises OSError if not."""
        try:
            if not self._sync_failed:
                with self._noting_failed_sync():
                    self._close_all()
        finally:
            self.abandon()

    def _close_all(self) -> None:
        ends = {str(tp): log.close() for tp, log in self._logs.items()}
        content = json.dumps({"version": _VERSION, "logs": ends})
        self._fs.write_atomic(f"{self._data_dir}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def abandon(self) -> None:
        """Let go of everything as it is (after a failure): the next start recovers."""
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
