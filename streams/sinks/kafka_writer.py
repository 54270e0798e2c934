"""What one task writes to another cluster: transactions of records and the positions behind them.

A producer per task, named by the first of its inputs: ``app.sink.topic-partition``. Whoever takes
the inputs over asks for the same name, which ends what is open and fences who had it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from onceward.broker.client import (
    Client,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerState,
    TopicPartition,
    TransactionAborted,
    estimate_size,
)

from ..engine.block import Headers
from ..engine.output import TopicOutput, split
from .effects import EffectId
from .kafka_positions import Kept, records_of, refusals
from .positions import Advance

_OF_RECORDS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""Refused because of a record; sending it again would not help."""


Move = tuple[TopicPartition, Kept, Sequence[bytes]]
"""A position to write, and what was refused on the way there, as ``refusals``."""


class Outgoing(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record as agents wrote it; its timestamp is that of the record behind it. ``headers`` are
    those that name schemas."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Part:
    """One task's share of a commit. ``at`` says which effects of the batch the records are; ``ids``
    are those of the batch, None when no record may be refused. ``refused`` are reasons by index
    into ``at``."""

    writer: TaskWriter
    advances: list[Advance] = field(default_factory=list)
    output: TopicOutput = field(default_factory=TopicOutput)
    at: list[int] = field(default_factory=list)
    ids: Sequence[EffectId] | None = None
    refused: dict[int, str] = field(default_factory=dict)

    def taken(self) -> TopicOutput:
        """The records that are not refused."""
        if not self.refused:
            return self.output
        return _only(self.output, [n for n in range(len(self.at)) if n not in self.refused])

    def refuse_too_large(self, limit: int) -> None:
        """Refuse what takes more than ``limit`` bytes by itself."""
        output = self.output
        pending = [(0, len(self.at))]
        while pending:
            start, stop = pending.pop()
            size = estimate_size(
                output.keys[start:stop],
                output.values[start:stop],
                [output.headers.get(n, ()) for n in range(start, stop)] if output.headers else None,
            )
            if size <= limit:
                continue
            if stop - start <= 1:
                self.refused[start] = f"a record of {size} bytes, the limit is {limit}"
                continue
            middle = (start + stop) // 2
            pending += [(start, middle), (middle, stop)]

    def refuse_without_key(self) -> None:
        for number, key in enumerate(self.output.keys):
            if key is None:
                self.refused[number] = "no key, and the topic is compacted"


class TaskWriter:
    """``inputs`` are the task's. ``kept`` is what the target has of them, and what only this writer
    changes after ``claim``. A writer that failed once is no good any more: what it has written is
    for the next one to find out.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        sink: str,
        inputs: Iterable[TopicPartition],
        *,
        topic: str,
        positions: str,
        timeout_ms: int,
        max_batch_bytes: int,
        compression: str,
        lane: str,
    ) -> None:
        self.inputs = sorted(inputs)
        self.name = transactional_id(app, sink, self.inputs[0])
        self.kept: dict[TopicPartition, Kept] = {}
        self.is_usable = False
        self._client = client
        self._owner = (app, sink)
        self._topic = topic
        self._positions = positions
        self._most_bytes = max_batch_bytes
        self._producer = Producer(
            client,
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            max_batch_bytes=max_batch_bytes,
            compression=compression,
            lane=lane,
        )

    async def fence(self) -> None:
        """End what is open under this name, and fence who had it. Raises KafkaError."""
        await self._producer.init_transactions()

    async def claim(self, known: dict[TopicPartition, Kept]) -> None:
        """Say whose the inputs are from now on. Raises KafkaError."""
        self._producer.begin()
        self._send_positions((tp, position, ()) for tp, position in known.items())
        await self._producer.commit()
        self.kept = dict(known)
        self.is_usable = True

    async def write(self, part: Part, partitions: int) -> None:
        """Records and positions in one transaction; what the cluster does not take is refused.

        Where nothing may be refused, nothing is written then. Raises KafkaError.
        """
        self.is_usable = False
        while True:
            moved = list(self._moved(part))
            try:
                self._producer.begin()
                self._send(part.taken(), partitions)
                self._send_positions(moved)
                await self._producer.commit()
                break
            except TransactionAborted as error:
                if error.code not in _OF_RECORDS:
                    raise
                await self._producer.abort()
                bad = await self._find_bad(part, partitions)
                if not bad:
                    raise
                part.refused |= bad
                if part.ids is None:
                    return
        self.kept |= {tp: position for tp, position, _ in moved}
        self.is_usable = True

    async def close(self) -> None:
        """Abort what is open, so that nobody has to wait for its timeout. Raises KafkaError."""
        if self._producer.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE):
            await self._producer.abort()
        await self._producer.close()

    def _moved(self, part: Part) -> Iterator[Move]:
        refused: dict[TopicPartition, list[tuple[EffectId, str]]] = {}
        for number, reason in sorted(part.refused.items()):
            assert part.ids is not None
            id_ = part.ids[part.at[number]]
            place = TopicPartition(id_.topic, id_.partition)
            refused.setdefault(place, []).append((id_, reason))
        for tp, _, epoch, next_offset, effects in part.advances:
            mine = refusals(refused.get(tp, ()), self._most_bytes // 2)
            effects += self.kept[tp].effects
            yield tp, Kept(next_offset, epoch, effects, self.name, len(mine)), mine

    def _send(self, output: TopicOutput, partitions: int) -> None:
        """Keys decide as in Kafka; without one a record goes where its source's number says."""
        number = self.inputs[0].partition
        for each in split({self._topic: output}, {self._topic: partitions}, number):
            self._producer.send_batch(
                each.topic,
                each.partition,
                each.keys,
                each.values,
                timestamps=each.timestamps,
                headers=each.headers,
            )

    def _send_positions(self, positions: Iterable[Move]) -> None:
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for tp, position, refused in positions:
            for key, value in records_of(*self._owner, tp, position, refused):
                keys.append(key)
                values.append(value)
        self._producer.send_batch(self._positions, 0, keys, values, timestamps=self._client.clock())

    async def _find_bad(self, part: Part, partitions: int) -> dict[int, str]:
        """Halve what was refused until the bad records are alone, in transactions that are
        aborted."""
        bad: dict[int, str] = {}
        good = [n for n in range(len(part.at)) if n not in part.refused]
        pending = [good] if good else []
        while pending:
            numbers = pending.pop()
            error = await self._probe(_only(part.output, numbers), partitions)
            if error is None:
                continue
            if len(numbers) == 1:
                bad[numbers[0]] = str(error)
                continue
            middle = len(numbers) // 2
            pending += [numbers[:middle], numbers[middle:]]
        return bad

    async def _probe(self, output: TopicOutput, partitions: int) -> KafkaError | None:
        found = None
        self._producer.begin()
        self._send(output, partitions)
        try:
            await self._producer.flush()
        except TransactionAborted as error:
            if error.code not in _OF_RECORDS:
                raise
            found = error
        await self._producer.abort()
        return found


def transactional_id(app: str, sink: str, tp: TopicPartition) -> str:
    return f"{app}.{sink}.{tp.topic}-{tp.partition}"


def _only(output: TopicOutput, numbers: Sequence[int]) -> TopicOutput:
    taken = TopicOutput()
    taken.keys = [output.keys[n] for n in numbers]
    taken.values = [output.values[n] for n in numbers]
    taken.timestamps = [output.timestamps[n] for n in numbers]
    taken.headers = {
        place: output.headers[n] for place, n in enumerate(numbers) if n in output.headers
    }
    return taken
