"""The database of a simulated run: in memory, as exact as a real one, outside of every host."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..sinks.memory import MemoryDatabase, MemorySink
from .sim.loop import HostLoop

if TYPE_CHECKING:
    from ..app import App
    from .sim.world import World

LATENCY_S = 0.002
"""What a call to the database takes on average."""


class SimDatabase:
    """What every sink of an app writes to in a simulation, instead of its real target.

    It outlives the workers. Each call is an I/O step of the worker that makes it (kind "database"),
    so a crash can be aimed at the moment before a commit and at the one between it and its answer.
    """

    def __init__(self, world: World) -> None:
        rng = world.rng("database")
        self._memory = MemoryDatabase(
            on_step=_step_of_caller, latency=lambda: rng.expovariate(1 / LATENCY_S)
        )

    def stand_in_for_sinks_of(self, app: App) -> None:
        """Whatever ``app`` writes to its sinks goes here."""
        for sink in app.sinks:
            MemorySink.instead_of(sink, self._memory)

    def content(self, app: App) -> dict[str, list[Any]]:
        """Sink -> rows in the order in which they were written."""
        return {sink.name: list(self._memory.rows(sink.name)) for sink in app.sinks}


def _step_of_caller(what: str, sink: str) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HostLoop)
    loop.host.step("database", f"{what} of {sink}")
