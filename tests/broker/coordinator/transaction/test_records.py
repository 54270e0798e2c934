"""Tests of the bytes of ``__transaction_state``."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.broker.coordinator.transaction.records import (
    decode_record,
    record_of,
    tombstone_of,
)
from onceward.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from onceward.broker.coordinator.transaction.transaction_state import TransactionState
from onceward.broker.errors import ProtocolError
from onceward.broker.types import TopicPartition

METADATA = TransactionMetadata(
    transactional_id="abc",
    producer_id=5,
    producer_epoch=1,
    timeout_ms=1000,
    state=TransactionState.PREPARE_COMMIT,
    last_update_ms=7,
    previous_producer_id=4,
    next_producer_id=6,
    partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
    start_ms=3,
    client_transaction_version=2,
)


def test_a_record_is_laid_out_as_kafka_lays_it_out() -> None:
    key, value = record_of(METADATA)
    assert key == b"\x00\x00" + b"\x00\x03abc"
    assert value == (
        struct.pack(">hqhib", 1, 5, 1, 1000, 2)
        + b"\x02\x02t\x03"
        + struct.pack(">ii", 0, 1)
        + b"\x00"
        + struct.pack(">qq", 7, 3)
        + b"\x03"
        + b"\x00\x08"
        + struct.pack(">q", 4)
        + b"\x01\x08"
        + struct.pack(">q", 6)
        + b"\x02\x02"
        + struct.pack(">h", 2)
    )


def test_an_empty_transaction_has_null_for_its_partitions() -> None:
    _, value = record_of(
        TransactionMetadata("abc", 5, 0, 1000, TransactionState.EMPTY, last_update_ms=7)
    )
    assert (
        value
        == struct.pack(">hqhib", 1, 5, 0, 1000, 0) + b"\x00" + struct.pack(">qq", 7, -1) + b"\x00"
    )


def test_a_value_of_version_0_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 5, 1, 1000, 1)
        + struct.pack(">i", 1)
        + b"\x00\x01t"
        + struct.pack(">ii", 1, 2)
        + struct.pack(">qq", 7, 3)
    )
    _, metadata = decode_record(b"\x00\x00\x00\x03abc", value)
    assert metadata == TransactionMetadata(
        "abc",
        5,
        1,
        1000,
        TransactionState.ONGOING,
        last_update_ms=7,
        partitions=frozenset({TopicPartition("t", 2)}),
        start_ms=3,
    )


def test_a_tombstone_names_the_id_and_nothing_else() -> None:
    assert decode_record(*tombstone_of("abc")) == ("abc", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00\x09\x00\x01a", None),
        (b"\x00\x00\x00\x03abc", b"\x00\x02"),
        (b"\x00\x00\x00\x03abc", b"\x00\x01\x00"),
    ],
)
def test_a_malformed_record_is_a_protocol_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, value)


@given(
    st.builds(
        TransactionMetadata,
        transactional_id=st.text(max_size=20),
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, 32767),
        timeout_ms=st.integers(1, 2**31 - 1),
        state=st.sampled_from(TransactionState),
        last_update_ms=st.integers(0, 2**62),
        previous_producer_id=st.integers(-1, 2**62),
        next_producer_id=st.integers(-1, 2**62),
        last_producer_epoch=st.integers(-1, 32767),
        partitions=st.frozensets(
            st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1))
        ),
        start_ms=st.integers(-1, 2**62),
        client_transaction_version=st.sampled_from([0, 1, 2]),
    )
)
def test_what_is_written_is_read_back(metadata: TransactionMetadata) -> None:
    if metadata.state is TransactionState.EMPTY and metadata.partitions:
        return
    key, value = record_of(metadata)
    assert decode_record(key, value) == (metadata.transactional_id, metadata)
