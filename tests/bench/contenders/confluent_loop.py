"""The same two workloads as a hand-written confluent-kafka loop with transactions (KIP-447).

The same work per record as the onceward app: the same models and JSON library, the key picks the
partition (murmur2), a commit every 100 ms or 50,000 records. State is a dict and its changelog one
record per changed key and transaction; offsets go into the transaction. Restoring state,
rebalances, errors and timestamps are left out: this is the floor such a loop has.
"""

from __future__ import annotations

import os
import signal
import time

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition


class Event(msgspec.Struct):
    id: int
    user: str
    amount: float
    ts: int
    page: str
    country: str


class Priced(msgspec.Struct):
    id: int
    user: str
    total: float
    ts: int
    country: str


def main() -> None:
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    broker, target = os.environ["ONCEWARD_BROKER"], os.environ["BENCH_TARGET"]
    stateful = os.environ["BENCH_WORKLOAD"] == "count"
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"{target}-confluent",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 2,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "transactional.id": f"{target}-confluent",
            "linger.ms": 5,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions()
    consumer.subscribe(["bench-in"])
    decode, encode = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode
    state: dict[str, float] = {}
    while running:
        producer.begin_transaction()
        offsets: dict[int, int] = {}
        dirty: dict[str, tuple[int, float]] = {}
        count, deadline = 0, time.monotonic() + 0.1
        while count < 50_000 and time.monotonic() < deadline and running:
            for message in consumer.consume(1000, 0.02):
                event = decode(message.value())
                partition = message.partition()
                if stateful:
                    state[event.user] = total = state.get(event.user, 0.0) + event.amount
                    dirty[event.user] = partition, total
                else:
                    total = event.amount * 1.19
                priced = Priced(event.id, event.user, total, event.ts, event.country)
                producer.produce(target, encode(priced), event.user)
                offsets[partition] = message.offset() + 1
                count += 1
            producer.poll(0)
        for user, (partition, total) in dirty.items():
            producer.produce(f"{target}-changelog", encode(total), user, partition)
        if offsets:
            producer.send_offsets_to_transaction(
                [TopicPartition("bench-in", p, offset) for p, offset in offsets.items()],
                consumer.consumer_group_metadata(),
            )
        producer.commit_transaction()
    consumer.close()


if __name__ == "__main__":
    main()
