"""Keys and values of ``__transaction_state``, byte for byte Kafka's.

Key: int16 version 0, then the transactional id. Value: int16 version, then the fields; version 1
is written and 0 and 1 are read. One tagged field is ours: Kafka keeps the last producer epoch in
memory only and so forgets across a restart which InitProducerId and EndTxn are retries; readers
that do not know the tag skip it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ...errors import ProtocolError
from ...protocol.fields import int8, int16, int32, int32s, int64, message, nested, string, structs
from ...protocol.schema import decode_struct, encode_struct
from ...types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ..result import Record
from .transaction_metadata import TransactionMetadata
from .transaction_state import TransactionState

_VERSION = struct.Struct(">h")
_KEY_VERSION = 0
_VALUE_VERSION = 1
_KNOWN_VALUE_VERSIONS = range(2)


@message("0")
class TransactionLogKey:
    """Key of a transaction's record."""

    transactional_id: str = string("0")


@message("0-1", flexible="1+")
class TransactionLogValue:
    """State of a transactional id. Timestamps and the timeout in ms."""

    @nested
    class PartitionsSchema:
        """Partitions of the transaction in one topic."""

        topic: str = string("0+")
        partition_ids: list[int] = int32s("0+")

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int = int64("1+", tag=1, default=NO_PRODUCER_ID)
    producer_epoch: int = int16("0+")
    last_producer_epoch: int = int16("1+", tag=10000, default=NO_PRODUCER_EPOCH)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = structs(
        "0+", nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)


def record_of(metadata: TransactionMetadata) -> Record:
    """The record that makes ``metadata`` the state of its transactional id."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic(metadata.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        last_producer_epoch=metadata.last_producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_transaction_version,
    )
    encoded = encode_struct(TransactionLogValue, _VALUE_VERSION, value)
    return _key(metadata.transactional_id), _VERSION.pack(_VALUE_VERSION) + encoded


def tombstone_of(transactional_id: str) -> Record:
    """The record that makes the coordinator forget the id."""
    return _key(transactional_id), None


def decode_record(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None]:
    """The transactional id and its state, None for a tombstone. Raises ``ProtocolError``."""
    version, body = _split(key)
    if version != _KEY_VERSION:
        raise ProtocolError(f"transaction record key version {version} is not known")
    transactional_id = decode_struct(TransactionLogKey, version, body).transactional_id
    if value is None:
        return transactional_id, None
    version, body = _split(value)
    if version not in _KNOWN_VALUE_VERSIONS:
        raise ProtocolError(f"transaction record value version {version} is not known")
    decoded = decode_struct(TransactionLogValue, version, body)
    return transactional_id, TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=decoded.producer_id,
        producer_epoch=decoded.producer_epoch,
        timeout_ms=decoded.transaction_timeout_ms,
        state=TransactionState(decoded.transaction_status),
        last_update_ms=decoded.transaction_last_update_timestamp_ms,
        previous_producer_id=decoded.previous_producer_id,
        next_producer_id=decoded.next_producer_id,
        last_producer_epoch=decoded.last_producer_epoch,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in decoded.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=decoded.transaction_start_timestamp_ms,
        client_transaction_version=decoded.client_transaction_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> its partition indexes, both in order: the same set always gives the same bytes."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _key(transactional_id: str) -> bytes:
    body = encode_struct(TransactionLogKey, _KEY_VERSION, TransactionLogKey(transactional_id))
    return _VERSION.pack(_KEY_VERSION) + body


def _split(data: bytes) -> tuple[int, bytes]:
    if len(data) < _VERSION.size:
        raise ProtocolError("transaction record is too short for its version")
    (version,) = _VERSION.unpack_from(data)
    return version, data[_VERSION.size :]
