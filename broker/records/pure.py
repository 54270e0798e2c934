"""The codec in pure Python: what runs where the extension is not built, and its oracle in tests.

The functions are those of ``kernel.Kernel``. Every limit is checked where ``_codec.c`` checks it,
so both refuse the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import iter_unpack
from typing import Any

from crc32c import crc32c as _crc32c

from ..types import Buffer
from .layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LARGEST_BASE_OFFSET,
    LARGEST_BATCH,
    LARGEST_TIMESTAMP,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    SMALLEST_RECORD,
    CorruptBatch,
    batch_too_large,
    record_too_large,
)

_Header = tuple[str, bytes | None]
_Headers = Sequence[Sequence[_Header]]
_Timestamps = int | list[int]
_Blobs = list[bytes | None]

_VARINT_BYTES, _VARINT_LIMIT = 5, 1 << 32
_VARLONG_BYTES, _VARLONG_LIMIT = 10, 1 << 64
_LARGEST_INT64 = 2**63 - 1

_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def crc32c(buf: Buffer, value: int = 0, /) -> int:
    """CRC-32C of ``buf``, continued from ``value``."""
    return int(_crc32c(buf, value))


def murmur2(key: bytes, /) -> int:
    """Kafka's ``Utils.murmur2``, signed."""
    if not isinstance(key, bytes):
        raise TypeError("a key is bytes")
    hashed = _murmur2(key)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _murmur2(key: bytes) -> int:
    whole = len(key) & ~3
    hashed = (_MURMUR_SEED ^ len(key)) & _MASK
    for (word,) in iter_unpack("<I", key[:whole]):
        word = word * _MURMUR_FACTOR & _MASK
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _MASK
        hashed = (hashed * _MURMUR_FACTOR & _MASK) ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MURMUR_FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _MASK
    return hashed ^ hashed >> 15


