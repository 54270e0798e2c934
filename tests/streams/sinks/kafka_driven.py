"""A Kafka sink driven by hand, as the engine does, and what readers of its cluster see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

from onceward.broker.client import Admin, Client, Consumer, NewTopic, TopicPartition
from onceward.streams.engine.block import Block, Headers
from onceward.streams.sinks import KafkaSink
from onceward.streams.sinks.effects import Batch, Effects
from onceward.streams.sinks.positions import Advance, Claim, Start

TP = TopicPartition("orders", 0)
TIMEOUT_S = 5.0


class Seen(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


def new_client(bootstrap: str) -> Client:
    return Client(bootstrap, clock=lambda: int(time.time() * 1000), rng=Random(1))


async def create(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    async with new_client(bootstrap) as client:
        configs = {name.replace("_", "."): value for name, value in configs.items()}
        assert await Admin(client).create_topics([NewTopic(topic, partitions, 1, configs)]) == {
            topic: None
        }


async def seen(bootstrap: str, topic: str) -> list[Seen]:
    """What a reader of committed records finds, partition by partition, up to the end."""
    found: list[Seen] = []
    async with new_client(bootstrap) as client:
        consumer = Consumer(client)
        await consumer.start()
        tps = [TopicPartition(topic, n) for n in await client.partitions_for(topic)]
        ends = await consumer.end_offsets(tps)
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        while any((consumer.position(tp) or 0) < ends[tp] for tp in tps):
            for batch in await consumer.fetch(timeout_ms=200):
                records = batch.records
                headers = records.headers or [()] * len(records)
                columns = zip(
                    records.keys, records.values, records.timestamps, headers, strict=True
                )
                found += [Seen(batch.tp.partition, *column) for column in columns]
        await consumer.stop()
    return sorted(found, key=lambda each: each.partition)


async def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [each.value for each in await seen(bootstrap, topic)]


class Driven:
    """The owner of one task, whose inputs are ``tps``."""

    def __init__(self, sink: KafkaSink, *tps: TopicPartition) -> None:
        self.sink = sink
        self.tps = tps or (TP,)
        self.claims: dict[TopicPartition, Claim] = {}

    async def __aenter__(self) -> Self:
        await self.sink.start()
        await self.take_over()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.sink.close()

    async def take_over(self, committed: int | None = None, position: int = 0) -> None:
        starts = {tp: Start(committed, position, 0, "0_0") for tp in self.tps}
        self.claims = await self.sink.take_over("app", starts)

    def at(self, tp: TopicPartition = TP) -> int:
        return self.claims[tp].next_offset

    async def write(
        self,
        *values: Any,
        tp: TopicPartition | None = None,
        dead_letters: bool = False,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Batch:
        """One record per value; a tuple is a key and a value. Records have the timestamps 1000,
        1001..., and keys ``b"r0"``..."""
        tp = tp or self.tps[0]
        start, size = self.claims[tp].next_offset, len(values)
        block = make_block(tp, start, size, headers, timestamp)
        effects = Effects()
        for index, value in enumerate(values):
            key, value = value if isinstance(value, tuple) else (None, value)
            slot: Any = SimpleNamespace(raw_key=block.keys[index], key=lambda: "decoded")
            effects.add(self.sink.encode(value, key, slot), block, index, "etl")
        batch = Batch("app", self.sink.describe(), effects.take(), dead_letters)
        await self.commit(batch, {tp: start + size})
        return batch

    async def commit(self, batch: Batch, positions: dict[TopicPartition, int]) -> None:
        advances = [
            Advance(tp, self.claims[tp].next_offset, self.claims[tp].epoch, at, len(batch))
            for tp, at in positions.items()
        ]
        await self.sink.commit(batch, advances)
        for tp, at in positions.items():
            self.claims[tp].next_offset = at


def make_block(
    tp: TopicPartition, start: int, size: int, headers: Headers = (), timestamp: int | None = None
) -> Block:
    offsets = list(range(start, start + size))
    times = [1000 + offset if timestamp is None else timestamp for offset in offsets]
    keys: list[bytes | None] = [b"r%d" % offset for offset in offsets]
    rows: Sequence[Headers] | None = [headers] * size if headers else None
    return Block(tp, keys, [b""] * size, offsets, times, list(rows) if rows else None, start + size)
