"""Batches that are being filled: parallel lists, and the futures somebody asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...types import Clock, TopicPartition
from ..sender import Produced
from .errors import KafkaError
from .options import Serializer
from .structs import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata

BATCH_OVERHEAD = 61
RECORD_OVERHEAD = 21
LENGTH_OVERHEAD = 5

Header = tuple[str, bytes | None]


class AppendedRecord(NamedTuple):
    """What ``BatchBuilder.append`` tells of a record; ``offset`` counts within the batch."""

    offset: int
    crc: None
    size: int
    timestamp: int


class BatchBuilder:
    """One batch for one partition, made by ``create_batch`` or by the producer itself.

    A batch that was submitted still takes records of ``send`` while it waits, unless ``close`` was
    called before.
    """

    def __init__(
        self,
        max_bytes: int,
        clock: Clock,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._size = BATCH_OVERHEAD
        self._closed = False
        self._has_headers = False
        self._headers: list[tuple[Header, ...]] = []
        self._futures: list[tuple[int, asyncio.Future[RecordMetadata | None]]] = []
        self._whole: asyncio.Future[RecordMetadata | None] | None = None
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.settled = asyncio.Event()

    @property
    def headers(self) -> list[tuple[Header, ...]] | None:
        return self._headers if self._has_headers else None

    # the interface of a batch made by create_batch

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Iterable[Header] | None = ()
    ) -> AppendedRecord | None:
        """Add a record; ``timestamp`` in ms, None = now. None when the batch is full or closed."""
        key_bytes = serialized(key, self._key_serializer)
        value_bytes = serialized(value, self._value_serializer)
        record_headers = tuple(headers or ())
        size = record_size(key_bytes, value_bytes, record_headers)
        index = self.add(key_bytes, value_bytes, timestamp, record_headers, size)
        return None if index is None else AppendedRecord(index, None, size, self.timestamps[index])

    def close(self) -> None:
        """Take no more records."""
        self._closed = True

    def size(self) -> int:
        """An upper bound of the bytes it takes, before compression."""
        return self._size

    def record_count(self) -> int:
        return len(self.values)

    # the producer's side

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: tuple[Header, ...],
        size: int,
    ) -> int | None:
        """Append serialized data of this ``record_size``; its index, or None when there is no room.
        The first always fits.
        """
        if timestamp is not None and not isinstance(timestamp, int):
            raise TypeError(f"timestamp {timestamp!r} is not an integer")
        index = len(self.values)
        if self._closed or (index and self._size + size > self._max_bytes):
            self._closed = True
            return None
        self._size += size
        self._has_headers = self._has_headers or bool(headers)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(self._clock() if timestamp is None else timestamp)
        self._headers.append(headers)
        return index

    def future_of(self, index: int) -> asyncio.Future[RecordMetadata | None]:
        """Resolved when the record at ``index`` was acknowledged; None as result with acks=0."""
        future = asyncio.get_running_loop().create_future()
        self._futures.append((index, future))
        return future

    def future(self) -> asyncio.Future[RecordMetadata | None]:
        """Resolved when the whole batch was acknowledged; its offset is that of the first."""
        if self._whole is None:
            self._whole = asyncio.get_running_loop().create_future()
        return self._whole

    def deliver(self, tp: TopicPartition, parts: Sequence[Produced]) -> None:
        """``parts`` in record order: the batch may have been cut when it was encoded."""
        self.settled.set()
        if not parts or parts[0].base_offset < 0:
            self._resolve_all(None)
            return
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(self._metadata(tp, parts[0], 0, 0))
        ends = iter(parts)
        part, start = next(ends), 0
        for index, future in self._futures:
            while index >= start + part.records_count:
                start += part.records_count
                part = next(ends)
            if not future.done():
                future.set_result(self._metadata(tp, part, index - start, index))

    def _metadata(
        self, tp: TopicPartition, part: Produced, distance: int, index: int
    ) -> RecordMetadata:
        kind, timestamp = LOG_APPEND_TIME, part.log_append_time
        if timestamp < 0:
            kind, timestamp = CREATE_TIME, self.timestamps[index]
        offset = part.base_offset + distance
        return RecordMetadata(tp.topic, tp.partition, tp, offset, timestamp, kind)

    def _resolve_all(self, result: RecordMetadata | None) -> None:
        for future in self._all_futures():
            if not future.done():
                future.set_result(result)

    def fail(self, error: KafkaError) -> None:
        """Every future gets an exception of its own: tracebacks would pile up on a shared one."""
        self.settled.set()
        for future in self._all_futures():
            if not future.done():
                own = type(error)(*error.args)
                own.__cause__ = error.__cause__
                future.set_exception(own)

    def _all_futures(self) -> list[asyncio.Future[RecordMetadata | None]]:
        futures = [future for _, future in self._futures]
        return futures if self._whole is None else [*futures, self._whole]


def serialized(data: Any, serializer: Serializer | None) -> Any:
    return data if serializer is None else serializer(data)


def record_size(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    """An upper bound of the bytes of a record. Raises TypeError for anything but bytes."""
    size = RECORD_OVERHEAD + 2 * LENGTH_OVERHEAD
    for data in (key, value):
        if data is not None:
            if not isinstance(data, bytes):
                raise TypeError(f"keys and values are bytes or None, not {type(data).__name__}")
            size += len(data)
    for name, data in headers:
        if not isinstance(name, str) or not (data is None or isinstance(data, bytes)):
            raise TypeError(f"header ({name!r}, {data!r}) is not (str, bytes)")
        # UTF-8 takes at most four bytes for a character.
        size += 2 * LENGTH_OVERHEAD + 4 * len(name) + len(data or b"")
    return size
