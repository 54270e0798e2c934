"""A cluster of real processes behind a fault proxy, kept running, and watched from outside.

The workers run the user's app and the broker is ``onceward broker``. Like a process manager this
starts again what ended; unlike one it notes why.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from onceward.broker.client import Admin, Client, KafkaError
from onceward.broker.errors import ProtocolError

from ..topology import build
from .faults import Fault
from .history import Event, History
from .observe import Outside
from .processes_faults import ProcessNemesis
from .processes_hosts import BrokerHost, Host, Launch, WorkerHost
from .processes_sinks import read_sinks
from .processes_worker import GAVE_UP
from .proxy import FaultProxy, Frame
from .scenario import FAST_BROKER, Feed, Prepared, app_topics
from .sim.loop import EPOCH_S, START_S
from .tap import FrameNotes

LIMIT_S = 120.0
"""A run that takes longer makes no progress."""
_BROKER_CONFIG: Mapping[str, str] = {
    **FAST_BROKER,
    "group.min.session.timeout.ms": "500",
    "log.retention.ms": "-1",  # inputs carry old timestamps
}
_LOOK_S = 0.1
_STEADY_S = 1.0
_CLIENT_TIMEOUT_MS = 5_000


@dataclass
class Ran:
    """What a run was: its history, and what happened to its processes."""

    history: History
    struck: dict[str, int] = field(default_factory=dict)
    restarts: int = 0


class ProcessCluster:
    """One run of ``prepared`` in directory ``work``, which must be new and empty.

    The inputs are fed over about ``feed_s`` seconds.
    """

    def __init__(
        self,
        prepared: Prepared,
        feeds: Sequence[Feed],
        work: Path,
        launch: Launch,
        *,
        seed: int | str,
        workers: int,
        plan: Sequence[Fault] = (),
        feed_s: float,
    ) -> None:
        self._app = prepared.app
        self._topology = build(list(self._app.agents.values()), self._app.tables.values())
        self._feeds = feeds
        self._work = work
        self._seed = seed
        self._feed_s = feed_s
        self._plan = plan
        self._events: list[Event] = []
        self._failed = asyncio.Event()
        self._calm = asyncio.Event()
        self._is_complete = False
        config = {**_BROKER_CONFIG, **prepared.scenario.broker_config}
        self._broker = BrokerHost(self, work, {key: str(value) for key, value in config.items()})
        names = [f"worker-{number}" for number in range(workers)]
        self._workers = [WorkerHost(name, self, work, launch) for name in names]
        self._notes = FrameNotes(self.now)
        self._outside: Outside | None = None
        self._tables: dict[str, dict[int, dict[bytes, bytes]]] = {}
        self.proxy: FaultProxy
        """From ``run`` on."""

    @property
    def hosts(self) -> dict[str, Host]:
        return {host.name: host for host in (self._broker, *self._workers)}

    @staticmethod
    def now() -> float:
        """The run's clock: real time in the simulation's units, so that histories are alike."""
        return START_S + time.time() - EPOCH_S

    def note(self, host: str, what: str, detail: str = "") -> None:
        self._events.append(Event(self.now(), host, what, detail))

    # processes

    def ended_by_itself(self, host: Host, code: int) -> bool:
        """Whether it may be started again."""
        if code == GAVE_UP and host is not self._broker:
            self.note(host.name, "gave up", host.last_line)
            return True
        self._fail(host.name, f"it ended by itself with exit code {code}: {host.last_line}")
        return False

    def _fail(self, host: str, detail: str) -> None:
        self.note(host, "worker failed", detail)
        self._failed.set()

    async def calm_or(self, delay_s: float) -> None:
        """Sleep, but no longer than until everything is set right."""
        if delay_s > 0:
            try:
                await asyncio.wait_for(self._calm.wait(), delay_s)
            except TimeoutError:
                pass

    def heal(self) -> None:
        """Set everything right: from here on the cluster must come to its end."""
        self.note("", "heal", "everything")
        self.proxy.heal()
        for host in self.hosts.values():
            host.resume()
        self._calm.set()

    # the run

    async def run(self) -> Ran:
        """Raises KafkaError when the broker does not start. Leaves no process behind."""
        (self._work / "shared").mkdir()
        waiting: list[str] = []
        sinks = {}
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._end_all)
            await self._broker.launch()
            self.proxy = await undo.enter_async_context(FaultProxy(self._broker.address))
            self.proxy.watch = self._watch
            nemesis = ProcessNemesis(self, self._plan)
            client = self._new_client()
            undo.push_async_callback(client.close)
            self._outside = self._observer(client)
            try:
                async with asyncio.timeout(LIMIT_S):
                    await self._play(client, nemesis)
                    if not self._failed.is_set():
                        await self._finish(self._outside)
                        sinks = read_sinks(self._app, self._work / "shared")
            except TimeoutError:
                waiting = await self._what_waits()
        restarts = sum(host.restarts for host in self.hosts.values())
        return Ran(self._history(waiting, sinks), dict(nemesis.struck), restarts)

    async def _play(self, client: Client, nemesis: ProcessNemesis) -> None:
        """Until everything is processed, or something failed."""
        outside = self._outside
        assert outside is not None
        for worker in self._workers:
            worker.address = await self.proxy.listen(worker.name)
        tasks = [
            asyncio.create_task(outside.run()),
            asyncio.create_task(self._failed.wait()),
            asyncio.create_task(self._afflict(outside, nemesis)),
            asyncio.create_task(self._watch_group(client)),
        ]
        try:
            for worker in self._workers:
                await worker.launch()
            tasks += [asyncio.create_task(self._keep(host)) for host in self.hosts.values()]
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done() and (error := tasks[0].exception()) is not None:
                self._fail("client", f"{type(error).__name__}: {error}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await outside.close()

    async def _keep(self, host: Host) -> None:
        try:
            await host.keep()
        except KafkaError as error:
            self._fail(host.name, str(error))

    async def _afflict(self, outside: Outside, nemesis: ProcessNemesis) -> None:
        while not outside.began:  # noqa: ASYNC110 - told by polling
            await asyncio.sleep(_LOOK_S)
        await nemesis.run()
        self.heal()

    async def _watch_group(self, client: Client) -> None:
        """Keep up to date whether every worker has been a member of the group for a while."""
        admin = Admin(client)
        group, steady_since = self._app.conf.id, 0.0
        while True:
            try:
                found = (await admin.describe_groups([group]))[group]
                is_whole = found.state == "Stable" and len(found.members) == len(self._workers)
            except KafkaError:
                is_whole = False
            if not is_whole:
                steady_since = self.now()
            self._is_complete = is_whole and self.now() - steady_since >= _STEADY_S
            await asyncio.sleep(_LOOK_S)

    async def _finish(self, outside: Outside) -> None:
        """Ask the workers for their tables, stop them, and read what is there after that."""
        for worker in self._workers:
            told = await worker.tell()
            for name, partitions in ({} if told is None else told.tables).items():
                self._tables.setdefault(name, {}).update(partitions)
        codes = await asyncio.gather(*(worker.end() for worker in self._workers))
        for worker, code in zip(self._workers, codes, strict=True):
            if code:
                self._fail(worker.name, f"asked to stop it ended with exit code {code}")
        await outside.read_back()

    async def _end_all(self) -> None:
        for host in self.hosts.values():
            await host.end_now()

    # watching

    def _watch(self, frame: Frame) -> None:
        name, connection = frame.connection.link.name, frame.connection.number
        tell = self._notes.request if frame.is_request else self._notes.answer
        try:
            tell(name, connection, frame.data)
        except ProtocolError as error:
            self.note(name, "garbage", str(error))

    def _new_client(self) -> Client:
        return Client(
            self._broker.address,
            client_id="onceward-verify",
            request_timeout_ms=_CLIENT_TIMEOUT_MS,
            clock=lambda: time.time_ns() // 1_000_000,
            rng=random.Random(f"{self._seed}/client"),
        )

    def _observer(self, client: Client) -> Outside:
        fed = {feed.topic for feed in self._feeds}
        topics = app_topics(self._app, self._topology)
        return Outside(
            client,
            self._feeds,
            group=self._app.conf.id,
            topics=topics,
            consumed=self._topology.source_topics,
            watched=set(topics) - fed - set(self._changelogs().values()),
            feed_s=self._feed_s,
            now=self.now,
            rng=random.Random(f"{self._seed}/workload"),
            ready=lambda: self._is_complete,
            calm=lambda: self._calm.is_set() and self._is_complete,
        )

    def _changelogs(self) -> dict[str, str]:
        return {
            name: table.changelog_name
            for sub in self._topology.sub_topologies
            for name, table in sub.tables.items()
        }

    async def _what_waits(self) -> list[str]:
        lines = []
        for worker in self._workers:
            told = await worker.tell()
            if told is not None:
                lines += [f"{worker.name}: {line}" for line in told.waiting]
            else:
                state = "does not answer" if worker.alive else "is not running"
                lines.append(f"{worker.name}: {state}; its last words:\n{worker.last_words()}")
        return lines or ["nobody"]

    def _history(self, waiting: Sequence[str], sinks: dict[str, list[object]]) -> History:
        history = History(group=self._app.conf.id, waiting=list(waiting))
        events = [*self._events, *self._notes.events]
        history.events = sorted(events, key=lambda event: event.at)
        history.changelogs = self._changelogs()
        history.tables = self._tables
        history.sinks = sinks
        outside = self._outside
        if outside is not None:
            history.inputs = outside.inputs
            history.log = outside.log
            history.reads = outside.reads
            history.commits = outside.commits
            history.expected_commits = outside.expected_commits
        return history
