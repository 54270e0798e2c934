"""The fault proxy: it is transparent until it is told not to be."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from onceward.broker import Broker
from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from onceward.streams.testing.proxy import FaultProxy, Frame

TP = TopicPartition("t", 0)


def new_client(address: str, timeout_ms: int = 5_000) -> Client:
    return Client(
        address,
        request_timeout_ms=timeout_ms,
        clock=lambda: time.time_ns() // 1_000_000,
        rng=random.Random(1),
    )


@dataclass
class Lab:
    """A broker with a topic, a proxy, and a client behind it."""

    broker: Broker
    proxy: FaultProxy
    address: str
    client: Client

    async def produce(self, value: bytes) -> None:
        producer = Producer(self.client)
        producer.send_batch(*TP, [None], [value], timestamps=1)
        await producer.flush()
        await producer.close()

    async def end(self) -> int:
        """Asked of the broker itself."""
        async with new_client(self.broker.bootstrap) as direct:
            return (await Consumer(direct).end_offsets([TP], "read_uncommitted"))[TP]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Broker() as broker, FaultProxy(broker.bootstrap) as proxy:
        async with new_client(broker.bootstrap) as direct:
            await Admin(direct).create_topics([NewTopic("t", 1)])
        address = await proxy.listen("a")
        async with new_client(address) as client:
            yield Lab(broker, proxy, address, client)


async def passes_soon(condition: asyncio.Task[None]) -> bool:
    done, _ = await asyncio.wait([condition], timeout=0.3)
    return bool(done)


async def test_a_client_stays_behind_its_listener_wherever_it_is_sent(lab: Lab) -> None:
    await lab.produce(b"x")
    consumer = Consumer(lab.client, group_id="g")
    assert (await consumer.committed([TP]))[TP] is None
    nodes = lab.client.metadata.nodes.values()
    assert {f"{node.host}:{node.port}" for node in nodes} == {lab.address}
    assert len(lab.proxy.connections("a")) == lab.broker.connections
    assert await lab.end() == 1


async def test_frames_are_seen_by_the_name_of_their_api(lab: Lab) -> None:
    seen: list[tuple[str, bool]] = []
    lab.proxy.watch = lambda frame: seen.append((frame.api, frame.is_request))
    await lab.produce(b"x")
    assert seen.index(("PRODUCE", True)) < seen.index(("PRODUCE", False))


async def test_a_partition_holds_everything_back_and_loses_nothing(lab: Lab) -> None:
    await lab.produce(b"before")
    lab.proxy.partition("a")
    sending = asyncio.create_task(lab.produce(b"held"))
    assert not await passes_soon(sending)
    assert await lab.end() == 1
    lab.proxy.heal("a")
    await sending
    assert await lab.end() == 2


async def test_a_partition_of_answers_only_lets_requests_take_effect(lab: Lab) -> None:
    await lab.produce(b"before")
    lab.proxy.partition("a", requests=False)
    producer = Producer(lab.client, idempotent=False)
    producer.send_batch(*TP, [None], [b"x"], timestamps=1)
    sending = asyncio.create_task(producer.flush())
    while await lab.end() < 2:
        await asyncio.sleep(0.01)
    assert not sending.done()
    lab.proxy.heal()
    await sending
    await producer.close()


async def test_nobody_answers_new_connections_in_a_partition(lab: Lab) -> None:
    lab.proxy.partition("a")
    other = new_client(lab.address, timeout_ms=200)
    with pytest.raises(KafkaError):
        await other.start()
    await other.close()


async def test_another_listener_is_not_concerned(lab: Lab) -> None:
    lab.proxy.partition("a")
    async with new_client(await lab.proxy.listen("b")) as other:
        assert list(await Admin(other).describe_topics(["t"])) == ["t"]


async def test_a_slow_link_delays_every_frame_but_not_one_after_the_other(lab: Lab) -> None:
    await lab.produce(b"x")
    lab.proxy.slow("a", 0.1)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    admin = Admin(lab.client)
    await asyncio.gather(*(admin.describe_topics(["t"]) for _ in range(8)))
    assert 0.2 <= loop.time() - begin < 1.0


async def test_a_reset_connection_is_replaced_by_the_client(lab: Lab) -> None:
    await lab.produce(b"x")
    before = {connection.number for connection in lab.proxy.connections("a")}
    for connection in lab.proxy.connections("a"):
        lab.proxy.reset(connection)
    await lab.produce(b"y")
    assert before.isdisjoint(each.number for each in lab.proxy.connections("a"))
    assert await lab.end() == 2


async def test_a_raw_connection_that_is_reset_gets_rst(lab: Lab) -> None:
    host, _, port = lab.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while len(lab.proxy.connections("a")) < 2:
        await asyncio.sleep(0.005)
    lab.proxy.reset(lab.proxy.connections("a")[-1])
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_connection_the_broker_forgot_is_silent(lab: Lab) -> None:
    await lab.produce(b"x")
    open_at_broker = lab.broker.connections
    connections = lab.proxy.connections("a")
    for connection in connections:
        lab.proxy.half_open(connection, forgets="broker")
    while lab.broker.connections == open_at_broker:
        await asyncio.sleep(0.005)
    assert not await passes_soon(asyncio.create_task(lab.produce(b"unheard")))
    assert lab.proxy.connections("a") == connections
    assert await lab.end() == 1


async def test_the_broker_keeps_a_connection_its_client_forgot(lab: Lab) -> None:
    await lab.produce(b"x")
    open_at_broker = lab.broker.connections
    for connection in lab.proxy.connections("a"):
        lab.proxy.half_open(connection, forgets="client")
    await lab.produce(b"y")
    assert lab.broker.connections > open_at_broker
    assert await lab.end() == 2


async def test_one_request_is_held_back_or_never_arrives(lab: Lab) -> None:
    await lab.produce(b"x")
    held, released = asyncio.Event(), asyncio.Event()

    async def hold(frame: Frame) -> bool:
        if frame.is_request and frame.api == "PRODUCE":
            held.set()
            await released.wait()
        return True

    lab.proxy.intercept = hold
    sending = asyncio.create_task(lab.produce(b"late"))
    await held.wait()
    assert await lab.end() == 1
    released.set()
    await sending
    assert await lab.end() == 2

    refused = 0

    async def refuse_once(frame: Frame) -> bool:
        nonlocal refused
        if frame.api != "PRODUCE" or refused:
            return True
        refused += 1
        return False

    lab.proxy.intercept = refuse_once
    await lab.produce(b"retried")
    assert refused == 1
    assert await lab.end() == 3


async def test_the_end_of_the_broker_ends_the_connections(lab: Lab) -> None:
    await lab.produce(b"x")
    await lab.broker.stop()
    while lab.proxy.connections():
        await asyncio.sleep(0.005)
