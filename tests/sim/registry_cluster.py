"""A broker, registries, and clients of theirs on simulated machines, kept running.

All are the real ones, down to the HTTP server. ``observer`` and ``auditor`` are never struck: the
one reads the topic while it is written, the other is a registry that begins when all is over.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from dataclasses import dataclass, field
from typing import Any

from onceward.broker.broker import Broker, BrokerFailed
from onceward.broker.client import (
    Client,
    Consumer,
    FetchedBatch,
    KafkaError,
    Records,
    TopicPartition,
)
from onceward.broker.storage.filesystem import LockHeldError
from onceward.registry.errors import RegistryError
from onceward.registry.exchange import BadAnswer
from onceward.registry.schema_registry import SchemaRegistry
from onceward.registry.server import Registry
from onceward.registry.state import State
from onceward.streams.testing.cluster import ADDRESS, BROKER
from onceward.streams.testing.sim import Host, World
from onceward.streams.testing.simulated_registry import PORT, simulated_registry

from .registry_calls import GLOBAL, SUBJECTS, Call, Op, Told, ask, draw, send
from .registry_judge import Dump, RegistryHistory
from .registry_model import RawRecord, Version, Write

TOPIC = "_schemas"
RESTART_S = 0.3
CONVERGENCE_S = 60.0
"""Within which instances have to agree when nothing is struck any more."""
GIVE_UP_P = 0.5
LINGERING = 5
"""So much longer a client thinks that only waits for the faults to be over."""
PATIENCE_S = 100.0
"""Within which a client that retries gets an answer then."""
FAST_BROKER = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.min.session.timeout.ms": "500",
    "log.cleaner.min.compaction.lag.ms": "3000",
    "log.message.timestamp.after.max.ms": str(1 << 60),  # a clock may be hours ahead
}


@dataclass(frozen=True)
class Setting:
    """What a run is like, besides its faults. ``ops``: per client, so many at least, and
    ``calm_ops`` more when the faults are over. ``lag_s``: at most so much longer it takes an
    instance to read what was written, as over a slow line."""

    instances: int = 2
    clients: int = 3
    ops: int = 12
    calm_ops: int = 4
    pause_s: float = 0.05
    answer_s: float = 5.0
    request_timeout_ms: int = 10_000
    lag_s: float = 0.0
    registry: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, str] = field(default_factory=dict)


class RegistryCluster:
    """The hosts of one run; ``history`` is what to judge it by."""

    def __init__(self, world: World, setting: Setting) -> None:
        self.world = world
        self.setting = setting
        self.broker = world.host(BROKER)
        self.registries = [world.host(f"registry-{each}") for each in range(setting.instances)]
        self.client = world.host("client")
        self.observer = world.host("observer")
        self.auditor = world.host("auditor")
        self.calm = False
        self.began = False
        self.settled = False
        """Clients are done; what comes is reading back."""
        self.over = False
        self.told = Told()
        self.events: list[str] = []
        self.history = RegistryHistory(calls=self.told.calls)
        self.running: dict[str, Registry] = {}
        self._stops: dict[str, asyncio.Event] = {}
        self._observed = 0

    @property
    def hosts(self) -> list[Host]:
        """Those that faults may hit."""
        return [self.broker, *self.registries]

    def start(self) -> None:
        """The first registry leads, unless something happens."""
        self._start(self.broker)
        self.world.after(0.05, self._start, self.observer)
        for number, host in enumerate(self.registries):
            self.world.after(0.05 + 0.3 * number, self._start, host)
        self.world.after(0.1, self._start, self.client)

    def note(self, host: str, what: str, detail: str = "") -> None:
        self.events.append(f"{self.world.now:.3f} {host}: {what} {detail}".rstrip())

    # processes

    def restart(self, host: Host) -> None:
        """Boot and start a host that died. Nothing happens when it runs."""
        if not host.alive:
            self.note(host.name, "restart")
            self._start(host)

    def crash(self, host: Host, *, power: bool, restart_s: float) -> None:
        self.running.pop(host.name, None)
        if power:
            host.power_off()
        else:
            host.kill()
        self.world.after(restart_s, self.restart, host)

    def terminate(self, host: Host) -> None:
        """SIGTERM: a registry finishes what it is at, and starts again."""
        stop = self._stops.get(host.name)
        if stop is not None and host.alive:
            stop.set()

    def _start(self, host: Host) -> None:
        if not host.alive:
            host.start(self._process, host)

    async def _process(self, host: Host) -> None:
        if host is self.client:
            await self._run_clients(host)
            return
        if host is self.observer:
            await self._observe(host)
            return
        try:
            await (self._serve_broker(host) if host is self.broker else self._serve(host))
            self.note(host.name, "stopped")
        except (BrokerFailed, LockHeldError, KafkaError, RegistryError, OSError) as error:
            self.note(host.name, "gave up", str(error))
        self.running.pop(host.name, None)
        self.world.after(RESTART_S, self.restart, host)

    async def _serve_broker(self, host: Host) -> None:
        broker = Broker(
            "/data",
            listen=ADDRESS,
            config={**FAST_BROKER, **self.setting.broker},
            filesystem=host.disk,
            clock=host.wall_ms,
            rng=host.rng(),
        )
        await broker.start()
        await broker.wait_stopped()

    async def _serve(self, host: Host) -> None:
        stop = self._stops[host.name] = asyncio.Event()
        settings = {**self.setting.registry, "eligible": host is not self.auditor}
        timeout_ms = self.setting.request_timeout_ms
        async with simulated_registry(
            host, ADDRESS, request_timeout_ms=timeout_ms, **settings
        ) as registry:
            self.running[host.name] = registry
            if self.setting.lag_s and host is not self.auditor:
                _slow_down(registry, self.setting.lag_s, host.rng())
            failing = asyncio.create_task(self._watch(host, registry))
            await stop.wait()
            failing.cancel()
            self.running.pop(host.name, None)

    async def _watch(self, host: Host, registry: Registry) -> None:
        """A registry that fails by itself is a finding, whatever was done to it."""
        try:
            await registry.wait_failed()
            self.history.failures.append(f"the HTTP server of {host.name} ended")
        except Exception as error:  # noqa: BLE001 - judged with the rest
            told = "".join(traceback.format_exception(error))
            self.history.failures.append(f"{host.name}: {told}")

    async def _observe(self, host: Host) -> None:
        client = await self._client_of(host)
        consumer = Consumer(client, isolation="read_committed")
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.start()
        while True:
            try:
                batches = await consumer.fetch(timeout_ms=500)
            except KafkaError:
                await asyncio.sleep(0.05)
                continue
            for batch in batches:
                self._take(batch.records)

    def _take(self, records: Records) -> None:
        """A transaction's records have one offset after the other, its mark has the next."""
        expected = -1
        for key, value, offset, at in zip(
            records.keys, records.values, records.offsets, records.timestamps, strict=True
        ):
            if offset != expected:
                self.history.writes.append(Write(offset, []))
            self.history.writes[-1].records.append(RawRecord(key or b"", value, at))
            expected = offset + 1
        self._observed = records.next_offset

    async def _client_of(self, host: Host) -> Client:
        client = Client(
            ADDRESS,
            client_id=host.name,
            request_timeout_ms=2_000,
            clock=host.wall_ms,
            rng=host.rng(),
        )
        while True:
            try:
                await client.start()
                return client
            except KafkaError:
                await asyncio.sleep(0.05)

    # clients

    async def _run_clients(self, host: Host) -> None:
        for registry in self.registries:
            await self._patiently("client", Op("get_config"), registry, host.rng())
        self.began = True
        clients = range(self.setting.clients)
        await asyncio.gather(*(self._client(host, number) for number in clients))
        self.settled = True
        self.world.at(self.world.now, self._start, self.auditor)
        await self._read_back(host)
        self.over = True

    async def _client(self, host: Host, number: int) -> None:
        rng, name = host.rng(), f"client-{number}"
        done = calm = 0
        at = rng.choice(self.registries)
        while done < self.setting.ops or calm < self.setting.calm_ops:
            slower = 1 if done < self.setting.ops else LINGERING
            await asyncio.sleep(rng.expovariate(1 / self.setting.pause_s / slower))
            if rng.random() < 0.3:
                at = rng.choice(self.registries)
            was_calm = self.calm
            at = await self._patiently(name, draw(rng, self.told), at, rng)
            done += 1
            calm += was_calm

    async def _patiently(self, name: str, op: Op, at: Host, rng: random.Random) -> Host:
        """Again until there is an answer, at one instance after the other; the last one.

        While things are struck a client may do something else instead: what it gave up may yet be
        done, late, by an instance that did not know better.
        """
        pause = 0.02
        calm_since: float | None = None
        while True:
            call = await self._try(name, op, at)
            if call.code:
                return at
            if self.calm:
                calm_since = calm_since or self.world.now
                if self.world.now - calm_since > PATIENCE_S:
                    self.history.failures.append(f"{name} got no answer to {op}: {call}")
                    return at
            at = self.registries[(self.registries.index(at) + 1) % len(self.registries)]
            if not self.calm and self.began and rng.random() < GIVE_UP_P:
                return at
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)

    async def _try(self, name: str, op: Op, at: Host) -> Call:
        call = Call(name, at.name, op, self.world.now)
        self.told.calls.append(call)
        try:
            async with asyncio.timeout(self.setting.answer_s):
                call.status, call.answer = await ask(_url(at), op)
        except (OSError, EOFError, BadAnswer) as error:
            call.answer = str(error) or type(error).__name__
        call.end = self.world.now
        if call.code == 200 and op.kind == "register":
            self.told.ids.append(call.answer["id"])
        return call

    # at the end

    async def _read_back(self, host: Host) -> None:
        """Wait until everything agrees; if it does not, what is found last is judged."""
        deadline = self.world.now + CONVERGENCE_S
        while True:
            await asyncio.sleep(0.1)
            if len(self.running) < len(self.registries) + 1:
                differences = ["not all registries run"]
            else:
                differences = await self._differences(host)
            if not differences or self.world.now > deadline:
                self.history.hidden = differences
                return

    async def _differences(self, host: Host) -> list[str]:
        observed = self._observed
        positions = {name: one.store.position for name, one in self.running.items()}
        if set(positions.values()) != {observed}:
            return [f"positions: {positions}, the topic was read up to {observed}"]
        instances = [*self.registries, self.auditor]
        try:
            async with asyncio.timeout(self.setting.answer_s):
                self.history.dumps = [await _dump(each) for each in instances]
        except (OSError, EOFError, BadAnswer) as error:
            return [f"an instance does not answer: {error}"]
        if self._observed != observed:
            return ["something was written meanwhile"]
        expected = vars(_replayed(self.history.writes))
        return [
            f"{name}: {member} is {found}, not {expected[member]}"
            for name, registry in self.running.items()
            for member, found in vars(registry.machine.state).items()
            if found != expected[member]
        ]


