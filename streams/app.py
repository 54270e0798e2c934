"""``App``: what a user declares topics, agents, tables and timers on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .agent import Agent
from .config import (
    ErrorPolicy,
    ProcessingGuarantee,
    Settings,
    broker_address,
    choice,
)
from .engine.block import Headers
from .engine.cron import Crontab
from .engine.timers import Background
from .errors import ConfigurationError, NotRunningError
from .options import check_faust_options, missing
from .sources.source import FunctionReader, Reader, Source
from .state import StoreTransaction
from .table import Table
from .topic import Topic
from .topology import sinks_used

if TYPE_CHECKING:
    from .engine.client_mode import AppClient
    from .engine.engine import Engine
    from .sinks import Sink

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class App:
    """An application: the consumer group, and the prefix of internal topics and transactional ids,
    ``id``.

    ``broker``: ``kafka://host:port``, several comma separated, or a list; None: ``ONCEWARD_BROKER``
    or the embedded broker. ``processing_guarantee``: exactly_once, at_least_once or at_most_once.
    ``commit_interval`` in seconds and ``commit_records`` say how often to commit. ``store``:
    ``memory://`` or ``rocksdb://`` (in ``datadir``). ``on_agent_error`` and ``on_decode_error``:
    ``stop`` or ``dead_letter`` (to ``dead_letter_topic``, default ``{id}-dead-letter``). Other
    Faust settings are accepted where they change nothing that is promised here, else refused.
    Raises ConfigurationError.
    """

    def __init__(
        self,
        id: str,
        *,
        broker: str | list[str] | None = None,
        processing_guarantee: str = "exactly_once",
        commit_interval: float = 0.1,
        commit_records: int = 50_000,
        buffer_records: int = 20_000,
        datadir: str = "./.onceward",
        store: str = "rocksdb://",
        topic_partitions: int = 8,
        topic_replication_factor: int = -1,
        topic_allow_declare: bool = True,
        key_serializer: Any = None,
        value_serializer: Any = "json",
        on_decode_error: str = "stop",
        on_agent_error: str = "stop",
        dead_letter_topic: str | None = None,
        consumer_auto_offset_reset: str = "earliest",
        broker_session_timeout: float = 10.0,
        broker_heartbeat_interval: float = 0.3,
        broker_rebalance_timeout: float = 30.0,
        broker_request_timeout: float = 30.0,
        broker_client_id: str = "onceward",
        producer_compression_type: str | None = None,
        transaction_timeout: float = 10.0,
        connection_grace: float = 0.6,
        version: int = 1,
        debug: bool = False,
        **faust_options: Any,
    ) -> None:
        check_faust_options(faust_options)
        name = id if version == 1 else f"{id}-v{version}"
        guarantee = choice(ProcessingGuarantee, "processing_guarantee", processing_guarantee)
        self.conf = Settings(
            id=name,
            broker=broker_address(broker),
            processing_guarantee=guarantee,
            commit_interval=float(faust_options.get("broker_commit_interval", commit_interval)),
            commit_records=int(faust_options.get("broker_commit_every", commit_records)),
            buffer_records=buffer_records,
            datadir=str(datadir),
            store=store.removesuffix("//") + "//" if "//" in store else f"{store}://",
            topic_partitions=topic_partitions,
            topic_replication_factor=topic_replication_factor,
            topic_allow_declare=topic_allow_declare,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            on_decode_error=choice(ErrorPolicy, "on_decode_error", on_decode_error),
            on_agent_error=choice(ErrorPolicy, "on_agent_error", on_agent_error),
            dead_letter_topic=dead_letter_topic or f"{name}-dead-letter",
            consumer_auto_offset_reset=consumer_auto_offset_reset,
            broker_session_timeout=broker_session_timeout,
            broker_heartbeat_interval=broker_heartbeat_interval,
            broker_rebalance_timeout=broker_rebalance_timeout,
            broker_request_timeout=broker_request_timeout,
            broker_client_id=broker_client_id,
            producer_compression_type=producer_compression_type,
            transaction_timeout=transaction_timeout,
            connection_grace=connection_grace,
            debug=debug,
        )
        self.conf.validate()
        self._start_empty()

    def _start_empty(self) -> None:
        self.id = self.conf.id
        self.agents: dict[str, Agent] = {}
        self.tables: dict[str, Table] = {}
        self.sources: dict[str, Source] = {}
        self.backgrounds: list[Background] = []
        self.commands: dict[str, Callable[..., Any]] = {}
        self._topics: dict[Any, Topic] = {}
        self._engine: Engine | None = None
        self._client: AppClient | None = None

    def __repr__(self) -> str:
        return f"<App {self.id}>"

    if not TYPE_CHECKING:  # a type checker must go on finding misspelt names

        def __getattr__(self, name: str) -> object:
            raise missing("App", name)

    # declarations

    def topic(self, *names: str, pattern: str | None = None, **options: Any) -> Topic:
        """Declare a topic, or several with the same types.

        Options: key_type, value_type, key_serializer, value_serializer, partitions, retention
        (seconds or timedelta), compacting, deleting, replicas, config, internal. Workers create it
        if missing.
        """
        if pattern is not None:
            raise ConfigurationError("topic(pattern=...) is not supported: name the topics")
        known = {name: value for name, value in options.items() if name not in _IGNORED_TOPIC}
        declaration = (names, *sorted((name, repr(value)) for name, value in known.items()))
        topic = self._topics.get(declaration)
        if topic is None:
            topic = self._topics[declaration] = Topic(self, names, **known)
        return topic

    def agent(
        self,
        channel: Topic | str | None = None,
        *,
        name: str | None = None,
        concurrency: int = 1,
        sink: Sequence[Any] = (),
        tables: Sequence[Table] = (),
        **topic_options: Any,
    ) -> Callable[[Callable[..., Any]], Agent]:
        """Decorate an async function (or async generator function) of a stream.

        Without ``channel`` the agent reads ``{app}-{name}``. ``sink``: topics, agents, callables or
        sink objects that get what the function yields. ``tables``: tables it uses in ways that
        cannot be seen.
        """
        for option in ("supervisor_strategy", "isolated_partitions", "use_reply_headers"):
            topic_options.pop(option, None)

        def decorate(fun: Callable[..., Any]) -> Agent:
            label = name or getattr(fun, "__name__", None) or type(fun).__name__
            if label in self.agents:
                raise ConfigurationError(f"there are two agents called {label!r}: give name=")
            source = channel
            if source is None:
                source = self.topic(f"{self.conf.id}-{label}", **topic_options)
            elif isinstance(source, str):
                source = self.topic(source, **topic_options)
            agent = Agent(
                self, fun, source, name=label, concurrency=concurrency, sink=sink, tables=tables
            )
            self.agents[label] = agent
            return agent

        return decorate

    @overload
    def source(
        self, topic: Topic | str, reader: Reader, *, name: str | None = None, **options: Any
    ) -> Source: ...

    @overload
    def source(
        self, topic: Topic | str, reader: None = None, *, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Source]: ...

    def source(
        self,
        topic: Topic | str,
        reader: Reader | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Any:
        """Declare a source of ``topic``: every row it gives becomes exactly one record.

        Decorates an async generator function of the position to go on from (None at first) that
        yields ``Row``; or takes a reader of files, a query or an address. Options: key (of rows
        that bring none: a field or a function of the value), splits (a number or names: read by as
        many workers), on_bad_row (``stop`` or ``dead_letter``; default ``on_decode_error``) and
        retry_on (exceptions that pass by themselves). ``name``, by default that of the function or
        topic, must stay: the position is kept under it. See ``sources.source``.
        """
        target = self.topic(topic) if isinstance(topic, str) else topic

        def declare(reader: Reader, label: str) -> Source:
            if label in self.sources:
                raise ConfigurationError(f"there are two sources called {label!r}: give name=")
            source = self.sources[label] = Source(self, target, reader, name=label, **options)
            return source

        def decorate(fun: Callable[..., Any]) -> Source:
            function = FunctionReader(fun)
            return declare(function, name or function.name)

        return decorate if reader is None else declare(reader, name or target.name)

    def Table(self, name: str, **options: Any) -> Table:
        """Declare a table. Options: default, key_type, value_type, partitions, key_serializer,
        value_serializer, help."""
        if name in self.tables:
            raise ConfigurationError(f"there are two tables called {name!r}")
        for option in ("window", "on_window_close", "use_partitioner"):
            if options.pop(option, None):
                raise ConfigurationError(f"Table({option}=...) is not supported yet")
        for option in _IGNORED_TABLE:
            options.pop(option, None)
        table = self.tables[name] = Table(self, name, **options)
        return table

    def timer(
        self, interval: float, on_leader: bool = False, name: str | None = None, **_: Any
    ) -> Callable[[F], F]:
        """Decorate a function to be called every ``interval`` seconds in every worker.

        What it sends joins the worker's next transaction; it cannot write to tables.
        """
        seconds = float(getattr(interval, "total_seconds", lambda: interval)())
        if seconds <= 0:
            raise ConfigurationError("a timer's interval must be more than 0 seconds")

        def decorate(fun: F) -> F:
            label = f"timer {name or getattr(fun, '__name__', 'timer')!r}"
            self.backgrounds.append(Background(label, fun, seconds, None, on_leader))
            return fun

        return decorate

    def crontab(
        self, cron_format: str, *, timezone: tzinfo | None = None, on_leader: bool = False
    ) -> Callable[[F], F]:
        """Decorate a function to be called at the times of a crontab expression (UTC by
        default)."""
        crontab = Crontab.parse(cron_format, timezone)

        def decorate(fun: F) -> F:
            label = f"crontab {getattr(fun, '__name__', 'crontab')!r}"
            self.backgrounds.append(Background(label, fun, None, crontab, on_leader))
            return fun

        return decorate

    @overload
    def task(self, fun: F, *, on_leader: bool = False) -> F: ...

    @overload
    def task(self, fun: None = None, *, on_leader: bool = False) -> Callable[[F], F]: ...

    def task(self, fun: Any = None, *, on_leader: bool = False) -> Any:
        """Decorate a function to be run once when a worker starts, beside the agents."""

        def decorate(fun: F) -> F:
            label = f"task {getattr(fun, '__name__', 'task')!r}"
            self.backgrounds.append(Background(label, fun, on_leader=on_leader))
            return fun

        return decorate if fun is None else decorate(fun)

    def command(self, *options: Any, name: str | None = None, **_: Any) -> Callable[[F], F]:
        """Decorate a function to be run by ``python app.py NAME``; ``options`` are click's
        decorators."""

        def decorate(fun: F) -> F:
            decorated = functools.reduce(
                lambda inner, option: option(inner), reversed(options), fun
            )
            self.commands[name or fun.__name__.replace("_", "-")] = decorated
            return fun

        return decorate

    # sending

    def send(
        self, channel: Topic | str | Agent, key: Any = None, value: Any = None, **options: Any
    ) -> Awaitable[None]:
        """Send to a topic or agent; see ``Topic.send``."""
        if isinstance(channel, Agent):
            channel = channel.topic
        topic = self.topic(channel) if isinstance(channel, str) else channel
        return topic.send(key=key, value=value, **options)

    async def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> None:
        """Send encoded bytes from outside a worker: acknowledged when this returns. Raises
        KafkaError."""
        client = await self.start_client()
        await client.produce(topic, key, value, partition, timestamp_ms, headers)

    async def start_client(self) -> AppClient:
        """Connect for sending from a program that is no worker. Idempotent; ``close_client`` ends
        it."""
        if self._client is None:
            from .engine.worker import connect_client

            self._client = await connect_client(self)
        return self._client

    async def close_client(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def declare(self, topic: Topic) -> None:
        """Create ``topic`` if it is missing."""
        client = await self.start_client()
        await client.declare(topic)

    # running

    def main(self) -> None:
        """Command line of a program that is an app: ``worker`` (default) or one of its commands."""
        from .engine.worker import main

        main(self)

    def is_leader(self) -> bool:
        """Whether this worker is the one that runs ``on_leader`` timers now."""
        return self._engine is not None and self._engine.is_leader()

    def declared_topics(self) -> Iterable[Topic]:
        return list(self._topics.values())

    @property
    def sinks(self) -> list[Sink]:
        """Sinks that agents write to: given with ``sink=``, or named in their functions."""
        return list({sink: None for each in self.agents.values() for sink in sinks_used(each)})

    def open_partitions(self, table: str) -> list[StoreTransaction]:
        """Partitions of a table that the running worker owns. Raises NotRunningError."""
        if self._engine is None:
            raise NotRunningError(f"table {table!r} can only be read in a running worker")
        return self._engine.open_partitions(table)

    def on_engine_started(self, engine: Engine) -> None:
        self._engine = engine

    def on_engine_stopped(self, engine: Engine) -> None:
        if self._engine is engine:
            self._engine = None


_IGNORED_TOPIC = frozenset({"acks", "maxsize", "allow_empty", "has_prefix", "active_partitions"})
_IGNORED_TABLE = (
    "on_recover",
    "recovery_buffer_size",
    "standby_buffer_size",
    "options",
    "schema",
    "extra_topic_configs",
)
