"""Where a consumer stands in each of its partitions. Pure: told what happened, asked what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..records.codec import Records
from ..types import TopicPartition


class FetchedBatch(NamedTuple):
    """Records of one partition in offset order (parallel lists); ``records.next_offset`` follows
    them.

    ``records`` may be empty while ``next_offset`` moved on: aborted data and control batches.
    ``leader_epoch`` is that of the leader which was asked, -1 when unknown.
    """

    tp: TopicPartition
    records: Records
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int


class PartitionState:
    """One assigned partition.

    ``version`` grows whenever what is in flight must not be used any more (seek, reset). A state
    that was revoked is not found any more, even if the partition comes back: it gets a new state.
    """

    __slots__ = (
        "buffered",
        "held",
        "in_flight",
        "paused",
        "position",
        "reset_needed",
        "retry_at",
        "tp",
        "version",
    )

    def __init__(self, tp: TopicPartition, *, held: bool) -> None:
        self.tp = tp
        self.position: int | None = None
        self.buffered: FetchedBatch | None = None
        self.paused = False
        self.held = held
        self.in_flight = False
        self.reset_needed = False
        self.retry_at = 0.0
        self.version = 0

    def move_to(self, offset: int) -> None:
        """Continue at ``offset``; what was fetched or is being fetched is void."""
        self.position = offset
        self.buffered = None
        self.in_flight = False
        self.reset_needed = False
        self.retry_at = 0.0
        self.version += 1

    def lose_position(self) -> None:
        """The offset does not exist at the broker: ``auto_offset_reset`` decides."""
        self.position = None
        self.buffered = None
        self.in_flight = False
        self.reset_needed = True
        self.version += 1


class PartitionStates:
    """The assigned partitions, in the order in which they take turns."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self._states

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __getitem__(self, tp: TopicPartition) -> PartitionState:
        return self._states[tp]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def add(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """``held`` partitions are left alone until ``release``: the listener may still seek."""
        for tp in partitions:
            self._states.setdefault(tp, PartitionState(tp, held=held))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._states:
                self._states[tp].held = False

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Their positions and buffers are gone; answers on their way will be ignored."""
        for tp in partitions:
            self._states.pop(tp, None)

    def is_current(self, state: PartitionState, version: int) -> bool:
        """Whether an answer to a question asked at ``version`` still applies."""
        return self._states.get(state.tp) is state and state.version == version

    def without_position(self) -> list[PartitionState]:
        return [s for s in self if s.position is None and not s.held]

    def fetchable(self, now: float) -> list[PartitionState]:
        """Nothing buffered, nothing in flight, not paused, position known."""
        return [
            s
            for s in self
            if s.position is not None
            and s.buffered is None
            and not (s.in_flight or s.paused or s.held)
            and s.retry_at <= now
        ]

    def untaken(self) -> list[PartitionState]:
        """With data that the next ``take`` hands out."""
        return [s for s in self if s.buffered is not None and not s.paused]

    def take(self) -> list[FetchedBatch]:
        """Hand out what is buffered; positions move behind it. Those who had data go to the end."""
        ready = self.untaken()
        batches = []
        for state in ready:
            batch = state.buffered
            assert batch is not None
            batches.append(batch)
            state.buffered = None
            state.position = batch.records.next_offset
            self._states[state.tp] = self._states.pop(state.tp)
        return batches


def assigned_only(
    partitions: Sequence[TopicPartition], states: PartitionStates
) -> list[TopicPartition]:
    """Raises KeyError naming the first partition that is not assigned."""
    for tp in partitions:
        if tp not in states:
            raise KeyError(f"{tp} is not assigned to this consumer")
    return list(partitions)
