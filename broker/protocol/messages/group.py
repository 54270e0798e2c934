"""Membership of classic consumer groups, and their administration."""

from __future__ import annotations

from ..fields import boolean, bytes_, int8, int16, int32, message, nested, string, strings, structs


@message("0-6", flexible="3+")
class FindCoordinatorRequest:
    """``key_type`` 0 is a group, 1 a transactional id; v4 asks for many keys at once."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = strings("4+")


@message("0-6", flexible="3+")
class FindCoordinatorResponse:
    """The flat fields serve v0-3, ``coordinators`` v4 and later."""

    @nested
    class Coordinator:
        """The answer for one key."""

        key: str = string("4+")
        node_id: int = int32("4+")
        host: str = string("4+")
        port: int = int32("4+")
        error_code: int = int16("4+")
        error_message: str | None = string("4+", nullable="4+", ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[FindCoordinatorResponse.Coordinator] = structs("4+")


@message("0-9", flexible="6+")
class JoinGroupRequest:
    """v4 needs a member id from the broker first, v5 adds static members (KIP-345), v8 a reason.

    Tag 10000 is ours: the broker may expire the member that long after its last connection closed.
    Other brokers skip it.
    """

    @nested
    class JoinGroupRequestProtocol:
        """An assignor the member supports, with its subscription as opaque bytes."""

        name: str = string("0+")
        metadata: bytes = bytes_("0+")

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = structs("0+")
    reason: str | None = string("8+", default=None, nullable="8+", ignorable=True)
    connection_grace_ms: int = int32("6+", default=-1, tag=10000, ignorable=True)


@message("0-9", flexible="6+")
class JoinGroupResponse:
    """``members`` is filled for the leader only, which then computes the assignment."""

    @nested
    class JoinGroupResponseMember:
        """A member and its subscription for the chosen protocol."""

        member_id: str = string("0+")
        group_instance_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
        metadata: bytes = bytes_("0+")

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponse.JoinGroupResponseMember] = structs("0+")


@message("0-5", flexible="4+")
class SyncGroupRequest:
    """The leader brings the assignments; everybody else sends none and waits."""

    @nested
    class SyncGroupRequestAssignment:
        """Opaque bytes of the assignor for one member."""

        member_id: str = string("0+")
        assignment: bytes = bytes_("0+")

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = structs("0+")


@message("0-5", flexible="4+")
class SyncGroupResponse:
    """The assignment of the asking member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = bytes_("0+")


@message("0-4", flexible="4+")
class HeartbeatRequest:
    """Keeps a classic member alive; v3 carries the static instance id."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")


@message("0-4", flexible="4+")
class HeartbeatResponse:
    """Error 27 tells the member to rejoin."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


@message("0-5", flexible="4+")
class LeaveGroupRequest:
    """One member up to v2, a batch from v3 (admin tools remove static members so)."""

    @nested
    class MemberIdentity:
        """A static member is known by its instance id; the member id may then be empty."""

        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", default=None, nullable="3+")
        reason: str | None = string("5+", default=None, nullable="5+", ignorable=True)

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[LeaveGroupRequest.MemberIdentity] = structs("3+")


@message("0-5", flexible="4+")
class LeaveGroupResponse:
    """From v3 on each member has its own error."""

    @nested
    class MemberResponse:
        """The result for one member."""

        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+")
        error_code: int = int16("3+")

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[LeaveGroupResponse.MemberResponse] = structs("3+")


@message("0-6", flexible="5+")
class DescribeGroupsRequest:
    """Authorized operations (v3) are asked for by kafka-consumer-groups only."""

    groups: list[str] = strings("0+")
    include_authorized_operations: bool = boolean("3+")


@message("0-6", flexible="5+")
class DescribeGroupsResponse:
    """From v6 a missing group is error 69; before, a group in state Dead."""

    @nested
    class DescribedGroup:
        """State, protocol and members of one group."""

        error_code: int = int16("0+")
        error_message: str | None = string("6+", default=None, nullable="6+")
        group_id: str = string("0+")
        group_state: str = string("0+")
        protocol_type: str = string("0+")
        protocol_data: str = string("0+")
        members: list[DescribeGroupsResponse.DescribedGroupMember] = structs("0+")
        authorized_operations: int = int32("3+", default=-(2**31))

    @nested
    class DescribedGroupMember:
        """Subscription and assignment as opaque bytes."""

        member_id: str = string("0+")
        group_instance_id: str | None = string("4+", default=None, nullable="4+", ignorable=True)
        client_id: str = string("0+")
        client_host: str = string("0+")
        member_metadata: bytes = bytes_("0+")
        member_assignment: bytes = bytes_("0+")

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribeGroupsResponse.DescribedGroup] = structs("0+")


@message("0-5", flexible="3+")
class ListGroupsRequest:
    """Filters by state (v4) and group type (v5); empty filters match everything."""

    states_filter: list[str] = strings("4+")
    types_filter: list[str] = strings("5+")


@message("0-5", flexible="3+")
class ListGroupsResponse:
    """One error for the whole listing; groups of all states that pass the filters."""

    @nested
    class ListedGroup:
        """``group_type`` is "classic" or "consumer"."""

        group_id: str = string("0+")
        protocol_type: str = string("0+")
        group_state: str = string("4+", ignorable=True)
        group_type: str = string("5+", ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListGroupsResponse.ListedGroup] = structs("0+")


@message("0-2", flexible="2+")
class DeleteGroupsRequest:
    """Deletes empty groups with their committed offsets."""

    groups_names: list[str] = strings("0+")


@message("0-2", flexible="2+")
class DeleteGroupsResponse:
    """One result for each group."""

    @nested
    class DeletableGroupResult:
        """Error 68 when the group still has members."""

        group_id: str = string("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("0+")
    results: list[DeleteGroupsResponse.DeletableGroupResult] = structs("0+")
