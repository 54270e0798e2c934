"""Dialogues with the membership machine: request, answer, what next. No sockets, no clock."""

from __future__ import annotations

import pytest

from onceward.broker.client import ErrorCode, GroupMetadata, KafkaError, MemberFenced
from onceward.broker.client.group import Membership, MemberState, Step
from onceward.broker.protocol import messages as m

PROTOCOLS = [("range", b"subscription")]


def membership(instance_id: str | None = None) -> Membership:
    return Membership(
        "g", group_instance_id=instance_id, session_timeout_ms=10_000, rebalance_timeout_ms=30_000
    )


def joined(leader: str, *, generation: int = 1, skip: bool = False) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        generation_id=generation,
        protocol_name="range",
        leader=leader,
        member_id="me",
        skip_assignment=skip,
    )


def stable(instance_id: str | None = None) -> Membership:
    machine = membership(instance_id)
    machine.join_request(PROTOCOLS)
    machine.on_join(joined("other"))
    machine.on_sync(m.SyncGroupResponse(assignment=b"mine"))
    return machine


def beat(machine: Membership) -> m.HeartbeatRequest:
    request = machine.heartbeat_request()
    assert request is not None
    return request


def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    machine = membership()
    first = machine.join_request(PROTOCOLS)
    assert first.member_id == ""
    required = m.JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert machine.on_join(required) is Step.JOIN
    second = machine.join_request(PROTOCOLS)
    assert second.member_id == "me"
    assert [(p.name, p.metadata) for p in second.protocols] == PROTOCOLS
    assert machine.on_join(joined("other")) is Step.SYNC
    sync = machine.sync_request({})
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (1, "me", "range")
    assert machine.on_sync(m.SyncGroupResponse(assignment=b"mine")) is Step.DONE
    assert machine.state is MemberState.STABLE
    assert machine.assignment == b"mine"
    assert machine.metadata == GroupMetadata("g", 1, "me", None)
    assert not machine.rejoin_needed


def test_the_leader_assigns() -> None:
    machine = membership()
    machine.join_request(PROTOCOLS)
    assert machine.on_join(joined("me")) is Step.ASSIGN
    sync = machine.sync_request({"me": b"a", "you": b"b"})
    assert {a.member_id: a.assignment for a in sync.assignments} == {"me": b"a", "you": b"b"}


def test_a_static_leader_that_came_back_does_not_assign_again() -> None:
    machine = membership("i")
    assert machine.join_request(PROTOCOLS).group_instance_id == "i"
    assert machine.on_join(joined("me", skip=True)) is Step.SYNC
    assert machine.is_leader


def test_a_rebalance_is_noticed_by_a_heartbeat_and_keeps_the_member_id() -> None:
    machine = stable()
    assert machine.on_heartbeat(beat(machine), 0) is Step.DONE
    step = machine.on_heartbeat(beat(machine), ErrorCode.REBALANCE_IN_PROGRESS)
    assert step is Step.REJOIN
    assert machine.rejoin_needed
    assert not machine.lost
    assert beat(machine).member_id == "me", "heartbeats go on until the member joins"
    assert machine.join_request(PROTOCOLS).member_id == "me"
    assert machine.heartbeat_request() is None, "a parked join keeps the member alive"


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")],
)
def test_a_lost_membership_is_joined_anew_after_the_partitions_are_dropped(
    code: ErrorCode, member_id: str
) -> None:
    machine = stable()
    assert machine.on_heartbeat(beat(machine), code) is Step.LOST
    assert machine.lost
    assert machine.rejoin_needed
    assert machine.heartbeat_request() is None
    machine.on_lost_handled()
    assert not machine.lost
    assert machine.join_request(PROTOCOLS).member_id == member_id


def test_a_late_answer_to_an_older_generations_heartbeat_is_ignored() -> None:
    machine = stable()
    old = beat(machine)
    machine.join_request(PROTOCOLS)
    machine.on_join(joined("other", generation=2))
    machine.on_sync(m.SyncGroupResponse())
    assert machine.on_heartbeat(old, ErrorCode.ILLEGAL_GENERATION) is Step.DONE
    assert machine.state is MemberState.STABLE


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_moves_does_not_cost_the_membership(code: int) -> None:
    machine = stable()
    assert machine.on_heartbeat(beat(machine), code) is Step.RETRY
    assert machine.state is MemberState.STABLE
    machine.join_request(PROTOCOLS)
    assert machine.on_join(m.JoinGroupResponse(error_code=code)) is Step.RETRY
    assert machine.join_request(PROTOCOLS).member_id == "me"


def test_a_rebalance_during_sync_joins_again_at_once() -> None:
    machine = membership()
    machine.join_request(PROTOCOLS)
    machine.on_join(joined("other"))
    again = m.SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert machine.on_sync(again) is Step.JOIN
    assert machine.rejoin_needed


def test_a_member_unknown_at_join_or_sync_is_lost() -> None:
    machine = stable()
    machine.join_request(PROTOCOLS)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.on_join(m.JoinGroupResponse(error_code=unknown)) is Step.LOST
    machine.on_lost_handled()
    machine.join_request(PROTOCOLS)
    machine.on_join(joined("other"))
    assert machine.on_sync(m.SyncGroupResponse(error_code=unknown)) is Step.LOST


def test_a_static_member_that_was_replaced_is_fenced_for_good() -> None:
    machine = stable("i")
    with pytest.raises(MemberFenced, match="'i' joined group 'g' again elsewhere"):
        machine.on_heartbeat(beat(machine), ErrorCode.FENCED_INSTANCE_ID)
    assert machine.state is MemberState.FENCED
    assert machine.leave_request() is None


def test_what_no_retry_can_mend_is_raised() -> None:
    machine = membership()
    machine.join_request(PROTOCOLS)
    refused = m.JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
        machine.on_join(refused)
    assert machine.state is MemberState.UNJOINED


def test_a_refused_commit_tells_what_a_heartbeat_would() -> None:
    machine = stable()
    machine.on_commit_error(GroupMetadata("g", 0, "me"), ErrorCode.ILLEGAL_GENERATION)
    assert not machine.lost, "an older generation's commit says nothing"
    machine.on_commit_error(machine.metadata, ErrorCode.REBALANCE_IN_PROGRESS)
    assert machine.rejoin_needed
    machine.on_commit_error(machine.metadata, ErrorCode.UNKNOWN_MEMBER_ID)
    assert machine.lost


def test_the_reason_for_joining_goes_to_the_broker() -> None:
    machine = stable()
    machine.request_rejoin("more partitions")
    machine.request_rejoin("another reason")
    assert machine.join_request(PROTOCOLS).reason == "more partitions"


def test_leaving_names_the_member_and_happens_once() -> None:
    machine = stable("i")
    request = machine.leave_request()
    assert request is not None
    member = request.members[0]
    assert (member.member_id, member.group_instance_id) == ("me", "i")
    assert machine.leave_request() is None
    assert membership().leave_request() is None


def test_the_connection_grace_is_asked_for_in_the_join() -> None:
    machine = Membership(
        "g",
        group_instance_id=None,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        connection_grace_ms=250,
    )
    assert machine.join_request(PROTOCOLS).connection_grace_ms == 250
