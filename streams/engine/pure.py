"""What runs once or more per record, in Python: handing out, sending, tables.

``_kernel`` is the same compiled, and tests hold both equal. The types here are the bases of the
engine's own and hold what these steps touch; everything else is with the classes made of them.
Imports nothing of the engine, so that all of it may build on this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

CURRENT: Final[ContextVar[Any]] = ContextVar("onceward_current", default=None)
"""The ``Emitter`` of the running code."""

SCALARS: Final = frozenset({int, str, float, bool, bytes})
"""Types of values that nobody can change from behind: kept as they are until the commit."""


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Stands for "no value" (``None`` is a value a user may store)."""


class Snapshot(bytes):
    """Encoded form of a value that is not a scalar."""


class FeedState:
    """The block an agent handles, its decoded values, which comes next and where to stop."""

    __slots__ = ("block", "index", "limit", "values")

    block: Any
    index: int
    limit: int
    values: list[Any]


class SlotState:
    """The record a coroutine has in hand and where its effects go."""

    __slots__ = ("block", "done", "feed", "index", "outputs", "tables")

    block: Any
    done: Awaitable[None]
    feed: Any
    index: int
    outputs: Any
    tables: dict[Any, Any]

    async def park(self) -> bool:
        """Wait until there may be more; True: hand out ``wake`` now."""
        raise NotImplementedError


async def values(slot: SlotState, wake: object) -> AsyncIterator[Any]:
    """The values of the slot's feed from ``index`` to ``limit``, and on when that moved.

    Asking for the next one is the point where a record is handled: nothing is taken before.
    """
    feed = slot.feed
    while True:
        index = feed.index
        if index >= feed.limit:
            if await slot.park():
                yield wake
            continue
        feed.index = index + 1
        slot.index = index
        slot.block = feed.block
        yield feed.values[index]


class OutputLists:
    """Records for one topic as parallel lists."""

    __slots__ = ("keys", "timestamps", "values")

    keys: list[bytes | None]
    timestamps: list[int]
    values: list[bytes | None]


class OutputTopics:
    """``OutputLists`` by topic."""

    __slots__ = ("topics",)

    topics: dict[str, Any]


class TopicSend:
    """Sending to ``name``. ``encodes_text``: ``encode_key`` is UTF-8 for text. ``is_plain``: what
    the codecs return is what is sent."""

    __slots__ = ("encode_key", "encode_value", "encodes_text", "is_plain", "name")

    encode_key: Callable[[Any], bytes]
    encode_value: Callable[[Any], bytes]
    encodes_text: bool
    is_plain: bool
    name: str

    def send(
        self,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
    ) -> Awaitable[None]:
        """Send one record; await the result (it is cheap).

        In an agent the record joins the outputs of the record being handled: it becomes visible
        with the transaction that commits it, or never. ``timestamp`` in seconds since the epoch;
        default: that of the record being handled. Without ``key`` and ``partition`` the record goes
        to the partition with the number of its input's. Raises TypeError when it cannot be encoded.

        In timers and tasks the record joins the next transaction of the worker. Elsewhere (a
        client) the result must be awaited and the record is acknowledged then.
        """
        slot = CURRENT.get()
        if (
            partition is not None
            or timestamp is not None
            or headers is not None
            or key_serializer is not None
            or value_serializer is not None
            or not isinstance(slot, SlotState)
            or not self.is_plain
        ):
            return self._send_given(
                key=key,
                value=value,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
            )
        if key is not None:
            if type(key) is str and self.encodes_text:
                key = key.encode()
            else:
                key = self.encode_key(key)
        if value is not None:
            value = self.encode_value(value)
        block = slot.block
        output = slot.outputs.topics.get(self.name)
        if block is None or output is None:
            return self.send_encoded(key, value)
        output.keys.append(key)
        output.values.append(value)
        output.timestamps.append(block.timestamps[slot.index])
        return slot.done

    def _send_given(
        self,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
    ) -> Awaitable[None]:
        """``send`` with whatever is given, wherever it is called."""
        raise NotImplementedError

    def send_encoded(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = (),
    ) -> Awaitable[None]:
        """``send`` for bytes that are encoded already, wherever it is called."""
        raise NotImplementedError


class Overlay:
    """What a table partition's task wrote, over what is committed: encoded keys, Python values.

    ``written`` since the last cut, ``_committing`` by the transaction being committed, ``_cache``
    of the store. ``undo`` is None when nothing is marked. ``last_key`` is the text key used last,
    as it was given, and ``last_raw_key`` the same encoded.
    """

    __slots__ = (
        "_cache",
        "_committing",
        "_decode",
        "last_key",
        "last_raw_key",
        "undo",
        "written",
    )

    _cache: dict[bytes, Any]
    _committing: dict[bytes, Any]
    _decode: Callable[[bytes], Any]
    last_key: object
    last_raw_key: bytes
    undo: list[tuple[bytes, Any]] | None
    written: dict[bytes, Any]

    def get(self, key: bytes) -> Any:
        """The value, own writes first; ABSENT when there is none."""
        value = self.written.get(key)
        if value is None:
            value = self._committing.get(key)
            if value is None:
                value = self._cache.get(key)
                if value is None:
                    value = self._load(key)
        if type(value) is Snapshot:
            return self._decode(value)
        return value

    def _load(self, key: bytes) -> Any:
        """The committed value from the store, ABSENT or a Snapshot."""
        raise NotImplementedError

    def put(self, key: bytes, value: Any) -> None:
        """Write any value, marked or not."""
        raise NotImplementedError


class TableAccess:
    """``table[key]``, for the slot of the running code. ``encodes_text`` as in ``TopicSend``."""

    __slots__ = ("default", "encode_key", "encodes_text")

    default: Callable[[], Any] | None
    encode_key: Callable[[Any], bytes]
    encodes_text: bool

    def __getitem__(self, key: Any) -> Any:
        slot = CURRENT.get()
        transaction = slot.tables.get(self) if isinstance(slot, SlotState) else None
        if transaction is None:
            value = self._find(self.encode_key(key))
        else:
            # ``sums[key] = sums[key] + 1`` comes twice with the same key
            if key is not transaction.last_key:
                transaction.last_raw_key = self.encode_key(key)
                transaction.last_key = key if type(key) is str else ABSENT
            raw = transaction.last_raw_key
            value = transaction.written.get(raw)
            if value is None or type(value) is Snapshot:
                value = transaction.get(raw)
        if value is not ABSENT:
            return value
        if self.default is None:
            raise KeyError(key)
        return self.default()

    def __setitem__(self, key: Any, value: Any) -> None:
        slot = CURRENT.get()
        transaction = slot.tables.get(self) if isinstance(slot, SlotState) else None
        if transaction is None:
            transaction = self._writable()
        same = key is transaction.last_key
        raw = transaction.last_raw_key if same else self.encode_key(key)
        if transaction.undo is None and type(value) in SCALARS:
            transaction.written[raw] = value
        else:
            transaction.put(raw, value)

    def __delitem__(self, key: Any) -> None:
        self._remove(key)

    def _find(self, encoded: bytes) -> Any:
        """The value wherever the code runs; ABSENT when there is none."""
        raise NotImplementedError

    def _writable(self) -> Any:
        """The ``Overlay`` that may be written. Raises OutsideAgentError."""
        raise NotImplementedError

    def _remove(self, key: Any) -> None:
        """Delete; raises KeyError when there is nothing."""
        raise NotImplementedError
