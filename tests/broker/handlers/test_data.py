"""Produce, Fetch, ListOffsets, DeleteRecords and leader epochs, as the wire shows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.protocol.messages import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeProducersRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from onceward.broker.records import codec
from onceward.broker.types import TopicPartition

from ..wire import Wire, connect


def batch(*values: bytes, **options: Any) -> bytes:
    options.setdefault("timestamps", 1_700_000_000_000)
    return codec.encode([None] * len(values), list(values), **options)


def produce_request(records: Any, *, topic: str = "t", index: int = 0, **fields: Any) -> Any:
    fields.setdefault("acks", -1)
    fields.setdefault("timeout_ms", 5000)
    topic_id = fields.pop("topic_id", bytes(16))
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
        ],
        **fields,
    )


async def produce(wire: Wire, records: Any, *, version: int = 9, **fields: Any) -> Any:
    response = await wire.call(produce_request(records, **fields), version)
    return response.responses[0].partition_responses[0]


def fetch_request(offset: int, *, topic: str = "t", index: int = 0, **fields: Any) -> Any:
    partition = FetchRequest.FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
        last_fetched_epoch=fields.pop("last_fetched_epoch", -1),
    )
    topic_id = fields.pop("topic_id", bytes(16))
    fields = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0, **fields}
    return FetchRequest(
        topics=[FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
        **fields,
    )


async def fetch(wire: Wire, offset: int, *, version: int = 12, **fields: Any) -> Any:
    response = await wire.call(fetch_request(offset, **fields), version)
    assert response.error_code == 0
    assert response.session_id == 0
    assert response.throttle_time_ms == 0
    return response.responses[0].partitions[0]


async def create(wire: Wire, name: str = "t", partitions: int = 1, **configs: str) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    [outcome] = (await wire.call(CreateTopicsRequest(topics=[topic]), 7)).topics
    assert outcome.error_code == 0
    return bytes(outcome.topic_id)


def values(partition: Any) -> list[bytes | None]:
    return codec.decode(bytes(partition.records)).values


# -- produce -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
async def test_produced_records_are_fetched_in_every_version(wire: Wire, version: int) -> None:
    topic_id = await create(wire)
    done = await produce(wire, batch(b"a", b"b"), version=version, topic_id=topic_id)
    assert (done.error_code, done.base_offset) == (0, 0)
    if version >= 5:
        assert (done.log_append_time_ms, done.log_start_offset) == (-1, 0)
    for fetch_version in range(4, 18):
        partition = await fetch(wire, 0, version=fetch_version, topic_id=topic_id)
        assert values(partition) == [b"a", b"b"]
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
        assert partition.aborted_transactions is None


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_acknowledged_record_is_flushed(wire: Wire, broker: Broker, acks: int) -> None:
    await create(wire)
    await produce(wire, batch(b"a"), acks=acks)
    log = broker.logs.get(TopicPartition("t", 0))
    assert log is not None
    assert log.high_watermark == log.log_end_offset == 1


async def test_without_acks_there_is_no_answer_and_a_failure_closes(wire: Wire) -> None:
    await create(wire)
    wire.send(produce_request(batch(b"a"), acks=0), 9)
    assert (await wire.call(MetadataRequest(topics=[]), 9)).controller_id == 1
    assert values(await fetch(wire, 0, max_wait_ms=5000)) == [b"a"]
    wire.send(produce_request(batch(b"a"), acks=0, topic="missing"), 9)
    assert await wire.closed_by_peer()


async def test_pipelined_batches_keep_their_order(wire: Wire) -> None:
    await create(wire)
    sent = [wire.send(produce_request(batch(b"%d" % n)), 9) for n in range(20)]
    answers = [await wire.receive(each) for each in sent]
    offsets = [a.responses[0].partition_responses[0].base_offset for a in answers]
    assert offsets == list(range(20))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"acks": 2}, 21),
        ({"topic": "missing"}, 3),
        ({"index": 1}, 3),
        ({"index": -1}, 3),
        ({"topic": "__consumer_offsets"}, 17),
        ({"records": b""}, 87),
        ({"records": None}, 87),
        ({"records": batch(b"a")[:-1]}, 87),
        ({"records": batch(b"a", base_offset=5)}, 87),
        ({"records": batch(b"a")[:-1] + b"!"}, 2),
        ({"records": batch(b"a") + batch(b"b")}, 87),
        ({"records": batch(bytes(2_000_000))}, 10),
        ({"records": batch(b"a", compression=codec.Compression.ZSTD), "version": 6}, 76),
        ({"records": batch(b"a", transactional=True, producer_id=1, producer_epoch=0)}, 53),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_cannot_be_produced_is_refused_with_its_code(
    wire: Wire, fields: dict[str, Any], code: int
) -> None:
    await create(wire)
    done = await produce(wire, fields.pop("records", batch(b"a")), **fields)
    assert (done.error_code, done.base_offset) == (code, -1)
    assert values(await fetch(wire, 0)) == []


async def test_one_bad_partition_does_not_spoil_the_request(wire: Wire) -> None:
    await create(wire)
    request = produce_request(batch(b"good"))
    request.topic_data += produce_request(batch(b"lost"), topic="missing").topic_data
    good, bad = (await wire.call(request, 9)).responses
    assert good.partition_responses[0].error_code == 0
    assert bad.partition_responses[0].error_code == 3


async def test_a_repeated_idempotent_batch_gets_its_first_offset(wire: Wire) -> None:
    await create(wire)
    producer = await wire.call(InitProducerIdRequest(transactional_id=None), 4)
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    first = batch(b"a", base_sequence=0, **identity)
    second = batch(b"b", base_sequence=1, **identity)
    offsets = [(await produce(wire, each)).base_offset for each in (first, second, first, second)]
    assert offsets == [0, 1, 0, 1]
    assert (await produce(wire, batch(b"c", base_sequence=5, **identity))).error_code == 45
    described = await wire.call(
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 9])]
        ),
        0,
    )
    known, missing = described.topics[0].partitions
    assert [p.producer_id for p in known.active_producers] == [producer.producer_id]
    assert missing.error_code == 3


async def test_producer_ids_differ_also_after_a_restart(tmp_path: Any) -> None:
    seen = set()
    for _ in range(3):
        async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
            for _ in range(3):
                seen.add(
                    (await wire.call(InitProducerIdRequest(transactional_id=None), 4)).producer_id
                )
    assert len(seen) == 9


# -- fetch ---------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_records_and_is_woken_by_them(wire: Wire, broker: Broker) -> None:
    await create(wire)
    polling = wire.send(fetch_request(0, max_wait_ms=8000), 11)
    async with await connect(broker) as other:
        await asyncio.sleep(0.02)
        await produce(other, batch(b"late"))
    async with asyncio.timeout(4):
        response = await wire.receive(polling)
    assert values(response.responses[0].partitions[0]) == [b"late"]


async def test_a_fetch_without_news_is_answered_when_its_time_is_up(wire: Wire) -> None:
    await create(wire)
    started = asyncio.get_running_loop().time()
    assert bytes((await fetch(wire, 0, max_wait_ms=60)).records) == b""
    assert asyncio.get_running_loop().time() - started >= 0.05


async def test_a_fetch_waits_for_min_bytes(wire: Wire, broker: Broker) -> None:
    await create(wire)
    await produce(wire, batch(bytes(100)))
    polling = wire.send(fetch_request(0, min_bytes=500, max_wait_ms=8000), 11)
    async with await connect(broker) as other:
        await produce(other, batch(bytes(100)))
        await produce(other, batch(bytes(400)))
    async with asyncio.timeout(4):
        response = await wire.receive(polling)
    assert len(values(response.responses[0].partitions[0])) == 3


async def test_a_waiting_fetch_learns_that_its_topic_was_deleted(
    wire: Wire, broker: Broker
) -> None:
    await create(wire)
    polling = wire.send(fetch_request(0, max_wait_ms=8000), 11)
    async with await connect(broker) as other:
        await other.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    async with asyncio.timeout(4):
        response = await wire.receive(polling)
    assert response.responses[0].partitions[0].error_code == 3


async def test_the_first_batch_is_whole_and_the_limits_hold_for_the_rest(wire: Wire) -> None:
    await create(wire)
    for _ in range(3):
        await produce(wire, batch(bytes(1000)))
    assert len(values(await fetch(wire, 0, partition_max_bytes=10, max_bytes=10))) == 1
    assert len(values(await fetch(wire, 0, partition_max_bytes=2500))) == 2
    assert len(values(await fetch(wire, 1))) == 2


async def test_partitions_take_turns_when_the_limit_is_small(wire: Wire) -> None:
    await create(wire, partitions=3)
    for index in range(3):
        await produce(wire, batch(bytes(1000)), index=index)
    request = fetch_request(0, max_bytes=1100)
    request.topics[0].partitions = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(3)
    ]
    served = set()
    for _ in range(3):
        [topic] = (await wire.call(request, 11)).responses
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        served |= {p.partition_index for p in topic.partitions if len(p.records)}
    assert served == {0, 1, 2}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offset": 5}, 1),
        ({"offset": -1}, 1),
        ({"topic": "missing"}, 3),
        ({"current_leader_epoch": 7}, 75),
        ({"version": 17, "topic_id": b"?" * 16}, 100),
    ],
    ids=str,
)
async def test_an_error_is_answered_at_once(wire: Wire, fields: dict[str, Any], code: int) -> None:
    await create(wire)
    async with asyncio.timeout(4):
        partition = await fetch(wire, fields.pop("offset", 0), max_wait_ms=8000, **fields)
    assert partition.error_code == code
    assert bytes(partition.records) == b""


async def test_a_session_is_never_granted_and_an_invented_one_unknown(wire: Wire) -> None:
    await create(wire)
    await fetch(wire, 0, session_epoch=0)
    response = await wire.call(fetch_request(0, session_id=5, session_epoch=3), 11)
    assert response.error_code == 70
    again = await wire.call(fetch_request(0, session_id=5, session_epoch=0), 11)
    assert (again.error_code, again.session_id) == (0, 0)
    assert again.responses[0].partitions[0].error_code == 0


async def test_log_append_time_is_reported(wire: Wire) -> None:
    await create(wire, message_timestamp_type="LogAppendTime")
    done = await produce(wire, batch(b"a"))
    assert done.log_append_time_ms > 1_700_000_000_000
    records = codec.decode(bytes((await fetch(wire, 0)).records))
    assert records.timestamps == [done.log_append_time_ms]


# -- offsets of the log --------------------------------------------------------------------------


async def list_offset(wire: Wire, timestamp: int, *, version: int = 7, **fields: Any) -> Any:
    partition = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=fields.pop("index", 0),
        timestamp=timestamp,
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
    )
    topic = ListOffsetsRequest.ListOffsetsTopic(
        name=fields.pop("topic", "t"), partitions=[partition]
    )
    response = await wire.call(ListOffsetsRequest(topics=[topic], **fields), version)
    return response.topics[0].partitions[0]


async def test_offsets_are_listed_by_time_and_by_end(wire: Wire) -> None:
    await create(wire)
    for second in (1, 3, 2):
        await produce(wire, batch(b"x", timestamps=second * 1000))
    assert (await list_offset(wire, -2)).offset == 0
    assert (await list_offset(wire, -4, version=8)).offset == 0
    assert (await list_offset(wire, -1)).offset == 3
    assert (await list_offset(wire, -5, version=9)).offset == -1
    found = await list_offset(wire, 1500)
    assert (found.offset, found.timestamp) == (1, 3000)
    assert (await list_offset(wire, -3)).offset == 1
    nothing = await list_offset(wire, 9999)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)
    for special, too_old in ((-3, 6), (-4, 7), (-5, 8), (-6, 10)):
        assert (await list_offset(wire, special, version=too_old)).error_code == 35
    assert (await list_offset(wire, -1, topic="missing")).error_code == 3
    assert (await list_offset(wire, -1, current_leader_epoch=9)).error_code == 75
    assert (await list_offset(wire, -1, version=1)).offset == 3


async def delete_records(wire: Wire, offset: int, topic: str = "t") -> Any:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])]
    )
    return (await wire.call(request, 2)).topics[0].partitions[0]


async def test_deleted_records_are_below_the_log_start(wire: Wire) -> None:
    await create(wire)
    for _ in range(4):
        await produce(wire, batch(b"x"))
    assert (await delete_records(wire, 9)).error_code == 1
    assert (await delete_records(wire, 2)).low_watermark == 2
    assert (await fetch(wire, 1)).error_code == 1
    assert (await fetch(wire, 2)).log_start_offset == 2
    assert (await list_offset(wire, -2)).offset == 2
    assert (await list_offset(wire, 0)).offset == 2
    assert (await delete_records(wire, -1)).low_watermark == 4
    assert (await delete_records(wire, 0, topic="missing")).error_code == 3
    await create(wire, "compacted", cleanup_policy="compact")
    assert (await delete_records(wire, 0, topic="compacted")).error_code == 44


async def test_leader_epochs_rise_with_each_start_and_are_answered(tmp_path: Any) -> None:
    for start in range(2):
        async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
            if start == 0:
                await create(wire)
            await produce(wire, batch(b"x"))
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        assert (await fetch(wire, 0, current_leader_epoch=1)).error_code == 74

        async def end_of(epoch: int) -> tuple[int, int]:
            partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=0, leader_epoch=epoch, current_leader_epoch=2
            )
            topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic="t", partitions=[partition]
            )
            response = await wire.call(OffsetForLeaderEpochRequest(topics=[topic]), 4)
            [end] = response.topics[0].partitions
            assert end.error_code == 0
            return end.leader_epoch, end.end_offset

        assert await end_of(0) == (0, 1)
        assert await end_of(1) == (1, 2)
        diverging = (await fetch(wire, 2, last_fetched_epoch=0)).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (0, 1)
