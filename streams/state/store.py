"""The port every state store implements: committed bytes of one table partition.

A store never holds anything that is not committed. It sits at or behind the end of its changelog,
at ``checkpoint``, and only ever rolls forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol


class Store(Protocol):
    """Keys and values of one partition of one table, as bytes."""

    @property
    def checkpoint(self) -> int:
        """Changelog offset everything below is contained; 0 for a new store."""

    def get(self, key: bytes) -> bytes | None:
        """The value, None when there is none."""

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key and value, in the order of the keys' bytes."""

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: int) -> None:
        """Apply changes (None deletes) and the new checkpoint atomically."""

    def clear(self) -> None:
        """Forget everything; checkpoint 0."""

    def close(self) -> None:
        """Release files. Idempotent."""


StoreFactory = Callable[[str, int], Store]
"""Opens the store of a table name and partition."""
