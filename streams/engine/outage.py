"""Saying that something is away: at once, then once a minute, and once when it is back."""

from __future__ import annotations

import asyncio
import logging

_REMINDER_S = 60.0


class Outage:
    """Something that is tried again and again; ``what`` names it, for the last sentence."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._began: float | None = None
        self._next = 0.0
        self._tries = 0

    def tell(self, sentence: str) -> None:
        """Another try failed: ``sentence`` says what and why."""
        now = asyncio.get_running_loop().time()
        if self._began is None:
            self._began = self._next = now
            self._tries = 0
        self._tries += 1
        if now < self._next:
            return
        self._next = now + _REMINDER_S
        since = f" ({self._tries} times in {now - self._began:.0f} s)" if self._tries > 1 else ""
        self._logger.warning("%s%s", sentence, since)

    def over(self) -> None:
        """It worked."""
        if self._began is not None and self._tries > 1:
            lasted = asyncio.get_running_loop().time() - self._began
            self._logger.info("%s after %.0f s and %d tries", self._what, lasted, self._tries)
        self._began = None
