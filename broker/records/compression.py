"""The four compressions of record batches, each bounded when it expands.

A few kilobytes can claim to be gigabytes. gzip is expanded with a limit; for the others the frame
itself tells an upper bound of what it holds, and the output gets no more memory than that.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable

import cramjam

from ..errors import ErrorCode, KafkaError
from ..types import Buffer
from .layout import CorruptBatch

DEFAULT_MAX_SIZE = 256 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_RATIO = 64
"""A three-byte copy yields at most 64 bytes, so no snappy block expands more than this."""
_GZIP_WINDOW = 31
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_RATIO = 256
"""A match length byte adds at most 255 bytes."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 3
_ZSTD_BLOCK = 128 * 1024


class Compression(enum.IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_id(cls, value: int) -> Compression:
        """Raises ``KafkaError(UNSUPPORTED_COMPRESSION_TYPE)`` for an id Kafka does not define."""
        if not 0 <= value <= cls.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression {value}"
            )
        return cls(value)


def compress(compression: Compression, data: bytes) -> bytes:
    """``data`` compressed as Kafka's clients and brokers read it."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return zlib.compress(data, wbits=_GZIP_WINDOW)
        case Compression.SNAPPY:
            return _xerial(memoryview(data))
        case Compression.LZ4:
            # Kafka's reader refuses linked blocks (KIP-57), which are cramjam's default.
            compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(
    compression: Compression, data: Buffer, *, max_size: int = DEFAULT_MAX_SIZE
) -> Buffer:
    """``data`` expanded to at most ``max_size`` bytes.

    Raises ``CorruptBatch`` when it is malformed, ``KafkaError(MESSAGE_TOO_LARGE)`` when it expands
    beyond ``max_size`` or may have been about to.
    """
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _gunzip(data, max_size)
        case Compression.SNAPPY:
            return _unsnappy(memoryview(data), max_size)
        case Compression.LZ4:
            return _expand(
                cramjam.lz4.decompress_into, data, _lz4_bound(memoryview(data)), max_size
            )
        case Compression.ZSTD:
            return _expand(
                cramjam.zstd.decompress_into, data, _zstd_bound(memoryview(data)), max_size
            )


def _too_large(size: int, max_size: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a compressed batch expands to {size} bytes or more, the limit is {max_size}",
    )


def _gunzip(data: Buffer, max_size: int) -> bytes:
    """All members of a gzip stream (Java's reader takes several)."""
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        expander = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = expander.decompress(rest, max_size - size + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from error
        size += len(part)
        if size > max_size:
            raise _too_large(size, max_size)
        if not expander.eof:
            raise CorruptBatch("gzip: the stream is cut off")
        parts.append(part)
        rest = expander.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial(data: memoryview) -> bytes:
    """Blocks of raw snappy, each behind its length: what Kafka's Java clients write and need."""
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: memoryview, max_size: int) -> bytes:
    """Xerial framing when its magic is there, one raw block otherwise (librdkafka)."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_size)
    parts: list[bytes] = []
    size = 0
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise CorruptBatch("snappy: the header is cut off")
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big", signed=True)
        if not start < position <= len(data):
            raise CorruptBatch("snappy: a block length is impossible")
        parts.append(_snappy_block(data[start:position], max_size - size))
        size += len(parts[-1])
    return b"".join(parts)


def _snappy_block(block: memoryview, max_size: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO:
            raise CorruptBatch(f"snappy: {len(block)} bytes cannot hold {size}")
        if size > max_size:
            raise _too_large(size, max_size)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(str(error)) from error


def _expand(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, bound: int, max_size: int
) -> Buffer:
    """Expand into a buffer of ``bound`` bytes; the codec fails instead of writing past it."""
    output = bytearray(min(bound, max_size))
    try:
        size = decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if bound > max_size:
            raise _too_large(max_size, max_size) from error
        raise CorruptBatch(str(error)) from error
    return memoryview(output)[:size]


def _lz4_bound(data: memoryview) -> int:
    """Upper bound of what one LZ4 frame holds, from its block sizes; it must fill ``data``."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise CorruptBatch("lz4: there is no frame")
    flags, descriptor = data[4], data[5]
    code = descriptor >> 4 & 7
    if code < 4:
        raise CorruptBatch("lz4: the block size is undefined")
    largest = 1 << (8 + 2 * code)
    checksum = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = 0
    while True:
        length = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if position > len(data):
            raise CorruptBatch("lz4: the frame is cut off")
        if length == 0:
            break
        length &= 0x7FFFFFFF
        bound += min(largest, length * _LZ4_RATIO)
        position += length + checksum
    if position + (4 if flags & 0x04 else 0) != len(data):
        raise CorruptBatch("lz4: the frame does not fill the batch")
    return bound


def _zstd_bound(data: memoryview) -> int:
    """Upper bound of what a series of zstd frames holds, from the headers of their blocks."""
    if len(data) < 9:
        raise CorruptBatch("zstd: there is no frame")
    bound = 0
    position = 0
    while position < len(data):
        magic = bytes(data[position : position + 4])
        if magic == _ZSTD_MAGIC:
            held, position = _zstd_frame(data, position + 4)
            bound += held
        elif magic[1:] == b"\x2a\x4d\x18" and magic[0] & 0xF0 == 0x50:  # skippable
            length = int.from_bytes(data[position + 4 : position + 8], "little")
            position += 8 + length
        else:
            raise CorruptBatch("zstd: there is no frame")
    if position > len(data):
        raise CorruptBatch("zstd: the frame is cut off")
    return bound


def _zstd_frame(data: memoryview, position: int) -> tuple[int, int]:
    """Bound and end of the frame whose descriptor is at ``position`` (RFC 8878, 3.1.1)."""
    if position >= len(data):
        raise CorruptBatch("zstd: the frame is cut off")
    descriptor = data[position]
    single_segment = descriptor >> 5 & 1
    position += 1 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size_code = descriptor >> 6
    width = (single_segment, 2, 4, 8)[size_code]
    declared = int.from_bytes(data[position : position + width], "little")
    declared += 256 if size_code == 1 else 0
    position += width
    bound = 0
    last = False
    while not last:
        block = int.from_bytes(data[position : position + 3], "little")
        position += 3
        if position > len(data):
            raise CorruptBatch("zstd: the frame is cut off")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        bound += _ZSTD_BLOCK if kind == 2 else size
        position += 1 if kind == 1 else size
    position += 4 if descriptor & 4 else 0
    return (min(bound, declared) if width else bound), position
