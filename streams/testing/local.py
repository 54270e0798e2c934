"""``LocalCluster``: a real broker and real workers in one process, for integration tests."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from onceward.broker import Broker
from onceward.broker.client import ErrorCode, KafkaError, TopicPartition

from ..agent import Agent
from ..app import App
from ..config import ErrorPolicy, ProcessingGuarantee, Settings, choice
from ..engine.client_mode import AppClient
from ..engine.kafka import KafkaCluster
from ..engine.schemas import learn_records
from ..engine.worker import connect
from ..errors import ConfigurationError
from ..table import Table
from ..topic import GivenHeaders, Topic
from ..topology import topology_of
from .blocking import BlockingCluster
from .loading import AppLoader, AppSource
from .local_registry import local_registry, point_to
from .local_worker import LocalWorker
from .loop_thread import LoopThread
from .records import OutputRecord, decoded, encoded, encoded_headers, topic_of
from .unsynced import UnsyncedFileSystem

T = TypeVar("T")

_POLL_S = 0.003
_QUICK: Mapping[str, Any] = {
    "commit_interval": 0.02,
    "broker_heartbeat_interval": 0.05,
    "connection_grace": 0.1,
}
"""Settings of the workers that make tests short; an app that sets its own keeps them."""


class LocalCluster:
    """A broker on a free port, and ``workers`` engines in the running event loop::

        async with LocalCluster(app) as cluster:
            await cluster.send("orders", "a", Order(id="1", account="a", amount=600))
            await cluster.wait_until_processed()
            assert cluster.table("totals") == {"a": 600}

    ``app``: an App, ``"module:app"`` (or ``"file.py:app"``), a function that makes one, or None for
    a broker without workers. By name and by function every worker has an App of its own, as
    processes do; an App object is run as it is by one worker, and made anew from its module for
    several. ``settings`` replace those of the app (``processing_guarantee="at_least_once"``).
    Everything lives in a temporary directory that is removed at the end. ``registry=True`` brings a
    schema registry along, at the URL ``registry``, and the app's serializers use it.

    In a plain test use ``with``: it gives a ``BlockingCluster`` whose methods wait.
    """

    def __init__(
        self,
        app: AppSource | None = None,
        *,
        workers: int = 1,
        registry: bool = False,
        broker_config: Mapping[str, str | int | float | bool] | None = None,
        **settings: Any,
    ) -> None:
        """Raises ConfigurationError for an app that cannot be found or settings that do not
        exist."""
        self._settings = settings
        self._broker_config = broker_config
        self._has_registry = registry
        self._undo = AsyncExitStack()
        self._thread: ExitStack | None = None
        self._make = _maker(app, workers)
        self._workers = [LocalWorker(self._fresh_app) for _ in range(workers if app else 0)]
        self.app = self._make()
        self._client: KafkaCluster | None = None
        self._sender: AppClient | None = None
        self.bootstrap = ""
        self.registry: str | None = None

    # lifetime

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:  # what a worker failed with then is not what the test failed with
            for worker in self._workers:
                await worker.kill()
        await self.stop()

    def __enter__(self) -> BlockingCluster:
        with ExitStack() as undo:
            thread = undo.enter_context(LoopThread("onceward-local-cluster"))
            thread.run(self.start())
            undo.push(lambda *failure: thread.run(self.__aexit__(*failure)))
            self._thread = undo.pop_all()
        return BlockingCluster(self, thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        undo, self._thread = self._thread, None
        if undo is not None:
            undo.__exit__(kind, error, trace)

    async def start(self) -> None:
        """Return when every partition has a worker that runs it. Raises what a worker fails with,
        KafkaError and OSError."""
        try:
            work = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="onceward-"))
            broker = Broker(
                Path(work) / "broker",
                config=self._broker_config,
                filesystem=UnsyncedFileSystem(),
            )
            await self._undo.enter_async_context(broker)
            self.bootstrap = broker.bootstrap
            if self._has_registry:
                registry = local_registry(broker.bootstrap)
                self.registry = await self._undo.enter_async_context(registry)
            self.app = self._fresh_app()
            client = await self.client()
            self._client = client
            sender = self._sender = AppClient(client, self.app.conf)
            self._undo.push_async_callback(sender.close)
            for worker in self._workers:
                self._undo.push_async_callback(worker.stop)
                await worker.start(self.bootstrap, Path(work) / "workers")
            await self._until(self._is_ready, 20.0, "the workers are not ready")
        except BaseException:
            await self._undo.aclose()
            raise

    async def stop(self) -> None:
        """Stop workers (they commit) and broker. Raises what a worker failed with. Idempotent."""
        await self._undo.aclose()

    # records

    async def client(self) -> KafkaCluster:
        """A started client of this cluster: ``consumer``, ``producer``, ``admin``. Closed with
        it."""
        client = connect(self.app, self.bootstrap)
        await client.start()
        self._undo.push_async_callback(client.close)
        return client

    async def send(
        self,
        topic: str | Topic | Agent,
        key: Any = None,
        value: Any = None,
        *,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: GivenHeaders | None = None,
    ) -> int:
        """Write one record and return its offset. Keys and values as the topic's types, or encoded
        as bytes; ``timestamp`` in seconds. Raises KafkaError."""
        target = topic_of(self.app, topic, None)
        await target.prepare()
        return await self._started(self._sender).produce(
            target.name,
            encoded(target.encode_key, key),
            encoded(target.encode_value, value),
            partition,
            None if timestamp is None else round(timestamp * 1000),
            encoded_headers(headers),
        )

    async def read(
        self, topic: str | Topic | Agent, n: int | None = None, timeout: float = 10.0
    ) -> list[OutputRecord]:
        """The first ``n`` committed records of a topic (None: those that are there), decoded.

        In the order of their offsets in each partition, else of their timestamps. Raises
        TimeoutError when there are fewer after ``timeout`` seconds, DecodeError, KeyError.
        """
        client = self._started(self._client)
        target = topic_of(self.app, topic, await client.admin().list_topics())
        found: dict[TopicPartition, list[OutputRecord]] = {}
        try:
            async with asyncio.timeout(timeout):
                await self._read(client, target, n, found)
        except TimeoutError:
            count = sum(map(len, found.values()))
            raise TimeoutError(
                f"{target.name} has {count} committed records after {timeout:g} s, not {n}"
            ) from None
        return sorted(
            (record for records in found.values() for record in records),
            key=lambda record: (record.timestamp, record.partition, record.offset),
        )

    async def _read(
        self,
        client: KafkaCluster,
        topic: Topic,
        n: int | None,
        found: dict[TopicPartition, list[OutputRecord]],
    ) -> None:
        consumer = client.consumer(isolation="read_committed", auto_offset_reset="earliest")
        await consumer.start()
        try:
            description = (await client.admin().describe_topics([topic.name]))[topic.name]
            tps = [TopicPartition(topic.name, each.partition) for each in description.partitions]
            ends = await consumer.end_offsets(tps)
            consumer.assign(tps)
            for tp, offset in (await consumer.beginning_offsets(tps)).items():
                consumer.seek(tp, offset)
            while self._is_missing(n, found, {tp: consumer.position(tp) for tp in tps}, ends):
                self._raise_failures()
                for tp, records, *_ in await consumer.fetch(timeout_ms=20):
                    await learn_records(topic, records)
                    found.setdefault(tp, []).extend(
                        decoded(
                            topic,
                            tp.partition,
                            records.keys,
                            records.values,
                            records.offsets,
                            records.timestamps,
                            records.headers,
                        )
                    )
        finally:
            await consumer.stop()

    @staticmethod
    def _is_missing(
        n: int | None,
        found: Mapping[TopicPartition, list[OutputRecord]],
        positions: Mapping[TopicPartition, int | None],
        ends: Mapping[TopicPartition, int],
    ) -> bool:
        if n is not None:
            return sum(map(len, found.values())) < n
        return any((positions[tp] or 0) < end for tp, end in ends.items())

    async def wait_until_processed(self, timeout: float = 10.0) -> None:
        """Wait until everything in the app's topics, written by others and by itself, is handled
        and committed.

        Raises TimeoutError that says where it stands, and what a worker failed with.
        """
        client = self._started(self._client)
        consumer = client.consumer(
            group_id=self.app.conf.id, isolation="read_committed", auto_offset_reset="none"
        )
        lag: dict[TopicPartition, int] = {}

        async def is_processed() -> bool:
            lag.clear()
            lag.update(await self._lag(consumer, client))
            return not lag

        await consumer.start()
        try:
            await self._until(is_processed, timeout, "records are left", lag)
        finally:
            await consumer.stop()

    async def _lag(self, consumer: Any, client: KafkaCluster) -> dict[TopicPartition, int]:
        """Records that are not committed as handled, by input partition."""
        topics = topology_of(self.app).source_topics
        found = await client.admin().describe_topics(topics)
        tps = [
            TopicPartition(name, each.partition)
            for name, topic in found.items()
            for each in topic.partitions
        ]
        if not tps:
            return {}
        ends = await consumer.end_offsets(tps, "read_uncommitted")
        committed = await consumer.committed(tps, require_stable=False)
        places = {tp: 0 if at is None else at.offset for tp, at in committed.items()}
        return {tp: ends[tp] - places[tp] for tp in tps if places[tp] < ends[tp]}

    # workers

    def table(self, table: str | Table) -> dict[Any, Any]:
        """The committed content of a table, over all workers. Raises KeyError."""
        name = table if isinstance(table, str) else table.name
        declared = self.app.tables.get(name)
        if declared is None:
            known = ", ".join(sorted(self.app.tables)) or "none"
            raise KeyError(f"there is no table {name!r}; tables are: {known}")
        return {
            declared.decode_key(key): value
            for worker in self._workers
            for partition in worker.open_partitions(name)
            for key, value in partition.committed_items()
        }

    async def kill_worker(self, number: int) -> None:
        """As SIGKILL: its connections close, it commits, aborts and leaves nothing.

        The agents' ``finally`` blocks run, though, and globals of an app that was given as an
        object stay.
        """
        await self._workers[number].kill()

    async def restart_worker(self, number: int) -> None:
        """Start a worker that was killed or failed, in its old slot. Returns when it runs."""
        worker = self._workers[number]
        await worker.kill()
        await worker.restart()
        await self._until(self._is_ready, 20.0, "the workers are not ready")

    def _fresh_app(self) -> App:
        """With the settings of this cluster. Raises ConfigurationError."""
        app = self._make()
        known = {field.name for field in fields(Settings)}
        defaults = App(app.conf.id).conf
        for name, value in _QUICK.items():
            if getattr(app.conf, name) == getattr(defaults, name):
                self._set(app, name, value)
        for name, value in self._settings.items():
            if name not in known:
                raise ConfigurationError(f"there is no setting {name!r}")
            self._set(app, name, value)
        app.conf.validate()
        if self.registry is not None:
            point_to(app, self.registry)
        return app

    def _set(self, app: App, name: str, value: Any) -> None:
        self._undo.callback(setattr, app.conf, name, getattr(app.conf, name))
        kind = _CHOICES.get(name)
        setattr(app.conf, name, value if kind is None else choice(kind, name, value))

    async def _is_ready(self) -> bool:
        """Every task runs, and no partition is without one."""
        running = [worker for worker in self._workers if worker.is_running]
        if not running or not (self.app.agents or self.app.sources):
            return True
        if not all(worker.is_settled for worker in running):
            return False
        tasks = [worker.tasks for worker in running]
        if tasks.count(0) > max(len(running) - sum(tasks), 0):
            return False  # somebody has not been given its share yet
        topics = topology_of(self.app).source_topics
        found = await self._started(self._client).admin().describe_topics(topics)
        wanted = sum(len(topic.partitions) for topic in found.values())
        return len(found) == len(topics) and wanted == sum(worker.partitions for worker in running)

    async def _until(
        self,
        condition: Callable[[], Awaitable[bool]],
        timeout: float,
        complaint: str,
        details: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Raises TimeoutError, and what a worker failed with."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._raise_failures()
            try:
                if await condition():
                    return
            except KafkaError as error:
                if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
            if loop.time() >= deadline:
                where = ", ".join(f"{tp}: {count}" for tp, count in sorted((details or {}).items()))
                raise TimeoutError(f"{complaint} after {timeout:g} s {where}".strip())
            await asyncio.sleep(_POLL_S)

    def _raise_failures(self) -> None:
        for worker in self._workers:
            worker.raise_failure()

    @staticmethod
    def _started(part: T | None) -> T:
        if part is None:
            raise RuntimeError("the cluster is not started: use it with `async with` or `with`")
        return part


def _maker(app: AppSource | None, workers: int) -> Callable[[], App]:
    if app is None:
        return lambda: App("local-cluster")
    if isinstance(app, App) and workers == 1:
        return lambda: app
    return AppLoader(app).fresh


_CHOICES: Mapping[str, Any] = {
    "processing_guarantee": ProcessingGuarantee,
    "on_agent_error": ErrorPolicy,
    "on_decode_error": ErrorPolicy,
}
