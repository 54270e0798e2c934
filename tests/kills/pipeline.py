"""A steady load through ``pipeline_app`` and a reader that notes when each output arrived."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    partition_keys,
)

PARTITIONS = 6
KEYS = 60
APP = f"{Path(__file__).parent / 'pipeline_app.py'}:app"


def new_client(address: str, seed: int = 0) -> Client:
    return Client(address, clock=lambda: time.time_ns() // 1_000_000, rng=random.Random(seed))


@dataclass
class Output:
    """What a read_committed reader saw: numbers, counts per key, arrivals per partition."""

    numbers: Counter[int] = field(default_factory=Counter)
    counts: dict[str, list[int]] = field(default_factory=dict)
    arrivals: dict[int, list[float]] = field(default_factory=dict)

    def longest_pause(self, since: float) -> float:
        """Longest time after ``since`` (loop time) without output in any one partition, in seconds.

        Per partition, because the workers that live on keep the output as a whole moving.
        """
        pauses = []
        for arrivals in self.arrivals.values():
            times = [since, *(at for at in arrivals if at >= since)]
            pauses += [later - earlier for earlier, later in itertools.pairwise(times)]
        return max(pauses)


class Load:
    """Feeds numbers at a rate until stopped; one reader collects the output."""

    def __init__(self, client: Client, *, rate: int) -> None:
        self.client = client
        self.rate = rate
        self.sent = 0
        self.output = Output()
        self._tasks: list[asyncio.Task[None]] = []
        self._feeding = True

    async def start(self) -> None:
        topics = [NewTopic(name, PARTITIONS) for name in ("fire-in", "fire-out")]
        await Admin(self.client).create_topics(topics)
        self._tasks = [asyncio.create_task(self._feed()), asyncio.create_task(self._read())]

    async def finish(self, timeout_s: float) -> None:
        """Stop feeding and wait until every number came out. Raises AssertionError."""
        self._feeding = False
        await self._tasks[0]
        deadline = time.monotonic() + timeout_s
        while len(self.output.numbers) < self.sent and time.monotonic() < deadline:
            if self._tasks[1].done():
                await self._tasks[1]
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # a duplicate would come now
        self._tasks[1].cancel()
        await asyncio.gather(self._tasks[1], return_exceptions=True)

    async def _feed(self) -> None:
        producer = Producer(self.client)
        begin = time.monotonic()
        while self._feeding:
            due = int((time.monotonic() - begin) * self.rate)
            numbers = list(range(self.sent, due))
            keys: list[bytes | None] = [b"k%d" % (number % KEYS) for number in numbers]
            columns: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
            for index, partition in enumerate(partition_keys(keys, PARTITIONS)):
                column = columns.setdefault(partition, ([], []))
                column[0].append(keys[index])
                column[1].append(b'{"number":%d}' % numbers[index])
            for partition, (part_keys, values) in columns.items():
                now = time.time_ns() // 1_000_000
                producer.send_batch("fire-in", partition, part_keys, values, timestamps=now)
            await producer.flush()
            self.sent = max(self.sent, due)
            await asyncio.sleep(0.01)
        await producer.close()

    async def _read(self) -> None:
        consumer = Consumer(self.client, isolation="read_committed")
        tps = [TopicPartition("fire-out", partition) for partition in range(PARTITIONS)]
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        await consumer.start()
        loop = asyncio.get_running_loop()
        try:
            while True:
                for batch in await consumer.fetch(timeout_ms=100):
                    if batch.records.offsets:
                        arrivals = self.output.arrivals.setdefault(batch.tp.partition, [])
                        arrivals.append(loop.time())
                    for key, value in zip(batch.records.keys, batch.records.values, strict=True):
                        assert key is not None and value is not None
                        row = msgspec.json.decode(value)
                        self.output.numbers[row["number"]] += 1
                        self.output.counts.setdefault(key.decode(), []).append(row["count"])
        finally:
            await consumer.stop()

    def judge(self) -> None:
        """Every number once, every key's counts 1, 2, 3 ... Raises AssertionError."""
        seen = self.output.numbers
        lost = sorted(set(range(self.sent)) - seen.keys())
        repeated = sorted(number for number, count in seen.items() if count > 1)
        assert not lost, f"{len(lost)} of {self.sent} records are lost, first {lost[:5]}"
        assert not repeated, f"{len(repeated)} records came out twice, first {repeated[:5]}"
        for key, counts in self.output.counts.items():
            assert counts == list(range(1, len(counts) + 1)), f"the count of {key} is wrong"