def _slow_down(registry: Registry, lag_s: float, rng: random.Random) -> None:
    consumer = registry.store._consumer
    fetch = consumer.fetch

    async def late(*, timeout_ms: int) -> list[FetchedBatch]:
        batches = await fetch(timeout_ms=timeout_ms)
        if batches:
            await asyncio.sleep(rng.choice((0.0, lag_s * rng.random(), lag_s)))
        return batches

    consumer.fetch = late  # type: ignore[method-assign]


def _replayed(writes: list[Write]) -> State:
    machine = SchemaRegistry()
    for write in writes:
        for record in write.records:
            machine.replay(*record)
    return machine.state


def _url(host: Host) -> str:
    return f"http://{host.name}:{PORT}"


async def _dump(host: Host) -> Dump:
    """Raises OSError, EOFError, BadAnswer."""
    status, found = await send(_url(host), "GET", "/schemas?deleted=true&limit=-1")
    if status != 200:
        raise BadAnswer(f"{status} {found}")
    dump = Dump(host.name, {}, {})
    for one in found:
        version = Version(one["id"], one["schema"], one.get("deleted", False))
        dump.versions[one["subject"], one["version"]] = version
    for scope in (GLOBAL, *SUBJECTS):
        _, config = await ask(_url(host), Op("get_config", scope))
        dump.levels[scope] = config["compatibilityLevel"]
    return dump
