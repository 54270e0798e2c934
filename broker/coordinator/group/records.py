"""The durable vocabulary of the group coordinator: records of ``__consumer_offsets``.

Kafka's own formats, so its formatters can read the topic: a key is an int16 type and its fields, a
value an int16 version and its fields (schemas ``OffsetCommitKey`` ... of Apache Kafka 4.1).
Written: offset values v3 (v1 when the commit carries an expiry time, as Kafka does), group values
v3. Read: 0-4.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

from ...errors import ProtocolError
from ...protocol.schema import (
    bytes_,
    decode_struct,
    encode_struct,
    int32,
    int64,
    message,
    nested,
    string,
    structs,
    uuid,
)
from ...types import TopicPartition
from ..result import Record

T = TypeVar("T")

_OFFSET_KEY_TYPES = (0, 1)
_OFFSET_KEY_TYPE = 1
_GROUP_KEY_TYPE = 2
_OFFSET_VALUE_VERSION = 3
_OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
_GROUP_VALUE_VERSION = 3
_INT16 = struct.Struct(">h")


@message("0")
class OffsetCommitKey:
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


@message("0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset; timestamps in milliseconds, ``expire_timestamp`` -1 = by retention."""

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, ignorable=True)


@message("0")
class GroupMetadataKey:
    group: str = string("0")


@message("0-4", flexible="4+")
class GroupMetadataValue:
    """A generation of a classic group with its assignment."""

    @nested
    class MemberMetadata:
        """Timeouts in milliseconds; subscription and assignment are the assignor's opaque bytes."""

        member_id: str = string("0+")
        group_instance_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
        client_id: str = string("0+")
        client_host: str = string("0+")
        rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
        session_timeout: int = int32("0+")
        subscription: bytes = bytes_("0+")
        assignment: bytes = bytes_("0+")

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[GroupMetadataValue.MemberMetadata] = structs("0+")


class OffsetRecord(NamedTuple):
    """A parsed offset record; ``value`` ``None`` is a tombstone."""

    group_id: str
    partition: TopicPartition
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """A parsed group record; ``value`` ``None`` is a tombstone."""

    group_id: str
    value: GroupMetadataValue | None


def offset_record(group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> Record:
    version = (
        _OFFSET_VALUE_VERSION if value.expire_timestamp < 0 else _OFFSET_VALUE_VERSION_WITH_EXPIRY
    )
    encoded = encode_struct(OffsetCommitValue, version, value)
    return _offset_key(group_id, partition), _INT16.pack(version) + encoded


def offset_tombstone(group_id: str, partition: TopicPartition) -> Record:
    return _offset_key(group_id, partition), None


def group_record(group_id: str, value: GroupMetadataValue) -> Record:
    encoded = encode_struct(GroupMetadataValue, _GROUP_VALUE_VERSION, value)
    return _group_key(group_id), _INT16.pack(_GROUP_VALUE_VERSION) + encoded


def group_tombstone(group_id: str) -> Record:
    return _group_key(group_id), None


def parse_record(key: bytes, value: bytes | None) -> OffsetRecord | GroupRecord | None:
    """What a record says; ``None`` for the types of other group protocols, which are skipped.

    Raises ``ProtocolError`` for bytes that are not in Kafka's format.
    """
    key_type = _leading_int16(key)
    if key_type in _OFFSET_KEY_TYPES:
        offset_key = decode_struct(OffsetCommitKey, 0, key[2:])
        return OffsetRecord(
            offset_key.group,
            TopicPartition(offset_key.topic, offset_key.partition),
            None if value is None else _parse_value(OffsetCommitValue, value),
        )
    if key_type == _GROUP_KEY_TYPE:
        group_key = decode_struct(GroupMetadataKey, 0, key[2:])
        return GroupRecord(
            group_key.group, None if value is None else _parse_value(GroupMetadataValue, value)
        )
    return None


def _parse_value(cls: type[T], value: bytes) -> T:
    version = _leading_int16(value)
    try:
        return decode_struct(cls, version, value[2:])
    except ValueError as error:
        raise ProtocolError(f"{cls.__qualname__} version {version} is unknown") from error


def _leading_int16(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise ProtocolError("record without a type or version")
    (number,) = _INT16.unpack_from(data)
    return int(number)


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return _INT16.pack(_OFFSET_KEY_TYPE) + encode_struct(OffsetCommitKey, 0, key)


def _group_key(group_id: str) -> bytes:
    return _INT16.pack(_GROUP_KEY_TYPE) + encode_struct(
        GroupMetadataKey, 0, GroupMetadataKey(group=group_id)
    )
