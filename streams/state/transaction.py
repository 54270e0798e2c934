"""Read-your-writes over a committed store: what one task wrote since the last commit. Pure.

Lifecycle: writes -> ``prepare`` (the changelog records, one per key) -> after the Kafka transaction
is committed ``flush``; or ``drop`` at any point before. Writes between ``prepare`` and ``flush``
belong to the next transaction: they are read back, but not flushed. ``mark`` and ``roll_back`` undo
one record's writes.

Scalars are kept as they are and encoded once per commit. Any other value is encoded when it is
written and decoded when it is read, so what was written cannot be changed from behind by mutating
an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ..engine.kernel import ABSENT, SCALARS, Overlay, Snapshot
from .store import Store

_CACHE_LIMIT: Final = 20_000


class StoreTransaction(Overlay):
    """One table partition as its task sees it. Keys are encoded bytes, values Python objects."""

    def __init__(
        self, store: Store, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
    ) -> None:
        self.store = store
        self._encode = encode
        self._decode = decode
        self.written = {}
        self._committing = {}
        self._cache = {}
        self._prepared: dict[bytes, bytes | None] | None = None
        self.undo = None
        self.last_key = ABSENT
        self.last_raw_key = b""

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to prepare."""
        return bool(self.written)

    def committed(self, key: bytes) -> Any:
        """The committed value: own writes are not seen; ABSENT when there is none."""
        data = self.store.get(key)
        return ABSENT if data is None else self._decode(data)

    def committed_items(self) -> Iterator[tuple[bytes, Any]]:
        """Every committed key and value: own writes are not seen."""
        return ((key, self._decode(data)) for key, data in self.store.items())

    def put(self, key: bytes, value: Any) -> None:
        """Write. Raises TypeError when the value cannot be encoded."""
        if self.undo is not None:
            self.undo.append((key, self.written.get(key)))
        self.written[key] = value if type(value) in SCALARS else Snapshot(self._encode(value))

    def delete(self, key: bytes) -> None:
        if self.undo is not None:
            self.undo.append((key, self.written.get(key)))
        self.written[key] = ABSENT

    def items(self) -> Iterator[tuple[bytes, Any]]:
        """Every key and decoded value, own writes included, in the order of the keys' bytes."""
        overlay = {**self._committing, **self.written}
        fresh = sorted(key for key in overlay if self.store.get(key) is None)
        position = 0
        for key, data in self.store.items():
            while position < len(fresh) and fresh[position] < key:
                yield from self._own(fresh[position], overlay)
                position += 1
            if key in overlay:
                yield from self._own(key, overlay)
            else:
                yield key, self._decode(data)
        for key in fresh[position:]:
            yield from self._own(key, overlay)

    def mark(self) -> None:
        """Start of a record: what follows can be undone with ``roll_back``."""
        self.undo = []

    def roll_back(self) -> None:
        """Undo every write since ``mark``."""
        for key, previous in reversed(self.undo or []):
            if previous is None:
                del self.written[key]
            else:
                self.written[key] = previous
        self.undo = []

    def prepare(self) -> tuple[list[bytes | None], list[bytes | None]]:
        """Changelog keys and values (None = tombstone), one per changed key.

        Raises RuntimeError while what was prepared before is neither flushed nor dropped.
        """
        if self._prepared is not None:
            raise RuntimeError("prepare without flush")
        encode = self._encode
        prepared: dict[bytes, bytes | None] = {}
        for key, value in self.written.items():
            if value is ABSENT:
                prepared[key] = None
            else:
                prepared[key] = bytes(value) if type(value) is Snapshot else encode(value)
        self._prepared = prepared
        self._committing, self.written = self.written, {}
        self.undo = None if self.undo is None else []
        return list(prepared), list(prepared.values())

    def flush(self, checkpoint: int) -> None:
        """The transaction is committed: write what was prepared, with the changelog offset after
        it."""
        if self._prepared is None:
            raise RuntimeError("flush without prepare")
        self.store.write(self._prepared.items(), checkpoint)
        if len(self._cache) + len(self._committing) > _CACHE_LIMIT:
            self._cache.clear()
        if len(self._committing) <= _CACHE_LIMIT:
            self._cache.update(self._committing)
        self._committing = {}
        self._prepared = None

    def drop(self) -> None:
        """Forget everything that was not flushed."""
        self.written = {}
        self._committing = {}
        self._prepared = None
        self.undo = None if self.undo is None else []

    def forget_cache(self) -> None:
        """The store was written to by a restore."""
        self._cache.clear()

    def _load(self, key: bytes) -> Any:
        data = self.store.get(key)
        if data is None:
            value: Any = ABSENT
        else:
            decoded = self._decode(data)
            value = decoded if type(decoded) in SCALARS else Snapshot(data)
        if len(self._cache) >= _CACHE_LIMIT:
            self._cache.clear()
        self._cache[key] = value
        return value

    def _own(self, key: bytes, overlay: dict[bytes, Any]) -> Iterator[tuple[bytes, Any]]:
        value = overlay[key]
        if value is not ABSENT:
            yield key, self._decode(value) if type(value) is Snapshot else value
