"""Events: a record with its key, headers and place, for agents that want more than the value."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward.broker.client import TopicPartition

from .engine.block import Headers
from .engine.context import CURRENT
from .engine.feed import Slot

if TYPE_CHECKING:
    from .topic import Topic


class Message(NamedTuple):
    """The record as it came. ``timestamp`` in seconds since the epoch, as in Faust."""

    topic: str
    partition: int
    offset: int
    timestamp: float
    headers: Headers
    key: bytes | None
    value: bytes | None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Event:
    """One record an agent is handling. Valid while the agent handles it and afterwards."""

    __slots__ = ("_block", "_decode_key", "_index", "value")

    def __init__(self, slot: Slot, value: Any) -> None:
        self._block, self._index = slot.current_record()
        self._decode_key = slot.decode_key
        self.value = value

    def __repr__(self) -> str:
        tp, offset = self._block.tp, self._block.offsets[self._index]
        return f"<Event {tp} offset {offset} value {self.value!r}>"

    @property
    def key(self) -> Any:
        """The decoded key. Raises DecodeError."""
        block, index = self._block, self._index
        raw = block.keys[index]
        if raw is None:
            return None
        return self._decode_key(block.tp.topic, raw, block.headers_of(index))

    @property
    def headers(self) -> dict[str, bytes | None]:
        """Headers by name; of several with one name the last."""
        return dict(self._block.headers_of(self._index))

    @property
    def timestamp(self) -> float:
        return self._block.timestamps[self._index] / 1000

    @property
    def offset(self) -> int:
        return self._block.offsets[self._index]

    @property
    def message(self) -> Message:
        block, index = self._block, self._index
        return Message(
            block.tp.topic,
            block.tp.partition,
            block.offsets[index],
            block.timestamps[index] / 1000,
            block.headers_of(index),
            block.keys[index],
            block.raw_values[index],
        )

    def send(
        self,
        channel: Topic | str,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Mapping[str, bytes | None] | None = None,
    ) -> Awaitable[None]:
        """Send to another topic; what is not given is taken from this event, decoded and encoded
        anew."""
        return _topic(channel).send(
            key=self.key if key is None else key,
            value=self.value if value is None else value,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
        )

    def forward(
        self,
        channel: Topic | str,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Mapping[str, bytes | None] | None = None,
    ) -> Awaitable[None]:
        """Like ``send``, but what is not given goes on as the bytes that came, headers too."""
        block, index = self._block, self._index
        topic = _topic(channel)
        return topic.send_encoded(
            block.keys[index] if key is None else topic.encode_key(key),
            block.raw_values[index] if value is None else topic.encode_value(value),
            partition=partition,
            timestamp_ms=None if timestamp is None else int(timestamp * 1000),
            headers=block.headers_of(index) if headers is None else tuple(headers.items()),
        )

    def ack(self) -> bool:
        """Nothing to do, kept for Faust programs: the commit cycle commits handled records."""
        return True

    async def __aenter__(self) -> Event:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def current_event() -> Event | None:
    """The event the running agent is handling; None outside of agents."""
    slot = CURRENT.get()
    if not isinstance(slot, Slot) or slot.block is None:
        return None
    return Event(slot, slot.feed.values[slot.index])


def _topic(channel: Topic | str) -> Topic:
    if isinstance(channel, str):
        slot = CURRENT.get()
        if not isinstance(slot, Slot):
            raise TypeError("name a topic object: there is no current event to find the app by")
        return slot.feed.node.agent.app.topic(channel)
    return channel
