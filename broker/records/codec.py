"""Record batches to and from parallel lists: one call per fetched partition, one per sent batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer
from .batch import increment_sequence
from .compression import DEFAULT_MAX_SIZE, Compression, compress, decompress
from .kernel import COMPILED, Header, Headers, kernel
from .layout import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LARGEST_BASE_OFFSET,
    LARGEST_BATCH,
    LENGTH_OFFSET,
    LENGTH_OVERHEAD,
    TRANSACTIONAL,
    batch_too_large,
)
from .transactions import committed_ranges

__all__ = [
    "COMPILED",
    "Compression",
    "Header",
    "Headers",
    "Records",
    "crc32c",
    "decode",
    "encode",
    "encode_chunks",
    "estimate_size",
    "murmur2",
    "partition_keys",
]


@dataclass(slots=True)
class Records:
    """Decoded records as parallel lists, in offset order.

    ``timestamps`` are milliseconds since the epoch (-1: none). ``headers`` is None when no record
    has any, else one tuple per record. ``next_offset`` is where to read on: it is beyond control
    batches, aborted data and compacted holes, so it can exceed the last offset by more than one.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    offsets: list[int]
    timestamps: list[int]
    headers: list[tuple[Header, ...]] | None
    next_offset: int

    def __len__(self) -> int:
        return len(self.offsets)


def decode(
    buf: Buffer,
    *,
    start_offset: int = 0,
    check_crcs: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    read_committed: bool = False,
    max_size: int = DEFAULT_MAX_SIZE,
) -> Records:
    """Every record of the batches in ``buf`` at or above ``start_offset``.

    Control batches are skipped. With ``read_committed`` so is the data of aborted transactions:
    ``aborted`` holds ``(producer_id, first_offset)`` as in FetchResponse. An incomplete batch at
    the end is ignored. ``max_size`` bounds what one compressed batch may expand to, in bytes.

    Raises ``KafkaError``: ``CORRUPT_MESSAGE``, ``UNSUPPORTED_COMPRESSION_TYPE``, or
    ``MESSAGE_TOO_LARGE`` when a batch expands beyond ``max_size``.
    """

    def expand(compression: int, data: bytes) -> Buffer:
        return decompress(Compression.from_id(compression), data, max_size=max_size)

    if not (read_committed and aborted):
        return Records(*kernel.decode(buf, start_offset, check_crcs, False, expand))
    view = memoryview(buf)
    ranges, next_offset = committed_ranges(view, aborted, check_crcs=check_crcs)
    records = Records([], [], [], [], None, max(start_offset, next_offset))
    for start, end in ranges:
        part = kernel.decode(view[start:end], start_offset, check_crcs, False, expand)
        _append(records, Records(*part))
    return records


def _append(records: Records, part: Records) -> None:
    if part.headers is not None or records.headers is not None:
        if records.headers is None:
            records.headers = [()] * len(records)
        records.headers += [()] * len(part) if part.headers is None else part.headers
    records.keys += part.keys
    records.values += part.values
    records.offsets += part.offsets
    records.timestamps += part.timestamps


def encode(
    keys: list[bytes | None],
    values: list[bytes | None],
    *,
    timestamps: int | list[int],
    headers: Sequence[Headers] | None = None,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    base_offset: int = 0,
) -> bytes:
    """One batch of the records ``keys[i], values[i], headers[i]``, at least one.

    ``timestamps`` is one for all or one per record, in ms, -1 for none. Raises ``ValueError`` when
    the lists differ in length or a number is out of range, ``TypeError`` for anything but bytes,
    ``KafkaError(MESSAGE_TOO_LARGE)`` when the batch exceeds the protocol's 2 GiB.
    """
    _check_header(producer_id, producer_epoch, base_sequence, base_offset)
    attributes = TRANSACTIONAL if transactional else 0
    batch = kernel.encode(
        keys,
        values,
        timestamps,
        headers,
        attributes,
        producer_id,
        producer_epoch,
        base_sequence,
        base_offset,
    )
    return batch if compression is Compression.NONE else _compressed(batch, compression)


def _check_header(
    producer_id: int, producer_epoch: int, base_sequence: int, base_offset: int
) -> None:
    for name, value, lowest, largest in (
        ("producer id", producer_id, -1, 2**63 - 1),
        ("producer epoch", producer_epoch, -1, 2**15 - 1),
        ("base sequence", base_sequence, -1, 2**31 - 1),
        ("base offset", base_offset, 0, LARGEST_BASE_OFFSET),
    ):
        if not lowest <= value <= largest:
            raise ValueError(f"the {name} {value} is out of range")


def _compressed(batch: bytes, compression: Compression) -> bytes:
    """A plain batch with its record section compressed."""
    section = compress(compression, batch[HEADER_SIZE:])
    size = HEADER_SIZE + len(section)
    if size > LARGEST_BATCH:
        raise batch_too_large(size)
    header = bytearray(batch[:HEADER_SIZE])
    header[LENGTH_OFFSET:LENGTH_OVERHEAD] = (size - LENGTH_OVERHEAD).to_bytes(4, "big")
    header[ATTRIBUTES_OFFSET + 1] |= compression
    crc = kernel.crc32c(section, kernel.crc32c(memoryview(header)[ATTRIBUTES_OFFSET:]))
    header[ATTRIBUTES_OFFSET - 4 : ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return b"".join((header, section))


def encode_chunks(
    keys: list[bytes | None],
    values: list[bytes | None],
    *,
    max_bytes: int,
    timestamps: int | list[int],
    headers: Sequence[Headers] | None = None,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Iterator[tuple[bytes, int]]:
    """The records as batches of at most ``max_bytes`` bytes: ``(batch, record count)`` each.

    Chunks are cut by their size before compression; one that compression would push over the limit
    goes uncompressed. Base sequences follow each other. No records give no batches. Raises as
    ``encode`` does, before the first batch, and ``KafkaError(MESSAGE_TOO_LARGE)`` naming the size
    and the limit when a single record does not fit.
    """
    start = 0
    for end in kernel.chunk_ends(keys, values, timestamps, headers, max_bytes):
        batch = encode(
            keys[start:end],
            values[start:end],
            timestamps=timestamps if isinstance(timestamps, int) else timestamps[start:end],
            headers=None if headers is None else headers[start:end],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
        if compression is not Compression.NONE:
            smaller = _compressed(batch, compression)
            batch = smaller if len(smaller) <= max_bytes else batch
        yield batch, end - start
        if base_sequence >= 0:
            base_sequence = increment_sequence(base_sequence, end - start)
        start = end


def estimate_size(
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: Sequence[Headers] | None = None,
) -> int:
    """Bytes of one uncompressed batch of these records when they share one timestamp.

    With different timestamps each record takes up to 9 bytes more.
    """
    return kernel.estimate_size(keys, values, headers)


def partition_keys(keys: list[bytes | None], partitions: int) -> list[int]:
    """The partition Kafka's default partitioner gives each key; -1 where the key is None."""
    return kernel.partition_keys(keys, partitions)


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 (``Utils.murmur2``), signed as in Java."""
    return kernel.murmur2(key)


def crc32c(buf: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``buf``, continued from ``value``."""
    return kernel.crc32c(buf, value)
