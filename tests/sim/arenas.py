"""The same two programs, a server and a client, over real loopback sockets and in a world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onceward.streams.testing.sim import World

Announce = Callable[[int], None]
Server = Callable[[Announce], Coroutine[Any, Any, Any]]
"""Listens (on any address, port 0), announces its port, and serves."""
Client = Callable[[str, int], Coroutine[Any, Any, Any]]


class RealArena:
    """Both programs in one loop, over 127.0.0.1."""

    async def both(self, server: Server, client: Client) -> tuple[Any, Any]:
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def connect() -> Any:
            return await client("127.0.0.1", await port)

        async with asyncio.timeout(10):
            served, answered = await asyncio.gather(server(port.set_result), connect())
        return served, answered


class SimulatedArena:
    """Two hosts."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed

    async def both(self, server: Server, client: Client) -> tuple[Any, Any]:
        world = World(self.seed)
        left, right = world.host("left"), world.host("right")
        results: list[asyncio.Task[Any]] = []

        def announce(port: int) -> None:
            results.append(right.start(client, "left", port))

        results.append(left.start(server, announce))
        world.run(lambda: len(results) == 2 and all(task.done() for task in results))
        world.end()
        assert not world.errors
        return results[0].result(), results[1].result()


Arena = RealArena | SimulatedArena
