"""Early expiry: members that ask for it are dropped soon after their last connection closed."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.broker.errors import ErrorCode


def worker(groups: Any, connection: int, **options: Any) -> str:
    """The only, Stable member with a grace of 500 ms, heard on one connection."""
    member, _ = groups.join_known(grace=500, connection=connection, **options)
    groups.advance(0)
    groups.sync(member, groups.group().generation, {member: b"all"}, connection=connection)
    return str(member)


def test_a_member_is_dropped_when_its_connection_stayed_closed_for_its_grace(groups: Any) -> None:
    worker(groups, 7)
    groups.close_connection(7)
    groups.advance(499)
    assert groups.state == "Stable"
    groups.advance(1)
    assert groups.state == "Empty"


def test_a_heartbeat_on_another_connection_ends_the_grace(groups: Any) -> None:
    member = worker(groups, 7)
    groups.close_connection(7)
    groups.advance(400)
    assert groups.heartbeat(member, 1, connection=8) is ErrorCode.NONE
    groups.advance(5_000)
    assert groups.state == "Stable"
    groups.close_connection(8)
    groups.advance(500)
    assert groups.state == "Empty"


def test_a_join_on_another_connection_ends_the_grace(groups: Any) -> None:
    member = worker(groups, 7)
    groups.close_connection(7)
    groups.join(member, grace=500, connection=8)
    groups.advance(5_000)
    assert member in groups.group().members


def test_the_grace_starts_only_with_the_last_connection_of_the_member(groups: Any) -> None:
    member = worker(groups, 7)
    groups.heartbeat(member, 1, connection=8)
    groups.close_connection(7)
    groups.advance(5_000)
    assert groups.state == "Stable"


def test_members_that_did_not_ask_live_until_their_session_ends(groups: Any) -> None:
    groups.stable()
    groups.close_connection(1)
    groups.advance(9_999)
    assert groups.state == "Stable"
    groups.advance(1)
    assert groups.state == "Empty"


def test_a_member_that_stops_asking_is_not_expired_early(groups: Any) -> None:
    member = worker(groups, 7)
    groups.join(member, grace=-1, connection=7)
    groups.advance(0)
    groups.close_connection(7)
    groups.advance(5_000)
    assert member in groups.group().members
    assert groups.shard.connections.members == {}


def test_a_static_member_that_asked_is_forgotten_with_its_instance_id(groups: Any) -> None:
    groups.join(instance="i", grace=0, connection=7)
    groups.advance(0)
    groups.close_connection(7)
    groups.advance(0)
    assert groups.group().static_members == {}
    assert groups.group().members == {}


def test_a_dead_member_with_a_parked_join_is_dropped_early_too(groups: Any) -> None:
    (leader,) = groups.stable()
    dead, parked = groups.join_known(grace=500, connection=7)
    groups.close_connection(7)
    groups.advance(500)
    assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join(leader).answer.generation_id == 2
    assert dead not in groups.group().members


def test_a_dead_pending_member_does_not_hold_up_the_rebalance(groups: Any) -> None:
    (leader,) = groups.stable()
    groups.join(grace=500, connection=7)
    groups.close_connection(7)
    rejoin = groups.join(leader)
    assert rejoin.parked
    groups.advance(500)
    assert rejoin.answer.generation_id == 2


def test_the_survivor_gets_the_partitions_right_after_the_grace(groups: Any) -> None:
    survivor, _ = groups.join_known(grace=500, connection=1)
    dead, _ = groups.join_known(grace=500, connection=7)
    groups.advance(0)
    groups.sync(dead, 1, connection=7)
    groups.sync(survivor, 1, {survivor: b"0", dead: b"1"}, connection=1)
    groups.close_connection(7)
    groups.advance(500)
    assert groups.heartbeat(survivor, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.join(survivor, grace=500).answer.generation_id == 2


@pytest.mark.parametrize("replaced_first", [True, False])
def test_the_old_connection_of_a_replaced_static_member_does_not_matter(
    groups: Any, replaced_first: bool
) -> None:
    groups.join(instance="i", grace=500, connection=7)
    groups.advance(0)
    (old,) = groups.group().members
    groups.sync(old, 1, {old: b"all"}, instance="i", connection=7)
    if replaced_first:
        new = groups.join(instance="i", grace=500, connection=8)
        groups.close_connection(7)
    else:
        groups.close_connection(7)
        new = groups.join(instance="i", grace=500, connection=8)
    groups.advance(5_000)
    assert list(groups.group().members) == [new.member_id]
    assert groups.state == "Stable"


def test_connections_of_members_that_left_are_forgotten(groups: Any) -> None:
    member = worker(groups, 7)
    groups.leave((member, None))
    assert groups.shard.connections.members == {}
