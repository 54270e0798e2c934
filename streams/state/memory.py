"""A store in a dict: rebuilt from the changelog on every assignment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class MemoryStore:
    """``Store`` without files."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._checkpoint = 0

    @property
    def checkpoint(self) -> int:
        return self._checkpoint

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self._data.items()))

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: int) -> None:
        for key, value in changes:
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value
        self._checkpoint = checkpoint

    def clear(self) -> None:
        self._data.clear()
        self._checkpoint = 0

    def close(self) -> None:
        self._data = {}
