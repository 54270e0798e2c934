"""What a produced batch must satisfy before sequences are looked at (Kafka's ``LogValidator``).

One header is read and one CRC computed; records are decoded only for a compacted topic, whose keys
must not be null.
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_is_valid, read_header
from ..records.codec import decode
from ..types import Buffer
from .config import LogConfig
from .results import NO_TIMESTAMP, Origin

_MAGIC_POSITION = 16


def validate_batch(batch: Buffer, config: LogConfig, now_ms: int, origin: Origin) -> BatchHeader:
    """The header of ``batch`` if it may be appended. Raises KafkaError otherwise.

    CORRUPT_MESSAGE (wrong CRC), INVALID_RECORD (not exactly one whole batch, old format, counts,
    control batch, base offset of a client, sequence missing, null key on a compacted topic),
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = _read_one(batch)
    _check_sizes(header, config)
    if not crc_is_valid(batch, 0, header.size):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the batch is wrong")
    if header.records_count <= 0 or header.records_count != header.last_offset_delta + 1:
        raise _invalid(
            f"{header.records_count} records cannot end at offset delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise _invalid("Clients must not write control batches")
    _ = header.compression  # raises for an unknown codec
    if origin is Origin.CLIENT:
        if header.base_offset != 0:
            raise _invalid(f"The base offset of a new batch is 0, not {header.base_offset}")
        _check_producer(header)
        if not config.log_append_time:
            _check_timestamps(header, config, now_ms)
        if config.compacts and None in decode(batch, check_crcs=False).keys:
            raise _invalid("A compacted topic needs a key in every record")
    return header


def _read_one(batch: Buffer) -> BatchHeader:
    size = len(batch)
    if not size:
        raise _invalid("The produce request has no batch for this partition")
    if size > _MAGIC_POSITION and batch[_MAGIC_POSITION] != MAGIC:
        raise _invalid(f"Record format {batch[_MAGIC_POSITION]} is not supported, only {MAGIC} is")
    if size < HEADER_SIZE:
        raise _invalid(f"{size} bytes are no batch")
    header = read_header(batch)
    if header.size > size:
        raise _invalid(f"The batch has {size} of {header.size} bytes")
    if header.size < size:
        raise _invalid("There must be exactly one batch for each partition")
    return header


def _check_sizes(header: BatchHeader, config: LogConfig) -> None:
    if header.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {header.size} bytes, the limit is {config.max_message_bytes}",
        )
    if header.size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batch has {header.size} bytes, a segment {config.segment_bytes}",
        )


def _check_producer(header: BatchHeader) -> None:
    if header.has_producer_id:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid("A batch with a producer id needs an epoch and a sequence")
    elif header.is_transactional:
        raise _invalid("A transactional batch needs a producer id")


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Largest and first timestamp stand for all: the records are not decoded."""
    if header.is_log_append_time:
        raise _bad_timestamp("Only the broker writes LogAppendTime")
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise _bad_timestamp(f"Timestamp {header.max_timestamp} is too far in the future")
    first = header.base_timestamp
    if first != NO_TIMESTAMP and now_ms - first > config.message_timestamp_before_max_ms:
        raise _bad_timestamp(f"Timestamp {first} is too far in the past")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _bad_timestamp(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TIMESTAMP, message)
