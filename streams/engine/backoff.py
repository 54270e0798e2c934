"""Waiting longer after every failure in a row."""

from __future__ import annotations

import asyncio

_FIRST_S = 0.05
_LONGEST_S = 2.0


class Backoff:
    """``await wait()`` after a failure, ``reset()`` after a success. Seconds double up to two."""

    def __init__(self) -> None:
        self._next = _FIRST_S

    async def wait(self) -> None:
        delay, self._next = self._next, min(self._next * 2, _LONGEST_S)
        await asyncio.sleep(delay)

    def reset(self) -> None:
        self._next = _FIRST_S
