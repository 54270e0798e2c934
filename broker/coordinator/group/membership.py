"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic protocol, decided for one group.

Mirrors Kafka's ``GroupMetadataManager.classicGroupJoin`` and its siblings. Expected errors are
responses, not exceptions: they may come with effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ErrorCode, KafkaError
from ...protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..result import Reply, Result, Token
from .classic_group import ClassicGroup, GroupState, Member
from .presence import NO_CONNECTION, Presence
from .rebalance import (
    GroupOperation,
    TimerKind,
    join_error,
    joined,
    member_list,
    sync_error,
)
from .records import group_record

Identity = tuple[str, str | None]
"""Member id and instance id of somebody who leaves."""

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9


class Caller(NamedTuple):
    """Who sent a JoinGroup. ``new_member_id`` is used if the broker has to give one."""

    client_id: str
    client_host: str
    api_version: int
    connection_id: int
    new_member_id: str


@dataclass(frozen=True, slots=True)
class _Join:
    """A JoinGroup request being decided."""

    request: JoinGroupRequest
    caller: Caller
    token: Token

    @property
    def rebalance_timeout_ms(self) -> int:
        timeout = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if timeout < 0 else timeout

    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((protocol.name, protocol.metadata) for protocol in self.request.protocols)

    def member(self, member_id: str, presence: Presence | None = None) -> Member:
        return Member(
            member_id=member_id,
            group_instance_id=self.request.group_instance_id,
            client_id=self.caller.client_id,
            client_host=self.caller.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocol_type=self.request.protocol_type,
            protocols=self.protocols,
            presence=presence or Presence(),
        )


# -- JoinGroup ------------------------------------------------------------------------------------


