"""Records of ``__consumer_offsets``; the expected bytes come from Apache Kafka 4.1's classes."""

from __future__ import annotations

import pytest

from onceward.broker.coordinator.group.records import (
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitValue,
    OffsetRecord,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    parse_record,
)
from onceward.broker.errors import ProtocolError
from onceward.broker.types import TopicPartition

PARTITION = TopicPartition("t", 3)
OFFSET_KEY = bytes.fromhex("000100016700017400000003")
OFFSET_V1 = bytes.fromhex("0001000000000000002a00016d00000000000003e800000000000007d0")
OFFSET_V3 = bytes.fromhex("0003000000000000002a0000000700016d00000000000003e8")
OFFSET_V4 = bytes.fromhex(
    "0004000000000000002a00000007026d00000000000003e801001000000000000000010000000000000002"
)
GROUP_KEY = bytes.fromhex("0002000167")
GROUP_V0 = bytes.fromhex(
    "00000008636f6e73756d657200000005000572616e676500026d310000000100026d3100016300022f68"
    "000027100000000101000000020203"
)
GROUP_V1 = bytes.fromhex(
    "00010008636f6e73756d657200000005000572616e676500026d310000000100026d3100016300022f68"
    "0000ea60000027100000000101000000020203"
)
GROUP_V2 = bytes.fromhex(
    "00020008636f6e73756d657200000005000572616e676500026d3100000000000003e80000000100026d31"
    "00016300022f680000ea60000027100000000101000000020203"
)
GROUP_V3 = bytes.fromhex(
    "00030008636f6e73756d657200000005000572616e676500026d3100000000000003e80000000100026d31"
    "00016900016300022f680000ea60000027100000000101000000020203"
)
GROUP_V4 = bytes.fromhex(
    "000409636f6e73756d6572000000050672616e6765036d3100000000000003e802036d3102690263032f68"
    "0000ea600000271002010302030000"
)


def offset_value(expire_timestamp: int = -1) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=42,
        leader_epoch=7,
        metadata="m",
        commit_timestamp=1000,
        expire_timestamp=expire_timestamp,
    )


def group_value(
    timestamp: int = 1000, instance: str | None = "i", rebalance_timeout: int = 60_000
) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m1",
        current_state_timestamp=timestamp,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id="m1",
                group_instance_id=instance,
                client_id="c",
                client_host="/h",
                rebalance_timeout=rebalance_timeout,
                session_timeout=10_000,
                subscription=b"\x01",
                assignment=b"\x02\x03",
            )
        ],
    )


def test_offsets_are_written_as_kafka_writes_version_3() -> None:
    assert offset_record("g", PARTITION, offset_value()) == (OFFSET_KEY, OFFSET_V3)


def test_an_offset_with_an_expiry_time_is_written_as_version_1() -> None:
    assert offset_record("g", PARTITION, offset_value(2000)) == (OFFSET_KEY, OFFSET_V1)


def test_groups_are_written_as_kafka_writes_version_3() -> None:
    assert group_record("g", group_value()) == (GROUP_KEY, GROUP_V3)


def test_tombstones_have_the_key_and_no_value() -> None:
    assert offset_tombstone("g", PARTITION) == (OFFSET_KEY, None)
    assert group_tombstone("g") == (GROUP_KEY, None)
    assert parse_record(OFFSET_KEY, None) == OffsetRecord("g", PARTITION, None)
    assert parse_record(GROUP_KEY, None) == GroupRecord("g", None)


def test_offsets_of_all_versions_are_read() -> None:
    assert parse_record(OFFSET_KEY, OFFSET_V3) == OffsetRecord("g", PARTITION, offset_value())
    old = offset_value(2000)
    old.leader_epoch = -1
    assert parse_record(OFFSET_KEY, OFFSET_V1) == OffsetRecord("g", PARTITION, old)
    new = offset_value()
    new.topic_id = bytes([0] * 7 + [1] + [0] * 7 + [2])
    assert parse_record(OFFSET_KEY, OFFSET_V4) == OffsetRecord("g", PARTITION, new)
    older_key = b"\x00\x00" + OFFSET_KEY[2:]
    assert parse_record(older_key, OFFSET_V3) == OffsetRecord("g", PARTITION, offset_value())


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (GROUP_V0, group_value(-1, None, -1)),
        (GROUP_V1, group_value(-1, None)),
        (GROUP_V2, group_value(1000, None)),
        (GROUP_V3, group_value()),
        (GROUP_V4, group_value()),
    ],
)
def test_groups_of_all_versions_are_read(encoded: bytes, value: GroupMetadataValue) -> None:
    assert parse_record(GROUP_KEY, encoded) == GroupRecord("g", value)


def test_records_of_other_group_protocols_are_skipped() -> None:
    assert parse_record(b"\x00\x03\x00\x01g", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (OFFSET_KEY[:-1], None),
        (OFFSET_KEY + b"x", None),
        (OFFSET_KEY, b"\x00"),
        (OFFSET_KEY, OFFSET_V3[:-1]),
        (GROUP_KEY, b"\x00\x09" + GROUP_V3[2:]),
    ],
)
def test_malformed_records_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        parse_record(key, value)
