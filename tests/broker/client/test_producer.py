"""The producer against a broker whose answers are written here: order, retries, states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onceward.broker.client import (
    Client,
    ErrorCode,
    GroupMetadata,
    KafkaError,
    NeedsReset,
    OffsetAndMetadata,
    Producer,
    ProducerFenced,
    ProducerState,
    TopicPartition,
    TransactionAborted,
)
from onceward.broker.protocol import messages as m
from onceward.broker.records.batch import read_header

from .fake import Closes, FakeBroker, Hangs

TP = TopicPartition("t", 0)
ONE_RECORD_BYTES = 72


def produced(request: m.ProduceRequest, **codes: int) -> m.ProduceResponse:
    """Success, or for a partition ("p0=45") its error code."""
    response = m.ProduceResponse
    return response(
        responses=[
            response.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    response.PartitionProduceResponse(
                        index=p.index,
                        error_code=codes.get(f"p{p.index}", 0),
                        base_offset=read_header(p.records).base_sequence,
                    )
                    for p in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def failing(code: int, partition: int = 0) -> Any:
    return lambda request: produced(request, **{f"p{partition}": code})


def sequences(broker: FakeBroker, partition: int = 0) -> list[tuple[int, int]]:
    """(epoch, base sequence) of every batch that was sent to a partition."""
    headers = [
        read_header(p.records)
        for request in broker.sent(m.ProduceRequest)
        for topic in request.topic_data
        for p in topic.partition_data
        if p.index == partition
    ]
    return [(header.producer_epoch, header.base_sequence) for header in headers]


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.topics["t"] = 3
    epochs = {"next": 0}

    def on_init(request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
        epoch = epochs["next"] = max(epochs["next"], request.producer_epoch + 1)
        epochs["next"] += 1
        return m.InitProducerIdResponse(producer_id=7, producer_epoch=epoch)

    def on_offsets(request: m.TxnOffsetCommitRequest) -> m.TxnOffsetCommitResponse:
        return committed(request, 0)

    broker.on(m.InitProducerIdRequest, on_init)
    broker.on(m.ProduceRequest, produced)
    broker.on(m.TxnOffsetCommitRequest, on_offsets)
    broker.on(
        m.EndTxnRequest,
        lambda r: m.EndTxnResponse(producer_id=7, producer_epoch=r.producer_epoch + 1),
    )
    return broker


def committed(request: m.TxnOffsetCommitRequest, code: int) -> m.TxnOffsetCommitResponse:
    response = m.TxnOffsetCommitResponse
    return response(
        topics=[
            response.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    response.TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@pytest.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with broker.client(request_timeout_ms=500) as running:
        yield running


def send(producer: Producer, count: int, partition: int = 0) -> None:
    values: list[bytes | None] = [b"v"] * count
    producer.send_batch("t", partition, [None] * count, values, timestamps=1)


async def transactional(client: Client, **options: Any) -> Producer:
    producer = Producer(client, transactional_id="x", transaction_timeout_ms=1_000, **options)
    await producer.init_transactions()
    return producer


async def test_one_request_carries_the_batches_of_all_partitions(
    broker: FakeBroker, client: Client
) -> None:
    producer = Producer(client)
    for partition in range(3):
        send(producer, 2, partition)
        send(producer, 3, partition)
    results = await producer.flush()
    (request,) = broker.sent(m.ProduceRequest)
    assert [p.index for p in request.topic_data[0].partition_data] == [0, 1, 2]
    assert [r.records_count for r in results] == [5, 5, 5]
    assert await producer.flush() == []


async def test_sequences_run_on_from_flush_to_flush(broker: FakeBroker, client: Client) -> None:
    producer = Producer(client)
    for count in (2, 3, 1):
        send(producer, count)
        await producer.flush()
    assert sequences(broker) == [(0, 0), (0, 2), (0, 5)]


@pytest.mark.parametrize("answer", [failing(6), failing(19), failing(7), Closes()])
async def test_a_failed_batch_is_sent_again_with_the_same_sequence(
    broker: FakeBroker, client: Client, answer: Any
) -> None:
    broker.answer(m.ProduceRequest, answer)
    producer = Producer(client)
    send(producer, 2)
    await producer.flush()
    assert sequences(broker) == [(0, 0), (0, 0)]


async def test_batches_behind_a_failed_one_are_sent_again_after_it(
    broker: FakeBroker, client: Client
) -> None:
    producer = Producer(client, max_batch_bytes=ONE_RECORD_BYTES)
    send(producer, 1)
    await producer.flush()
    broker.answer(m.ProduceRequest, failing(19), *[failing(45)] * 4)
    send(producer, 6)
    await producer.flush()
    order = [sequence for _, sequence in sequences(broker)]
    assert order == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6], "five in flight, then all over, in order"


async def test_the_first_batch_of_a_producer_goes_alone(broker: FakeBroker, client: Client) -> None:
    """A partition that does not know the producer takes any sequence: no overtaking then."""
    producer = Producer(client, max_batch_bytes=ONE_RECORD_BYTES)
    send(producer, 6)
    broker.answer(m.ProduceRequest, failing(3))
    await producer.flush()
    assert sequences(broker)[:2] == [(0, 0), (0, 0)]


async def test_a_duplicate_is_a_success(broker: FakeBroker, client: Client) -> None:
    broker.answer(m.ProduceRequest, failing(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    producer = Producer(client)
    send(producer, 1)
    assert len(await producer.flush()) == 1


@pytest.mark.parametrize("code", [45, 59, 10])
async def test_after_a_lost_sequence_an_idempotent_producer_goes_on_with_the_next_epoch(
    broker: FakeBroker, client: Client, code: int
) -> None:
    producer = Producer(client)
    send(producer, 2)
    await producer.flush()
    broker.answer(m.ProduceRequest, failing(code))
    send(producer, 2)
    with pytest.raises(KafkaError) as failed:
        await producer.flush()
    assert failed.value.code == code
    send(producer, 1)
    await producer.flush()
    assert sequences(broker) == [(0, 0), (0, 2), (1, 0)]


async def test_records_that_cannot_be_delivered_in_time_fail(
    broker: FakeBroker, client: Client
) -> None:
    broker.on(m.ProduceRequest, failing(19))
    producer = Producer(client, delivery_timeout_ms=30)
    send(producer, 1)
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        await producer.flush()


async def test_acks_0_waits_for_nothing(broker: FakeBroker, client: Client) -> None:
    broker.on(m.ProduceRequest, lambda _: Hangs())
    producer = Producer(client, acks=0, idempotent=False)
    send(producer, 2)
    (result,) = await producer.flush()
    assert result.base_offset == -1
    assert sequences(broker) == [(-1, -1)]
    with pytest.raises(ValueError, match="acks=-1"):
        Producer(client, acks=1)


async def test_records_that_do_not_fit_a_batch_are_refused_before_anything_is_sent(
    broker: FakeBroker, client: Client
) -> None:
    producer = Producer(client, max_batch_bytes=100)
    send(producer, 1)
    producer.send_batch("t", 1, [None], [b"x" * 200], timestamps=1)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        await producer.flush()
    assert broker.sent(m.ProduceRequest) == []
    with pytest.raises(ValueError, match="differ in length"):
        producer.send_batch("t", 1, [None], [], timestamps=1)


# transactions


async def test_a_small_transaction_of_version_2_is_three_requests(
    broker: FakeBroker, client: Client
) -> None:
    producer = await transactional(client)
    before = len(broker.requests)
    producer.begin()
    send(producer, 1)
    await producer.commit({TP: OffsetAndMetadata(1)}, GroupMetadata("g", 3, "me", "i"))
    kinds = [type(r) for r in broker.requests[before:] if not is_setup(r)]
    assert sorted(k.__name__ for k in kinds[:2]) == ["ProduceRequest", "TxnOffsetCommitRequest"]
    assert kinds[2:] == [m.EndTxnRequest]
    (offsets,) = broker.sent(m.TxnOffsetCommitRequest)
    assert (offsets.generation_id, offsets.member_id, offsets.group_instance_id) == (3, "me", "i")
    assert broker.versions[m.ProduceRequest] == 12
    assert broker.versions[m.TxnOffsetCommitRequest] == broker.versions[m.EndTxnRequest] == 5
    assert producer.identity == (7, 1)
    producer.begin()
    send(producer, 1)
    await producer.commit()
    assert sequences(broker) == [(0, 0), (1, 0)], "each transaction counts from 0 in its epoch"


def is_setup(request: Any) -> bool:
    return isinstance(request, m.FindCoordinatorRequest | m.ApiVersionsRequest | m.MetadataRequest)


async def test_version_1_announces_partitions_and_groups_once(
    broker: FakeBroker, client: Client
) -> None:
    broker.features["transaction.version"] = 1
    topic_result = m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
        name="t",
        results_by_partition=[m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult()],
    )
    broker.on(
        m.AddPartitionsToTxnRequest,
        lambda _: m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic_result]),
    )
    broker.on(m.AddOffsetsToTxnRequest, lambda _: m.AddOffsetsToTxnResponse())
    async with broker.client() as older:
        producer = await transactional(older)
        for _ in range(2):
            producer.begin()
            for _ in range(2):
                send(producer, 1)
                await producer.flush()
                await producer.send_offsets({TP: OffsetAndMetadata(1)}, GroupMetadata("g"))
            await producer.commit()
    assert len(broker.sent(m.AddPartitionsToTxnRequest)) == 2
    assert len(broker.sent(m.AddOffsetsToTxnRequest)) == 2
    assert broker.versions[m.ProduceRequest] == 11
    assert broker.versions[m.TxnOffsetCommitRequest] == broker.versions[m.EndTxnRequest] == 4
    assert sequences(broker) == [(0, n) for n in range(4)], "version 1 keeps epoch and sequences"


@pytest.mark.parametrize("request_type", [m.ProduceRequest, m.EndTxnRequest])
async def test_a_coordinator_busy_with_the_last_transaction_is_asked_again(
    broker: FakeBroker, client: Client, request_type: type[Any]
) -> None:
    busy = {
        m.ProduceRequest: failing(ErrorCode.CONCURRENT_TRANSACTIONS),
        m.EndTxnRequest: m.EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
    }
    producer = await transactional(client)
    broker.answer(request_type, busy[request_type], busy[request_type])
    producer.begin()
    send(producer, 1)
    await producer.commit()
    assert len(broker.sent(request_type)) == 3


@pytest.mark.parametrize("code", [47, 48, 49, 120, 45, 10, -1])
async def test_a_failed_produce_can_only_be_aborted(
    broker: FakeBroker, client: Client, code: int
) -> None:
    producer = await transactional(client)
    broker.answer(m.ProduceRequest, failing(code))
    producer.begin()
    send(producer, 1)
    with pytest.raises(TransactionAborted) as failed:
        await producer.commit()
    assert failed.value.code == code
    assert broker.sent(m.EndTxnRequest) == []
    assert producer.state is ProducerState.ABORTABLE
    await producer.abort()
    (end,) = broker.sent(m.EndTxnRequest)
    assert not end.committed
    assert producer.state is ProducerState.READY


@pytest.mark.parametrize("code", [22, 25, 82])
async def test_refused_offsets_forbid_the_commit(
    broker: FakeBroker, client: Client, code: int
) -> None:
    producer = await transactional(client)
    broker.answer(m.TxnOffsetCommitRequest, lambda request: committed(request, code))
    producer.begin()
    send(producer, 1)
    with pytest.raises(TransactionAborted) as failed:
        await producer.commit({TP: OffsetAndMetadata(1)}, GroupMetadata("g", 1, "me"))
    assert failed.value.code == code
    assert broker.sent(m.EndTxnRequest) == []


async def test_offsets_whose_caller_was_cancelled_are_still_waited_for(
    broker: FakeBroker, client: Client
) -> None:
    producer = await transactional(client)
    broker.answer(m.TxnOffsetCommitRequest, lambda request: committed(request, 22))
    producer.begin()
    sending = asyncio.create_task(
        producer.send_offsets({TP: OffsetAndMetadata(1)}, GroupMetadata("g", 1, "me"))
    )
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(TransactionAborted):
        await producer.commit()
    assert broker.sent(m.EndTxnRequest) == []


@pytest.mark.parametrize("code", [47, 90])
async def test_a_fenced_end_is_the_end_of_the_producer(
    broker: FakeBroker, client: Client, code: int
) -> None:
    producer = await transactional(client)
    broker.answer(m.EndTxnRequest, m.EndTxnResponse(error_code=code))
    producer.begin()
    send(producer, 1)
    with pytest.raises(ProducerFenced):
        await producer.commit()
    for forbidden in (producer.abort(), producer.reset(), producer.flush()):
        with pytest.raises(ProducerFenced):
            await forbidden


@pytest.mark.parametrize("code", [48, 49, 52, -1])
async def test_an_end_that_makes_no_sense_needs_a_reset(
    broker: FakeBroker, client: Client, code: int
) -> None:
    producer = await transactional(client)
    broker.answer(m.EndTxnRequest, m.EndTxnResponse(error_code=code))
    producer.begin()
    send(producer, 1)
    with pytest.raises(NeedsReset):
        await producer.commit()
    assert producer.needs_reset
    with pytest.raises(NeedsReset):
        producer.begin()
    await producer.reset()
    init = broker.sent(m.InitProducerIdRequest)[-1]
    assert (init.producer_id, init.producer_epoch) == (7, 0), "KIP-360: who we think we are"
    producer.begin()


async def test_a_reset_finds_out_that_the_producer_is_fenced(
    broker: FakeBroker, client: Client
) -> None:
    producer = await transactional(client)
    broker.answer(m.EndTxnRequest, m.EndTxnResponse(error_code=49))
    producer.begin()
    send(producer, 1)
    with pytest.raises(NeedsReset):
        await producer.commit()
    broker.answer(m.InitProducerIdRequest, m.InitProducerIdResponse(error_code=90))
    with pytest.raises(ProducerFenced):
        await producer.reset()
    assert producer.state is ProducerState.FENCED


async def test_an_abort_of_nothing_known_is_made_good_by_a_reset(
    broker: FakeBroker, client: Client
) -> None:
    producer = await transactional(client)
    broker.answer(m.EndTxnRequest, m.EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    producer.begin()
    send(producer, 1)
    await producer.flush()
    await producer.abort()
    assert producer.state is ProducerState.READY
    assert len(broker.sent(m.InitProducerIdRequest)) == 2


async def test_a_cancelled_flush_forbids_the_commit(broker: FakeBroker, client: Client) -> None:
    producer = await transactional(client)
    broker.answer(m.ProduceRequest, Hangs())
    producer.begin()
    send(producer, 1)
    flushing = asyncio.create_task(producer.flush())
    await broker.received(m.ProduceRequest)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    with pytest.raises(TransactionAborted):
        await producer.commit()


async def test_a_cancelled_commit_needs_a_reset(broker: FakeBroker, client: Client) -> None:
    producer = await transactional(client)
    broker.answer(m.EndTxnRequest, Hangs())
    producer.begin()
    send(producer, 1)
    committing = asyncio.create_task(producer.commit())
    await broker.received(m.EndTxnRequest)
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert producer.needs_reset


async def test_methods_out_of_turn_are_refused(broker: FakeBroker, client: Client) -> None:
    fresh = Producer(client, transactional_id="x")
    with pytest.raises(ValueError, match="uninitialised"):
        fresh.begin()
    producer = await transactional(client)
    with pytest.raises(ValueError, match="ready"):
        send(producer, 1)
    with pytest.raises(ValueError, match="ready"):
        await producer.commit()
    with pytest.raises(ValueError):
        Producer(client).begin()


async def test_a_broker_that_is_away_longer_than_a_request_takes_is_waited_for(
    broker: FakeBroker,
) -> None:
    """Before the producer has an id, and before the leader is known: until the delivery timeout."""
    async with broker.client(request_timeout_ms=20) as client:
        producer = Producer(client, delivery_timeout_ms=10_000)
        for topic in ("t", "u"):
            broker.topics[topic] = 1
            broker.on(m.MetadataRequest, lambda _: Closes())
            client.close_lane("")
            broker.refuse_connections = 100
            producer.send_batch(topic, 0, [None], [b"x"], timestamps=0)
            flushing = asyncio.create_task(producer.flush())
            await asyncio.sleep(0.1)
            assert not flushing.done()
            broker.refuse_connections = 0
            broker.on(m.MetadataRequest, broker.metadata)
            assert [p.tp.topic for p in await flushing] == [topic]


async def test_what_got_no_producer_id_in_time_is_not_sent_later(broker: FakeBroker) -> None:
    """Its caller was told that it failed, and may have sent it again."""
    async with broker.client() as client:
        producer = Producer(client, delivery_timeout_ms=20)
        broker.answer(m.InitProducerIdRequest, *[Closes()] * 50)
        producer.send_batch("t", 0, [None], [b"late"], timestamps=0)
        with pytest.raises(KafkaError, match="lost"):
            await producer.flush()
        broker.answers_again(m.InitProducerIdRequest)
        producer.send_batch("t", 0, [None], [b"again"], timestamps=0)
        (result,) = await producer.flush()
        assert result.records_count == 1