def partition_keys(keys: _Blobs, partitions: int, /) -> list[int]:
    """Partition of each key by murmur2; -1 for None."""
    if not 0 < partitions < 1 << 31:
        raise ValueError("the number of partitions is positive")
    _check_sequence(keys)
    _check_blobs(keys)
    return [-1 if key is None else (_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


# --- decoding ---------------------------------------------------------------------------------


class _Records:
    """The lists being filled; ``headers`` appears with the first record that has some."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: _Blobs = []
        self.values: _Blobs = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.headers: list[tuple[_Header, ...]] | None = None


def decode(
    buf: Buffer,
    start_offset: int,
    check_crcs: bool,
    keep_control: bool,
    decompress: Callable[[int, bytes], Buffer],
    /,
) -> tuple[_Blobs, _Blobs, list[int], list[int], list[tuple[_Header, ...]] | None, int]:
    """All records at or above ``start_offset`` of the whole batches in ``buf``."""
    view = memoryview(buf).cast("B")
    out = _Records()
    position = 0
    next_offset = start_offset
    while len(view) - position >= HEADER_SIZE:
        fields = HEADER.unpack_from(view, position)
        base, length, _, magic, crc, attributes, last_delta, base_time, max_time, *_, count = fields
        end = position + LENGTH_OVERHEAD + length
        if end - position < HEADER_SIZE:
            raise CorruptBatch("a batch is shorter than its header")
        if end > len(view):
            break
        if magic != MAGIC:
            raise CorruptBatch("the magic of a batch is not 2")
        if not 0 <= base <= LARGEST_BASE_OFFSET or last_delta < 0:
            raise CorruptBatch("the offsets of a batch are out of range")
        if base + last_delta >= start_offset:
            if check_crcs and crc32c(view[position + ATTRIBUTES_OFFSET : end]) != crc:
                raise CorruptBatch("the CRC of a batch is wrong")
            if keep_control or not attributes & CONTROL:
                section = bytes(view[position + HEADER_SIZE : end])
                if attributes & COMPRESSION_MASK and (section or count):
                    section = bytes(decompress(attributes & COMPRESSION_MASK, section))
                fixed_time = max_time if attributes & LOG_APPEND_TIME else None
                _decode_section(
                    section, count, base, last_delta, base_time, fixed_time, start_offset, out
                )
            next_offset = base + last_delta + 1
        position = end
    return out.keys, out.values, out.offsets, out.timestamps, out.headers, next_offset


def _decode_section(
    data: bytes,
    count: int,
    base: int,
    last_delta: int,
    base_time: int,
    fixed_time: int | None,
    start_offset: int,
    out: _Records,
) -> None:
    """``count`` records that fill ``data``; their offsets ascend up to ``last_delta``."""
    end = len(data)
    if not 0 <= count * SMALLEST_RECORD <= end:
        raise CorruptBatch("a batch is too short for its number of records")
    position = 0
    previous = -1
    for _ in range(count):
        size, position = _varint(data, position, end)
        stop = position + size
        if size < 0 or stop > end:
            raise CorruptBatch("a record does not fit its batch")
        time_delta, position = _varlong(data, position + 1, stop)
        delta, position = _varint(data, position, stop)
        if not previous < delta <= last_delta:
            raise CorruptBatch("the offsets of a batch do not ascend within its range")
        previous = delta
        if base + delta < start_offset:
            position = stop
            continue
        time = base_time + time_delta if fixed_time is None else fixed_time
        if not -_LARGEST_INT64 - 1 <= time <= _LARGEST_INT64:
            raise CorruptBatch("a timestamp is out of range")
        key, position = _blob(data, position, stop)
        value, position = _blob(data, position, stop)
        header_count, position = _varint(data, position, stop)
        if header_count:
            headers, position = _decode_headers(data, position, stop, header_count)
            if out.headers is None:
                out.headers = [()] * len(out.keys)
            out.headers.append(headers)
        elif out.headers is not None:
            out.headers.append(())
        if position != stop:
            raise CorruptBatch("a record is longer than its content")
        out.keys.append(key)
        out.values.append(value)
        out.offsets.append(base + delta)
        out.timestamps.append(time)
    if position != end:
        raise CorruptBatch("bytes are left after the records of a batch")


def _decode_headers(
    data: bytes, position: int, stop: int, count: int
) -> tuple[tuple[_Header, ...], int]:
    if not 0 <= count * 2 <= stop - position:
        raise CorruptBatch("a record is too short for its number of headers")
    headers: list[_Header] = []
    for _ in range(count):
        key, position = _blob(data, position, stop)
        if key is None:
            raise CorruptBatch("a header has no key")
        value, position = _blob(data, position, stop)
        headers.append((str(key, "utf-8", "replace"), value))
    return tuple(headers), position


def _blob(data: bytes, position: int, stop: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position, stop)
    if size < 0:
        if size != -1:
            raise CorruptBatch("a length is negative")
        return None, position
    end = position + size
    if end > stop:
        raise CorruptBatch("a field does not fit its record")
    return data[position:end], end


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position < end:
        byte = data[position]
        if byte < 0x80:
            return byte >> 1 ^ -(byte & 1), position + 1
    return _long_varint(data, position, end, _VARINT_BYTES, _VARINT_LIMIT)


def _varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    return _long_varint(data, position, end, _VARLONG_BYTES, _VARLONG_LIMIT)


def _long_varint(data: bytes, position: int, end: int, largest: int, limit: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, min(end, position + largest)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= limit:
                break
            return value >> 1 ^ -(value & 1), index + 1
        shift += 7
    raise CorruptBatch("a number is cut off or too long")


# --- encoding ---------------------------------------------------------------------------------


def encode(
    keys: _Blobs,
    values: _Blobs,
    timestamps: _Timestamps,
    headers: _Headers | None,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int,
    /,
) -> bytes:
    """One uncompressed batch."""
    _check_records(keys, values, timestamps, headers)
    count = len(values)
    if not count:
        raise ValueError("a batch has at least one record")
    size = HEADER_SIZE
    bodies: list[bytes] = []
    for body in _bodies(keys, values, timestamps, headers):
        size += len(body) + _varint_size(len(body))
        if size > LARGEST_BATCH:
            raise batch_too_large(size)
        bodies += (_zigzag(len(body)), body)
    first, last = (
        (timestamps, timestamps)
        if isinstance(timestamps, int)
        else (timestamps[0], max(timestamps))
    )
    head: list[Any] = [base_offset, size - LENGTH_OVERHEAD, -1, MAGIC, 0, attributes, count - 1]
    head += [first, last, producer_id, producer_epoch, base_sequence, count]
    section = b"".join(bodies)
    head[4] = crc32c(section, crc32c(HEADER.pack(*head)[ATTRIBUTES_OFFSET:]))
    return HEADER.pack(*head) + section


def _bodies(
    keys: _Blobs, values: _Blobs, timestamps: _Timestamps, headers: _Headers | None
) -> Iterator[bytes]:
    """Each record without its length."""
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        delta = 0 if isinstance(timestamps, int) else timestamps[index] - timestamps[0]
        parts = [b"\0", _zigzag(delta), _zigzag(index)]
        _put_blob(parts, key)
        _put_blob(parts, value)
        own = headers[index] if headers is not None else ()
        parts.append(_zigzag(len(own)))
        for name, content in own:
            _put_blob(parts, name.encode())
            _put_blob(parts, content)
        yield b"".join(parts)


def _put_blob(parts: list[bytes], blob: bytes | None) -> None:
    if blob is None:
        parts.append(b"\x01")
    else:
        parts.append(_zigzag(len(blob)))
        parts.append(blob)


def _zigzag(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_size(value: int) -> int:
    return max(1, ((value << 1 ^ value >> 63).bit_length() + 6) // 7)


def _blob_size(blob: bytes | None) -> int:
    return 1 if blob is None else _varint_size(len(blob)) + len(blob)


def _fixed_sizes(keys: _Blobs, values: _Blobs, headers: _Headers | None) -> Iterator[int]:
    """Bytes of each record that do not depend on its place in the batch."""
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        size = 1 + _blob_size(key) + _blob_size(value)
        own = headers[index] if headers is not None else ()
        size += _varint_size(len(own))
        for name, content in own:
            size += _blob_size(name.encode()) + _blob_size(content)
        yield size


def estimate_size(keys: _Blobs, values: _Blobs, headers: _Headers | None, /) -> int:
    """Bytes of one uncompressed batch of these records with one timestamp."""
    _check_records(keys, values, 0, headers)
    total = HEADER_SIZE
    for index, fixed in enumerate(_fixed_sizes(keys, values, headers)):
        body = fixed + 1 + _varint_size(index)
        total += body + _varint_size(body)
    return total


def chunk_ends(
    keys: _Blobs,
    values: _Blobs,
    timestamps: _Timestamps,
    headers: _Headers | None,
    max_bytes: int,
    /,
) -> list[int]:
    """Where to cut so that no uncompressed batch exceeds ``max_bytes``: the end index of each."""
    _check_records(keys, values, timestamps, headers)
    limit = min(max_bytes, LARGEST_BATCH)
    ends: list[int] = []
    start = 0
    total = HEADER_SIZE
    for index, fixed in enumerate(_fixed_sizes(keys, values, headers)):
        delta = 0 if isinstance(timestamps, int) else timestamps[index] - timestamps[start]
        body = fixed + _varint_size(delta) + _varint_size(index - start)
        size = body + _varint_size(body)
        if total + size > limit and index > start:
            ends.append(index)
            start, total = index, HEADER_SIZE
            body = fixed + 2
            size = body + _varint_size(body)
        if total + size > limit:
            raise record_too_large(total + size, limit)
        total += size
    if start < len(values):
        ends.append(len(values))
    return ends


def _check_records(
    keys: _Blobs, values: _Blobs, timestamps: _Timestamps, headers: _Headers | None
) -> None:
    for records in (keys, values):
        _check_sequence(records)
    if len(keys) != len(values):
        raise ValueError("keys and values differ in number")
    _check_blobs(keys)
    _check_blobs(values)
    if not isinstance(timestamps, int):
        _check_sequence(timestamps)
        if len(timestamps) != len(values):
            raise ValueError("timestamps and values differ in number")
    for time in [timestamps] if isinstance(timestamps, int) else timestamps:
        if not isinstance(time, int):
            raise TypeError("a timestamp is an int")
        if not -1 <= time <= LARGEST_TIMESTAMP:
            raise ValueError("a timestamp is out of range")
    if headers is not None:
        _check_headers(headers, len(values))


def _check_headers(headers: _Headers, count: int) -> None:
    _check_sequence(headers)
    if len(headers) != count:
        raise ValueError("headers and values differ in number")
    for own in headers:
        _check_sequence(own)
        for header in own:
            _check_sequence(header)
            if len(header) != 2:
                raise ValueError("a header is a pair")
            name, content = header
            if not isinstance(name, str):
                raise TypeError("the key of a header is str")
            if content is not None and not isinstance(content, bytes):
                raise TypeError("a header's value is bytes or None")


def _check_sequence(value: object) -> None:
    if not isinstance(value, list | tuple):
        raise TypeError("records are passed as lists")


def _check_blobs(blobs: _Blobs) -> None:
    for blob in blobs:
        if blob is not None and not isinstance(blob, bytes):
            raise TypeError("keys and values are bytes or None")