def join(
    operation: GroupOperation, request: JoinGroupRequest, caller: Caller, token: Token
) -> None:
    """Decide a JoinGroup (session timeout and group id are already checked)."""
    group = operation.group
    join = _Join(request, caller, token)
    if not _has_room(operation, request.member_id):
        crowded_out = group.members.get(request.member_id)
        if crowded_out is not None:
            operation.remove_member(crowded_out)
        operation.respond(join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(request.protocol_type, join.protocols):
        operation.respond(join_error(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif request.member_id:
        _join_with_member_id(operation, join)
    elif request.group_instance_id is not None:
        _join_new_static(operation, join)
    elif caller.api_version >= _MEMBER_ID_REQUIRED_SINCE:
        _require_member_id(operation, join)
    else:
        _add(operation, join, join.member(caller.new_member_id))
    operation.maybe_complete_join()


def _has_room(operation: GroupOperation, member_id: str) -> bool:
    """Whether group.max.size allows the join.

    While a rebalance is prepared the *parked* members count, so that a group that is too large
    after a change of the setting shrinks: the last to rejoin are turned away.
    """
    group = operation.group
    limit = operation.config.max_size
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        is_parked = member is not None and member.awaiting_join is not None
        return is_parked or group.awaiting_join_count < limit
    return member is not None or len(group.members) < limit


def _require_member_id(operation: GroupOperation, join: _Join) -> None:
    """KIP-394: a new dynamic member comes back with an id, so a lost answer leaves no ghost."""
    group, member_id = operation.group, join.caller.new_member_id
    presence = group.pending_members[member_id] = Presence()
    _note_presence(operation, join, presence, member_id)
    operation.set_timer(TimerKind.SESSION, join.request.session_timeout_ms, member_id)
    operation.respond(join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))


def _note_presence(
    operation: GroupOperation, join: _Join, presence: Presence, member_id: str
) -> None:
    operation.set_grace(presence, member_id, join.request.connection_grace_ms)
    operation.heard_on(presence, member_id, join.caller.connection_id)


def _add(operation: GroupOperation, join: _Join, member: Member) -> None:
    """A member the group did not have; it starts a rebalance or joins the one under way.

    Its session cannot be kept by heartbeats before its first answer, so another, longer bound holds
    until then.
    """
    group = operation.group
    member.is_new = True
    if group.initial_delay_left_ms is not None:
        group.new_member_added = True
    operation.park_join(member, join.token)
    group.add(member)
    _note_presence(operation, join, member.presence, member.member_id)
    operation.arm_session(member, operation.config.new_member_join_timeout_ms)
    operation.rebalance_or_complete_join()


def _join_with_member_id(operation: GroupOperation, join: _Join) -> None:
    group, request = operation.group, join.request
    presence = group.pending_members.get(request.member_id)
    if presence is not None and request.group_instance_id is None:
        _add(operation, join, join.member(request.member_id, presence))
        return
    try:
        member = group.validate_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        operation.respond(join_error(request.member_id, error.code))
        return
    _note_presence(operation, join, member.presence, member.member_id)
    changed = member.protocols != join.protocols
    leads_stable = group.state is GroupState.STABLE and group.leader == member.member_id
    if group.state is GroupState.PREPARING_REBALANCE or changed or leads_stable:
        member.protocols = join.protocols
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        operation.park_join(member, join.token)
        operation.rebalance_or_complete_join()
    else:
        # An answer was lost, or a follower asks needlessly: the generation stands.
        operation.arm_session(member)
        operation.respond(joined(group, member))


def _join_new_static(operation: GroupOperation, join: _Join) -> None:
    """A process with an instance id starts; if the group knows the id, it takes that place over."""
    group = operation.group
    new = join.member(join.caller.new_member_id)
    old_id = group.static_members.get(new.group_instance_id or "")
    if old_id is None:
        _add(operation, join, new)
        return
    old = group.members[old_id]
    new.assignment = old.assignment
    members = [new if member is old else member for member in group.members.values()]
    if group.state is GroupState.STABLE and group.select_protocol(members) == group.protocol_name:
        _replace_in_generation(operation, join, old, new, members)
    else:
        _replace_in_draft(operation, join, old, new, members)


def _replace_in_generation(
    operation: GroupOperation, join: _Join, old: Member, new: Member, members: list[Member]
) -> None:
    """Only the member id changes: it is persisted and no rebalance happens (KIP-345, KIP-814).

    Before v9 the leader must not compute an assignment nobody asked for: it is told that its former
    id leads, which makes it a follower. From v9 on it is told to skip the assignment.
    """
    group = operation.group
    group.replacing[new.member_id] = new
    leads = group.leader == old.member_id
    value = group.metadata_value(now_ms=group.state_timestamp, members=members)
    response = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=new.member_id,
    )
    if leads:
        value.leader = new.member_id
        if join.caller.api_version >= _SKIP_ASSIGNMENT_SINCE:
            response.leader = new.member_id
            response.skip_assignment = True
            response.members = member_list(group, members)
    operation.result.records.append(group_record(group.group_id, value))
    operation.cancel_timer(TimerKind.SESSION, old.member_id)
    operation.forget_presence(old.presence, old.member_id)
    _note_presence(operation, join, new.presence, new.member_id)
    operation.arm_session(new)
    operation.respond(response)

    def refused(error: KafkaError) -> Result[JoinGroupResponse]:
        group.replacing.pop(new.member_id)
        operation.connections.forget(new.presence, group.group_id, new.member_id)
        return Result(response=join_error("", error.code))

    operation.result.refused = refused


def _replace_in_draft(
    operation: GroupOperation, join: _Join, old: Member, new: Member, members: list[Member]
) -> None:
    """The group rebalances anyway, or must: the leader may already know the old member id."""
    group = operation.group
    operation.answer_join(old, join_error(old.member_id, ErrorCode.FENCED_INSTANCE_ID))
    operation.answer_sync(old, sync_error(ErrorCode.FENCED_INSTANCE_ID))
    operation.cancel_timer(TimerKind.SESSION, old.member_id)
    operation.forget_presence(old.presence, old.member_id)
    group.pending_sync.discard(old.member_id)
    group.members = {member.member_id: member for member in members}
    group.static_members[new.group_instance_id or ""] = new.member_id
    if group.leader == old.member_id:
        group.leader = new.member_id
    operation.park_join(new, join.token)
    _note_presence(operation, join, new.presence, new.member_id)
    operation.arm_session(new)
    operation.rebalance_or_complete_join()


# -- SyncGroup ------------------------------------------------------------------------------------


def sync(
    operation: GroupOperation, request: SyncGroupRequest, connection_id: int, token: Token
) -> None:
    """Decide a SyncGroup; the leader's makes the generation hard and answers everybody's."""
    group = operation.group
    try:
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        _validate_protocol(group, request)
    except KafkaError as error:
        operation.respond(sync_error(error.code))
        return
    operation.heard_on(member.presence, member.member_id, connection_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        operation.respond(sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        operation.cancel_timer(TimerKind.SYNC)
    if group.state is GroupState.STABLE:
        operation.arm_session(member)
        operation.respond(_assigned(group, member.assignment))
        return
    operation.park_sync(member, token)
    if member.member_id == group.leader:
        assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
        _complete_sync(operation, assignments)


def _validate_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """v5 (KIP-559) says which protocol the client took part in."""
    if (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol_name is not None and request.protocol_name != group.protocol_name
    ):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group chose {group.protocol_type}/{group.protocol_name}",
        )


def _complete_sync(operation: GroupOperation, assignments: dict[str, bytes]) -> None:
    group = operation.group
    value = group.metadata_value(now_ms=operation.now_ms, assignments=assignments)
    operation.result.records.append(group_record(group.group_id, value))
    waiting: list[Token] = []
    for member in group.members.values():
        if member.awaiting_sync is not None:
            waiting.append(member.awaiting_sync)
            operation.arm_session(member)
            assignment = assignments.get(member.member_id, b"")
            operation.answer_sync(member, _assigned(group, assignment))

    def refused(error: KafkaError) -> Result[SyncGroupResponse]:
        """The assignment cannot be stored (too large, most likely): a new rebalance."""
        retry = GroupOperation(group, operation.config, operation.connections, operation.now_ms)
        retry.result.parked = True
        for token in waiting:
            retry.result.effects.append(Reply(token, sync_error(error.code)))
        retry.prepare_rebalance()
        return retry.result

    operation.result.refused = refused


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


# -- Heartbeat and LeaveGroup ---------------------------------------------------------------------


def heartbeat(operation: GroupOperation, request: HeartbeatRequest, connection_id: int) -> None:
    """Decide a Heartbeat: the session is renewed even when the answer is to rejoin."""
    group = operation.group
    try:
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
    except KafkaError as error:
        operation.respond(HeartbeatResponse(error_code=error.code))
        return
    operation.heard_on(member.presence, member.member_id, connection_id)
    operation.arm_session(member)
    rebalancing = group.state is GroupState.PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
    operation.respond(HeartbeatResponse(error_code=code))


def leave(operation: GroupOperation, identities: Sequence[Identity]) -> None:
    """Decide a LeaveGroup; the response is the error of each of ``identities``."""
    group = operation.group
    codes = [_leave_one(operation, *identity) for identity in identities]
    if ErrorCode.NONE in codes:
        if group.state is GroupState.PREPARING_REBALANCE:
            operation.maybe_complete_join()
        elif group.state is not GroupState.EMPTY:
            operation.prepare_rebalance()
    operation.respond(codes)


def _leave_one(operation: GroupOperation, member_id: str, instance_id: str | None) -> ErrorCode:
    group = operation.group
    if not member_id:
        # Administrative removal of a static member: whoever holds the instance id goes.
        member_id = group.static_members.get(instance_id or "", "")
    elif member_id in group.pending_members:
        operation.remove_pending_member(member_id)
        return ErrorCode.NONE
    try:
        operation.remove_member(group.validate_member(member_id, instance_id))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def close_connection(operation: GroupOperation, member_id: str, connection_id: int) -> None:
    """A connection of the member closed: with its last one its grace starts."""
    member = operation.group.members.get(member_id)
    presence = operation.group.pending_members.get(member_id)
    if member is not None:
        presence = member.presence
    if presence is None or connection_id == NO_CONNECTION:
        return
    presence.connections.discard(connection_id)
    if not presence.connections and presence.grace_ms >= 0 and not presence.grace_running:
        presence.grace_running = True
        operation.set_timer(TimerKind.GRACE, presence.grace_ms, member_id)
