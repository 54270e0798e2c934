"""The shape of a record batch v2, shared by the compiled codec and the pure one.

Source: Apache Kafka's ``DefaultRecordBatch``. All integers are big endian; the CRC covers all bytes
from ``ATTRIBUTES_OFFSET`` on, so base offset and leader epoch can be changed without touching it.
"""

from __future__ import annotations

from struct import Struct

from ..errors import ErrorCode, KafkaError

HEADER = Struct(">qiibIhiqqqhii")
"""Base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta, base and max
timestamp, producer id, producer epoch, base sequence, records count."""

HEADER_SIZE = 61
LENGTH_OFFSET = 8
LENGTH_OVERHEAD = 12
"""Bytes in front of what the batch length counts: base offset and the length itself."""
ATTRIBUTES_OFFSET = 21
MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

SMALLEST_RECORD = 7
"""Length, attributes, two deltas, two lengths and a header count of one byte each."""
LARGEST_DELTA = 2**31 - 1
LARGEST_BATCH = 2**31 - 1 + LENGTH_OVERHEAD
LARGEST_BASE_OFFSET = 2**63 - 1 - 2**31
LARGEST_TIMESTAMP = 2**63 - 2
"""Timestamps are -1 (none) to this, so that the difference of two always fits 64 bits."""


class CorruptBatch(KafkaError):
    """Bytes that are not a record batch, or a batch whose content contradicts its header."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


def record_too_large(size: int, limit: int) -> KafkaError:
    """The error for one record whose batch of ``size`` bytes cannot fit ``limit`` bytes."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch with this one record has {size} bytes, the limit is {limit}",
    )


def batch_too_large(size: int) -> KafkaError:
    """The error for a batch whose length does not fit the protocol's 32 bits."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, the limit is {LARGEST_BATCH}"
    )
