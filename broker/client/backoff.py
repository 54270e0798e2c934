"""How long to wait before trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

JITTER = 0.2


class Backoff:
    """Exponential with jitter, so that many clients do not return at the same moment (KIP-580)."""

    def __init__(self, initial_ms: float, max_ms: float, rng: Random) -> None:
        self._initial = initial_ms
        self._max = max_ms
        self._rng = rng

    def delay(self, failures: int) -> float:
        """Seconds to wait after ``failures`` failures in a row (1 = the first)."""
        exact = min(self._max, self._initial * 2.0 ** min(failures - 1, 30))
        return exact * self._rng.uniform(1 - JITTER, 1 + JITTER) / 1000
