"""Tests of the producer id blocks."""

from __future__ import annotations

import pytest

from onceward.broker.coordinator.transaction.producer_ids import ProducerIds
from onceward.broker.errors import ErrorCode, KafkaError

from .ports import MemoryProducerIdStore


def test_ids_run_on_across_blocks() -> None:
    ids = ProducerIds(MemoryProducerIdStore(first=5), block_size=2)
    assert [ids.next() for _ in range(5)] == [5, 6, 7, 8, 9]


def test_a_block_is_reserved_only_when_an_id_is_asked_for() -> None:
    store = MemoryProducerIdStore()
    ids = ProducerIds(store, block_size=10)
    assert store.end == 0
    ids.next()
    assert store.end == 10


def test_an_id_is_never_given_twice_across_restarts() -> None:
    store = MemoryProducerIdStore()
    given = []
    for _ in range(5):
        ids = ProducerIds(store, block_size=4)
        given += [ids.next() for _ in range(6)]
    assert len(set(given)) == len(given) == 30


def test_a_store_that_refuses_leaves_no_gap_behind() -> None:
    class Refusing(MemoryProducerIdStore):
        refuse = True

        def reserve(self, count: int) -> int:
            if self.refuse:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            return super().reserve(count)

    store = Refusing()
    ids = ProducerIds(store)
    with pytest.raises(KafkaError):
        ids.next()
    store.refuse = False
    assert ids.next() == 0
