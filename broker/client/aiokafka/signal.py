"""Something changed: everybody who waits looks again."""

from __future__ import annotations

import asyncio


class Signal:
    """``wait`` returns at the next ``notify``. Look first, then wait: nothing is remembered."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    async def wait(self, timeout: float | None = None) -> None:
        """Returns after ``timeout`` seconds at the latest."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        # asyncio.wait leaves the future alone when one of those who share it is cancelled.
        await asyncio.wait((self._next,), timeout=timeout)
