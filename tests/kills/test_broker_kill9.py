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

pytestmark = [pytest.mark.kills, pytest.mark.timeout(600)]

KILLS = int(os.environ.get("ONCEWARD_KILLS", "12"))
PARTITIONS = 3


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

            self.producer.produce(
                "plain", b"%d" % number, partition=number % PARTITIONS, on_delivery=confirm
            )
            self.sent += 1
            self.producer.poll(0)
            if self.sent % 50 == 0:
                time.sleep(0.005)  # a load of some 5,000 records/s, not a flood
        self.producer.flush(60)


class TransactionLoad(threading.Thread):
    """Transactions of one record to each partition; ``outcome`` is what is known of each."""

    def __init__(self, address: str, done: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self.address, self.done = address, done
        self.rng = random.Random(seed)
        self.outcome: dict[int, str] = {}
        self.failure: BaseException | None = None

    def new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "log_level": 0,
                "transactional.id": "under-fire",
                "transaction.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        producer.init_transactions(60)
        return producer

    def run(self) -> None:
        try:
            self.transactions()
        except BaseException as error:
            self.failure = error
            raise

    def transactions(self) -> None:
        producer, number = self.new_producer(), 0
        while not self.done.is_set():
            number += 1
            commit = self.rng.random() < 0.8
            # without an answer the outcome is unknown: then only all-or-nothing may be asked
            self.outcome[number] = "unknown"
            try:
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce("pairs", b"%d" % number, partition=partition)
                if commit:
                    producer.commit_transaction(60)
                    self.outcome[number] = "committed"
                else:
                    producer.flush(60)
                    producer.abort_transaction(60)
                    self.outcome[number] = "aborted"
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    producer.abort_transaction(60)
                    self.outcome[number] = "aborted"
                else:
                    producer = self.new_producer()


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
            if message.error() is None:
                records[message.partition()].append(int(message.value()))
            elif message.error().name() == "_PARTITION_EOF":
                at_end.add(message.partition())
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
    for future in admin.create_topics(
        [NewTopic(t, PARTITIONS, 1) for t in ("plain", "pairs")]
    ).values():
        future.result(20)
    done = threading.Event()
    plain = IdempotentLoad(broker.address, done)
    pairs = TransactionLoad(broker.address, done, seed)
    commits = CommitLoad(broker.address, done)
    loads = [plain, pairs, commits]
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
        assert pairs.failure is None
        judge_plain(plain, read_all(broker.address, "plain"))
        judge_pairs(pairs, read_all(broker.address, "pairs"))
        [stored] = commits.consumer.committed([TopicPartition("plain", 0)], timeout=20)
        assert stored.offset >= commits.committed > 0
        states = Counter(pairs.outcome.values())
        print(f"{len(plain.acked)} records, {dict(states)}, {commits.committed} commits")
    finally:
        commits.consumer.close()
        broker.stop()


def judge_plain(load: IdempotentLoad, partitions: list[list[int]]) -> None:
    seen = Counter(number for records in partitions for number in records)
    lost = sorted(load.acked - seen.keys())
    repeated = sorted(number for number, count in seen.items() if count > 1)
    assert load.acked, "the load never got through"
    assert not lost, f"{len(lost)} acknowledged records are lost, first {lost[:5]}"
    assert not repeated, f"{len(repeated)} records are there twice, first {repeated[:5]}"
    for records in partitions:
        assert records == sorted(records), "a partition is out of order"


def judge_pairs(load: TransactionLoad, partitions: list[list[int]]) -> None:
    seen = Counter(number for records in partitions for number in set(records))
    for records in partitions:
        assert len(records) == len(set(records)), "a transaction's record is there twice"
    torn = sorted(number for number, count in seen.items() if count != PARTITIONS)
    assert not torn, f"half visible transactions: {torn[:5]}"
    for number, outcome in load.outcome.items():
        if outcome == "committed":
            assert seen[number], f"committed transaction {number} is lost"
        elif outcome == "aborted":
            assert not seen[number], f"aborted transaction {number} is visible"
    assert "committed" in load.outcome.values(), "no transaction got through"
