"""Joining, syncing, heartbeats and leaving, as a dialogue with one shard."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.broker.coordinator.group.records import GroupRecord
from onceward.broker.errors import ErrorCode, KafkaError

RANGE = (("range", b"topics"),)
BOTH = (("sticky", b"s"), ("range", b"r"))


# -- joining --------------------------------------------------------------------------------------


def test_a_new_dynamic_member_is_told_its_id_before_it_may_join(groups: Any) -> None:
    call = groups.join(client_id="app")
    assert call.error is ErrorCode.MEMBER_ID_REQUIRED
    assert call.member_id.startswith("app-")
    assert groups.group().members == {}


def test_a_new_member_before_version_4_joins_at_once(groups: Any) -> None:
    call = groups.join(version=3)
    groups.advance(0)
    assert call.error is ErrorCode.NONE
    assert call.answer.leader == call.member_id


def test_the_first_member_leads_generation_1_and_sees_the_members(groups: Any) -> None:
    member, call = groups.join_known()
    assert call.parked
    groups.advance(0)
    answer = call.answer
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", member)
    assert answer.protocol_type == "consumer"
    assert [(each.member_id, each.metadata) for each in answer.members] == [(member, b"topics")]
    assert groups.state == "CompletingRebalance"


def test_only_the_leader_sees_the_members(groups: Any) -> None:
    (first, one), (second, two) = groups.join_known(), groups.join_known()
    groups.advance(0)
    assert {each.member_id for each in one.answer.members} == {first, second}
    assert two.answer.members == []
    assert two.answer.leader == first


def test_a_pending_member_that_never_comes_back_is_forgotten_after_its_session(
    groups: Any,
) -> None:
    call = groups.join(session=10_000)
    groups.advance(10_000)
    assert "g" not in groups.shard.groups
    assert groups.join(call.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members(groups: Any) -> None:
    (leader,) = groups.stable()
    pending = groups.join()
    rejoin = groups.join(leader)
    assert not rejoin.parked or groups.state == "PreparingRebalance"
    assert rejoin.parked
    groups.join(pending.member_id)
    assert rejoin.answer.generation_id == 2


def test_a_rebalance_stops_waiting_when_the_pending_member_expires(groups: Any) -> None:
    (leader,) = groups.stable()
    groups.join(session=6_000)
    rejoin = groups.join(leader)
    groups.advance(5_999)
    assert rejoin.parked
    groups.advance(1)
    assert rejoin.answer.generation_id == 2


def test_joining_an_unknown_group_with_a_member_id_is_refused(groups: Any) -> None:
    call = groups.join("ghost")
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "g" not in groups.shard.groups


def test_joining_an_empty_group_with_an_old_member_id_is_refused(groups: Any) -> None:
    (member,) = groups.stable()
    groups.leave((member, None))
    assert groups.state == "Empty"
    assert groups.join(member).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", ()), ("", RANGE), ("connect", RANGE), ("consumer", (("other", b""),))],
)
def test_a_member_that_shares_no_protocol_is_refused(
    groups: Any, protocol_type: str, protocols: Any
) -> None:
    groups.stable()
    call = groups.join(protocol_type=protocol_type, protocols=protocols)
    assert call.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.state == "Stable"


def test_the_first_member_must_name_a_protocol(groups: Any) -> None:
    assert groups.join(protocols=()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "g" not in groups.shard.groups


def test_the_protocol_is_the_one_most_members_prefer_among_those_all_support(
    groups: Any,
) -> None:
    calls = [
        groups.join_known(protocols=(("sticky", b""), ("range", b""), ("mine", b"")))[1],
        groups.join_known(protocols=(("range", b""), ("sticky", b"")))[1],
        groups.join_known(protocols=(("range", b""), ("sticky", b"")))[1],
    ]
    groups.advance(0)
    assert {call.answer.protocol_name for call in calls} == {"range"}


def test_a_full_group_turns_new_members_away(new_groups: Any) -> None:
    groups = new_groups(max_size=1)
    groups.stable()
    call = groups.join()
    assert call.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.state == "Stable"


def test_a_group_above_a_lowered_size_turns_the_last_to_rejoin_away(new_groups: Any) -> None:
    groups = new_groups()
    members = groups.stable(2)
    smaller = new_groups(max_size=1)
    groups.config = smaller.config
    groups = groups.restart()
    assert groups.state == "PreparingRebalance"
    kept, turned_away = groups.join(members[1]), groups.join(members[0])
    assert turned_away.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert kept.answer.generation_id == 2
    assert list(groups.group().members) == [members[1]]


def test_a_parked_join_of_a_new_member_is_bounded_by_five_minutes(groups: Any) -> None:
    (leader,) = groups.stable(session=1_800_000, rebalance=900_000)
    member, call = groups.join_known(rebalance=900_000)
    groups.advance(299_999)
    assert call.parked
    groups.advance(1)
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(groups.group().members) == [leader]
    assert member not in groups.group().members


def test_a_second_join_of_a_member_answers_the_first(groups: Any) -> None:
    groups.stable()
    member, first = groups.join_known()
    second = groups.join(member)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.parked


# -- the initial rebalance ------------------------------------------------------------------------


def test_the_initial_rebalance_waits_for_its_delay(new_groups: Any) -> None:
    groups = new_groups(initial_rebalance_delay_ms=3_000)
    _, call = groups.join_known()
    groups.advance(2_999)
    assert call.parked
    groups.advance(1)
    assert call.answer.generation_id == 1


def test_each_new_member_extends_the_initial_delay_once(new_groups: Any) -> None:
    groups = new_groups(initial_rebalance_delay_ms=3_000)
    _, one = groups.join_known()
    groups.advance(2_000)
    _, two = groups.join_known()
    groups.advance(1_000)
    assert one.parked
    groups.advance(3_000)
    assert len(one.answer.members) == 2
    assert two.answer.generation_id == 1


def test_the_initial_delay_ends_with_the_longest_rebalance_timeout(new_groups: Any) -> None:
    groups = new_groups(initial_rebalance_delay_ms=3_000)
    _, one = groups.join_known(rebalance=7_000)
    for _ in range(3):
        groups.advance(2_500)
        groups.join_known(rebalance=7_000)
    groups.advance(2_499)
    assert not one.parked
    assert groups.group().generation == 1


# -- rebalances -----------------------------------------------------------------------------------


def test_a_new_member_makes_the_others_rejoin(groups: Any) -> None:
    (leader,) = groups.stable()
    member, call = groups.join_known()
    assert groups.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = groups.join(leader)
    assert rejoin.answer.generation_id == 2
    assert rejoin.answer.leader == leader
    assert {each.member_id for each in rejoin.answer.members} == {leader, member}
    assert call.answer.generation_id == 2


def test_a_dynamic_member_that_does_not_rejoin_in_time_is_dropped(groups: Any) -> None:
    leader, follower = groups.stable(2, session=120_000, rebalance=30_000)
    rejoin = groups.join(leader, session=120_000, rebalance=30_000)
    groups.advance(29_999)
    assert rejoin.parked
    groups.advance(1)
    assert [each.member_id for each in rejoin.answer.members] == [leader]
    assert groups.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_the_members(groups: Any) -> None:
    one, _ = groups.join_known(rebalance=10_000, session=100_000)
    groups.join_known(rebalance=50_000, session=100_000)
    groups.advance(0)
    rejoin = groups.join(one, rebalance=10_000, session=100_000, protocols=BOTH[1:])
    assert rejoin.parked
    groups.advance(49_999)
    assert rejoin.parked
    groups.advance(1)
    assert rejoin.answer.generation_id == 2


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout(groups: Any) -> None:
    call = groups.join(version=0, rebalance=-1, session=15_000)
    groups.advance(0)
    assert groups.group().members[call.member_id].rebalance_timeout_ms == 15_000


def test_the_leader_is_replaced_if_it_does_not_rejoin(groups: Any) -> None:
    leader, follower = groups.stable(2, session=120_000)
    groups.join(leader, protocols=(("range", b"new"),), session=120_000)
    groups.leave((leader, None))
    rejoin = groups.join(follower, session=120_000)
    assert rejoin.answer.leader == follower


def test_a_static_member_that_does_not_rejoin_keeps_its_place(groups: Any) -> None:
    static = groups.join(instance="i", session=100_000, rebalance=20_000)
    groups.advance(0)
    groups.assign([static.member_id])
    _, call = groups.join_known(rebalance=20_000)
    groups.advance(20_000)
    assert call.answer.leader == call.member_id
    assert {each.member_id for each in call.answer.members} == {static.member_id, call.member_id}


def test_if_nobody_rejoins_the_rebalance_waits_again(groups: Any) -> None:
    static = groups.join(instance="i", session=100_000, rebalance=20_000)
    groups.advance(0)
    groups.assign([static.member_id])
    pending = groups.join()
    late = groups.join(pending.member_id, rebalance=20_000)
    groups.leave((pending.member_id, None))
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID
    groups.advance(20_000)
    assert groups.state == "PreparingRebalance"
    rejoin = groups.join(static.member_id, instance="i", session=100_000)
    assert rejoin.answer.generation_id == 2


def test_a_session_timeout_does_not_remove_a_member_with_a_parked_join(groups: Any) -> None:
    leader, follower = groups.stable(2, session=6_000, rebalance=60_000)
    rejoin = groups.join(leader, session=6_000)
    for _ in range(4):
        groups.advance(5_000)
        assert groups.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin.parked
    groups.join(follower, session=6_000)
    assert rejoin.answer.generation_id == 2
    groups.advance(5_999)
    assert leader in groups.group().members
    groups.advance(1)
    assert leader not in groups.group().members


def test_a_follower_that_rejoins_unchanged_while_stable_gets_the_current_generation(
    groups: Any,
) -> None:
    leader, follower = groups.stable(2)
    call = groups.join(follower)
    assert (call.answer.generation_id, call.answer.leader, call.answer.members) == (1, leader, [])
    assert groups.state == "Stable"


def test_the_leader_rejoining_a_stable_group_starts_a_rebalance(groups: Any) -> None:
    leader, follower = groups.stable(2)
    assert groups.join(leader).parked
    assert groups.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_changed_metadata_of_a_follower_starts_a_rebalance(groups: Any) -> None:
    _, follower = groups.stable(2)
    assert groups.join(follower, protocols=(("range", b"other topics"),)).parked
    assert groups.state == "PreparingRebalance"


def test_an_unchanged_join_before_the_assignment_gets_the_same_answer_again(groups: Any) -> None:
    member, call = groups.join_known()
    groups.advance(0)
    assert groups.join(member).answer == call.answer
    assert groups.state == "CompletingRebalance"


def test_changed_metadata_before_the_assignment_starts_another_rebalance(groups: Any) -> None:
    (one, _), (two, _) = groups.join_known(), groups.join_known()
    groups.advance(0)
    waiting = groups.sync(two, 1)
    groups.join(one, protocols=(("range", b"changed"),))
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_cooperative_members_get_two_rebalances_in_a_row(groups: Any) -> None:
    (one,) = groups.stable(protocols=(("cooperative", b"owns 0 1"),))
    two, joined = groups.join_known(protocols=(("cooperative", b"owns -"),))
    groups.join(one, protocols=(("cooperative", b"owns 0 1"),))
    groups.assign([one, two])
    assert joined.answer.generation_id == 2
    # One gave partition 1 up and says so at once: the second rebalance assigns it.
    first = groups.join(one, protocols=(("cooperative", b"owns 0"),))
    second = groups.join(two, protocols=(("cooperative", b"owns -"),))
    assert first.answer.generation_id == second.answer.generation_id == 3
    assert first.answer.members[0].metadata == b"owns 0"
    groups.assign([one, two])
    assert groups.sync(two, 3).answer.assignment == b"a1"


# -- syncing --------------------------------------------------------------------------------------


def test_followers_wait_until_the_assignment_of_the_leader_is_committed(groups: Any) -> None:
    (one, _), (two, _) = groups.join_known(), groups.join_known()
    groups.advance(0)
    groups.holding = True
    follower = groups.sync(two, 1)
    leader = groups.sync(one, 1, {one: b"first", two: b"second"})
    assert leader.parked and follower.parked
    groups.commit()
    assert leader.answer.assignment == b"first"
    assert follower.answer.assignment == b"second"
    assert follower.answer.protocol_name == "range"
    (record,) = groups.new_records()
    assert isinstance(record, GroupRecord) and record.value is not None
    assert record.value.generation == 1
    assert record.value.leader == one
    assert [(each.member_id, each.assignment) for each in record.value.members] == [
        (one, b"first"),
        (two, b"second"),
    ]


def test_a_member_the_leader_forgot_gets_an_empty_assignment(groups: Any) -> None:
    (one, _), (two, _) = groups.join_known(), groups.join_known()
    groups.advance(0)
    groups.sync(one, 1, {one: b"all"})
    assert groups.sync(two, 1).answer.assignment == b""


def test_sync_in_a_stable_group_returns_the_stored_assignment(groups: Any) -> None:
    (member,) = groups.stable()
    assert groups.sync(member, 1).answer.assignment == b"a0"


def test_sync_is_refused_for_the_wrong_member_generation_or_protocol(groups: Any) -> None:
    (member,) = groups.stable()
    assert groups.sync("ghost", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.sync(member, 0).error is ErrorCode.ILLEGAL_GENERATION
    assert groups.sync(member, 1, group="other").error is ErrorCode.UNKNOWN_MEMBER_ID
    wrong_type = groups.sync(member, 1, protocol_type="connect", protocol_name="range")
    assert wrong_type.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_name = groups.sync(member, 1, protocol_type="consumer", protocol_name="sticky")
    assert wrong_name.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = groups.sync(member, 1, protocol_type="consumer", protocol_name="range")
    assert right.error is ErrorCode.NONE


def test_sync_during_a_rebalance_is_told_to_rejoin(groups: Any) -> None:
    (member,) = groups.stable()
    groups.join_known()
    assert groups.sync(member, 1).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_dropped(groups: Any) -> None:
    one, _ = groups.join_known(rebalance=20_000, session=100_000)
    two, _ = groups.join_known(rebalance=20_000, session=100_000)
    groups.advance(0)
    waiting = groups.sync(two, 1)
    groups.advance(20_000)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(groups.group().members) == [two]
    assert groups.state == "PreparingRebalance"
    assert groups.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_fetch_a_committed_assignment_is_dropped_too(groups: Any) -> None:
    one, _ = groups.join_known(rebalance=20_000, session=100_000)
    groups.join_known(rebalance=20_000, session=100_000)
    groups.advance(0)
    groups.sync(one, 1, {})
    assert groups.state == "Stable"
    groups.advance(20_000)
    assert list(groups.group().members) == [one]
    assert groups.state == "PreparingRebalance"


def test_an_assignment_the_log_refuses_ends_in_an_error_and_a_rebalance(groups: Any) -> None:
    (one, _), (two, _) = groups.join_known(), groups.join_known()
    groups.advance(0)
    follower = groups.sync(two, 1)
    groups.refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "too large")
    leader = groups.sync(one, 1, {one: b"huge"})
    assert leader.error is follower.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.state == "PreparingRebalance"
    assert groups.group().persisted is None


# -- heartbeats and sessions ----------------------------------------------------------------------


def test_heartbeats_keep_a_member_alive(groups: Any) -> None:
    (member,) = groups.stable(session=10_000)
    for _ in range(3):
        groups.advance(9_999)
        assert groups.heartbeat(member, 1) is ErrorCode.NONE
    groups.advance(10_000)
    assert groups.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_is_refused_for_the_wrong_member_or_generation(groups: Any) -> None:
    (member,) = groups.stable()
    assert groups.heartbeat("ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert groups.heartbeat(member, 1, group="other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_before_the_assignment_is_accepted(groups: Any) -> None:
    member, _ = groups.join_known()
    groups.advance(0)
    assert groups.heartbeat(member, 1) is ErrorCode.NONE


def test_a_heartbeat_during_a_rebalance_renews_the_session(groups: Any) -> None:
    (leader,) = groups.stable(session=10_000)
    groups.join_known()
    groups.advance(9_000)
    assert groups.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    groups.advance(9_000)
    assert leader in groups.group().members


def test_the_last_session_to_end_leaves_an_empty_group_of_a_new_generation(groups: Any) -> None:
    groups.stable(session=10_000)
    groups.new_records()
    groups.advance(10_000)
    assert groups.state == "Empty"
    (record,) = groups.new_records()
    assert isinstance(record, GroupRecord) and record.value is not None
    assert record.value.generation == 2
    assert record.value.members == []
    assert record.value.protocol is None and record.value.leader is None
    assert record.value.protocol_type == "consumer"
    assert record.value.current_state_timestamp == groups.now


# -- leaving --------------------------------------------------------------------------------------


def test_leaving_makes_the_others_rejoin(groups: Any) -> None:
    leader, follower = groups.stable(2)
    assert groups.leave((follower, None)) == [ErrorCode.NONE]
    assert groups.join(leader).answer.generation_id == 2


def test_members_can_leave_in_one_request_with_an_error_each(groups: Any) -> None:
    leader, follower = groups.stable(2)
    pending = groups.join().member_id
    codes = groups.leave((follower, None), ("ghost", None), (pending, None))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert groups.group().pending_members == {}
    assert list(groups.group().members) == [leader]


def test_leaving_an_unknown_group_is_an_unknown_member(groups: Any) -> None:
    assert groups.leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_can_be_removed_by_its_instance_id_alone(groups: Any) -> None:
    static = groups.join(instance="i")
    groups.advance(0)
    groups.assign([static.member_id])
    assert groups.leave(("", "other")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert groups.leave(("", "i")) == [ErrorCode.NONE]
    assert groups.state == "Empty"


def test_leaving_with_the_member_id_of_a_fenced_instance_is_refused(groups: Any) -> None:
    static = groups.join(instance="i")
    groups.advance(0)
    groups.assign([static.member_id])
    assert groups.leave(("older", "i")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_member_that_leaves_learns_it_on_its_parked_requests(groups: Any) -> None:
    (one, _), (two, _) = groups.join_known(), groups.join_known()
    groups.advance(0)
    waiting = groups.sync(two, 1)
    groups.leave((two, None))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    parked = groups.join(one, protocols=(("range", b"x"),))
    assert not parked.parked


def test_a_group_whose_members_all_left_before_any_assignment_is_empty(groups: Any) -> None:
    member, call = groups.join_known()
    groups.leave((member, None))
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    groups.advance(0)
    assert groups.state == "Empty"
    _, again = groups.join_known()
    groups.advance(0)
    assert again.answer.generation_id == 2
