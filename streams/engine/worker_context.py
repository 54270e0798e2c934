"""Sends of timers and tasks: collected per worker, joined to the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .context import SENT
from .output import Outputs, TopicOutput

if TYPE_CHECKING:
    from ..state import StoreTransaction

_MAX_PENDING = 5_000
"""Sends that may wait for a commit before the sender does too."""


class WorkerContext:
    """``Emitter`` of a worker's timers and tasks.

    What they send does not depend on input records, so it survives a rewind and goes into the next
    transaction; a crash before that loses it, and what a timer sent is never repeated.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.outputs = Outputs()
        self.stores: dict[str, StoreTransaction] | None = None
        self._now_ms = now_ms
        self._committed = asyncio.Event()

    def timestamp_ms(self) -> int:
        return self._now_ms()

    def sent(self) -> Awaitable[None]:
        if len(self.outputs) < _MAX_PENDING:
            return SENT
        return self._room()

    def take(self) -> dict[str, TopicOutput]:
        """What the coming transaction carries."""
        return self.outputs.take()

    def give_back(self, taken: dict[str, TopicOutput]) -> None:
        """The transaction did not commit: its records come first in the next."""
        later = self.outputs.take()
        self.outputs.topics = taken
        for topic, output in later.items():
            mine = self.outputs.open(topic)
            size = len(mine.values)
            mine.keys.extend(output.keys)
            mine.values.extend(output.values)
            mine.timestamps.extend(output.timestamps)
            mine.partitions.update({size + at: to for at, to in output.partitions.items()})
            mine.headers.update({size + at: to for at, to in output.headers.items()})

    def committed(self) -> None:
        """Let waiting senders go on."""
        self._committed.set()
        self._committed = asyncio.Event()

    async def _room(self) -> None:
        while len(self.outputs) >= _MAX_PENDING:
            await self._committed.wait()
