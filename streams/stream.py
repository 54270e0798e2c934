"""Streams: what an agent iterates over. Every operator is one async generator over the one
before."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .engine.feed import WAKE, Slot
from .errors import ConfigurationError
from .event import Event
from .options import missing

if TYPE_CHECKING:
    from .topic import Topic

T = TypeVar("T")
Iterate = Callable[[], AsyncIterator[Any]]


class Stream(Generic[T]):
    """Values of type ``T`` in offset order, one partition at a time.

    Made by the engine, one per agent coroutine. Iterating it hands out the next record; asking for
    the next one says that the previous one is handled.
    """

    def __init__(self, slot: Slot, iterate: Iterate, stage: int = 0) -> None:
        self._slot = slot
        self._iterate = iterate
        self._stage = stage

    if not TYPE_CHECKING:  # a type checker must go on finding misspelt names

        def __getattr__(self, name: str) -> object:
            raise missing("Stream", name)

    async def __aiter__(self) -> AsyncIterator[T]:
        async for value in self._iterate():
            if value is not WAKE:
                yield value

    async def events(self) -> AsyncIterator[Event]:
        """Events instead of values."""
        slot = self._slot
        async for value in self._iterate():
            if value is not WAKE:
                yield Event(slot, value)

    async def items(self) -> AsyncIterator[tuple[Any, T]]:
        """``(key, value)`` pairs."""
        slot = self._slot
        async for value in self._iterate():
            if value is not WAKE:
                yield slot.key(), value

    async def enumerate(self, start: int = 0) -> AsyncIterator[tuple[int, T]]:
        """``(n, value)`` pairs; counts from ``start`` again whenever the agent is started again."""
        count = start
        async for value in self:
            yield count, value
            count += 1

    async def take(self, max_: int, within: float | None = None) -> AsyncIterator[list[T]]:
        """Lists of up to ``max_`` values; fewer when ``within`` seconds passed since the first.

        The values of a list are handled, and committed, together. Until a list is handed out its
        records count as not handled. With several agents or ``concurrency`` on one topic a commit
        hands out shorter lists, since all of them commit one position.
        """
        batch: list[T] = []
        async for _ in self._batches(batch, max_, within):
            yield batch.copy()
            batch.clear()

    async def take_events(
        self, max_: int, within: float | None = None
    ) -> AsyncIterator[list[Event]]:
        """``take`` with events."""
        batch: list[Event] = []
        async for _ in self._batches(batch, max_, within, Event):
            yield batch.copy()
            batch.clear()

    async def _batches(
        self,
        batch: list[Any],
        max_: int,
        within: float | None,
        wrap: Callable[[Slot, Any], Any] | None = None,
    ) -> AsyncIterator[None]:
        slot = self._slot
        loop = asyncio.get_running_loop()
        async for value in self._iterate():
            if value is not WAKE:
                slot.hold()
                batch.append(value if wrap is None else wrap(slot, value))
                if within is not None and len(batch) == 1:
                    slot.alarm = loop.time() + within
                if len(batch) < max_:
                    continue
            slot.alarm = None
            if batch:
                yield
            slot.release()

    def filter(self, fun: Callable[[T], bool | Awaitable[bool]]) -> Stream[T]:
        """Only the values for which ``fun`` is true."""
        upstream = self._iterate

        async def filtered() -> AsyncIterator[Any]:
            async for value in upstream():
                if value is WAKE:
                    yield value
                    continue
                kept = fun(value)
                if inspect.isawaitable(kept):
                    kept = await kept
                if kept:
                    yield value

        return Stream(self._slot, filtered, self._stage)

    def add_processor(self, fun: Callable[[T], Any]) -> Stream[Any]:
        """Values passed through ``fun`` (plain or async). Unlike Faust's, a new stream is
        returned."""
        upstream = self._iterate

        async def processed() -> AsyncIterator[Any]:
            async for value in upstream():
                if value is WAKE:
                    yield value
                    continue
                result = fun(value)
                yield await result if inspect.isawaitable(result) else result

        return Stream(self._slot, processed, self._stage)

    def echo(self, *channels: Topic) -> Stream[T]:
        """Send every value to other topics as well."""

        async def send(value: T) -> T:
            for channel in channels:
                await channel.send(value=value)
            return value

        return self.add_processor(send)

    def group_by(
        self,
        key: Any,
        *,
        name: str | None = None,
        topic: Topic | None = None,
        partitions: int | None = None,
    ) -> Stream[T]:
        """The same values under another key, through a repartition topic.

        ``key`` is a field (``Order.account``), a field's name, or a function of the value, which
        needs ``name``. Must be called in the agent before anything is awaited.
        """
        compute, found = key_function(key)
        label = name or found
        if label is None and topic is None:
            raise ConfigurationError("group_by with a function needs name=, it names a topic")
        return self._through(label or "", topic, partitions, compute)

    def through(self, channel: Topic | str) -> Stream[T]:
        """The same values read back from another topic: processing continues behind it."""
        app = self._slot.feed.node.agent.app
        topic = app.topic(channel) if isinstance(channel, str) else channel
        return self._through("", topic, None, None)

    def _through(
        self,
        label: str,
        topic: Topic | None,
        partitions: int | None,
        compute: Callable[[Any], Any] | None,
    ) -> Stream[Any]:
        slot = self._slot
        target = slot.feed.node.agent.stage_topic(self._stage, label, topic, partitions)
        if slot.stage > self._stage:
            return _Source(slot, slot.records, self._stage + 1)
        upstream = self._iterate

        async def forward() -> AsyncIterator[Any]:
            async for value in upstream():
                if value is WAKE:
                    yield value
                    continue
                key = compute(value) if compute is not None else None
                raw = slot.raw_key if compute is None else target.encode_key(key)
                await target.send_encoded(raw, target.encode_value(value))

        return Stream(slot, forward, self._stage + 1)


def source_stream(slot: Slot) -> Stream[Any]:
    """The stream an agent coroutine is called with."""
    return _Source(slot, slot.records)


class _Source(Stream[Any]):
    """A stream without operators: iterating it is iterating the slot, with nothing in between."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterate()


def key_function(key: Any) -> tuple[Callable[[Any], Any] | None, str | None]:
    """What computes a key from a value, and the name of the field if it is one."""
    if isinstance(key, str):
        return lambda value: _field(value, key), key
    field = getattr(key, "field", None) or getattr(key, "__name__", None)
    if hasattr(key, "__get__") and hasattr(key, "__objclass__") and field is not None:
        return lambda value: getattr(value, field), str(field)  # a slot of a Struct
    if callable(key):
        return key, None
    if isinstance(field, str):
        return lambda value: getattr(value, field), field  # a FieldDescriptor of a Faust model
    raise ConfigurationError(f"group_by cannot take {key!r}: give a field, its name or a function")


def _field(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)
