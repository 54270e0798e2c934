from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from onceward.broker.client import (
    Client,
    ConnectionFailed,
    Coordinator,
    ErrorCode,
    KafkaError,
    TopicPartition,
)
from onceward.broker.client.cluster import parse_bootstrap
from onceward.broker.client.connection import Connection
from onceward.broker.client.metadata import ClusterMetadata, Node
from onceward.broker.protocol import messages as m

from .fake import ADDRESS, NODE, Closes, FakeBroker, Hangs


def test_bootstrap_addresses_come_with_or_without_a_scheme() -> None:
    assert parse_bootstrap("a:1, kafka://b:2,[::1]:3") == [
        Node("a", 1),
        Node("b", 2),
        Node("::1", 3),
    ]
    for wrong in ("", "host", "host:port", ":9092"):
        with pytest.raises(ValueError):
            parse_bootstrap(wrong)


async def test_connecting_is_tried_again_until_the_request_timeout() -> None:
    broker = FakeBroker()
    broker.refuse_connections = 3
    async with broker.client() as client:
        assert client.metadata.nodes == {NODE: Node(*ADDRESS)}
    broker.refuse_connections = 10_000
    client = broker.client(request_timeout_ms=50)
    with pytest.raises(ConnectionFailed, match="cannot connect to fake:9092") as failed:
        await client.start()
    assert not failed.value.sent
    await client.close()


class HalfDead(FakeBroker):
    """Some attempts to connect meet a machine that is gone: nothing answers, not even a refusal."""

    def __init__(self, *dead: str, hang_first: int = 0) -> None:
        super().__init__()
        self.dead = dead
        self.hang_first = hang_first

    async def connect(
        self, factory: Callable[[], Connection], host: str, port: int
    ) -> tuple[object, Connection]:
        self.hang_first -= 1
        if host in self.dead or self.hang_first >= 0:
            await asyncio.Event().wait()
        return await super().connect(factory, host, port)

    def client_of(self, bootstrap: str, **options: Any) -> Client:
        return Client(bootstrap, clock=lambda: 0, rng=Random(1), connect=self.connect, **options)


async def test_a_bootstrap_server_that_is_silent_does_not_keep_from_the_next() -> None:
    broker = HalfDead("dead")
    async with broker.client_of("dead:1,fake:9092", request_timeout_ms=200) as client:
        assert client.metadata.nodes == {NODE: Node(*ADDRESS)}


async def test_a_server_that_was_silent_is_tried_again_within_the_timeout() -> None:
    broker = HalfDead(hang_first=1)
    async with broker.client_of("fake:9092", request_timeout_ms=1000) as client:
        assert client.metadata.nodes == {NODE: Node(*ADDRESS)}
    broker = HalfDead("fake")
    client = broker.client_of("fake:9092", request_timeout_ms=50)
    with pytest.raises(ConnectionFailed, match="cannot connect to fake:9092: timed out"):
        await client.start()
    await client.close()


