"""What is committed of the files of one app and sink in an object store: one small JSON object.

It is replaced as a whole by compare-and-set, so that it says always one thing: up to where every
input partition is written and whose it is, what was refused, and which objects that nobody reads
yet are to be copied to where they are read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from onceward.broker.client import TopicPartition

from .effects import EffectId
from .positions import Advance, Claim, Position, Start

_VERSION: Final = 1


class _Partition(msgspec.Struct):
    next_offset: int
    epoch: int
    effects: int


class Manifest(msgspec.Struct):
    """``pending``: where an object is, and where it is to be read. Refused effects are those of the
    last commits. No content comes twice, as every change raises an epoch or a position: so a hash
    of it may be compared."""

    version: int = _VERSION
    topics: dict[str, dict[str, _Partition]] = {}
    refused: list[tuple[str, int, int, str, int, str]] = []
    pending: dict[str, str] = {}

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Raises ValueError with what is wrong."""
        try:
            manifest = msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError(f"it is none of this program: {error}") from None
        if manifest.version != _VERSION:
            raise ValueError(f"it has version {manifest.version}: a newer program wrote it")
        return manifest

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    def positions(self) -> dict[TopicPartition, Position]:
        return {
            TopicPartition(topic, int(number)): Position(*msgspec.structs.astuple(partition))
            for topic, partitions in self.topics.items()
            for number, partition in partitions.items()
        }

    def take_over(self, starts: Mapping[TopicPartition, Start]) -> dict[TopicPartition, Claim]:
        """Become the owner. A partition that was never here begins at its start's ``position``."""
        claims = {}
        for tp, start in starts.items():
            partition = self._of(tp)
            if partition is None:
                partition = _Partition(start.position, 0, 0)
                self.topics.setdefault(tp.topic, {})[str(tp.partition)] = partition
            partition.epoch += 1
            if start.committed is not None:
                self._forget_refused(tp, start.committed)
            refused = {EffectId(*row[:5]): row[5] for row in self.refused if row[:2] == tp}
            claims[tp] = Claim(partition.next_offset, partition.epoch, refused)
        return claims

    def lost(self, advances: Iterable[Advance]) -> TopicPartition | None:
        """The first partition that is not the caller's any more."""
        for tp, expected, epoch, *_ in advances:
            partition = self._of(tp)
            if partition is None or (partition.next_offset, partition.epoch) != (expected, epoch):
                return tp
        return None

    def has(self, advances: Sequence[Advance]) -> bool:
        """Whether they have been made, all of them and by their owner."""
        return (
            bool(advances)
            and self.lost([advance._replace(expected=advance.next_offset) for advance in advances])
            is None
        )

    def advance(self, advances: Iterable[Advance], refused: Iterable[tuple[EffectId, str]]) -> None:
        """Move positions that are not ``lost``; what older commits refused is in the dead letter
        topic."""
        for tp, expected, _, next_offset, effects in advances:
            self._forget_refused(tp, expected)
            partition = self.topics[tp.topic][str(tp.partition)]
            partition.next_offset = next_offset
            partition.effects += effects
        self.refused += [(*id_, reason) for id_, reason in refused]

    def _of(self, tp: TopicPartition) -> _Partition | None:
        return self.topics.get(tp.topic, {}).get(str(tp.partition))

    def _forget_refused(self, tp: TopicPartition, below: int) -> None:
        self.refused = [row for row in self.refused if row[:2] != tp or row[2] >= below]
