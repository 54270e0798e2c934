"""Composition root of a worker process: clock, randomness, environment, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from onceward.broker.client import KafkaError

from ..config import broker_address
from ..errors import ConfigurationError, StreamsError
from ..probe import learn_stages
from ..topology import build
from .client_mode import AppClient
from .engine import Engine
from .kafka import Kafka, KafkaCluster
from .slots import WorkerSlot, take_slot

if TYPE_CHECKING:
    from ..app import App

logger = logging.getLogger(__name__)


async def make_engine(app: App, kafka: Kafka, slot: WorkerSlot) -> Engine:
    """An engine for ``app``: its agents are looked at, nothing is connected yet."""
    for agent in app.agents.values():
        await learn_stages(agent)
    return Engine(app, build(list(app.agents.values()), app.tables.values()), kafka, slot)


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
    """The real client, with the real clock."""
    return KafkaCluster(
        broker_of(app, broker),
        client_id=app.conf.broker_client_id,
        request_timeout_ms=int(app.conf.broker_request_timeout * 1000),
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
    on_engine: Callable[[Engine], None] | None = None,
) -> None:
    """Run one worker until it is stopped: SIGTERM or SIGINT commits and leaves, a second one drops
    all.

    Raises StreamsError and KafkaError.
    """
    slot = take_slot(datadir or app.conf.datadir, app.conf.id)
    try:
        engine = await make_engine(app, connect(app, broker), slot)
        if on_engine is not None:
            on_engine(engine)
        running = asyncio.ensure_future(engine.run())
        _handle_signals(engine, running)
        await running
    finally:
        slot.release()


def run_worker(app: App, *, broker: str | None = None, datadir: str | None = None) -> int:
    """Run one worker in this process; returns its exit code. Errors are one sentence on stderr."""
    try:
        asyncio.run(serve(app, broker=broker, datadir=datadir))
    except (StreamsError, KafkaError) as error:
        if error.__cause__ is not None:
            logger.error("the worker stops", exc_info=error.__cause__)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        print("error: stopped at once, uncommitted work is dropped", file=sys.stderr)
        return 1
    return 0


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