async def test_who_waits_for_a_load_that_fails_is_told() -> None:
    broker = FakeBroker()
    async with broker.client(request_timeout_ms=50) as client:
        broker.on(m.MetadataRequest, lambda _: Closes())
        loads = [asyncio.create_task(client.refresh_metadata()) for _ in range(3)]
        outcomes = await asyncio.gather(*loads, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * 3


async def test_who_waits_for_a_load_that_is_cancelled_loads_itself() -> None:
    broker = FakeBroker()
    async with broker.client() as client:
        broker.topics["t"] = 1
        known = len(broker.sent(m.MetadataRequest))
        broker.answer(m.MetadataRequest, Hangs(), Hangs())
        first, second, third = (asyncio.create_task(client.refresh_metadata()) for _ in range(3))
        await broker.received(m.MetadataRequest, known + 1)
        first.cancel()
        await broker.received(m.MetadataRequest, known + 2)
        second.cancel()
        client.watch_topics(["t"])
        await third
        assert client.metadata.partition_count("t") == 1


async def test_the_bootstrap_connection_becomes_the_nodes_connection() -> None:
    broker = FakeBroker()
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client:
        await client.request(NODE, m.HeartbeatRequest())
        await client.request(None, m.HeartbeatRequest())
    assert broker.connections == 1


async def test_a_lane_is_a_connection_of_its_own() -> None:
    broker = FakeBroker()
    broker.answer(m.HeartbeatRequest, Hangs())
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client:
        lane = client.new_lane("test")
        parked = asyncio.create_task(client.request(NODE, m.HeartbeatRequest(), lane=lane))
        await broker.received(m.HeartbeatRequest)
        await client.request(NODE, m.HeartbeatRequest())
        client.close_lane(lane)
        with pytest.raises(ConnectionFailed):
            await parked
    assert broker.connections == 2


@pytest.mark.parametrize("code", [14, 15, 16])
async def test_a_coordinator_that_is_not_ready_is_asked_again(code: int) -> None:
    broker = FakeBroker()
    broker.answer(m.FindCoordinatorRequest, m.FindCoordinatorResponse(error_code=15, node_id=-1))
    broker.answer(m.HeartbeatRequest, m.HeartbeatResponse(error_code=code))
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client:
        response = await client.call(
            Coordinator.group("g"), m.HeartbeatRequest(), errors=lambda r: (r.error_code,)
        )
    assert response.error_code == 0
    looked_up = len(broker.sent(m.FindCoordinatorRequest))
    assert looked_up == (2 if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else 3)


async def test_a_call_gives_up_at_its_timeout_with_the_last_error() -> None:
    broker = FakeBroker()
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse(error_code=14))
    async with broker.client() as client:
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await client.call(
                NODE, m.HeartbeatRequest(), errors=lambda r: (r.error_code,), timeout_ms=20
            )


async def test_a_request_that_must_not_be_repeated_is_not() -> None:
    broker = FakeBroker()
    broker.on(m.HeartbeatRequest, lambda _: Closes())
    async with broker.client() as client:
        with pytest.raises(ConnectionFailed):
            await client.call(
                NODE,
                m.HeartbeatRequest(),
                errors=lambda r: (r.error_code,),
                repeat_unanswered=False,
            )
    assert len(broker.sent(m.HeartbeatRequest)) == 1


async def test_a_topic_is_waited_for() -> None:
    broker = FakeBroker()
    async with broker.client() as client:
        waiting = asyncio.create_task(client.partitions_for("t"))
        await asyncio.sleep(0.005)
        broker.topics["t"] = 2
        assert await waiting == [0, 1]
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await client.partitions_for("missing", timeout_ms=10)
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: t-7"):
            await client.leader(TopicPartition("t", 7), timeout_ms=10)


async def test_callers_that_wait_for_metadata_share_one_load() -> None:
    broker = FakeBroker()
    broker.topics["t"] = 1
    async with broker.client() as client:
        before = len(broker.sent(m.MetadataRequest))
        await asyncio.gather(*(client.refresh_metadata(["t"]) for _ in range(10)))
        assert len(broker.sent(m.MetadataRequest)) - before <= 2
        assert client.metadata.partition_count("t") == 1


async def test_features_come_from_the_handshake() -> None:
    broker = FakeBroker()
    async with broker.client() as client:
        assert client.transaction_version == 2
    broker.features.clear()
    async with broker.client() as client:
        assert client.transaction_version == 0


def metadata_of(leader: int, epoch: int) -> m.MetadataResponse:
    response = m.MetadataResponse
    partition = response.MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch
    )
    return response(topics=[response.MetadataResponseTopic(name="t", partitions=[partition])])


def test_metadata_of_an_older_leader_epoch_is_not_believed() -> None:
    metadata = ClusterMetadata()
    metadata.update(metadata_of(leader=2, epoch=5))
    metadata.update(metadata_of(leader=1, epoch=4))
    info = metadata.partition(TopicPartition("t", 0))
    assert info is not None
    assert (info.leader, info.leader_epoch) == (2, 5)


def test_the_metadata_generation_grows_only_with_changes() -> None:
    metadata = ClusterMetadata()
    metadata.update(metadata_of(leader=1, epoch=4))
    before = metadata.generation
    metadata.update(metadata_of(leader=1, epoch=4))
    assert metadata.generation == before
    metadata.update(metadata_of(leader=2, epoch=5))
    assert metadata.generation == before + 1
