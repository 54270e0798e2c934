"""Membership in a consumer group: the decisions of the classic protocol, free of I/O.

The machine is asked for the next request and told each answer; it says what comes next. Listener
calls, timers and sockets are the business of ``membership.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import ErrorCode
from ..protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from .errors import MemberFenced, kafka_error

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
NO_MEMBER = ""


class GroupMetadata(NamedTuple):
    """Who commits (KIP-447). The defaults mean "no member": the broker then checks nothing."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


class MemberState(enum.Enum):
    """Where a member stands.

    UNJOINED  not in the group, or out of a round: JOIN leads to JOINING
    JOINING   JoinGroup is with the broker: no heartbeats are due (KIP-62)
    SYNCING   the generation is known, the assignment is not: SyncGroup is due; no heartbeats
    STABLE    assigned: heartbeats; REBALANCE_IN_PROGRESS sets ``rejoin_needed``, a lost membership
              leads to UNJOINED with ``lost`` set
    LEFT      LeaveGroup was sent: only a new machine joins again
    FENCED    another member has this group_instance_id: nothing is possible any more
    """

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    LEFT = "left"
    FENCED = "fenced"


class Step(enum.Enum):
    """What the driver does after an answer."""

    JOIN = "send JoinGroup, now"
    RETRY = "send the same again after a pause, with the coordinator looked up if it moved"
    ASSIGN = "this member leads: compute the assignment, then SyncGroup with it"
    SYNC = "send SyncGroup without assignments"
    DONE = "nothing: the member is in place"
    REJOIN = "a rebalance is due: join when the application polls"
    LOST = "the membership is gone: drop the partitions, then join anew"


_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Membership:
    """One member's state machine. Methods raise ``KafkaError`` for what no retry can mend."""

    def __init__(
        self,
        group_id: str,
        *,
        group_instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        connection_grace_ms: int = -1,
        protocol_type: str = PROTOCOL_TYPE,
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_instance_id = group_instance_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.connection_grace_ms = connection_grace_ms
        self.state = MemberState.UNJOINED
        self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self.protocol_name = ""
        self.is_leader = False
        self.assignment = b""
        self.lost = False
        self.rejoin_reason: str | None = "joining"

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            self.group_id, self.generation_id, self.member_id, self.group_instance_id
        )

    @property
    def rejoin_needed(self) -> bool:
        return self.rejoin_reason is not None

    def request_rejoin(self, reason: str) -> None:
        """A rebalance is due; the reason goes to the broker's log (KIP-800)."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    # joining

    def join_request(self, protocols: Sequence[tuple[str, bytes]]) -> JoinGroupRequest:
        """``protocols`` are (assignor name, subscription bytes), the preferred one first."""
        self.state = MemberState.JOINING
        reason, self.rejoin_reason = self.rejoin_reason, None
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
            reason=reason,
            connection_grace_ms=self.connection_grace_ms,
        )

    def on_join_failed(self) -> None:
        """No answer came: the round is over, another join is due."""
        self.state = MemberState.UNJOINED
        self.request_rejoin("the last join got no answer")

    def on_join(self, response: JoinGroupResponse) -> Step:
        code = response.error_code
        if not code:
            self.state = MemberState.SYNCING
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            self.protocol_name = response.protocol_name or ""
            self.is_leader = response.leader == response.member_id
            if self.is_leader and not response.skip_assignment:
                return Step.ASSIGN
            return Step.SYNC
        self.state = MemberState.UNJOINED
        self.request_rejoin(f"the last join was answered with error {code}")
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Step.JOIN
        if code in _COORDINATOR or code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Step.RETRY
        return self._membership_error(code, "JoinGroup")

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )

    def on_sync(self, response: SyncGroupResponse) -> Step:
        code = response.error_code
        if not code:
            self.state = MemberState.STABLE
            self.assignment = bytes(response.assignment)
            return Step.DONE
        self.state = MemberState.UNJOINED
        self.request_rejoin(f"SyncGroup was answered with error {code}")
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Step.JOIN
        if code in _COORDINATOR:
            return Step.RETRY
        return self._membership_error(code, "SyncGroup")

    # being a member

    def heartbeat_request(self) -> HeartbeatRequest | None:
        """None while no heartbeat is due."""
        if self.state is not MemberState.STABLE:
            return None
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )

    def on_heartbeat(self, request: HeartbeatRequest, error_code: int) -> Step:
        """An answer to an older generation's heartbeat says nothing about this one."""
        if not error_code or not self._is_current(request.generation_id, request.member_id):
            return Step.DONE
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
            return Step.REJOIN
        if error_code in _COORDINATOR:
            return Step.RETRY
        return self._membership_error(error_code, "Heartbeat")

    def on_commit_error(self, group: GroupMetadata, error_code: int) -> None:
        """A commit of ``group`` was refused: learn from it what a heartbeat would have told."""
        if not self._is_current(group.generation_id, group.member_id):
            return
        if self.state is not MemberState.STABLE:
            return
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
        elif error_code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self._membership_error(error_code, "OffsetCommit")

    def _is_current(self, generation_id: int, member_id: str) -> bool:
        return generation_id == self.generation_id and member_id == self.member_id

    def _membership_error(self, code: int, api: str) -> Step:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = NO_MEMBER
            self.generation_id = NO_GENERATION
            self.state = MemberState.UNJOINED
            self.is_leader = False
            self.lost = True
            self.request_rejoin(f"the membership was lost: {api} error {code}")
            return Step.LOST
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.state = MemberState.FENCED
            raise MemberFenced(
                ErrorCode.FENCED_INSTANCE_ID,
                f"{self.group_instance_id!r} joined group {self.group_id!r} again elsewhere",
            )
        raise kafka_error(code, f"{api} of group {self.group_id!r}")

    def on_lost_handled(self) -> None:
        """The application let go of its partitions."""
        self.lost = False

    # leaving

    def leave_request(self) -> LeaveGroupRequest | None:
        """None when there is nothing to leave."""
        known = self.member_id != NO_MEMBER
        if self.state in (MemberState.LEFT, MemberState.FENCED) or not known:
            return None
        self.state = MemberState.LEFT
        return LeaveGroupRequest(
            group_id=self.group_id,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id=self.member_id,
                    group_instance_id=self.group_instance_id,
                    reason="the consumer was stopped",
                )
            ],
        )
