"""Where a Kafka sink is, as records of a compacted topic in the cluster it writes to.

Keys are JSON: ``[app, sink, topic, partition]`` for a position, with a number behind it for what
was refused in the transaction that wrote the position. Everything is in partition 0. What is newest
counts, so a position changes by being written again, in the transaction that writes the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from onceward.broker.client import Client, Consumer, TopicPartition

from .effects import EffectId

CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # Whoever takes over reads everything, and what is in the newest segment is never compacted.
    "segment.bytes": str(8 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Of a topic for positions."""

_WAIT_MS: Final = 500
_MOST_REFUSAL_BYTES: Final = 64 * 1024
_REASON_SHARE: Final = 4
"""A reason is cut at this part of what a record may take."""


class Kept(msgspec.Struct, frozen=True):
    """Position of a partition. ``owner`` is the transactional id whose transactions move it,
    ``refused`` how many records tell what was refused in the last one."""

    next_offset: int
    epoch: int
    effects: int
    owner: str
    refused: int = 0


_decode_kept = msgspec.json.Decoder(Kept).decode
_decode_key = msgspec.json.Decoder(list[str | int]).decode
_decode_refused = msgspec.json.Decoder(list[tuple[int, str, int, str]]).decode
_encode = msgspec.json.encode


def _key(app: str, sink: str, tp: TopicPartition, *number: int) -> bytes:
    return _encode((app, sink, *tp, *number))


def refusals(refused: Iterable[tuple[EffectId, str]], most_bytes: int) -> list[bytes]:
    """Values of records that say what was refused, of at most so many bytes."""
    most_bytes = min(most_bytes, _MOST_REFUSAL_BYTES)
    found: list[bytes] = []
    rows: list[bytes] = []
    size = 0
    for id_, reason in refused:
        cut = reason[: most_bytes // _REASON_SHARE]
        row = _encode((id_.offset, id_.agent, id_.number, cut))
        if rows and size + len(row) > most_bytes:
            found.append(b"[" + b",".join(rows) + b"]")
            rows, size = [], 0
        rows.append(row)
        size += len(row) + 1
    return [*found, b"[" + b",".join(rows) + b"]"] if rows else found


def records_of(
    app: str, sink: str, tp: TopicPartition, position: Kept, refused: Sequence[bytes] = ()
) -> Iterator[tuple[bytes, bytes]]:
    """What to write for a position: ``refused`` as from ``refusals``, with their number in
    ``position``."""
    for number, rows in enumerate(refused):
        yield _key(app, sink, tp, number), rows
    yield _key(app, sink, tp), _encode(position)


class PositionLog:
    """The topic, as one sink of one app reads it. What it has read is what was committed."""

    def __init__(self, client: Client, topic: str, app: str, sink: str) -> None:
        self._client = client
        self._tp = TopicPartition(topic, 0)
        self._owner = (app, sink)
        self._newest: dict[bytes | None, bytes | None] = {}
        self._fresh: list[tuple[bytes | None, bytes | None]] = []
        self._next_offset = 0

    async def read(self) -> None:
        """Read on, up to the high watermark: transactions that are open now are waited for.

        Raises KafkaError.
        """
        tp = self._tp
        self._fresh = []
        consumer = Consumer(self._client, isolation="read_committed", auto_offset_reset="earliest")
        await consumer.start()
        try:
            end = (await consumer.end_offsets([tp], "read_uncommitted"))[tp]
            if self._next_offset >= end:
                return
            consumer.assign([tp])
            consumer.seek(tp, self._next_offset)
            while (at := consumer.position(tp) or 0) < end:
                for batch in await consumer.fetch(timeout_ms=_WAIT_MS):
                    records = batch.records
                    self._fresh += zip(records.keys, records.values, strict=True)
            self._next_offset = at
        finally:
            await consumer.stop()
            self._newest.update(self._fresh)

    def kept(self, tp: TopicPartition) -> Kept | None:
        value = self._newest.get(_key(*self._owner, tp))
        return None if value is None else _decode_kept(value)

    def all_kept(self) -> dict[TopicPartition, Kept]:
        found = {}
        for key, value in self._newest.items():
            match _decode_key(key or b"[]"):
                case [str(app), str(sink), str(topic), int(number)]:
                    if (app, sink) == self._owner and value is not None:
                        found[TopicPartition(topic, number)] = _decode_kept(value)
        return found

    def refused(self, tp: TopicPartition, position: Kept) -> dict[EffectId, str]:
        """What was refused below ``position``, with the reasons."""
        found = {}
        for number in range(position.refused):
            value = self._newest.get(_key(*self._owner, tp, number))
            for offset, agent, count, reason in _decode_refused(value or b"[]"):
                found[EffectId(tp.topic, tp.partition, offset, agent, count)] = reason
        return found

    def just_written(self, tps: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, str]]:
        """Partitions, and who moved them, in what the last ``read`` found."""
        keys = {_key(*self._owner, tp): tp for tp in tps}
        for key, value in self._fresh:
            if key in keys and value is not None:
                yield keys[key], _decode_kept(value).owner
