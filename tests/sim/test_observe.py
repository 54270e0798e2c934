"""How the outside world of a run feeds records while the broker is away."""

from __future__ import annotations

from onceward.broker.client import Admin, NewTopic, Produced, Producer
from onceward.streams.testing.observe import deliver
from onceward.streams.testing.sim import Host, World

from .workloads import TOPIC, broker, client_of, patiently

PATIENCE_MS = 500


def test_records_whose_producer_got_no_id_in_time_are_delivered_later_and_once() -> None:
    delivered: list[Produced] = []
    attempts = 0

    async def feed(host: Host) -> None:
        client = client_of(host)
        await patiently(client.start)
        await patiently(lambda: Admin(client).create_topics([NewTopic(TOPIC, 1)]))
        world.hosts["broker"].power_off()
        producer = Producer(client, delivery_timeout_ms=PATIENCE_MS)

        def buffer() -> None:
            nonlocal attempts
            attempts += 1
            producer.send_batch(TOPIC, 0, [b"k"], [b"v"], timestamps=host.wall_ms())

        delivered.extend(await deliver(producer, buffer))

    world = World(1)
    server, client = world.host("broker"), world.host("client")
    server.start(broker, server)
    client.start(feed, client)
    world.after(4, server.start, broker, server)
    world.run(lambda: bool(delivered or world.errors), max_virtual_s=60)
    world.end()
    assert not world.errors
    assert attempts > 1
    assert [(batch.base_offset, batch.records_count) for batch in delivered] == [(0, 1)]
