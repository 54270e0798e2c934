"""Drives a group membership: sends its requests, keeps it alive, calls the listener.

Two things happen in tasks: heartbeats, and one round of joining. Everything that the application
notices (partitions taken or given, listener calls, the generation it commits with) happens in
``poll``, which the application calls.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ..errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages import JoinGroupResponse, LeaveGroupResponse
from ..types import TopicPartition
from .assignors import Assignor
from .cluster import Client, Coordinator
from .errors import ConnectionFailed, kafka_error
from .group import GroupMetadata, Membership, MemberState, Step
from .positions import PartitionStates
from .subscription import (
    MemberMetadata,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)

LEAVE_GROUP_MIN_VERSION = 3
JOIN_GRACE_MS = 5_000
MISSING_TOPIC_RETRY_MS = 1_000


class RebalanceListener(Protocol):
    """Called from inside ``fetch()`` / ``poll_group()``, never while results are being handed out.

    ``group_metadata`` already has the new generation in ``on_revoked`` of a cooperative rebalance
    and in ``on_assigned``.
    """

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Still owned while this runs: commit now. Not called with nothing to revoke."""

    async def on_assigned(self, partitions: Sequence[TopicPartition], user_data: bytes) -> None:
        """The partitions that are *new*; called after every rebalance, also with none.

        ``user_data`` is what the leader's assignor attached. Seek here; partitions not sought start
        at the committed offset, else as ``auto_offset_reset`` says.
        """

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Somebody else may own them already: drop, do not commit."""


class SilentListener:
    """For subscriptions without a listener."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None: ...
    async def on_assigned(self, partitions: Sequence[TopicPartition], user_data: bytes) -> None: ...
    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None: ...


