"""Static members (KIP-345): a restarted process takes its place back without a rebalance."""

from __future__ import annotations

from typing import Any

from onceward.broker.coordinator.group.records import GroupRecord
from onceward.broker.errors import ErrorCode, KafkaError


def static_pair(groups: Any) -> tuple[str, str]:
    """A Stable group of the instances ``a`` (leads) and ``b``."""
    one, two = groups.join(instance="a"), groups.join(instance="b")
    groups.advance(0)
    groups.assign([one.member_id, two.member_id])
    groups.new_records()
    return one.member_id, two.member_id


def test_a_static_member_needs_no_second_round_trip(groups: Any) -> None:
    call = groups.join(instance="a")
    groups.advance(0)
    assert call.error is ErrorCode.NONE
    assert call.answer.members[0].group_instance_id == "a"


def test_a_restarted_static_follower_gets_its_place_back_without_a_rebalance(groups: Any) -> None:
    leader, follower = static_pair(groups)
    call = groups.join(instance="b")
    assert groups.state == "Stable"
    answer = call.answer
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, [])
    assert not answer.skip_assignment
    assert answer.member_id != follower
    assert groups.sync(answer.member_id, 1, instance="b").answer.assignment == b"a1"
    assert groups.heartbeat(leader, 1, instance="a") is ErrorCode.NONE


def test_the_new_member_id_is_persisted_before_the_answer(groups: Any) -> None:
    leader, follower = static_pair(groups)
    groups.holding = True
    call = groups.join(instance="b")
    assert call.parked
    (record,) = groups.new_records()
    assert isinstance(record, GroupRecord) and record.value is not None
    groups.commit()
    members = {each.group_instance_id: each for each in record.value.members}
    assert members["b"].member_id == call.member_id
    assert members["b"].assignment == b"a1"
    assert (record.value.generation, record.value.leader) == (1, leader)
    assert follower not in groups.group().members


def test_the_old_process_of_a_replaced_static_member_is_fenced(groups: Any) -> None:
    _, follower = static_pair(groups)
    groups.join(instance="b")
    assert groups.heartbeat(follower, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert groups.sync(follower, 1, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    assert groups.join(follower, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    commit = groups.commit_offsets({("t", 0): 1}, member_id=follower, generation=1, instance="b")
    assert commit.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_restarted_static_leader_before_version_9_is_answered_as_a_follower(
    groups: Any,
) -> None:
    leader, _ = static_pair(groups)
    call = groups.join(instance="a", version=8)
    assert call.answer.leader == leader != call.member_id
    assert call.answer.members == []
    assert groups.group().leader == call.member_id


def test_a_restarted_static_leader_from_version_9_on_is_told_to_skip_the_assignment(
    groups: Any,
) -> None:
    static_pair(groups)
    call = groups.join(instance="a", version=9)
    assert call.answer.skip_assignment
    assert call.answer.leader == call.member_id
    assert [each.group_instance_id for each in call.answer.members] == ["a", "b"]
    assert call.answer.members[0].member_id == call.member_id


def test_a_refused_replacement_leaves_the_old_member_in_place(groups: Any) -> None:
    _, follower = static_pair(groups)
    groups.refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert groups.join(instance="b").error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.heartbeat(follower, 1, instance="b") is ErrorCode.NONE
    assert groups.group().replacing == {}


def test_a_restarted_static_member_that_changes_the_vote_starts_a_rebalance(groups: Any) -> None:
    both = (("sticky", b""), ("range", b""))
    one, two = groups.join(instance="a", protocols=both), groups.join(instance="b", protocols=both)
    groups.advance(0)
    groups.assign([one.member_id, two.member_id])
    call = groups.join(instance="b", protocols=(("range", b""),))
    assert call.parked
    assert groups.state == "PreparingRebalance"
    rejoin = groups.join(one.member_id, instance="a", protocols=both)
    assert rejoin.answer.protocol_name == call.answer.protocol_name == "range"


def test_a_static_member_replaced_before_the_assignment_starts_a_rebalance(groups: Any) -> None:
    groups.join(instance="a")
    two = groups.join(instance="b")
    groups.advance(0)
    waiting = groups.sync(two.member_id, 1, instance="b")
    call = groups.join(instance="b")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert call.parked
    assert groups.state == "PreparingRebalance"


def test_a_static_member_replaced_while_its_join_is_parked_fences_the_parked_one(
    groups: Any,
) -> None:
    leader, follower = static_pair(groups)
    parked = groups.join(follower, instance="b", protocols=(("range", b"changed"),))
    call = groups.join(instance="b")
    assert parked.error is ErrorCode.FENCED_INSTANCE_ID
    rejoin = groups.join(leader, instance="a")
    assert call.answer.generation_id == rejoin.answer.generation_id == 2
    assert len(rejoin.answer.members) == 2


def test_an_unknown_instance_id_with_a_member_id_is_an_unknown_member(groups: Any) -> None:
    member, _ = static_pair(groups)
    assert groups.heartbeat(member, 1, instance="z") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_stays_until_its_session_ends(groups: Any) -> None:
    leader, follower = static_pair(groups)
    groups.advance(9_000)
    groups.heartbeat(leader, 1, instance="a")
    groups.advance(1_000)
    assert list(groups.group().members) == [leader]
    assert groups.heartbeat(follower, 1, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_the_replaced_member_id_does_not_end_the_new_one(groups: Any) -> None:
    leader, _ = static_pair(groups)
    groups.advance(9_000)
    groups.heartbeat(leader, 1, instance="a")
    call = groups.join(instance="b")
    groups.advance(9_999)
    assert call.member_id in groups.group().members
