"""kill -9 of the broker under load, judged from outside by an unmodified client (librdkafka).

Nothing acknowledged may be lost, no committed offset may go back, no transaction may be half
visible.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .broker_process import BrokerUnderFire
from .transactional_load import (
    PARTITIONS,
    CopyLoad,
    OffsetLoad,
    TransactionLoad,
    judge_copies,
    judge_transactions,
)

pytestmark = [
    pytest.mark.kills,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]

KILLS = int(os.environ.get("ONCEWARD_KILLS", "12"))
TRANSACTIONS_PER_KILL = 20
"""A test that hardly gets a transaction through proves nothing about transactions."""


class IdempotentLoad(threading.Thread):
    """Sends numbered records; ``acked`` holds those whose delivery was confirmed."""

    def __init__(self, address: str, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self.done = done
        self.acked: set[int] = set()
        self.sent = 0
        self.producer = Producer(
            {
                "bootstrap.servers": address,
                "log_level": 0,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": 120_000,
            }
        )

    def run(self) -> None:
        while not self.done.is_set():
            number = self.sent

            def confirm(error: object, _message: object, number: int = number) -> None:
                if error is None:
                    self.acked.add(number)

            try:
                self.producer.produce(
                    "plain", b"%d" % number, partition=number % PARTITIONS, on_delivery=confirm
                )
            except BufferError:  # the broker is away: what waits in the client has to go first
                self.producer.poll(0.05)
                continue
            self.sent += 1
            self.producer.poll(0)
            if self.sent % 50 == 0:
                time.sleep(0.005)  # a load of some 5,000 records/s, not a flood
        self.producer.flush(60)


class CommitLoad(threading.Thread):
    """Commits rising offsets of a group; ``committed`` is the last one that was acknowledged."""

    def __init__(self, address: str, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self.done = done
        self.committed = -1
        self.consumer = Consumer(
            {"bootstrap.servers": address, "log_level": 0, "group.id": "committer"}
        )

    def run(self) -> None:
        offset = 0
        while not self.done.is_set():
            offset += 1
            try:
                self.consumer.commit(
                    offsets=[TopicPartition("plain", 0, offset)], asynchronous=False
                )
                self.committed = offset
            except KafkaException:
                time.sleep(0.01)  # the broker is away: the next, higher offset is tried
            time.sleep(0.002)


def read_all(address: str, topic: str) -> list[list[int]]:
    """Everything a read_committed consumer sees, per partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "log_level": 0,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    records: list[list[int]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = time.monotonic() + 60
    while len(at_end) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(5000, 1.0):
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                records[partition].append(int(message.value() or b""))
            elif error.name() == "_PARTITION_EOF":
                at_end.add(partition)
    consumer.close()
    assert len(at_end) == PARTITIONS, f"{topic} could not be read to its end"
    return records


def test_nothing_acknowledged_is_lost_and_no_transaction_is_half_visible(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed={seed} kills={KILLS}")
    rng = random.Random(seed)
    broker = BrokerUnderFire(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("plain", "pairs", "copies")]
    for future in admin.create_topics(topics).values():
        future.result(20)
    done = threading.Event()
    plain = IdempotentLoad(broker.address, done)
    commits = CommitLoad(broker.address, done)
    copying = [CopyLoad(broker.address, done, index, seed + index) for index in (0, 1)]
    offsets = [*copying, OffsetLoad(broker.address, done, 2, seed + 2)]
    transactional = [*offsets, TransactionLoad(broker.address, done, 3, seed + 3)]
    loads: list[threading.Thread] = [plain, commits, *transactional]
    for load in loads:
        load.start()
    try:
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.3, 2.0))
            broker.kill()
            broker.start()
        time.sleep(1)
    finally:
        done.set()
        for load in loads:
            load.join(120)
    try:
        assert not any(load.is_alive() for load in loads), "a client hangs"
        failures = [load.failure for load in transactional if load.failure is not None]
        assert not failures, failures
        print(report(plain, transactional, commits))
        print(f"restarts took {min(broker.starts_s):.2f} to {max(broker.starts_s):.2f} s")
        records = read_all(broker.address, "plain")
        judge_plain(plain, records)
        judge_transactions(transactional, read_all(broker.address, "pairs"))
        judge_copies(copying, records, read_all(broker.address, "copies"))
        [stored] = commits.consumer.committed([TopicPartition("plain", 0)], timeout=20)
        assert stored.offset >= commits.committed > 0
        decided = sum(load.decided() for load in transactional)
        assert decided >= KILLS * TRANSACTIONS_PER_KILL
    finally:
        for consumer in (commits.consumer, *(load.consumer for load in offsets)):
            consumer.close()
        broker.stop()


def report(plain: IdempotentLoad, transactional: list[TransactionLoad], commits: CommitLoad) -> str:
    lines = [f"{len(plain.acked)} records, {commits.committed} commits"]
    for load in transactional:
        outcomes = Counter(transaction.outcome for transaction in load.transactions)
        lines.append(f"{load.name}: {dict(outcomes)}, errors {dict(load.errors)}")
    return "\n".join(lines)


def judge_plain(load: IdempotentLoad, partitions: list[list[int]]) -> None:
    seen = Counter(number for records in partitions for number in records)
    lost = sorted(load.acked - seen.keys())
    repeated = sorted(number for number, count in seen.items() if count > 1)
    assert load.acked, "the load never got through"
    assert not lost, f"{len(lost)} acknowledged records are lost, first {lost[:5]}"
    assert not repeated, f"{len(repeated)} records are there twice, first {repeated[:5]}"
    for records in partitions:
        assert records == sorted(records), "a partition is out of order"
