"""What a producer was given and not yet sent, and the sequence numbers of its batches. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple

from ..records.batch import increment_sequence
from ..records.codec import Compression, encode_chunks
from ..types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition

Headers = Sequence[tuple[tuple[str, bytes | None], ...]]


class ProducerIdAndEpoch(NamedTuple):
    """Who writes; -1, -1 = nobody in particular (not idempotent)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


class Chunk(NamedTuple):
    """One ``send_batch`` call: parallel lists, by reference."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: int | list[int]
    headers: Headers | None


class EncodedBatch:
    """One record batch on its way; the same bytes, hence the same sequence, on every attempt.

    ``begins``: the first of this producer id and epoch in the partition.
    """

    __slots__ = ("begins", "data", "done", "first_in_line", "records_count", "tp")

    def __init__(
        self, tp: TopicPartition, data: bytes, records_count: int, *, begins: bool = False
    ) -> None:
        self.tp = tp
        self.data = data
        self.records_count = records_count
        self.begins = begins
        self.done = False
        self.first_in_line = False


class Outbox:
    """Chunks by partition. ``encode`` turns them into batches and counts the sequences on."""

    def __init__(self, *, max_batch_bytes: int, compression: Compression) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._compression = compression
        self._chunks: defaultdict[TopicPartition, list[Chunk]] = defaultdict(list)
        self._sequences: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, tp: TopicPartition, chunk: Chunk) -> None:
        """Raises ValueError when the lists differ in length. Empty chunks are forgotten."""
        count = len(chunk.values)
        lists = (chunk.keys, chunk.timestamps, chunk.headers)
        if any(isinstance(part, Sequence) and len(part) != count for part in lists):
            raise ValueError("keys, values, timestamps and headers differ in length")
        if count:
            self._chunks[tp].append(chunk)

    @property
    def partitions(self) -> set[TopicPartition]:
        return set(self._chunks)

    def drop(self) -> None:
        self._chunks.clear()

    def restart_sequences(self) -> None:
        """A new producer id or epoch counts from 0 in every partition."""
        self._sequences.clear()

    def encode(
        self, identity: ProducerIdAndEpoch, *, transactional: bool
    ) -> dict[TopicPartition, list[EncodedBatch]]:
        """Everything, as batches in order. The outbox is empty afterwards, also after an error.

        Raises KafkaError(MESSAGE_TOO_LARGE), TypeError or ValueError; then no sequence was used.
        """
        chunks, self._chunks = self._chunks, defaultdict(list)
        sequences: dict[TopicPartition, int] = {}
        encoded: dict[TopicPartition, list[EncodedBatch]] = {}
        for tp, parts in chunks.items():
            chunk = _merge(parts)
            sequence = self._sequences.get(tp, 0) if identity.known else NO_SEQUENCE
            batches = encode_chunks(
                chunk.keys,
                chunk.values,
                max_bytes=self._max_batch_bytes,
                timestamps=chunk.timestamps,
                headers=chunk.headers,
                compression=self._compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
            encoded[tp] = [EncodedBatch(tp, data, count) for data, count in batches]
            encoded[tp][0].begins = sequence == 0
            if identity.known:
                sequences[tp] = increment_sequence(sequence, len(chunk.values))
        self._sequences.update(sequences)
        return encoded


def _merge(parts: list[Chunk]) -> Chunk:
    """Several chunks of one partition as one; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    keys = list(chain.from_iterable(part.keys for part in parts))
    values = list(chain.from_iterable(part.values for part in parts))
    timestamps: int | list[int] = parts[0].timestamps
    if isinstance(timestamps, list) or any(part.timestamps != timestamps for part in parts):
        timestamps = list(
            chain.from_iterable(
                repeat(part.timestamps, len(part.values))
                if isinstance(part.timestamps, int)
                else part.timestamps
                for part in parts
            )
        )
    headers: Headers | None = None
    if any(part.headers is not None for part in parts):
        nothing: tuple[tuple[str, bytes | None], ...] = ()
        headers = list(
            chain.from_iterable(
                repeat(nothing, len(part.values)) if part.headers is None else part.headers
                for part in parts
            )
        )
    return Chunk(keys, values, timestamps, headers)
