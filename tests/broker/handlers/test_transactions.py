"""Transactions through the wire, version 1 and version 2 (KIP-890)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

from ..wire import Wire, connect
from .test_data import batch, create, fetch, list_offset, produce, values


class Transaction:
    """A transactional producer, made of requests. ``version`` is that of the transactions."""

    def __init__(self, wire: Wire, version: int, name: str = "tx") -> None:
        self.wire, self.version, self.name = wire, version, name
        self.producer_id = self.epoch = -1
        self.sequence = 0

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60000)
        async with asyncio.timeout(10):
            while (response := await self.wire.call(request, 5)).error_code == 51:
                await asyncio.sleep(0.01)
        assert response.error_code == 0
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.sequence = 0

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def add(self, topic: str = "t") -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
            ],
        )
        response = await self.wire.call(request, 3)
        [result] = response.results_by_topic_v3_and_below
        return int(result.results_by_partition[0].partition_error_code)

    async def produce(self, value: bytes, *, version: int | None = None) -> int:
        records = batch(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        api_version = version or (12 if self.version == 2 else 11)
        done = await produce(self.wire, records, transactional_id=self.name, version=api_version)
        if done.error_code == 0:
            self.sequence += 1
        return int(done.error_code)

    async def send(self, value: bytes) -> None:
        if self.version == 1:
            assert await self.add() == 0
        assert await self.produce(value) == 0

    async def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(committed=commit, **self.identity)
        response = await self.wire.call(request, 5 if self.version == 2 else 4)
        if self.version == 2 and response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return int(response.error_code)

    async def commit_offset(self, offset: int, **fields: Any) -> int:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset
        )
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name=fields.pop("topic", "t"), partitions=[partition]
        )
        fields.setdefault("group_id", "g")
        request = TxnOffsetCommitRequest(topics=[topic], **self.identity, **fields)
        response = await self.wire.call(request, 5 if self.version == 2 else 3)
        return int(response.topics[0].partitions[0].error_code)


async def settled(wire: Wire) -> None:
    """Return when no transaction is open or completing: markers are written after EndTxn."""
    request = ListTransactionsRequest(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
    async with asyncio.timeout(10):
        while (await wire.call(request, 0)).transaction_states:
            await asyncio.sleep(0.005)


async def committed(wire: Wire) -> list[bytes | None]:
    """What a read_committed consumer sees of t-0."""
    from onceward.broker.records import codec

    partition = await fetch(wire, 0, isolation_level=1)
    aborted = [(a.producer_id, a.first_offset) for a in partition.aborted_transactions]
    records = bytes(partition.records)
    return codec.decode(records, aborted=aborted, read_committed=True).values


async def group_offset(wire: Wire, *, stable: bool = False) -> tuple[int, int]:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(group_id="g", topics=[topic], require_stable=stable)
    [partition] = (await wire.call(request, 7)).topics[0].partitions
    return partition.error_code, partition.committed_offset


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
async def transaction(request: pytest.FixtureRequest, wire: Wire) -> Transaction:
    await create(wire)
    started = Transaction(wire, request.param)
    await started.init()
    return started


async def test_version_2_is_finalised_for_clients_that_can_read_it(wire: Wire) -> None:
    software = {"client_software_name": "test", "client_software_version": "1"}
    response = await wire.call(ApiVersionsRequest(**software), 4)
    assert [(f.name, f.max_version_level) for f in response.finalized_features] == [
        ("transaction.version", 2)
    ]
    assert [(f.name, f.min_version, f.max_version) for f in response.supported_features] == [
        ("transaction.version", 0, 2)
    ]
    assert (await wire.call(ApiVersionsRequest(**software), 3)).supported_features == []
    produce_api = next(api for api in response.api_keys if api.api_key == 0)
    assert (produce_api.min_version, produce_api.max_version) == (0, 13)
    bad = await wire.call(ApiVersionsRequest(client_software_name="?"), 3)
    assert bad.error_code == 42


async def test_records_are_seen_when_and_only_when_committed(transaction: Transaction) -> None:
    wire = transaction.wire
    await transaction.send(b"aborted")
    assert await committed(wire) == []
    assert values(await fetch(wire, 0)) == [b"aborted"]
    assert await transaction.end(commit=False) == 0
    await settled(wire)
    await transaction.send(b"kept")
    assert (await list_offset(wire, -1, isolation_level=1)).offset == 2
    assert await transaction.end(commit=True) == 0
    await settled(wire)
    assert await committed(wire) == [b"kept"]
    partition = await fetch(wire, 0)
    assert values(partition) == [b"aborted", b"kept"]
    assert partition.aborted_transactions is None
    assert partition.last_stable_offset == partition.high_watermark == 4


async def test_a_read_committed_poll_is_woken_by_the_commit(
    transaction: Transaction, broker: Broker
) -> None:
    await transaction.send(b"x")
    async with await connect(broker) as reader:
        from .test_data import fetch_request

        polling = reader.send(fetch_request(0, isolation_level=1, max_wait_ms=8000), 11)
        await asyncio.sleep(0.02)
        await transaction.end(commit=True)
        async with asyncio.timeout(4):
            response = await reader.receive(polling)
    assert values(response.responses[0].partitions[0]) == [b"x"]


async def test_offsets_move_with_their_transaction(transaction: Transaction) -> None:
    wire = transaction.wire

    async def send_offset(offset: int) -> None:
        if transaction.version == 1:
            request = AddOffsetsToTxnRequest(group_id="g", **transaction.identity)
            assert (await wire.call(request, 3)).error_code == 0
        assert await transaction.commit_offset(offset) == 0

    await send_offset(5)
    assert await group_offset(wire) == (0, -1)
    assert await group_offset(wire, stable=True) == (88, -1)
    await transaction.end(commit=False)
    await settled(wire)
    assert await group_offset(wire, stable=True) == (0, -1)
    await send_offset(6)
    await transaction.end(commit=True)
    await settled(wire)
    assert await group_offset(wire, stable=True) == (0, 6)
    assert await transaction.commit_offset(7, topic="missing") == 3
    assert await transaction.commit_offset(7, group_id="") == 24


async def open_offsets(wire: Wire) -> Transaction:
    """A version 1 transaction, where an abort keeps the epoch, that may commit offsets of g."""
    await create(wire)
    transaction = Transaction(wire, 1)
    await transaction.init()
    request = AddOffsetsToTxnRequest(group_id="g", **transaction.identity)
    assert (await wire.call(request, 3)).error_code == 0
    return transaction


async def test_an_abort_overtakes_offsets_that_were_verified_before_it(
    wire: Wire, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = await open_offsets(wire)
    verify_or_add = broker.transactions.verify_or_add

    async def then_abort(*arguments: Any, **options: Any) -> Any:
        verdicts = await verify_or_add(*arguments, **options)
        async with await connect(broker) as other:
            request = EndTxnRequest(committed=False, **transaction.identity)
            assert (await other.call(request, 4)).error_code == 0
            await settled(other)
        return verdicts

    monkeypatch.setattr(broker.transactions, "verify_or_add", then_abort)
    assert await transaction.commit_offset(5) == 48
    assert await group_offset(wire, stable=True) == (0, -1)  # nothing hangs in front of readers


async def test_an_abort_overtakes_offsets_of_a_transaction_that_was_open_here(
    wire: Wire, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = await open_offsets(wire)
    assert await transaction.commit_offset(5) == 0
    commit = broker.groups.txn_commit_offsets

    async def abort_first(*arguments: Any, **options: Any) -> Any:
        async with await connect(broker) as other:
            request = EndTxnRequest(committed=False, **transaction.identity)
            assert (await other.call(request, 4)).error_code == 0
            await settled(other)
        return await commit(*arguments, **options)

    monkeypatch.setattr(broker.groups, "txn_commit_offsets", abort_first)
    assert await transaction.commit_offset(6) == 48
    assert await group_offset(wire, stable=True) == (0, -1)


async def test_version_1_must_add_a_partition_before_it_writes(wire: Wire) -> None:
    await create(wire)
    transaction = Transaction(wire, 1)
    await transaction.init()
    assert await transaction.produce(b"x", version=10) == 48
    assert await transaction.produce(b"x", version=11) == 120
    assert await transaction.add("missing") == 3
    assert await transaction.add() == 0
    assert await transaction.produce(b"x") == 0
    assert await transaction.commit_offset(5) == 48


async def test_a_new_producer_fences_the_old_one(transaction: Transaction) -> None:
    wire = transaction.wire
    await transaction.send(b"lost")
    successor = Transaction(wire, transaction.version)
    await successor.init()
    assert await transaction.produce(b"zombie") == 47
    assert await transaction.end(commit=True) == 90
    assert await transaction.commit_offset(5) == 47
    await successor.send(b"kept")
    await successor.end(commit=True)
    await settled(wire)
    assert await committed(wire) == [b"kept"]


async def test_a_steady_stream_asks_the_coordinator_once(
    transaction: Transaction, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    verify_or_add = broker.transactions.verify_or_add

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return await verify_or_add(*arguments, **options)

    monkeypatch.setattr(broker.transactions, "verify_or_add", counted)
    await transaction.send(b"0")
    for number in range(1, 5):
        assert await transaction.produce(b"%d" % number) == 0
    assert asked == 1


async def test_transactions_are_described_and_an_administrator_ends_one(
    transaction: Transaction,
) -> None:
    wire = transaction.wire
    await transaction.send(b"hanging")
    described = await wire.call(DescribeTransactionsRequest(transactional_ids=["tx", "none"]), 0)
    known, unknown = described.transaction_states
    assert (known.transaction_state, known.producer_id) == ("Ongoing", transaction.producer_id)
    assert [(t.topic, t.partitions) for t in known.topics] == [("t", [0])]
    assert unknown.error_code == 105
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=0,
    )
    response = await wire.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    codes = [p.error_code for p in response.markers[0].topics[0].partitions]
    assert codes == [0, 3]
    assert (await list_offset(wire, -1, isolation_level=1)).offset == 2
    assert await committed(wire) == []


async def test_a_restart_in_the_middle_leaves_the_transaction_to_its_producer(
    tmp_path: Any,
) -> None:
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        await create(wire)
        transaction = Transaction(wire, 2)
        await transaction.init()
        await transaction.send(b"before")
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        transaction.wire = wire
        assert await committed(wire) == []
        await transaction.send(b"after")
        assert await transaction.end(commit=True) == 0
        await settled(wire)
        assert await committed(wire) == [b"before", b"after"]
