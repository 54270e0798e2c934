"""Commits, transactional commits, fetches, deletion and expiry of offsets, as a dialogue."""

from __future__ import annotations

import struct
from typing import Any

from onceward.broker.coordinator.group.rebalance import GroupTimer, TimerKind
from onceward.broker.coordinator.group.records import GroupRecord, OffsetRecord
from onceward.broker.errors import ErrorCode
from onceward.broker.types import TopicPartition

T0, T1 = ("t", 0), ("t", 1)
NONE = ErrorCode.NONE
MINUTE = 60_000
WEEK = 7 * 24 * 60 * MINUTE


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


# -- plain commits --------------------------------------------------------------------------------


def test_a_consumer_outside_any_group_protocol_commits_without_a_generation(groups: Any) -> None:
    assert groups.commit_offsets({T0: 5}).answer == {T0: NONE}
    assert groups.fetch(T0, T1) == {T0: (5, NONE), T1: (-1, NONE)}
    assert groups.state == "Empty"


def test_a_commit_is_answered_when_it_is_committed_to_the_log(groups: Any) -> None:
    groups.holding = True
    call = groups.commit_offsets({T0: 5})
    assert call.parked
    groups.commit()
    assert call.answer == {T0: NONE}


def test_a_commit_with_a_generation_of_an_unknown_group_is_refused(groups: Any) -> None:
    assert groups.commit_offsets({T0: 5}, generation=0).error is ErrorCode.ILLEGAL_GENERATION
    assert groups.shard.groups == {}


