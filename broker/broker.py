"""The broker: builds every part, starts and stops them in order.

The only file that constructs across layers, and with ``serve`` the only one that takes the real
clock, randomness and disk; all three are parameters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import tempfile
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from .config import BrokerConfig
from .coordinator.group.config import GroupConfig
from .coordinator.group.group_coordinator import GroupCoordinator
from .coordinator.transaction.config import TransactionConfig
from .coordinator.transaction.producer_ids import ProducerIds
from .coordinator.transaction.transaction_coordinator import TransactionCoordinator
from .coordinator_log import CoordinatorLog, MetadataProducerIds, PartitionMarkers
from .handlers.context import Services
from .handlers.dispatch import Dispatcher
from .handlers.registry import ENTRIES
from .log.config import LogConfig
from .log.log_manager import LogManager
from .log.partition_log import PartitionLog
from .metadata import ClusterMetadata
from .server.connection import Limits
from .server.listener import Listener, format_address, parse_address
from .server.purgatory import Purgatory
from .storage.filesystem import FileSystem, OsFileSystem
from .storage.flusher import Flusher
from .topics import Topics
from .types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Clock

logger = logging.getLogger(__name__)

FSYNC_THREADS = 4
CLOSE_GRACE_S = 1.0
"""How long a client may take to read its last answers at a stop."""


class BrokerFailed(Exception):
    """The broker stopped itself: a failed fsync or a bug. The log is intact; start it again."""


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """One node that any Kafka client can talk to.

    ``data_dir`` None is a temporary directory, removed at the stop. ``listen`` with port 0 takes a
    free one. ``config`` has Kafka's names. Use it as an async context manager, or ``start`` and
    ``stop``.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, str | int | float | bool] | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Raises KafkaError(INVALID_CONFIG) and ValueError (a malformed address)."""
        self.config = BrokerConfig(config)
        self._listen = parse_address(listen)
        advertised = self.config.text("advertised.listeners")
        self._advertised = parse_address(advertised.split(",")[0]) if advertised else None
        self.data_dir = None if data_dir is None else str(data_dir)
        self._filesystem = filesystem
        self._clock = clock or system_clock
        self._rng = rng or random.Random()
        self._failure: BaseException | None = None
        self._stopped = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._started = False
        self._undo = contextlib.AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- lifetime -------------------------------------------------------------------------------

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if error is None:
            self.raise_failure()

    @property
    def bootstrap(self) -> str:
        """``host:port`` where it listens; clients go on to ``advertised.listeners``, if set."""
        return format_address(self._listener.address)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._listener.connections

    def raise_failure(self) -> None:
        """Raise BrokerFailed if the broker stopped itself."""
        if self._failure is not None:
            raise BrokerFailed(str(self._failure)) from self._failure

    async def wait_stopped(self) -> None:
        """Return after ``stop``. Raises BrokerFailed when the broker stopped itself."""
        await self._stopped.wait()
        self.raise_failure()

    async def start(self) -> None:
        """Return when clients may connect.

        Raises LockHeldError (another broker has the directory), OSError (disk, address in use),
        ValueError (a data directory we cannot read), BrokerFailed. Nothing stays open then.
        """
        async with contextlib.AsyncExitStack() as undo:
            self._open(undo)
            await self._load(undo)
            await self._listener.start(self._listen)
            undo.callback(self._listener.abort)
            self.raise_failure()
            self._undo = undo.pop_all()
            self._started = True

    async def stop(self) -> None:
        """Answer what was received, flush, leave the data directory clean. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    # -- start, in order ------------------------------------------------------------------------

    def _open(self, undo: contextlib.AsyncExitStack) -> None:
        """Disk to memory: lock, metadata, logs. Blocking; nothing else runs yet."""
        fs = self._filesystem or self._os_filesystem(undo)
        directory = self._directory(undo)
        fs.makedirs(directory)
        # The metadata document is written before the log manager takes its own lock.
        undo.callback(fs.lock(f"{directory}/broker.lock").release)
        self.metadata = ClusterMetadata(
            fs, f"{directory}/metadata.json", self._rng, node_id=self.config.int("node.id")
        )
        self.purgatory = Purgatory()
        self.flusher: Flusher[PartitionLog] = Flusher(self._flushed, self._sync_failed)
        self.logs = LogManager(
            fs,
            directory,
            flusher=self.flusher,
            clock=self._clock,
            defaults=LogConfig(),
            leader_epoch=self.metadata.leader_epoch,
        )
        self.topics = Topics(
            self.metadata, self.logs, self.config, partition_removed=self.purgatory.notify
        )
        undo.callback(self._close_logs)
        self.logs.open(self.topics.log_configs())
        self.topics.reconcile()

    def _os_filesystem(self, undo: contextlib.AsyncExitStack) -> FileSystem:
        executor = ThreadPoolExecutor(FSYNC_THREADS, thread_name_prefix="fsync")
        undo.callback(executor.shutdown)
        return OsFileSystem(executor)

    def _directory(self, undo: contextlib.AsyncExitStack) -> str:
        if self.data_dir is None:
            self.data_dir = tempfile.mkdtemp(prefix="onceward-broker-")
            undo.callback(shutil.rmtree, self.data_dir, ignore_errors=True)
        return self.data_dir

    async def _load(self, undo: contextlib.AsyncExitStack) -> None:
        """Coordinators from their logs. The flusher runs first: loading may write."""
        undo.push_async_callback(self._cancel_tasks)
        self._run(self.flusher.run())
        self._run(self._maintain())
        self._build_coordinators()
        undo.push_async_callback(self._stop_coordinators)
        await self.groups.start()
        await self.transactions.start()
        if self.config.bool("log.cleaner.enable"):
            self._run(self._compact())
        dispatcher = Dispatcher(self._services(), ENTRIES, self._fail)
        self._listener = Listener(
            serve=dispatcher.serve,
            limits=Limits(request_bytes=self.config.int("socket.request.max.bytes")),
            max_connections=self.config.int("max.connections"),
            max_idle_s=self.config.int("connections.max.idle.ms") / 1000,
            on_close=self.groups.connection_closed,
        )

    def _build_coordinators(self) -> None:
        self._markers = PartitionMarkers(
            logs=self.logs, purgatory=self.purgatory, clock=self._clock
        )
        self.groups = GroupCoordinator(
            writer=self._coordinator_log(CONSUMER_OFFSETS_TOPIC),
            partitions=self.metadata.topics[CONSUMER_OFFSETS_TOPIC].partitions,
            config=GroupConfig.from_kafka(self.config.given),
            clock=self._clock,
            rng=self._rng,
            on_failure=self._fail,
        )
        self.transactions = TransactionCoordinator(
            writer=self._coordinator_log(TRANSACTION_STATE_TOPIC),
            producer_ids=ProducerIds(MetadataProducerIds(self.metadata)),
            sink=self._markers,
            groups=self.groups,
            partition_exists=self.metadata.has_partition,
            coordinator_epoch=self.metadata.leader_epoch,
            clock=self._clock,
            on_failure=self._fail,
            config=TransactionConfig.from_kafka(
                self.config.given,
                partitions=self.metadata.topics[TRANSACTION_STATE_TOPIC].partitions,
            ),
        )

    def _coordinator_log(self, topic: str) -> CoordinatorLog:
        return CoordinatorLog(topic, logs=self.logs, purgatory=self.purgatory, clock=self._clock)

    def _services(self) -> Services:
        return Services(
            apis=ENTRIES,
            config=self.config,
            metadata=self.metadata,
            logs=self.logs,
            topics=self.topics,
            purgatory=self.purgatory,
            groups=self.groups,
            transactions=self.transactions,
            markers=self._markers,
            clock=self._clock,
            advertised=self._advertised,
            data_dir=self.data_dir or "",
        )

    # -- while it runs --------------------------------------------------------------------------

    def _flushed(self, log: PartitionLog) -> None:
        self.purgatory.notify(log.tp)

    async def _maintain(self) -> None:
        interval_s = self.config.int("log.retention.check.interval.ms") / 1000
        while True:
            await asyncio.sleep(interval_s)
            self.logs.maintenance(self._clock())

    async def _compact(self) -> None:
        """A failed sync or a replacement that ended half-way stops the broker."""
        backoff_s = self.config.int("log.cleaner.backoff.ms") / 1000
        while True:
            await asyncio.sleep(backoff_s)
            for file in self.logs.clean(self._clock()):
                if file is None:
                    await asyncio.sleep(0)
                else:
                    await file.fsync()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the broker: its failure is the broker's."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _sync_failed(self, error: BaseException) -> None:
        """Also during a stop: nobody may take it for a clean one."""
        self.logs.note_failed_sync()
        self._fail(error)
        self._failure = self._failure or error

    def _fail(self, error: BaseException) -> None:
        """Stop at once and leave everything to the recovery of the next start."""
        if self._failure is not None or self._closing is not None:
            return
        self._failure = error
        logger.critical("the broker stops: %s", error, exc_info=error)
        if not self._started:
            return  # ``start`` looks at the failure before it returns
        self._closing = asyncio.get_running_loop().create_task(self._close())

    # -- stop, in order -------------------------------------------------------------------------

    async def _close(self) -> None:
        if self._failure is None:
            self._listener.stop_accepting()
            await self.flusher.flush_all()
            await self._stop_coordinators()
            self.purgatory.close()
            await self._listener.close(CLOSE_GRACE_S)
            await self.flusher.flush_all()
        else:
            self._listener.abort()
        try:
            await self._undo.aclose()
        finally:
            self._stopped.set()

    async def _stop_coordinators(self) -> None:
        await self.transactions.stop()
        await self.groups.stop()

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _close_logs(self) -> None:
        if self._failure is None:
            self.logs.close()
        else:
            self.logs.abandon()