class GroupMember:
    """One consumer's membership. ``on_change`` is called when ``poll`` has something to do."""

    def __init__(
        self,
        client: Client,
        membership: Membership,
        states: PartitionStates,
        *,
        assignors: Sequence[Assignor],
        user_data: Callable[[], bytes] | None,
        heartbeat_interval_ms: int,
        on_change: Callable[[], None],
    ) -> None:
        if not assignors:
            raise ValueError("a group member needs at least one assignor")
        self._client = client
        self._machine = membership
        self._states = states
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._cooperative = all(assignor.cooperative for assignor in assignors)
        self._user_data = user_data
        self._heartbeat_interval = heartbeat_interval_ms / 1000
        self._on_change = on_change
        self._coordinator = Coordinator.group(membership.group_id)
        self._lane = client.new_lane("group")
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener = SilentListener()
        self._heartbeats: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[bool] | None = None
        self._joined = False
        self._error: BaseException | None = None
        self._counts: dict[str, int | None] = {}
        self._counted_at = -1
        self.metadata = GroupMetadata(membership.group_id)
        """The generation whose assignment the application has; kept when membership is lost, so
        that late commits are refused instead of being taken as commits from outside the group."""

    # life

    def start(self) -> None:
        """Start the heartbeats."""
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._beat())

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        self._topics = tuple(sorted(set(topics)))
        self._listener = listener or SilentListener()
        self._client.watch_topics(self._topics)
        self._machine.request_rejoin("the subscription changed")
        self._on_change()

    async def stop(self, *, leave: bool) -> None:
        """Cancel the tasks; ``leave`` sends LeaveGroup. Partitions are dropped without listener
        calls.
        """
        tasks = [task for task in (self._heartbeats, self._joining) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._heartbeats = self._joining = None
        if leave:
            await self._leave()
        self._states.remove(self._states.partitions)
        self._client.close_lane(self._lane)

    async def _leave(self) -> None:
        request = self._machine.leave_request()
        if request is None:
            return
        # A join that was cancelled half-way may still be parked on the lane, so leave on another
        # one.
        try:
            response: LeaveGroupResponse = await self._client.request(
                self._coordinator, request, min_version=LEAVE_GROUP_MIN_VERSION, timeout_ms=5_000
            )
        except ConnectionFailed:
            return
        for code in (response.error_code, *(m.error_code for m in response.members)):
            if code and code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise kafka_error(code, f"leaving group {self._machine.group_id!r}")

    # what the application drives

    @property
    def rebalancing(self) -> bool:
        """A rebalance is due, running, or waits for ``poll`` to be applied."""
        return self._joining is not None or self._joined or self._machine.rejoin_needed

    async def poll(self) -> None:
        """Do what is due, without waiting for the network; listener calls are awaited.

        Raises the error that ended joining or heartbeats; the next call starts again.
        """
        if not self._topics:
            return
        error = self._error
        if error is not None:
            if self._machine.state is not MemberState.FENCED:
                self._error = None
            raise error
        self._watch_partition_counts()
        if self._machine.lost and self._joining is None:
            await self._drop_lost()
        if self._joined:
            self._joined = False
            await self._apply()
        if self._machine.rejoin_needed and self._joining is None and not self._joined:
            await self._prepare()
            self._joining = asyncio.create_task(self._join())
            self._joining.add_done_callback(self._on_joined)

    def _on_joined(self, task: asyncio.Task[bool]) -> None:
        self._joining = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._error = error
            if self._machine.state is not MemberState.FENCED:
                self._machine.on_join_failed()
        else:
            self._joined = task.result()
        self._on_change()

    async def _drop_lost(self) -> None:
        lost = sorted(self._states.partitions)
        self._states.remove(lost)
        self._machine.on_lost_handled()
        self._joined = False
        if lost:
            await self._listener.on_lost(lost)

    async def _prepare(self) -> None:
        """Before JoinGroup: eager members let go of everything, cooperative ones of nothing they
        want.
        """
        owned = sorted(self._states.partitions)
        if self._cooperative:
            owned = [tp for tp in owned if tp.topic not in self._topics]
        if owned:
            await self._revoke(owned)

    async def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        # Nothing fetched is handed out while the listener runs: fetch() is waiting for us.
        await self._listener.on_revoked(partitions)
        self._states.remove(partitions)

    async def _apply(self) -> None:
        """A round is complete: take the assignment over."""
        machine = self._machine
        assigned, user_data = decode_assignment(machine.assignment)
        self.metadata = machine.metadata
        assignor = self._assignors[machine.protocol_name]
        others_wait = assignor.on_assignment(machine.assignment, machine.generation_id)
        owned = self._states.partitions
        revoked = sorted(owned - set(assigned))
        if revoked:
            await self._revoke(revoked)
        if self._cooperative and (revoked or others_wait):
            machine.request_rejoin("partitions were revoked and are free now")
        added = sorted(set(assigned) - owned)
        self._client.watch_topics(tp.topic for tp in added)
        self._states.add(added, held=True)
        await self._listener.on_assigned(added, user_data)
        self._states.release(added)

    def _watch_partition_counts(self) -> None:
        """The leader starts a rebalance when a topic appeared or got more partitions."""
        if not self._machine.is_leader:
            return
        missing = None in self._counts.values()
        self._client.refresh_metadata_when_old(MISSING_TOPIC_RETRY_MS if missing else None)
        metadata = self._client.metadata
        if metadata.generation == self._counted_at:
            return
        self._counted_at = metadata.generation
        now = {topic: metadata.partition_count(topic) for topic in self._counts}
        if now != self._counts:
            self._counts = now
            self._machine.request_rejoin("partitions of subscribed topics changed")

    # the joining task

    async def _join(self) -> bool:
        """One round, up to an assignment (True) or the loss of the membership (False)."""
        loop = asyncio.get_running_loop()
        machine = self._machine
        patience = (machine.rebalance_timeout_ms + self._client.request_timeout_ms) / 1000
        deadline = loop.time() + patience
        step = Step.JOIN
        for failures in itertools.count():
            if step is Step.RETRY:
                await asyncio.sleep(self._client.backoff.delay(failures))
            try:
                step = await self._round()
            except ConnectionFailed as error:
                machine.on_join_failed()
                self._client.forget_coordinator(self._coordinator, error)
                if loop.time() >= deadline:
                    raise
                step = Step.RETRY
            if step in (Step.DONE, Step.LOST):
                return step is Step.DONE
            if loop.time() >= deadline:
                message = f"joining group {machine.group_id!r} did not succeed in {patience:.0f} s"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
        raise AssertionError("unreachable")

    async def _round(self) -> Step:
        machine = self._machine
        response: JoinGroupResponse = await self._send(
            machine.join_request(self._protocols()),
            timeout_ms=machine.rebalance_timeout_ms + JOIN_GRACE_MS,
        )
        step = machine.on_join(response)
        self._check_coordinator(response.error_code)
        if step not in (Step.SYNC, Step.ASSIGN):
            return step
        assignments = {}
        if step is Step.ASSIGN:
            assignments = await self._assign(response)
        sync = await self._send(
            machine.sync_request(assignments),
            timeout_ms=machine.rebalance_timeout_ms + JOIN_GRACE_MS,
        )
        step = machine.on_sync(sync)
        self._check_coordinator(sync.error_code)
        return step

    async def _send(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        return await self._client.request(
            self._coordinator, request, lane=self._lane, timeout_ms=timeout_ms
        )

    def _check_coordinator(self, code: int) -> None:
        if code:
            self._client.forget_coordinator(self._coordinator, kafka_error(code))

    def _protocols(self) -> list[tuple[str, bytes]]:
        owned = sorted(self._states.partitions)
        generation = self.metadata.generation_id
        own_data = self._user_data() if self._user_data is not None else b""
        return [
            (
                name,
                encode_subscription(
                    self._topics,
                    owned=owned,
                    generation=generation,
                    user_data=assignor.metadata(self._topics, owned, generation) or own_data,
                ),
            )
            for name, assignor in self._assignors.items()
        ]

    async def _assign(self, response: JoinGroupResponse) -> dict[str, bytes]:
        assignor = self._assignors.get(response.protocol_name or "")
        if assignor is None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group chose {response.protocol_name!r}, which this member does not have",
            )
        members: dict[str, MemberMetadata] = {}
        for member in response.members:
            try:
                members[member.member_id] = decode_subscription(
                    bytes(member.metadata), member.group_instance_id
                )
            except ProtocolError as error:
                message = f"subscription of member {member.member_id}: {error}"
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message) from error
        self._counts = await self._count_partitions(members.values())
        known = {topic: count for topic, count in self._counts.items() if count is not None}
        return assignor.assign(members, known)

    async def _count_partitions(self, members: Iterable[MemberMetadata]) -> dict[str, int | None]:
        topics = sorted({topic for member in members for topic in member.topics})
        await self._client.refresh_metadata(topics)
        self._counted_at = self._client.metadata.generation
        return {topic: self._client.metadata.partition_count(topic) for topic in topics}

    # the heartbeat task

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval)
            request = self._machine.heartbeat_request()
            if request is None:
                continue
            try:
                response = await self._send(request, timeout_ms=self._machine.session_timeout_ms)
                step = self._machine.on_heartbeat(request, response.error_code)
            except ConnectionFailed as error:
                self._client.forget_coordinator(self._coordinator, error)
                continue
            except KafkaError as error:
                self._error = error
                self._on_change()
                continue
            self._check_coordinator(response.error_code)
            if step in (Step.REJOIN, Step.LOST):
                self._on_change()