def test_members_commit_with_their_generation(groups: Any) -> None:
    (member,) = groups.stable()

    def commit(**options: Any) -> ErrorCode:
        call = groups.commit_offsets({T0: 5}, **options)
        return NONE if call.answer == {T0: NONE} else call.error

    assert commit(member_id=member, generation=1) is NONE
    assert commit(member_id=member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert commit(member_id="ghost", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_before_the_assignment_is_told_to_rejoin(groups: Any) -> None:
    member, _ = groups.join_known()
    groups.advance(0)
    call = groups.commit_offsets({T0: 5}, member_id=member, generation=1)
    assert call.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_may_commit_while_the_others_rejoin(groups: Any) -> None:
    (member,) = groups.stable()
    groups.join_known()
    call = groups.commit_offsets({T0: 5}, member_id=member, generation=1)
    assert call.answer == {T0: NONE}


def test_a_commit_counts_as_a_heartbeat(groups: Any) -> None:
    (member,) = groups.stable(session=10_000)
    groups.advance(9_000)
    groups.commit_offsets({T0: 5}, member_id=member, generation=1)
    groups.advance(9_999)
    assert groups.state == "Stable"


def test_a_commit_without_a_generation_is_accepted_once_the_group_is_empty(groups: Any) -> None:
    (member,) = groups.stable()
    assert groups.commit_offsets({T0: 5}).error is ErrorCode.UNKNOWN_MEMBER_ID
    groups.leave((member, None))
    assert groups.commit_offsets({T0: 5}).answer == {T0: NONE}


def test_too_much_metadata_is_refused_for_that_partition(new_groups: Any) -> None:
    groups = new_groups(offset_metadata_max_size=3)
    call = groups.commit_offsets({T0: 5}, metadata="four")
    assert call.answer == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert groups.log == []
    assert groups.commit_offsets({T0: 5}, metadata="3ch").answer == {T0: NONE}


# -- fetching -------------------------------------------------------------------------------------


def test_all_offsets_of_a_group_can_be_fetched(groups: Any) -> None:
    groups.commit_offsets({T1: 2, T0: 1, ("s", 3): 4})
    assert groups.fetch() == {("s", 3): (4, NONE), T0: (1, NONE), T1: (2, NONE)}


def test_an_unknown_group_has_no_offsets(groups: Any) -> None:
    assert groups.fetch(T0, group="other") == {T0: (-1, NONE)}
    assert groups.fetch(group="other") == {}


def test_metadata_and_leader_epoch_are_returned(groups: Any) -> None:
    groups.commit_offsets({T0: 5}, metadata="note")
    (topic,) = groups.shard.fetch_offsets("g", None, False).topics
    (partition,) = topic.partitions
    assert (partition.metadata, partition.committed_leader_epoch) == ("note", 0)


# -- transactional commits ------------------------------------------------------------------------


def test_transactional_offsets_appear_when_the_transaction_commits(groups: Any) -> None:
    groups.commit_offsets({T0: 5})
    groups.commit_offsets({T0: 9}, producer=1)
    assert groups.fetch(T0) == {T0: (5, NONE)}
    groups.end_transaction(1, commit=True)
    assert groups.fetch(T0) == {T0: (9, NONE)}


def test_transactional_offsets_vanish_when_the_transaction_aborts(groups: Any) -> None:
    groups.commit_offsets({T0: 5})
    groups.commit_offsets({T0: 9}, producer=1)
    groups.end_transaction(1, commit=False)
    assert groups.fetch(T0, stable=True) == {T0: (5, NONE)}
    assert groups.shard.offsets.pending == {}


def test_a_stable_fetch_is_refused_per_partition_while_a_transaction_is_open(groups: Any) -> None:
    groups.commit_offsets({T0: 5, T1: 6})
    groups.commit_offsets({T0: 9}, producer=1)
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert groups.fetch(T0, T1, stable=True) == {T0: unstable, T1: (6, NONE)}
    groups.commit_offsets({T0: 11}, producer=2)
    groups.end_transaction(1, commit=True)
    assert groups.fetch(T0, stable=True) == {T0: unstable}
    groups.end_transaction(2, commit=False)
    assert groups.fetch(T0, stable=True) == {T0: (9, NONE)}


def test_a_stable_fetch_of_everything_names_undecided_partitions(groups: Any) -> None:
    groups.commit_offsets({T0: 9}, producer=1)
    assert groups.fetch(stable=True) == {T0: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    assert groups.fetch() == {}


def test_a_transaction_does_not_overwrite_a_commit_that_came_after_it(groups: Any) -> None:
    groups.commit_offsets({T0: 9, T1: 9}, producer=1)
    groups.commit_offsets({T0: 20})
    groups.end_transaction(1, commit=True)
    assert groups.fetch(T0, T1) == {T0: (20, NONE), T1: (9, NONE)}


def test_a_transaction_ends_in_all_groups_it_wrote_to(groups: Any) -> None:
    groups.commit_offsets({T0: 1}, producer=1, group="a")
    groups.commit_offsets({T0: 2}, producer=1, group="b")
    groups.end_transaction(1, commit=True)
    assert groups.fetch(T0, group="a") == {T0: (1, NONE)}
    assert groups.fetch(T0, group="b") == {T0: (2, NONE)}


def test_an_aborted_transaction_leaves_no_group_behind(groups: Any) -> None:
    groups.commit_offsets({T0: 1}, producer=1)
    groups.end_transaction(1, commit=False)
    assert groups.shard.groups == {}


def test_a_zombie_with_an_old_generation_cannot_commit_in_its_transaction(groups: Any) -> None:
    (zombie,) = groups.stable(session=10_000)
    groups.advance(10_000)
    heir, _ = groups.join_known()
    groups.advance(0)
    groups.assign([heir])
    generation = groups.group().generation

    def commit(member_id: str, generation: int, instance: str | None = None) -> Any:
        return groups.commit_offsets(
            {T0: 9}, producer=1, member_id=member_id, generation=generation, instance=instance
        )

    assert commit(zombie, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(heir, generation - 1).error is ErrorCode.ILLEGAL_GENERATION
    assert commit(heir, generation, "i").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(heir, generation).answer == {T0: NONE}


def test_producers_that_say_nothing_of_the_group_are_accepted_in_any_state(groups: Any) -> None:
    groups.stable()
    assert groups.commit_offsets({T0: 9}, producer=1).answer == {T0: NONE}


def test_the_state_of_the_rebalance_does_not_matter_to_transactions(groups: Any) -> None:
    member, _ = groups.join_known()
    groups.advance(0)
    assert groups.state == "CompletingRebalance"
    call = groups.commit_offsets({T0: 9}, producer=1, member_id=member, generation=1)
    assert call.answer == {T0: NONE}


def test_a_transaction_with_a_generation_of_an_unknown_group_is_refused(groups: Any) -> None:
    call = groups.commit_offsets({T0: 9}, producer=1, member_id="m", generation=3)
    assert call.error is ErrorCode.ILLEGAL_GENERATION


# -- deletion -------------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_can_be_deleted(groups: Any) -> None:
    groups.commit_offsets({T0: 5, T1: 6})
    assert groups.delete_offsets(T0, ("u", 9)).answer == {T0: NONE, ("u", 9): NONE}
    assert groups.fetch() == {T1: (6, NONE)}


def test_deleting_an_offset_also_drops_what_is_pending(groups: Any) -> None:
    groups.commit_offsets({T0: 5, T1: 6})
    groups.commit_offsets({T0: 9}, producer=1)
    groups.delete_offsets(T0)
    groups.end_transaction(1, commit=True)
    assert groups.fetch() == {T1: (6, NONE)}


def test_offsets_of_a_subscribed_topic_cannot_be_deleted(groups: Any) -> None:
    (member,) = groups.stable(protocols=(("range", subscription("t")),))
    groups.commit_offsets({T0: 5, ("u", 0): 6}, member_id=member, generation=1)
    answer = groups.delete_offsets(T0, ("u", 0)).answer
    assert answer == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): NONE}


def test_no_offset_can_be_deleted_while_subscriptions_are_unreadable(groups: Any) -> None:
    groups.stable(protocols=(("range", b"?"),))
    assert groups.delete_offsets(T0).answer == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_a_group_that_is_no_consumer_group_need_it_to_be_empty(groups: Any) -> None:
    groups.stable(protocol_type="connect")
    assert groups.delete_offsets(T0).error is ErrorCode.NON_EMPTY_GROUP
    assert groups.delete_offsets(T0, group="other").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_along(groups: Any) -> None:
    groups.commit_offsets({T0: 1, ("u", 0): 2})
    groups.commit_offsets({T0: 1}, group="h")
    groups.commit_offsets({T1: 9}, producer=1)
    groups.delete_topics("t")
    groups.end_transaction(1, commit=True)
    assert groups.fetch() == {("u", 0): (2, NONE)}
    assert "h" not in groups.shard.groups


def test_deleting_a_group_forgets_its_offsets(groups: Any) -> None:
    (member,) = groups.stable()
    groups.commit_offsets({T0: 1}, member_id=member, generation=1)
    assert groups.delete_group() is ErrorCode.NON_EMPTY_GROUP
    groups.leave((member, None))
    groups.new_records()
    assert groups.delete_group() is NONE
    assert groups.new_records() == [
        OffsetRecord("g", TopicPartition(*T0), None),
        GroupRecord("g", None),
    ]
    assert groups.delete_group() is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.fetch() == {}


def test_deleting_a_group_drops_offsets_of_open_transactions(groups: Any) -> None:
    groups.commit_offsets({T0: 1})
    groups.commit_offsets({T0: 9, T1: 9}, producer=1)
    assert groups.delete_group() is NONE
    groups.end_transaction(1, commit=True)
    assert groups.shard.groups == {}
    assert groups.fetch() == {}


# -- expiry ---------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_expire_by_their_age(groups: Any) -> None:
    groups.commit_offsets({T0: 1})
    groups.advance(WEEK - MINUTE)
    groups.commit_offsets({T1: 2})
    groups.advance(11 * MINUTE)
    assert groups.fetch() == {T1: (2, NONE)}
    groups.advance(WEEK)
    assert groups.shard.groups == {}


def test_offsets_of_a_group_live_until_it_was_empty_for_the_retention(groups: Any) -> None:
    (member,) = groups.stable(session=10_000)
    groups.commit_offsets({T0: 1}, member_id=member, generation=1)
    groups.advance(0)
    for _ in range(8 * 24 * 2):
        groups.advance(9_000)
        groups.heartbeat(member, 1)
    groups.now += WEEK
    groups.heartbeat(member, 1)
    groups.leave((member, None))
    groups.advance(WEEK - MINUTE)
    assert groups.fetch() == {T0: (1, NONE)}
    groups.new_records()
    groups.advance(11 * MINUTE)
    assert groups.new_records() == [
        OffsetRecord("g", TopicPartition(*T0), None),
        GroupRecord("g", None),
    ]
    assert groups.shard.groups == {}


def test_an_offset_set_for_an_old_empty_group_lives_for_the_retention(groups: Any) -> None:
    (member,) = groups.stable()
    groups.commit_offsets({T0: 1}, member_id=member, generation=1)
    groups.leave((member, None))
    groups.advance(WEEK - MINUTE)
    groups.commit_offsets({T1: 7})
    groups.advance(WEEK - MINUTE)
    assert groups.fetch() == {T1: (7, NONE)}


def test_a_stable_consumer_group_loses_offsets_of_topics_it_left(groups: Any) -> None:
    (member,) = groups.stable(protocols=(("range", subscription("t")),), session=1_800_000)
    groups.commit_offsets({T0: 1, ("old", 0): 2}, member_id=member, generation=1)
    groups.now += WEEK
    groups.heartbeat(member, 1)
    groups.advance(10 * MINUTE)
    assert groups.fetch() == {T0: (1, NONE)}


def test_an_explicit_retention_wins_over_the_configured_one(groups: Any) -> None:
    groups.commit_offsets({T0: 1}, retention=30 * MINUTE)
    groups.advance(29 * MINUTE)
    assert groups.fetch() == {T0: (1, NONE)}
    groups.advance(10 * MINUTE)
    assert groups.fetch() == {}


def test_a_group_with_an_open_transaction_does_not_expire(groups: Any) -> None:
    groups.commit_offsets({T0: 1})
    groups.commit_offsets({T0: 9}, producer=1)
    groups.advance(WEEK + 20 * MINUTE)
    groups.end_transaction(1, commit=True)
    assert groups.fetch() == {T0: (9, NONE)}


def test_a_group_that_waits_for_a_pending_member_is_not_removed(groups: Any) -> None:
    (member,) = groups.stable()
    groups.leave((member, None))
    groups.advance(9 * MINUTE)
    pending = groups.join(session=1_800_000)
    groups.advance(2 * MINUTE)
    assert groups.join(pending.member_id).parked


def test_expiry_goes_in_batches_of_bounded_size(new_groups: Any) -> None:
    groups = new_groups(offsets_retention_check_interval_ms=WEEK)
    for number in range(1_200):
        groups.commit_offsets({T0: 1}, group=f"g{number}")
    groups.new_records()
    first = groups.shard.on_timer(GroupTimer(TimerKind.RETENTION), groups.now + WEEK)
    assert len(first.records) == 1_000
    groups.advance(WEEK)
    assert len(groups.new_records()) == 2_400
    assert groups.shard.groups == {}
