"""Transactions under fire: what each was meant to do, what came of it, and who judges that.

Every transaction writes one record to each partition of ``pairs``. Those with offsets commit one
too: then it is whole when its records are visible on all partitions exactly if its offset stands.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

R = TypeVar("R")

PARTITIONS = 3
BATCH = 20
PATIENCE_S = 60.0
NUMBERS_PER_LOAD = 1_000_000


@dataclass(slots=True)
class Transaction:
    """``outcome``: "committed" and "aborted" were acknowledged; "unknown" is all-or-nothing.

    ``stands``: whether it is known to have taken effect, None when nobody can tell.
    """

    number: int
    offset: int
    outcome: str = "unknown"
    stands: bool | None = None


class TransactionLoad(threading.Thread):
    """One transactional id, its producer made anew after every fatal error. Without offsets.

    With librdkafka's own settings it is slow to come back: it starts over from its bootstrap
    servers and asks for the coordinator at most every half second, which kills can outpace. A
    transaction that takes longer than its timeout for that reason is fenced, as by Kafka;
    ``errors`` counts what such a client meets (a record that expired unsent also leaves a gap in
    its sequence numbers).
    """

    def __init__(
        self, address: str, done: threading.Event, index: int, seed: int, **config: object
    ) -> None:
        super().__init__(name=f"load-{index}", daemon=True)
        self.address, self.done, self.index = address, done, index
        self.config = config
        self.rng = random.Random(seed)
        self.transactions: list[Transaction] = []
        self.committed = 0
        self.errors: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            producer = self.new_producer()
            while not self.done.is_set():
                transaction = self.prepare()
                if transaction is None:
                    continue
                self.transactions.append(transaction)
                try:
                    self.attempt(producer, transaction)
                except KafkaException as error:
                    self.errors[error.args[0].name()] += 1
                    del producer  # fatal: it can do nothing any more
                    producer = self.new_producer()
                    transaction.stands = self.find_out(transaction)
                else:
                    transaction.stands = transaction.outcome == "committed"
                if transaction.stands:
                    self.committed = transaction.offset
                    self.took_effect()
        except BaseException as error:
            self.failure = error
            raise

    def decided(self) -> int:
        """Transactions whose outcome was acknowledged."""
        return sum(transaction.outcome != "unknown" for transaction in self.transactions)

    def new_producer(self) -> Producer:
        while True:
            producer = Producer(
                {
                    "bootstrap.servers": self.address,
                    "log_level": 0,
                    "transactional.id": f"under-fire-{self.index}",
                    "transaction.timeout.ms": 10_000,
                    "reconnect.backoff.max.ms": 200,
                    **self.config,
                }
            )
            try:
                insist(producer.init_transactions)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self.errors[error.args[0].name()] += 1
            else:
                return producer

    def attempt(self, producer: Producer, transaction: Transaction) -> None:
        """Raises KafkaException when the producer is of no use any more."""
        try:
            producer.begin_transaction()
            self.fill(producer, transaction)
            if self.rng.random() < 0.8:
                insist(producer.commit_transaction)
                transaction.outcome = "committed"
                return
            insist(producer.flush)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.errors[error.args[0].name()] += 1
        insist(producer.abort_transaction)
        transaction.outcome = "aborted"

    def prepare(self) -> Transaction | None:
        number = self.next_number()
        return Transaction(number, number)

    def next_number(self) -> int:
        return self.index * NUMBERS_PER_LOAD + len(self.transactions) + 1

    def fill(self, producer: Producer, transaction: Transaction) -> None:
        for partition in range(PARTITIONS):
            producer.produce("pairs", b"%d" % transaction.number, partition=partition)

    def find_out(self, _transaction: Transaction) -> bool | None:
        """Whether a transaction took effect that ended without an answer."""
        return None

    def took_effect(self) -> None:
        """The transaction is committed."""


class OffsetLoad(TransactionLoad):
    """Commits offsets in its transactions: the last committed one's is that of the group.

    librdkafka 2.16 can block for ever in send_offsets_to_transaction once it has started over from
    its bootstrap servers, whatever the timeout (librdkafka issues 5511 and 5456); it does not start
    over with ``metadata.recovery.strategy=none``.
    """

    def __init__(self, address: str, done: threading.Event, index: int, seed: int) -> None:
        recovery = {"metadata.recovery.strategy": "none"}
        super().__init__(address, done, index, seed, **recovery)
        self.input = TopicPartition("plain", index % PARTITIONS)
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "log_level": 0,
                "group.id": self.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                **recovery,
            }
        )

    def fill(self, producer: Producer, transaction: Transaction) -> None:
        super().fill(producer, transaction)
        offset = TopicPartition(self.input.topic, self.input.partition, transaction.offset)
        group = self.consumer.consumer_group_metadata()
        insist(lambda wait_s: producer.send_offsets_to_transaction([offset], group, wait_s))

    def find_out(self, transaction: Transaction) -> bool:
        """The next producer has ended the transaction: its offset stands or the one before does."""
        stored = self.stored_offset()
        assert stored in (self.committed, transaction.offset), (stored, transaction)
        return stored == transaction.offset

    def stored_offset(self) -> int:
        """The committed offset of the group, 0 without one."""
        [stored] = insist(lambda wait_s: self.consumer.committed([self.input], timeout=wait_s))
        return max(stored.offset, 0)


class CopyLoad(OffsetLoad):
    """Consume, transform, produce: copies a partition of ``plain`` to its own of ``copies``."""

    def __init__(self, address: str, done: threading.Event, index: int, seed: int) -> None:
        super().__init__(address, done, index, seed)
        self.consumer.assign([TopicPartition(self.input.topic, self.input.partition, 0)])
        self.batch: list[Message] = []

    def prepare(self) -> Transaction | None:
        if not self.batch:  # an aborted transaction's records are taken again
            messages = self.consumer.consume(BATCH, 0.5)
            self.batch = [message for message in messages if message.error() is None]
        if not self.batch:
            return None
        last = self.batch[-1].offset()
        assert last is not None, "what was consumed has an offset"
        return Transaction(self.next_number(), last + 1)

    def fill(self, producer: Producer, transaction: Transaction) -> None:
        for message in self.batch:
            producer.produce("copies", message.value(), partition=self.input.partition)
        super().fill(producer, transaction)

    def took_effect(self) -> None:
        self.batch = []


def insist(call: Callable[[float], R]) -> R:
    """``call(timeout_s)`` until it does not fail with what asks for one more call."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call(PATIENCE_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def judge_transactions(loads: Sequence[TransactionLoad], pairs: list[list[int]]) -> None:
    """``pairs``: what a read_committed consumer sees of each partition, in order."""
    seen = Counter(number for records in pairs for number in set(records))
    for records in pairs:
        assert len(records) == len(set(records)), "a transaction's record is there twice"
    torn = sorted(number for number, count in seen.items() if count != PARTITIONS)
    assert not torn, f"half visible transactions: {torn[:5]}"
    for load in loads:
        for transaction in load.transactions:
            number = transaction.number
            if transaction.outcome == "committed":
                assert seen[number], f"committed transaction {number} is lost"
            elif transaction.outcome == "aborted":
                assert not seen[number], f"aborted transaction {number} is visible"
            elif transaction.stands is not None:
                assert bool(seen[number]) == transaction.stands, f"{transaction} is torn"
            seen.pop(number, None)
        assert load.committed, f"no transaction of {load.name} got through"
        if isinstance(load, OffsetLoad):
            assert load.stored_offset() == load.committed, f"offset of {load.name} is another"
    assert not seen, f"transactions nobody made: {sorted(seen)[:5]}"


def judge_copies(
    loads: Sequence[CopyLoad], plain: list[list[int]], copies: list[list[int]]
) -> None:
    """Exactly the records before the committed offset are copied, once and in order."""
    for load in loads:
        partition = load.input.partition
        expected = plain[partition][: load.committed]
        assert copies[partition] == expected, f"the copy of partition {partition} differs"
