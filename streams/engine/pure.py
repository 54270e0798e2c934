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
    """The record a coroutine has in hand and where its effects go. ``effects`` by sink; ``agent``
    is the name that they are known by."""

    __slots__ = ("agent", "block", "done", "effects", "feed", "index", "outputs", "tables")

    agent: str
    block: Any
    done: Awaitable[None]
    effects: dict[Any, Any]
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


class EffectLists:
    """What was written to one sink: the values, and where they come from.

    Consecutive values mostly come from consecutive records: each of ``origins`` is ``(start, block,
    index, agent)`` and says that values from number ``start`` on, up to the next one's, were
    written by ``agent`` for the records ``index``, ``index + 1`` and so on of ``block``. Whoever
    removes values or origins sets ``last_block`` to None. ``check_at`` is how many values make
    ``SinkWrite`` ask ``is_full``.
    """

    __slots__ = ("check_at", "last_agent", "last_block", "next_index", "origins", "values")

    check_at: int
    last_agent: Any
    last_block: Any
    next_index: int
    origins: list[tuple[int, Any, int, str]]
    values: list[Any]

    def add(self, value: Any, block: Any, index: int, agent: str) -> None:
        """``value`` is caused by record ``index`` of ``block``."""
        if block is not self.last_block or index != self.next_index or agent is not self.last_agent:
            self.origins.append((len(self.values), block, index, agent))
            self.last_block, self.last_agent, self.next_index = block, agent, index
        self.values.append(value)
        self.next_index = index + 1

    def is_full(self) -> bool:
        """Whether the sink has enough for a commit; moves ``check_at``."""
        raise NotImplementedError


class SinkWrite:
    """``sink.write(value)``, for the slot of the running code."""

    __slots__ = ()

    def write(self, value: Any, *, key: Any = None) -> Awaitable[None]:
        """Write one effect of the record being handled; await the result (it is cheap).

        It appears in the system with the commit that covers the record, or never. What ``None``
        and ``key`` mean is the sink's business: a table deletes the row with that key. Raises
        OutsideAgentError, and TypeError or ValueError for what the sink cannot write.
        """
        slot = CURRENT.get()
        is_slot = isinstance(slot, SlotState)
        effects = slot.effects.get(self) if is_slot else None
        if effects is None or slot.block is None:
            raise self._outside(is_slot)
        encoded = self.encode(value, key, slot)
        effects.add(encoded, slot.block, slot.index, slot.agent)
        if len(effects.values) >= effects.check_at and effects.is_full():
            slot.task.ask_for_commit()
        done: Awaitable[None] = slot.done
        return done

    def encode(self, value: Any, key: Any, slot: Any) -> Any:
        """What is kept of a written value until the commit."""
        raise NotImplementedError

    def _outside(self, in_agent: bool) -> Exception:
        """Why this cannot be written to here."""
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
