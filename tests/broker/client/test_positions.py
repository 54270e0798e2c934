from __future__ import annotations

from onceward.broker.client import FetchedBatch, Records, TopicPartition
from onceward.broker.client.outbox import Chunk, Outbox, ProducerIdAndEpoch
from onceward.broker.client.positions import PartitionStates
from onceward.broker.records.batch import read_header
from onceward.broker.records.codec import Compression, decode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(tp: TopicPartition, next_offset: int) -> FetchedBatch:
    return FetchedBatch(tp, Records([], [], [], [], None, next_offset), 0, 0, -1)


def states(*tps: TopicPartition) -> PartitionStates:
    made = PartitionStates()
    made.add(tps)
    for tp in tps:
        made[tp].move_to(0)
    return made


def test_taking_moves_the_position_and_lets_the_others_go_first_next_time() -> None:
    made = states(A, B)
    made[A].buffered = batch(A, 5)
    assert [each.tp for each in made.take()] == [A]
    assert made[A].position == 5
    assert [state.tp for state in made.fetchable(0)] == [B, A]


def test_a_buffered_paused_held_or_asked_partition_is_not_fetched() -> None:
    made = states(A)
    for attribute in ("paused", "held", "in_flight"):
        setattr(made[A], attribute, True)
        assert made.fetchable(0) == []
        setattr(made[A], attribute, False)
    made[A].retry_at = 5
    assert made.fetchable(4) == []
    assert len(made.fetchable(5)) == 1
    made[A].buffered = batch(A, 1)
    assert made.fetchable(5) == []


def test_what_is_paused_stays_buffered() -> None:
    made = states(A)
    made[A].buffered = batch(A, 5)
    made[A].paused = True
    assert made.take() == []
    assert made[A].position == 0
    made[A].paused = False
    assert len(made.take()) == 1


def test_an_answer_counts_only_while_nothing_moved() -> None:
    made = states(A)
    state, version = made[A], made[A].version
    assert made.is_current(state, version)
    state.move_to(9)
    assert not made.is_current(state, version)
    made.remove([A])
    made.add([A])
    assert not made.is_current(state, state.version), "it was revoked and came back"


def test_a_held_partition_gets_no_position_until_it_is_released() -> None:
    made = PartitionStates()
    made.add([A], held=True)
    assert made.without_position() == []
    made.release([A])
    assert [state.tp for state in made.without_position()] == [A]


def test_chunks_of_one_partition_become_one_batch() -> None:
    outbox = Outbox(max_batch_bytes=10_000, compression=Compression.NONE)
    outbox.add(A, Chunk([b"k"], [b"0"], 5, None))
    outbox.add(A, Chunk([None, None], [b"1", b"2"], [6, 7], [(("h", b"x"),), ()]))
    outbox.add(A, Chunk([], [], 1, None))
    (only,) = outbox.encode(ProducerIdAndEpoch(1, 2), transactional=True)[A]
    records = decode(only.data)
    assert records.keys == [b"k", None, None]
    assert records.values == [b"0", b"1", b"2"]
    assert records.timestamps == [5, 6, 7]
    assert records.headers is not None
    assert [tuple(each) for each in records.headers] == [(), (("h", b"x"),), ()]
    assert only.records_count == 3
    assert only.begins
    assert not outbox


def test_sequences_are_counted_per_partition_and_restart_with_the_identity() -> None:
    outbox = Outbox(max_batch_bytes=10_000, compression=Compression.NONE)
    seen = []
    for identity in (ProducerIdAndEpoch(1, 0), ProducerIdAndEpoch(1, 0), ProducerIdAndEpoch(1, 1)):
        if identity.epoch:
            outbox.restart_sequences()
        outbox.add(A, Chunk([None] * 2, [b"x"] * 2, 1, None))
        (only,) = outbox.encode(identity, transactional=False)[A]
        header = read_header(only.data)
        seen.append((header.producer_epoch, header.base_sequence, only.begins))
    assert seen == [(0, 0, True), (0, 2, False), (1, 0, True)]
