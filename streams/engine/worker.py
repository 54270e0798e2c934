"""Composition root of a worker process: clock, randomness, environment, signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onceward.broker.client import Client, KafkaError, TopicPartition

from ..config import broker_address
from ..errors import ConfigurationError, StreamsError
from ..probe import learn_stages
from ..topology import topology_of
from .bounded import BoundedRun, Bounds, bounded_topics, find_bounds
from .client_mode import AppClient
from .engine import Engine
from .kafka import Kafka, KafkaCluster
from .slots import WorkerSlot, take_slot

if TYPE_CHECKING:
    from ..app import App

logger = logging.getLogger(__name__)

_GC_ALLOCATIONS = 20_000
"""New containers between two collections. Records are alive by the thousand in long lists, which
Python's defaults make the collector walk through again and again."""
_DEFAULT_GC_ALLOCATIONS = 2_000
"""The highest of Python's own defaults: 700 up to 3.12."""

_SWITCH_S = 0.0005
"""How long a thread that runs Python code may keep a sink's thread waiting, while the database does
nothing. Python's default is 5 ms."""
_DEFAULT_SWITCH_S = 0.005

_WAITING_NOTICE_S = 2.0
"""A broker that does not answer the start is mentioned this often."""


class PatientCluster(KafkaCluster):
    """A cluster whose broker may be away for a moment when the worker starts."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        request_timeout_ms: int,
        clock: Callable[[], int],
        rng: random.Random,
        notice_s: float = _WAITING_NOTICE_S,
    ) -> None:
        super().__init__(
            bootstrap,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            clock=clock,
            rng=rng,
        )
        self._bootstrap = bootstrap
        self._patience_s = request_timeout_ms / 1000
        self._notice_s = notice_s

    async def start(self) -> None:
        """Wait for a broker for the request timeout, saying so. Raises KafkaError."""
        telling = asyncio.create_task(self._tell())
        try:
            await super().start()
        except KafkaError as error:
            reason = f"no broker at {self._bootstrap} within {self._patience_s:g} s"
            raise KafkaError(error.code, f"{reason}: {error.message}") from None
        finally:
            telling.cancel()

    async def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        while True:
            await asyncio.sleep(self._notice_s)
            logger.warning(
                "waiting for a broker at %s, for %.0f s more",
                self._bootstrap,
                max(deadline - loop.time(), 0),
            )


async def make_engine(app: App, kafka: Kafka, slot: WorkerSlot) -> Engine:
    """An engine for ``app``: its agents are looked at, nothing is connected yet."""
    for agent in app.agents.values():
        await learn_stages(agent)
    return Engine(app, topology_of(app), kafka, slot)


def broker_of(app: App, broker: str | None = None) -> str:
    """Address from the argument, the app, or ``ONCEWARD_BROKER``. Raises ConfigurationError."""
    found = broker or app.conf.broker or os.environ.get("ONCEWARD_BROKER")
    address = broker_address(found)
    if not address:
        raise ConfigurationError(
            "no broker is given: pass App(broker=...), set ONCEWARD_BROKER, or run "
            "`onceward worker`, which brings its own"
        )
    return address


def connect(app: App, broker: str | None = None) -> KafkaCluster:
    """The real client, with the real clock; ``broker_request_timeout`` bounds its start."""
    return PatientCluster(
        broker_of(app, broker),
        client_id=app.conf.broker_client_id,
        request_timeout_ms=int(app.conf.broker_request_timeout * 1000),
        clock=_now_ms,
        rng=random.Random(),
    )


def client_of(bootstrap: str, *, client_id: str, request_timeout_ms: int) -> Client:
    """A client of some other cluster, with the real clock."""
    return Client(
        bootstrap,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        clock=_now_ms,
        rng=random.Random(),
    )


async def connect_client(app: App, broker: str | None = None) -> AppClient:
    """A started client for sending from outside a worker."""
    kafka = connect(app, broker)
    await kafka.start()
    return AppClient(kafka, app.conf)


async def serve(
    app: App,
    *,
    broker: str | None = None,
    datadir: str | None = None,
    bounds: Bounds | None = None,
    on_engine: Callable[[Engine], None] | None = None,
) -> None:
    """Run one worker until it is stopped: SIGTERM or SIGINT commits and leaves, a second one drops
    all. With ``bounds`` also until everything before them is done.

    Raises StreamsError and KafkaError.
    """
    slot = take_slot(datadir or app.conf.datadir, app.conf.id)
    ending = None
    try:
        engine = await make_engine(app, connect(app, broker), slot)
        if on_engine is not None:
            on_engine(engine)
        running = asyncio.ensure_future(engine.run())
        _handle_signals(engine, running)
        if bounds is not None:
            engine.tasks.bounds = bounds
            ending = asyncio.create_task(_stop_at(engine, app, broker, bounds), name="bounded-run")
        await running
    finally:
        if ending is not None:
            ending.cancel()
            await asyncio.wait([ending])
        slot.release()


async def _stop_at(engine: Engine, app: App, broker: str | None, bounds: Bounds) -> None:
    """Stop the engine when its group is done. Over a client of its own: the engine's ends with
    it."""
    kafka = connect(app, broker)
    try:
        await kafka.start()
        await BoundedRun(kafka, topology_of(app), app.conf.id, bounds).wait()
        engine.stop()
    finally:
        await kafka.close()


async def learn_bounds(
    app: App, until: str, topics: Sequence[str] = (), *, broker: str | None = None
) -> dict[TopicPartition, int]:
    """Where a bounded run ends, see ``bounded``. Raises ConfigurationError, KafkaError."""
    for agent in app.agents.values():
        await learn_stages(agent)
    kafka = connect(app, broker)
    try:
        await kafka.start()
        return await find_bounds(kafka, bounded_topics(topology_of(app), topics), until)
    finally:
        await kafka.close()


def run_worker(
    app: App,
    *,
    broker: str | None = None,
    datadir: str | None = None,
    bounds: Bounds | None = None,
) -> int:
    """Run one worker in this process; returns its exit code. Errors are one sentence on stderr."""
    _calm_collector()
    _switch_sooner()
    try:
        asyncio.run(serve(app, broker=broker, datadir=datadir, bounds=bounds))
    except (StreamsError, KafkaError) as error:
        if error.__cause__ is not None:
            logger.error("the worker stops", exc_info=error.__cause__)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        print("error: stopped at once, uncommitted work is dropped", file=sys.stderr)
        return 1
    return 0


def _calm_collector() -> None:
    """Collect less often, and nothing that was there before the first record.

    A program that set its own thresholds, or switched the collector off, keeps them.
    """
    gc.freeze()
    threshold, *older = gc.get_threshold()
    if 0 < threshold <= _DEFAULT_GC_ALLOCATIONS:
        gc.set_threshold(_GC_ALLOCATIONS, *older)


def _switch_sooner() -> None:
    """Unless the program set its own interval."""
    if sys.getswitchinterval() == _DEFAULT_SWITCH_S:
        sys.setswitchinterval(_SWITCH_S)


def main(app: App) -> None:
    """Command line of a program whose module is an app. Exits the process."""
    from ..cli.app_main import app_main

    app_main(app)


def _handle_signals(engine: Engine, running: asyncio.Future[None]) -> None:
    loop = asyncio.get_running_loop()
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            running.cancel()
        asked = True
        engine.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
