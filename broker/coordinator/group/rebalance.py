"""The rebalance of a classic group: what leads from one generation to the next.

Every method changes soft state of one group and adds to one ``Result``; hard state follows when the
runtime replays the result's records. Follows Kafka's ``GroupMetadataManager``: ``prepareRebalance``
and what it leads to.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import ErrorCode
from ...protocol.messages import JoinGroupResponse, SyncGroupResponse
from ..result import Cancel, Reply, Result, Timer, Token
from .classic_group import ClassicGroup, GroupState, Member
from .config import GroupConfig
from .presence import NO_CONNECTION, Connections, Presence
from .records import GroupMetadataValue, group_record


class TimerKind(enum.Enum):
    """What a timer is for.

    SESSION: a member (or pending member) was silent for its session timeout; while a new member's
        first JoinGroup is parked, the bound of that.
    GRACE: all connections of a member that asked for it have been closed for its grace.
    JOIN: the rebalance (or the initial delay) is over. SYNC: members without SyncGroup are dropped.
    RETENTION: look for expired offsets.
    """

    SESSION = "session"
    GRACE = "grace"
    JOIN = "join"
    SYNC = "sync"
    RETENTION = "retention"


class GroupTimer(NamedTuple):
    """Timer key of the group coordinator."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class GroupOperation:
    """One operation on one group: the group, the time, and the result being built."""

    def __init__(
        self, group: ClassicGroup, config: GroupConfig, connections: Connections, now_ms: int
    ) -> None:
        self.group = group
        self.config = config
        self.connections = connections
        self.now_ms = now_ms
        self.result: Result[Any] = Result()

    # -- timers -----------------------------------------------------------------------------------

    def set_timer(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        key = GroupTimer(kind, self.group.group_id, member_id)
        self.result.effects.append(Timer(key, self.now_ms + delay_ms))

    def cancel_timer(self, kind: TimerKind, member_id: str = "") -> None:
        self.result.effects.append(Cancel(GroupTimer(kind, self.group.group_id, member_id)))

    def arm_session(self, member: Member, timeout_ms: int | None = None) -> None:
        """The member was heard: its session starts anew."""
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.set_timer(TimerKind.SESSION, timeout, member.member_id)

    # -- connections ------------------------------------------------------------------------------

    def heard_on(self, presence: Presence, member_id: str, connection_id: int) -> None:
        """A request of the member came on this connection; ends a running grace."""
        if presence.grace_ms < 0 or connection_id == NO_CONNECTION:
            return
        self.connections.attach(presence, self.group.group_id, member_id, connection_id)
        self._end_grace(presence, member_id)

    def set_grace(self, presence: Presence, member_id: str, grace_ms: int) -> None:
        """What the member's JoinGroup says about early expiry."""
        presence.grace_ms = grace_ms
        if grace_ms < 0:
            self.forget_presence(presence, member_id)

    def forget_presence(self, presence: Presence, member_id: str) -> None:
        self.connections.forget(presence, self.group.group_id, member_id)
        self._end_grace(presence, member_id)

    def _end_grace(self, presence: Presence, member_id: str) -> None:
        if presence.grace_running:
            presence.grace_running = False
            self.cancel_timer(TimerKind.GRACE, member_id)

    # -- answers ----------------------------------------------------------------------------------

    def respond(self, response: Any) -> None:
        """Answer the caller of this operation."""
        self.result.response = response

    def answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's parked JoinGroup, if there is one."""
        if member.awaiting_join is not None:
            self.result.effects.append(Reply(member.awaiting_join, response))
            member.awaiting_join = None

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        """Answer the member's parked SyncGroup, if there is one."""
        if member.awaiting_sync is not None:
            self.result.effects.append(Reply(member.awaiting_sync, response))
            member.awaiting_sync = None

    def park_join(self, member: Member, token: Token) -> None:
        """Park the caller; an older request of the member is told to ask again."""
        again = join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.answer_join(member, again)
        member.awaiting_join = token
        self.result.parked = True

    def park_sync(self, member: Member, token: Token) -> None:
        self.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = token
        self.result.parked = True

    # -- the way to the next generation -----------------------------------------------------------

    def remove_member(self, member: Member) -> None:
        """Take a member out of the draft. Parked requests learn it, so that the client rejoins."""
        self.answer_join(member, join_error("", ErrorCode.UNKNOWN_MEMBER_ID))
        self.answer_sync(member, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        self.cancel_timer(TimerKind.SESSION, member.member_id)
        self.forget_presence(member.presence, member.member_id)
        self.group.remove(member.member_id)

    def remove_pending_member(self, member_id: str) -> None:
        self.cancel_timer(TimerKind.SESSION, member_id)
        self.forget_presence(self.group.pending_members[member_id], member_id)
        self.group.remove(member_id)

    def rebalance_or_complete_join(self) -> None:
        """Membership changed: start a rebalance, or see whether the one under way is complete."""
        if self.group.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join()
        else:
            self.prepare_rebalance()

    def prepare_rebalance(self) -> None:
        """Ask all members to rejoin; from Empty, give others the initial delay to come too."""
        group = self.group
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                if member.awaiting_sync is not None:
                    self.arm_session(member)
                self.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        self.cancel_timer(TimerKind.SYNC)
        group.pending_sync.clear()
        is_initial = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE)
        if is_initial:
            delay = self.config.initial_rebalance_delay_ms
            group.new_member_added = False
            group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
            self.set_timer(TimerKind.JOIN, delay)
        elif group.all_joined:
            self.complete_join()
        else:
            self.set_timer(TimerKind.JOIN, group.rebalance_timeout_ms)

    def maybe_complete_join(self) -> None:
        """Complete the join phase if everybody is here; an initial delay ends by its timer."""
        group = self.group
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay_left_ms is None
            and group.all_joined
        ):
            self.complete_join()

    def join_time_is_over(self) -> None:
        """The JOIN timer fired."""
        group = self.group
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        left = group.initial_delay_left_ms
        if left and group.new_member_added:
            group.new_member_added = False
            delay = self.config.initial_rebalance_delay_ms
            group.initial_delay_left_ms = max(left - delay, 0)
            self.set_timer(TimerKind.JOIN, min(delay, left))
        else:
            self.complete_join()

    def complete_join(self) -> None:
        """Begin the next generation with the members that rejoined.

        A dynamic member that did not is dropped, a static one keeps its place. If nobody rejoined
        the wait starts again, until session timeouts settle it.
        """
        group = self.group
        self.cancel_timer(TimerKind.JOIN)
        group.initial_delay_left_ms = None
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                self.remove_member(member)
        if not group.members:
            self._become_empty()
        elif group.elect_leader():
            self._begin_generation()
        else:
            self.set_timer(TimerKind.JOIN, group.rebalance_timeout_ms)

    def _become_empty(self) -> None:
        group = self.group
        value = GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=self.now_ms,
        )
        self.result.records.append(group_record(group.group_id, value))

    def _begin_generation(self) -> None:
        group = self.group
        group.generation += 1
        group.protocol_name = group.select_protocol()
        group.move_to(GroupState.COMPLETING_REBALANCE)
        group.pending_sync = set(group.members)
        for member in group.members.values():
            self.answer_join(member, joined(group, member))
            member.is_new = False
            self.arm_session(member)
        self.set_timer(TimerKind.SYNC, group.rebalance_timeout_ms)

    def sync_time_is_over(self) -> None:
        """The SYNC timer fired: who did not ask for its assignment is dropped."""
        group = self.group
        late = [
            member for member_id, member in group.members.items() if member_id in group.pending_sync
        ]
        if late:
            for member in late:
                self.remove_member(member)
            self.prepare_rebalance()

    # -- expiry -----------------------------------------------------------------------------------

    def session_is_over(self, member_id: str) -> None:
        """The SESSION timer fired. A parked request keeps a member alive, except a new one's."""
        member = self.group.members.get(member_id)
        parked = member is not None and (
            member.awaiting_sync is not None
            or (member.awaiting_join is not None and not member.is_new)
        )
        if not parked:
            self.expire(member_id)

    def grace_is_over(self, member_id: str) -> None:
        """The GRACE timer fired: the member's process is gone, whatever it had parked."""
        member = self.group.members.get(member_id)
        presence = self.group.pending_members.get(member_id)
        if member is not None:
            presence = member.presence
        if presence is not None:
            presence.grace_running = False
            self.expire(member_id)

    def expire(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        if member is not None:
            self.remove_member(member)
            self.rebalance_or_complete_join()
        elif member_id in self.group.pending_members:
            self.remove_pending_member(member_id)
            self.maybe_complete_join()


def join_error(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=code)


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """The present generation as ``member`` sees it; only the leader sees the members."""
    is_leader = member.member_id == group.leader
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=member_list(group, list(group.members.values())) if is_leader else [],
    )


def member_list(
    group: ClassicGroup, members: Sequence[Member]
) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in members
    ]
