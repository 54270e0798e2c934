"""A consumer: group membership, positions and fetched batches behind one object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ..errors import KafkaError
from ..types import TopicPartition
from .assignors import Assignor, CooperativeStickyAssignor
from .cluster import Client
from .fetcher import FetchConfig, Fetcher
from .group import GroupMetadata, Membership
from .membership import GroupMember, RebalanceListener
from .offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    commit_offsets,
    fetch_offsets,
    list_offsets,
)
from .positions import FetchedBatch, PartitionStates, assigned_only
from .resolver import OffsetReset, PositionResolver


class Consumer:
    """Reads partitions: those a group gives it (``subscribe``) or those it is told (``assign``).

    Everything but ``start``/``stop`` belongs to one task at a time. Positions live in memory; what
    is committed is the caller's decision. All times are milliseconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        isolation: Isolation = "read_committed",
        auto_offset_reset: OffsetReset = "earliest",
        session_timeout_ms: int = 10_000,
        heartbeat_interval_ms: int = 1_000,
        rebalance_timeout_ms: int = 30_000,
        assignors: Sequence[Assignor] = (CooperativeStickyAssignor(),),
        user_data: Callable[[], bytes] | None = None,
        connection_grace_ms: int = -1,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partition_fetch_bytes: int = 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        check_crcs: bool = True,
        stable_offset_timeout_ms: int = 60_000,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._isolation: Isolation = isolation
        self._stable_offset_timeout_ms = stable_offset_timeout_ms
        self._states = PartitionStates()
        self._changed = asyncio.Event()
        self._nudged = False
        self._stopped = False
        fetching = FetchConfig(
            isolation,
            fetch_min_bytes,
            fetch_max_bytes,
            max_partition_fetch_bytes,
            fetch_max_wait_ms,
            check_crcs,
        )
        self._fetcher = Fetcher(client, self._states, fetching, on_ready=self._changed.set)
        self._resolver = PositionResolver(
            client,
            self._states,
            group_id=group_id,
            isolation=isolation,
            auto_offset_reset=auto_offset_reset,
            timeout_ms=stable_offset_timeout_ms,
            on_ready=self._on_positions,
        )
        self._member: GroupMember | None = None
        self._membership: Membership | None = None
        if group_id is not None:
            self._membership = Membership(
                group_id,
                group_instance_id=group_instance_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                connection_grace_ms=connection_grace_ms,
            )
            self._member = GroupMember(
                client,
                self._membership,
                self._states,
                assignors=assignors,
                user_data=user_data,
                heartbeat_interval_ms=heartbeat_interval_ms,
                on_change=self._changed.set,
            )
        self._subscribed = False

    # life

    async def start(self) -> None:
        """Allow background work. Joining the group happens in ``fetch`` / ``poll_group``."""
        if self._subscribed and self._member is not None:
            self._member.start()

    async def stop(self, *, leave: bool = True) -> None:
        """Stop the tasks; a dynamic member leaves the group when ``leave``. Idempotent.

        The listener is not called: commit before. A static member (``group_instance_id``) never
        leaves here, so that its restart disturbs nobody: see ``leave_group``.
        """
        if self._stopped:
            return
        self._stopped = True
        await self._resolver.stop()
        await self._fetcher.stop()
        if self._member is not None:
            leaves = leave and self._group_instance_id is None
            await self._member.stop(leave=leaves)
        self._changed.set()

    async def leave_group(self) -> None:
        """Stop and send LeaveGroup, as a static member too: its partitions are free at once."""
        if self._member is not None:
            await self._member.stop(leave=True)
        await self.stop(leave=False)

    # what to read

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Let the group assign partitions of these topics; they need not exist yet.

        Raises ValueError without ``group_id`` or after ``assign``.
        """
        if self._member is None:
            raise ValueError("subscribe needs a group_id")
        if not self._subscribed and self._states.partitions:
            raise ValueError(
                "this consumer has partitions of its own: subscribe or assign, not both"
            )
        self._subscribed = True
        self._member.start()
        self._member.subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without membership. Those kept keep their positions and buffers."""
        if self._subscribed:
            raise ValueError("this consumer is subscribed: subscribe or assign, not both")
        wanted = frozenset(partitions)
        self._client.watch_topics(tp.topic for tp in wanted)
        self._states.remove(self._states.partitions - wanted)
        self._states.add(sorted(wanted - self._states.partitions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._states.partitions

    @property
    def rebalancing(self) -> bool:
        """A rebalance is due, running, or waits for the next ``fetch`` / ``poll_group``."""
        return self._subscribed and self._member is not None and self._member.rebalancing

    @property
    def group_metadata(self) -> GroupMetadata:
        """What ``Producer.send_offsets`` needs (KIP-447): the generation of the present assignment.

        After the membership was lost it stays the old one, so that late commits are refused. Raises
        ValueError without ``group_id``.
        """
        if self._member is None:
            raise ValueError("this consumer has no group_id")
        return self._member.metadata

    # reading

    async def poll_group(self, *, timeout_ms: int = 0) -> None:
        """Run the rebalance that is due, with the listener's calls; no fetching.

        Returns when no rebalance is pending or after ``timeout_ms``: one that still runs then goes
        on in the background and is applied by the next call. Raises KafkaError.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._changed.clear()
            await self._poll()
            if not self.rebalancing or not await self._wait(deadline):
                return

    async def fetch(self, *, timeout_ms: int) -> list[FetchedBatch]:
        """Run the rebalance that is due, then return what is buffered, waiting at most
        ``timeout_ms``.

        At most one FetchedBatch per partition; an empty list on timeout. Positions move behind what
        is returned, and the next fetch is already on its way. Raises KafkaError; calling again goes
        on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._changed.clear()
            await self._poll()
            batches = self._states.take()
            self._pump()
            nudged, self._nudged = self._nudged, False
            if batches or nudged or not await self._wait(deadline):
                return batches

    def nudge(self) -> None:
        """Let the ``fetch`` that waits, or else the next one, return at once."""
        self._nudged = True
        self._changed.set()

    async def _poll(self) -> None:
        if self._stopped:
            raise ValueError("the consumer is stopped")
        if self._member is not None and self._subscribed:
            await self._member.poll()
        for source in (self._resolver.errors, self._fetcher.errors):
            if source:
                error = source[0]
                source.clear()
                raise error

    async def _wait(self, deadline: float) -> bool:
        """Wait for a change; False when the time is over."""
        remaining = deadline - asyncio.get_running_loop().time()
        if remaining <= 0:
            return False
        try:
            async with asyncio.timeout(remaining):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _pump(self) -> None:
        self._client.refresh_metadata_when_old()
        self._resolver.pump()
        self._fetcher.pump()

    def _on_positions(self) -> None:
        self._fetcher.pump()
        self._changed.set()

    # positions

    def position(self, tp: TopicPartition) -> int | None:
        """Next offset ``fetch`` will return; None while unknown. KeyError when not assigned."""
        return self._states[tp].position

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at ``offset``; buffered data is dropped. KeyError when not assigned."""
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        self._states[tp].move_to(offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing of these; what is buffered stays for ``resume``."""
        for tp in assigned_only(list(partitions), self._states):
            self._states[tp].paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in assigned_only(list(partitions), self._states):
            self._states[tp].paused = False
        self._pump()
        if self._states.untaken():
            self._changed.set()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.tp for state in self._states if state.paused)

    # offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """OffsetCommit outside a transaction, fenced by generation when subscribed.

        Raises KafkaError: ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID (the membership is gone;
        ``fetch`` rejoins), REBALANCE_IN_PROGRESS (commit again after the next ``fetch``).
        """
        group = self._committer()
        if not offsets:
            return
        try:
            await commit_offsets(self._client, group, offsets, timeout_ms=timeout_ms)
        except KafkaError as error:
            if self._membership is not None and self._subscribed:
                self._membership.on_commit_error(group, error.code)
            raise

    def _committer(self) -> GroupMetadata:
        if self._group_id is None:
            raise ValueError("committing needs a group_id")
        if self._subscribed:
            return self.group_metadata
        return GroupMetadata(self._group_id)

    async def committed(
        self,
        partitions: Collection[TopicPartition],
        *,
        require_stable: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where nothing is committed.

        ``require_stable`` waits for transactions that are undecided (KIP-447), then raises
        KafkaError(UNSTABLE_OFFSET_COMMIT). ``timeout_ms`` defaults to ``stable_offset_timeout_ms``.
        """
        if self._group_id is None:
            raise ValueError("committed offsets need a group_id")
        return await fetch_offsets(
            self._client,
            self._group_id,
            partitions,
            require_stable=require_stable,
            timeout_ms=self._stable_offset_timeout_ms if timeout_ms is None else timeout_ms,
        )

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Log start offsets."""
        wanted = dict.fromkeys(partitions, EARLIEST)
        found = await list_offsets(self._client, wanted, isolation=self._isolation)
        return {tp: found[tp].offset for tp in wanted}

    async def end_offsets(
        self, partitions: Collection[TopicPartition], isolation: Isolation | None = None
    ) -> dict[TopicPartition, int]:
        """Last stable offset or high watermark; ``isolation`` None = the consumer's."""
        wanted = dict.fromkeys(partitions, LATEST)
        found = await list_offsets(self._client, wanted, isolation=isolation or self._isolation)
        return {tp: found[tp].offset for tp in wanted}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """First offset at or after each time (ms); None where no record is that late."""
        found = await list_offsets(self._client, timestamps, isolation=self._isolation)
        return {tp: found[tp] if found[tp].offset >= 0 else None for tp in timestamps}
