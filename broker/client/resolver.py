"""Where to begin in a partition: the committed offset, else what ``auto_offset_reset`` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from ..errors import KafkaError
from .cluster import Client
from .errors import NoOffsetForPartition
from .offsets import EARLIEST, LATEST, Isolation, fetch_offsets, list_offsets
from .positions import PartitionState, PartitionStates

OffsetReset = Literal["earliest", "latest", "none"]


class PositionResolver:
    """Finds positions in the background, all missing ones together.

    ``pump`` starts it when a position is missing; ``on_ready`` is called when positions or an error
    came. After an error it waits for ``errors`` to be taken.
    """

    def __init__(
        self,
        client: Client,
        states: PartitionStates,
        *,
        group_id: str | None,
        isolation: Isolation,
        auto_offset_reset: OffsetReset,
        timeout_ms: int,
        on_ready: Callable[[], None],
    ) -> None:
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise ValueError(f"auto_offset_reset {auto_offset_reset!r}: earliest, latest or none")
        self._client = client
        self._states = states
        self._group_id = group_id
        self._isolation = isolation
        self._reset = auto_offset_reset
        self._timeout_ms = timeout_ms
        self._on_ready = on_ready
        self._task: asyncio.Task[None] | None = None
        self.errors: list[BaseException] = []

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def pump(self) -> None:
        if self._task is not None or self.errors:
            return
        missing = self._states.without_position()
        if missing:
            self._task = asyncio.create_task(self._resolve(missing))
            self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.errors.append(error)
        self._on_ready()

    async def _resolve(self, missing: Sequence[PartitionState]) -> None:
        versions = [(state, state.version) for state in missing]
        ask = [state.tp for state in missing if not state.reset_needed]
        if self._group_id is not None:
            committed = await fetch_offsets(
                self._client,
                self._group_id,
                ask,
                require_stable=self._isolation == "read_committed",
                timeout_ms=self._timeout_ms,
            )
            for state, version in versions:
                offset = committed.get(state.tp)
                if offset is not None and self._states.is_current(state, version):
                    state.move_to(offset.offset)
        left = [
            (state, version)
            for state, version in versions
            if self._states.is_current(state, version) and state.position is None
        ]
        if left:
            await self._reset_positions(left)

    async def _reset_positions(self, left: Sequence[tuple[PartitionState, int]]) -> None:
        if self._reset == "none":
            gone = any(state.reset_needed for state, _ in left)
            reason = "the position does not exist any more" if gone else "no committed offset"
            raise NoOffsetForPartition(frozenset(state.tp for state, _ in left), reason)
        time = EARLIEST if self._reset == "earliest" else LATEST
        try:
            found = await list_offsets(
                self._client, {state.tp: time for state, _ in left}, isolation=self._isolation
            )
        except KafkaError as error:
            raise KafkaError(error.code, f"resetting positions: {error.message}") from error
        for state, version in left:
            if self._states.is_current(state, version):
                state.move_to(found[state.tp].offset)
