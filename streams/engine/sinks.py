"""How sinks take part in tasks and in the commit cycle.

A sink's transaction commits before Kafka's. After a crash between the two the group goes on from
its committed offsets, the sink's position is ahead of them, and the records in between are *run
again*: their sends and table writes count, what they write to that sink is dropped. The task stops
there for a commit before it goes on, so that nothing an agent holds back spans the position.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from onceward.broker.client import Consumer, TopicPartition

from ..config import ErrorPolicy, ProcessingGuarantee, Settings
from ..errors import ConfigurationError
from ..sinks.effects import Batch, Effects, Room, Written
from ..sinks.errors import SinkError, SinkTimeout, SinkUnavailable
from ..sinks.positions import Advance, Claim, Start, check_end, resume_at
from ..sinks.sink import Sink, TransactionalSink
from . import dead_letter
from .block import Headers, RecordAt
from .output import Outputs, PartitionOutput, split
from .sink_progress import SinkProgress

if TYPE_CHECKING:
    from .task import Task

logger = logging.getLogger(__name__)

_MOST_ROW_BYTES = 256 * 1024
"""A larger row is not told with the dead letter, which would be refused for its size as well."""
_QUICK_S = 1.0
"""A sink that answers within it may get more rows at once again."""


class TaskSinks:
    """The sinks of one task: what was written since the last cut, and where each sink is."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.effects = {sink: Effects() for sink in sinks}
        self.claims: dict[Sink, dict[TopicPartition, Claim]] = {}

    def mark(self) -> None:
        """The next record begins."""
        for effects in self.effects.values():
            effects.mark()

    def roll_back(self) -> None:
        """Undo everything since ``mark``."""
        for effects in self.effects.values():
            effects.roll_back()

    def clear(self) -> None:
        """Forget what was not committed."""
        for effects in self.effects.values():
            effects.clear()

    def limits(self, consumed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where to stop for a cut, per input, because of the next sink that is ahead; empty: of
        none.

        All inputs stop, so that no list holds records the sink has beside records it has not. One
        that stands where it must stop is not read until the others are there, too.
        """
        ahead = [
            {tp: max(claims[tp].next_offset, at) for tp, at in consumed.items()}
            for claims in self.claims.values()
            if any(claims[tp].next_offset > at for tp, at in consumed.items())
        ]
        if not ahead:
            return {}
        next_ = min(ahead, key=lambda positions: sum(positions.values()))
        if all(next_[tp] <= positions[tp] for positions in ahead for tp in consumed):
            return next_
        # Commits leave sinks one behind the other in all inputs. Rows of positions that were
        # changed by hand may not be: then one input at a time goes to the next position.
        tp, limit = min(
            (tp, positions[tp]) for positions in ahead for tp, at in consumed.items()
            if positions[tp] > at
        )  # fmt: skip
        return {**consumed, tp: limit}


class SinkShare(NamedTuple):
    """One task's part of a sink's next commit."""

    sink: Sink
    written: Written
    positions: dict[TopicPartition, int]
    claims: dict[TopicPartition, Claim]


class SinkCut(NamedTuple):
    """What one commit of all sinks takes, and the partition counts of topics."""

    shares: list[SinkShare]
    counts: Mapping[str, int]


class Sinks:
    """All sinks of a worker."""

    def __init__(
        self, sinks: Iterable[Sink], settings: Settings, shared_topics: frozenset[str]
    ) -> None:
        self._sinks = list(sinks)
        self._settings = settings
        self._shared_topics = shared_topics
        self._is_before = settings.processing_guarantee is ProcessingGuarantee.AT_MOST_ONCE
        self._rooms = {sink: Room(sink.batch_rows, sink.batch_bytes) for sink in self._sinks}
        self._ends: dict[TopicPartition, int] = {}
        self.progress = {sink: SinkProgress() for sink in self._sinks}
        names: set[str] = set()
        for sink in self._sinks:
            if sink.name in names:
                raise ConfigurationError(
                    f"there are two sinks called {sink.name!r}: give name=, it says whose the "
                    "positions are"
                )
            names.add(sink.name)

    def __bool__(self) -> bool:
        return bool(self._sinks)

    @property
    def may_dead_letter(self) -> bool:
        """Whether what a sink refuses may go to the dead letter topic."""
        return any(self._dead_letters(sink) for sink in self._sinks)

    async def start(self) -> None:
        """Connect to every sink and say what each promises. Raises SinkError."""
        for sink in self._sinks:
            try:
                await sink.target.start()
            except SinkUnavailable as error:
                logger.warning("%s; trying again when partitions are assigned", error)
            logger.info("%s is %s", sink.target.describe(), sink.target.strength)

    async def close(self) -> None:
        for sink in self._sinks:
            await sink.target.close()

    async def take_over(
        self,
        tasks: Sequence[Task],
        starts: Mapping[TopicPartition, Start],
        consumer: Consumer,
    ) -> dict[TopicPartition, int]:
        """Become the owner of the tasks' inputs in their sinks; returns where each input goes on.

        Raises SinkUnavailable, KafkaError, and WorkerError when a sink's position cannot be right.
        """
        positions = {tp: start.position for tp, start in starts.items()}
        ahead: list[tuple[Sink, TopicPartition, Claim]] = []
        for sink in self._sinks:
            target = sink.target
            mine = [task for task in tasks if sink in task.sinks.effects]
            for task in mine:
                task.sinks.effects[sink].wait_in(self._rooms[sink])
            if not mine or not isinstance(target, TransactionalSink):
                continue
            inputs = {
                tp: starts[tp]._replace(task=str(task.id)) for task in mine for tp in task.inputs
            }
            claims = await target.take_over(self._settings.id, inputs)
            for task in mine:
                task.sinks.claims[sink] = {tp: claims[tp] for tp in task.inputs}
            for tp, claim in claims.items():
                before = self._is_before
                at = resume_at(target.describe(), tp, claim, starts[tp], before=before)
                positions[tp] = min(positions[tp], at)
                if claim.next_offset > starts[tp].position:
                    ahead.append((sink, tp, claim))
        if ahead:
            tps = [tp for _, tp, _ in ahead]
            ends = await consumer.end_offsets(tps, isolation="read_uncommitted")
            for sink, tp, claim in ahead:
                check_end(sink.target.describe(), tp, claim, ends[tp])
                logger.info(
                    "%s has %s up to offset %d: running from %d again without writing to it",
                    sink.target.describe(), tp, claim.next_offset, positions[tp],
                )  # fmt: skip
        return positions

    def fetched(self, tp: TopicPartition, end: int) -> None:
        """``tp`` ends there, for what is said about lag."""
        self._ends[tp] = end

    def take(self, task: Task, positions: Mapping[TopicPartition, int]) -> list[SinkShare]:
        """What ``task``, which is at a cut, wrote since the last one."""
        shares = []
        is_behind = bool(task.group.limits)
        for sink, effects in task.sinks.effects.items():
            claims = task.sinks.claims.get(sink, {})
            written = effects.take()
            if is_behind and claims:
                written = self._without_known(task, sink, written, claims)
            shares.append(SinkShare(sink, written, dict(positions), claims))
        return shares

    async def commit(self, cut: SinkCut) -> list[PartitionOutput]:
        """Make everything a cut wrote happen; returns dead letters for the Kafka transaction.

        Raises SinkUnavailable (undo and run again) and WorkerError.
        """
        letters: list[PartitionOutput] = []
        for sink in self._sinks:
            shares = [share for share in cut.shares if share.sink is sink]
            if shares:
                letters += await self._commit(sink, shares, cut.counts)
        return letters

    async def _commit(
        self, sink: Sink, shares: list[SinkShare], counts: Mapping[str, int]
    ) -> list[PartitionOutput]:
        target = sink.target
        written = shares[0].written
        for share in shares[1:]:
            written.extend(share.written)
        batch = Batch(
            self._settings.id,
            target.describe(),
            written,
            self._dead_letters(sink),
            self._shared_topics,
            strength=target.strength,
        )
        began = asyncio.get_running_loop().time()
        try:
            if isinstance(target, TransactionalSink):
                await self._commit_with_positions(target, shares, batch)
            elif len(batch):
                await target.deliver(batch)
        except SinkTimeout:
            self._rooms[sink].shrink(len(batch))
            raise
        except (SinkUnavailable, SinkError):
            raise
        except Exception as error:  # what an own sink raises stops the worker with its name
            raise SinkError(
                f"{target.describe()} failed to apply {len(batch)} effects: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._count(sink, shares, batch, began)
        outputs = Outputs()
        for index, reason in batch.refused:
            self._emit(outputs, sink, written.values[index], written.records[index], reason)
        return list(split(outputs.take(), counts, 0))

    def _count(self, sink: Sink, shares: list[SinkShare], batch: Batch, began: float) -> None:
        now = asyncio.get_running_loop().time()
        if now - began < _QUICK_S:
            self._rooms[sink].grow()
        progress, refused = self.progress[sink], len(batch.refused)
        progress.committed(len(batch) - refused, refused)
        positions = [item for share in shares for item in share.positions.items()]
        lag = sum(max(self._ends.get(tp, at) - at, 0) for tp, at in positions)
        told = progress.report(now, lag)
        if told is not None:
            logger.info("%s: %s", sink.target.describe(), told)

    async def _commit_with_positions(
        self, target: TransactionalSink, shares: list[SinkShare], batch: Batch
    ) -> None:
        effects = batch.written.counts()
        advances = [
            Advance(tp, share.claims[tp].next_offset, share.claims[tp].epoch, position, effects[tp])
            for share in shares
            for tp, position in share.positions.items()
            if position > share.claims[tp].next_offset
        ]
        if not advances and not len(batch):
            return
        await target.commit(batch, advances)
        for share in shares:
            for tp, position in share.positions.items():
                claim = share.claims[tp]
                claim.next_offset = max(claim.next_offset, position)

    def _without_known(
        self, task: Task, sink: Sink, written: Written, claims: Mapping[TopicPartition, Claim]
    ) -> Written:
        """Drop what the sink has already; what it refused then is dead-lettered once more, as the
        transaction that should have done it was lost."""
        kept = []
        refused = any(claim.refused for claim in claims.values())
        ids = list(written.ids()) if refused else []
        for index, record in enumerate(written.records):
            claim = claims[record.block.tp]
            if record.offset >= claim.next_offset:
                kept.append(index)
            elif refused and (reason := claim.refused.get(ids[index])) is not None:
                self._emit(task.outputs, sink, written.values[index], record, reason)
        return written.only(kept)

    def _emit(
        self, outputs: Outputs, sink: Sink, value: Any, record: RecordAt, reason: str
    ) -> None:
        failure = dead_letter.Failure(reason, "", None)
        row = msgspec.json.encode(value, enc_hook=repr)
        extra: Headers = (("onceward-sink", sink.name.encode()),)
        if len(row) <= _MOST_ROW_BYTES:
            extra = (*extra, ("onceward-row", row))
        dead_letter.emit(outputs, self._settings.dead_letter_topic, record, failure, extra)

    def _dead_letters(self, sink: Sink) -> bool:
        policy = self._settings.on_agent_error if sink.on_error is None else sink.on_error
        return policy is ErrorPolicy.DEAD_LETTER
