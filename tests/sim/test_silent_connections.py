"""Connections whose other end is gone without a word: the machine lost power and is back."""

from __future__ import annotations

import asyncio

import pytest

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from onceward.streams.testing.sim import Host, World

from .workloads import ADDRESS, TOPIC, broker, patiently

POLL_MS = 10_000
OFF_AT_S = 2.0
ENOUGH_S = 4.0
"""From the power loss on: the machine is away for half of it at most."""


def client_of(host: Host) -> Client:
    """With Kafka's request timeout, 30 s."""
    return Client(ADDRESS, client_id=host.name, clock=host.wall_ms, rng=host.rng())


async def read(host: Host, found: list[bytes | None]) -> None:
    """A long poll is out, and something else is asked every now and then, as a member of a group
    sends heartbeats."""
    client = client_of(host)
    await patiently(client.start)
    await patiently(lambda: Admin(client).create_topics([NewTopic(TOPIC, 1)]))

    async def ask() -> None:
        while True:
            try:
                await client.refresh_metadata()
            except KafkaError:
                pass
            await asyncio.sleep(0.5)

    asking = asyncio.create_task(ask())
    consumer = Consumer(client, fetch_max_wait_ms=POLL_MS)
    consumer.assign([TopicPartition(TOPIC, 0)])
    await consumer.start()
    while not found:
        for batch in await patiently(lambda: consumer.fetch(timeout_ms=1000)):
            found.extend(batch.records.values)
    asking.cancel()
    await consumer.stop()
    await client.close()


async def write(host: Host) -> None:
    client = client_of(host)
    await patiently(client.start)
    producer = Producer(client)
    producer.send_batch(TOPIC, 0, [None], [b"x"], timestamps=host.wall_ms())
    await producer.flush()
    await producer.close()
    await client.close()


@pytest.mark.parametrize("away_s", [0.2, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_request_it_had_received_is_not_waited_for_when_the_broker_lost_power(
    seed: int, away_s: float
) -> None:
    world = World(seed)
    found: list[bytes | None] = []
    server, reader, writer = (world.host(name) for name in ("broker", "reader", "writer"))
    server.start(broker, server)
    reader.start(read, reader, found)
    world.after(OFF_AT_S, server.power_off)
    world.after(OFF_AT_S + away_s, server.start, broker, server)
    world.after(OFF_AT_S + away_s, writer.start, write, writer)
    began = world.now
    world.run(lambda: bool(found), max_virtual_s=60)
    assert world.now - began < OFF_AT_S + ENOUGH_S
    world.end()
