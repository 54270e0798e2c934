"""Control batches: the markers that end a transaction on a partition.

Sources: ``ControlRecordType`` and ``EndTransactionMarker`` of Apache Kafka. The key is an int16
version and an int16 type, the value an int16 version and the int32 coordinator epoch.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import NamedTuple

from ..types import NO_SEQUENCE, Buffer
from .batch import read_header
from .kernel import kernel
from .layout import CONTROL, TRANSACTIONAL, CorruptBatch

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(enum.IntEnum):
    """Control record types of transactions; others (2 and up) belong to KRaft."""

    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    commit: bool
    coordinator_epoch: int


def encode_end_marker(
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
) -> bytes:
    """The control batch that commits or aborts a producer's transaction; ``timestamp`` in ms."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return kernel.encode(
        [_KEY.pack(_VERSION, kind)],
        [_VALUE.pack(_VERSION, coordinator_epoch)],
        timestamp,
        None,
        TRANSACTIONAL | CONTROL,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        base_offset,
    )


def parse_end_marker(batch: Buffer) -> EndMarker:
    """The marker in a control batch. Raises ``CorruptBatch`` when there is no such marker in it.

    The CRC is not checked. Later versions of key and value only add fields, so they are read too.
    """
    key, value = _first_record(batch)
    kind = _parse_type(key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptBatch(f"control type {kind} does not end a transaction")
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatch("the marker's value is too short")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise CorruptBatch(f"marker version {version}")
    return EndMarker(kind == ControlType.COMMIT, coordinator_epoch)


def read_control_type(batch: Buffer) -> int | None:
    """The type of a control batch's record; None when compaction has emptied the batch.

    Raises ``CorruptBatch`` when ``batch`` is no control batch or its key is malformed.
    """
    if read_header(batch).records_count == 0:
        return None
    return _parse_type(_first_record(batch)[0])


def _first_record(batch: Buffer) -> tuple[bytes | None, bytes | None]:
    if not read_header(batch).is_control:
        raise CorruptBatch("not a control batch")
    keys, values, *_ = kernel.decode(batch, 0, False, True, _refuse_compression)
    if not keys:
        raise CorruptBatch("a control batch without a record")
    return keys[0], values[0]


def _refuse_compression(compression: int, data: bytes) -> Buffer:
    raise CorruptBatch(f"a control batch of {len(data)} bytes with compression {compression}")


def _parse_type(key: bytes | None) -> int:
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("the control key is too short")
    version, kind = _KEY.unpack_from(key)
    if version < _VERSION:
        raise CorruptBatch(f"control key version {version}")
    return int(kind)
