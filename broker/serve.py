"""A broker as a process: run until a signal, or until the broker stops itself."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from .broker import Broker


async def serve(
    *,
    listen: str,
    data_dir: str | None,
    config: Mapping[str, str],
    ready: Callable[[str], None],
    exit_when_idle_s: float | None = None,
    beside: Callable[[str], AbstractAsyncContextManager[object]] | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT; ``ready`` gets its address when clients may connect.

    ``beside`` is given the address too; what it returns is open while the broker serves. With
    ``exit_when_idle_s`` it also stops when no client has been connected for so long.

    Raises what ``Broker.start`` raises, and BrokerFailed when the broker had to stop itself.
    """
    _allow_many_files()
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    async with Broker(data_dir, listen, config) as broker, AsyncExitStack() as guests:
        ready(broker.bootstrap)
        if beside is not None:
            await guests.enter_async_context(beside(broker.bootstrap))
        ends = {
            loop.create_task(signalled.wait(), name="signal"),
            loop.create_task(broker.wait_stopped(), name="broker"),
        }
        if exit_when_idle_s is not None:
            ends.add(loop.create_task(_idle(broker, exit_when_idle_s), name="idle"))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def _idle(broker: Broker, limit_s: float) -> None:
    """Return when nobody was connected for ``limit_s``."""
    loop = asyncio.get_running_loop()
    last_seen = loop.time()
    while loop.time() - last_seen < limit_s:
        await asyncio.sleep(min(1.0, limit_s / 2))
        if broker.connections:
            last_seen = loop.time()


def _allow_many_files() -> None:
    """Each partition and connection is an open file; the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
