"""Programs for simulated hosts: our own broker, and clients that use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from onceward.broker.broker import Broker, BrokerFailed
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

TOPIC = "t"
ADDRESS = "broker:9092"
Result = TypeVar("Result")
Read = tuple[int, bytes | None]


async def broker(host: Host) -> None:
    """Serves until it fails; then it starts again, as a supervisor would have it."""
    while True:
        one = Broker("/data", ADDRESS, filesystem=host.disk, clock=host.wall_ms, rng=host.rng())
        try:
            await one.start()
            await one.wait_stopped()
        except (BrokerFailed, OSError):
            await asyncio.sleep(0.1)


def client_of(host: Host) -> Client:
    return Client(
        ADDRESS,
        client_id=host.name,
        request_timeout_ms=2_000,
        clock=host.wall_ms,
        rng=host.rng(),
    )


async def patiently(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Again until it works: the broker may be away."""
    while True:
        try:
            return await attempt()
        except KafkaError:
            await asyncio.sleep(0.05)


async def produce(host: Host, count: int) -> None:
    """Idempotent, one record at a time, each acknowledged before the next."""
    client = client_of(host)
    await patiently(client.start)
    await patiently(lambda: Admin(client).create_topics([NewTopic(TOPIC, 1)]))
    producer = Producer(client)
    for number in range(count):
        producer.send_batch(TOPIC, 0, [None], [b"%d" % number], timestamps=host.wall_ms())
        await producer.flush()
    await producer.close()
    await client.close()


async def consume(host: Host, count: int, found: list[Read]) -> None:
    """Reads the topic from its beginning until it has so many records."""
    client = client_of(host)
    await patiently(client.start)
    consumer = Consumer(client)
    consumer.assign([TopicPartition(TOPIC, 0)])
    await consumer.start()
    while len(found) < count:
        for batch in await patiently(lambda: consumer.fetch(timeout_ms=1000)):
            found.extend(zip(batch.records.offsets, batch.records.values, strict=True))
    await consumer.stop()
    await client.close()


def produce_and_consume(world: World, count: int = 40) -> list[Read]:
    """Three hosts, not run yet; returns the list that the reader fills."""
    found: list[Read] = []
    server = world.host("broker")
    server.start(broker, server)
    writer, reader = world.host("writer"), world.host("reader")
    world.after(0.05, writer.start, produce, writer, count)
    world.after(0.1, reader.start, consume, reader, count, found)
    return found
