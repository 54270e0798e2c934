"""A simulated cluster: a broker, workers and a client, each on its own host, kept running.

An app that names a schema registry gets one, on a host of its own. The broker, the client library,
the registry and the engine are the real ones. Like a process manager this starts
again what ended; unlike one it notes why.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from onceward.broker.broker import Broker, BrokerFailed
from onceward.broker.client import Client, KafkaError
from onceward.broker.storage.filesystem import LockHeldError
from onceward.registry.errors import RegistryError

from ..engine.kafka import KafkaCluster
from ..engine.worker import make_engine
from ..errors import StreamsError
from ..topology import topology_of
from .database import SimDatabase
from .history import Event, History
from .local_registry import point_to
from .observe import Outside
from .scenario import FAST_BROKER, Feed, Prepared, app_topics
from .sim.store import SimSlot
from .simulated_registry import PORT, simulated_registry

if TYPE_CHECKING:
    from ..app import App
    from ..engine.engine import Engine
    from .sim.host import Host
    from .sim.world import World

BROKER = "broker"
CLIENT = "client"
REGISTRY = "registry"
ADDRESS = "broker:9092"
REGISTRY_URL = f"http://{REGISTRY}:{PORT}"
_DATA = "/data"
_RESTART_S = 0.3
"""What a process manager takes to start a process again that ended by itself."""
_WORKER_DELAY_S = 0.05
_FEED_S = 0.9
_STEADY_S = 1.0
"""More than the time between two heartbeats, in which members learn of a rebalance."""
_SHORT_TIMEOUT_MS, _SHORT_TIMEOUT_P = 5_000, 0.5
"""Request timeout of the workers in half of the runs with faults. Who waits for the answer of a
broker whose machine lost power has sent all there was to send, so no kernel tells: with the usual
timeout that is half a minute, in which sessions and transactions expire, and little else happens.
"""
_CLIENT_TIMEOUT_MS = 5_000
"""Short: a lost connection of the observer should not make the run long."""


class SimCluster:
    """The hosts of one run of ``prepared`` and what runs on them.

    ``orderly``: inputs are fed, and sources run, once every worker has its share, so that nothing
    moves without a fault; otherwise while they still join. ``events`` tell the story. ``failures``
    are what a run must not have, whatever the faults: bugs that stopped the broker, a worker, or
    the observer.
    """

    def __init__(
        self,
        world: World,
        prepared: Prepared,
        feeds: Sequence[Feed],
        *,
        orderly: bool = False,
    ) -> None:
        self.world = world
        self._orderly = orderly
        self._sources_run = False
        self._quiet_since = world.now
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.endings: list[str] = []
        """Not empty: the run is over."""
        self.calm = False
        self.engines: dict[str, Engine] = {}
        self._prepared = prepared
        self._feeds = feeds
        self._app = prepared.app
        self._topology = topology_of(self._app)
        scenario = prepared.scenario
        self._broker_config = {**FAST_BROKER, **scenario.broker_config}
        self.broker = world.host(BROKER)
        self.workers = [world.host(f"worker-{number}") for number in range(scenario.workers)]
        self.client = world.host(CLIENT)
        self.registry = None if prepared.schemas is None else world.host(REGISTRY)
        self._schemas_known = prepared.schemas is None
        self.outside: Outside | None = None
        self._database = SimDatabase(world)
        short = not orderly and world.rng("timeouts").random() < _SHORT_TIMEOUT_P
        self._request_timeout_ms = _SHORT_TIMEOUT_MS if short else sys.maxsize

    @property
    def hosts(self) -> list[Host]:
        """Those that faults may hit."""
        others = [] if self.registry is None else [self.registry]
        return [self.broker, *self.workers, *others]

    def start(self) -> None:
        """Start everything, the workers a moment after the broker."""
        rng = self.world.rng("workload")
        self._start(self.broker)
        self._start(self.client)
        if self.registry is not None:
            self._start(self.registry)
        for host in self.workers:
            self.world.after(_WORKER_DELAY_S * (1 + rng.random()), self._start, host)

    @property
    def has_begun(self) -> bool:
        """The topics exist and inputs are being fed."""
        return self.outside is not None and self.outside.began

    @property
    def is_quiet(self) -> bool:
        """Every worker runs, every task runs at exactly one of them, and has nothing to commit.

        Nobody else can tell: a worker may still be waiting for the answer to a commit that took
        effect, and what it does after that must be seen too.
        """
        if self.outside is None or len(self.engines) < len(self.workers):
            return False
        if len({engine.tasks.generation for engine in self.engines.values()}) > 1:
            return False
        tasks = [task for engine in self.engines.values() for task in engine.tasks]
        running = [task for engine in self.engines.values() for task in engine.tasks.running]
        if len(tasks) != len(running) or any(task.is_dirty for task in running):
            return False
        splits = [split for engine in self.engines.values() for split in engine.tasks.sources]
        if self._sources_run and not all(split.has_ended for split in splits):
            return False
        counts = self.outside.partition_counts
        total = sum(
            max(counts.get(topic, 0) for topic in sub.topics)
            for sub in self._topology.sub_topologies
        )
        return len(running) == total

    @property
    def is_over(self) -> bool:
        """All is done and read back, or something happened that ends a run."""
        return bool(self.endings or self.world.errors)

    def note(self, host: str, what: str, detail: str = "") -> None:
        self.events.append(Event(self.world.now, host, what, detail))

    # processes

    def _start(self, host: Host) -> None:
        if not host.alive:
            host.start(self._process, host)

    def restart(self, host: Host) -> None:
        """Boot and start a host that died. Nothing happens when it runs."""
        if not host.alive:
            self.note(host.name, "restart")
            self._start(host)

    def crash(self, host: Host, *, power: bool, restart_s: float) -> None:
        """Kill the host's process, or cut its power; it comes back after ``restart_s``."""
        self.engines.pop(host.name, None)
        if power:
            host.power_off()
        else:
            host.kill()
        self.world.after(restart_s, self.restart, host)

    async def _process(self, host: Host) -> None:
        work: Callable[[Host], Awaitable[None]] = self._work
        if host is self.broker:
            work = self._serve
        elif host is self.client:
            work = self._observe
        elif host is self.registry:
            work = self._serve_registry
        try:
            await work(host)
            self.note(host.name, "stopped")
        except (
            BrokerFailed,
            LockHeldError,
            StreamsError,
            KafkaError,
            RegistryError,
            OSError,
        ) as error:
            self._ended(host, error)
        self.engines.pop(host.name, None)
        if host is not self.client:
            self.world.after(_RESTART_S, self.restart, host)

    def _ended(self, host: Host, error: Exception) -> None:
        """A process gave up. What a fault explains is a remark, anything else a failure."""
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        is_away = isinstance(cause, RegistryError) and cause.status >= 500
        if (is_away or isinstance(cause, KafkaError | OSError)) and host is not self.client:
            self.note(host.name, "gave up", f"{error}")
            return
        self.note(host.name, "worker failed", f"{error}")
        self.failures.append("".join(traceback.format_exception(error)))
        self.endings.append("a process failed")

    async def _serve(self, host: Host) -> None:
        broker = Broker(
            _DATA,
            listen=ADDRESS,
            config=self._broker_config,
            filesystem=host.disk,
            clock=host.wall_ms,
            rng=host.rng(),
        )
        await broker.start()
        await broker.wait_stopped()

    async def _serve_registry(self, host: Host) -> None:
        async with simulated_registry(host, ADDRESS) as registry:
            await registry.wait_failed()

    async def _work(self, host: Host) -> None:
        app = self._prepared.fresh()
        if self.registry is not None:
            point_to(app, REGISTRY_URL)
            while not self._schemas_known:  # noqa: ASYNC110 - before anything can happen
                await asyncio.sleep(_WORKER_DELAY_S)
        self._database.stand_in_for_sinks_of(app)
        kafka = KafkaCluster(
            ADDRESS,
            client_id=app.conf.broker_client_id,
            request_timeout_ms=min(
                int(app.conf.broker_request_timeout * 1000), self._request_timeout_ms
            ),
            clock=host.wall_ms,
            rng=host.rng(),
        )
        slot: Any = SimSlot(host, app.conf.id)
        engine = await make_engine(app, kafka, slot)
        engine.tasks.allow_rows(None if self._sources_run else 0)
        self.engines[host.name] = engine
        await engine.run()

    async def _observe(self, host: Host) -> None:
        client = Client(
            ADDRESS,
            client_id=CLIENT,
            request_timeout_ms=_CLIENT_TIMEOUT_MS,
            clock=host.wall_ms,
            rng=host.rng(),
        )
        fed = {feed.topic for feed in self._feeds}
        topics = app_topics(self._app, self._topology)
        if self._prepared.schemas is not None and not self._schemas_known:
            await self._prepared.schemas.register_at(REGISTRY_URL)
            self._schemas_known = True
        self.outside = Outside(
            client,
            self._feeds,
            group=self._app.conf.id,
            topics=topics,
            consumed=self._topology.source_topics,
            watched=set(topics) - fed - set(self._changelogs().values()),
            feed_s=_FEED_S,
            now=lambda: self.world.now,
            rng=self.world.rng("workload"),
            ready=self._is_ready,
            calm=lambda: self.calm and self.is_quiet,
        )
        await self.outside.run()
        self.endings.append("all is read back")

    def _is_ready(self) -> bool:
        """Asked again and again: quiet for so long that every worker has joined the group."""
        if self._orderly:
            if not self.is_quiet:
                self._quiet_since = self.world.now
            if self.world.now - self._quiet_since <= _STEADY_S:
                return False
        self._sources_run = True
        for engine in self.engines.values():
            engine.tasks.allow_rows(None)
        return True

    # judging

    def history(self, waiting: Sequence[str] = ()) -> History:
        """All that was seen; ``waiting`` when the run did not come to its end."""
        outside = self.outside
        history = History(group=self._app.conf.id, waiting=list(waiting))
        history.events = sorted([*self.events, *self._errors()], key=lambda event: event.at)
        history.changelogs = self._changelogs()
        history.sinks = self._database.content(self._app)
        if outside is not None:
            history.inputs = outside.inputs
            history.log = outside.log
            history.reads = outside.reads
            history.commits = outside.commits
            history.expected_commits = outside.expected_commits
        if outside is not None and outside.over:
            history.tables = self._tables()
        return history

    def _changelogs(self) -> dict[str, str]:
        return {
            name: table.changelog_name
            for sub in self._topology.sub_topologies
            for name, table in sub.tables.items()
        }

    def _errors(self) -> list[Event]:
        return [
            Event(error.at, error.host, "worker failed", f"{error.message}: {error.exception!r}")
            for error in self.world.errors
        ]

    def _tables(self) -> dict[str, dict[int, dict[bytes, bytes]]]:
        """What the owners' stores hold."""
        tables: dict[str, dict[int, dict[bytes, bytes]]] = {}
        for engine in self.engines.values():
            for task in engine.tasks.running:
                for name, transaction in task.stores.items():
                    content = dict(transaction.store.items())
                    tables.setdefault(name, {})[task.id.partition] = content
        return tables

    @property
    def app(self) -> App:
        """One that no process uses: for its codecs."""
        return self._app
