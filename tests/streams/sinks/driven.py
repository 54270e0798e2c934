"""A database sink driven by hand, as the engine does."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from onceward.broker.client import TopicPartition
from onceward.streams.engine.block import Block
from onceward.streams.sinks import TransactionalSink
from onceward.streams.sinks.effects import Batch, Effects
from onceward.streams.sinks.positions import Advance, Claim, Start

TP = TopicPartition("orders", 0)
S = TypeVar("S", bound=TransactionalSink)


class Driven(Generic[S]):
    """The owner of one partition."""

    def __init__(self, sink: S, tp: TopicPartition = TP) -> None:
        self.sink = sink
        self.tp = tp
        self.claim = Claim(0, 0)

    async def take_over(self) -> None:
        self.claim = (await self.sink.take_over("app", {self.tp: Start(None, 0)}))[self.tp]

    async def write(self, *values: Any, dead_letters: bool = False) -> Batch:
        """One record per value; a tuple is a key and a value."""
        start = self.claim.next_offset
        size = len(values)
        offsets = list(range(start, start + size))
        block = Block(
            self.tp, [None] * size, [None] * size, offsets, [0] * size, None, start + size
        )
        effects = Effects()
        for index, value in enumerate(values):
            key, value = value if isinstance(value, tuple) else (None, value)
            effects.add(self.sink.encode(value, key, None), block, index, "etl")  # type: ignore[arg-type]
        batch = Batch("app", self.sink.describe(), effects.take(), dead_letters)
        advance = Advance(self.tp, start, self.claim.epoch, start + size)
        await self.sink.commit(batch, [advance])
        self.claim.next_offset = start + size
        return batch


async def driven(sink: S, tp: TopicPartition = TP) -> Driven[S]:
    """A sink that is started and owns ``tp``."""
    made = Driven(sink, tp)
    await sink.start()
    await made.take_over()
    return made
