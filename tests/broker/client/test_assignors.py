from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.broker.client import (
    CooperativeStickyAssignor,
    MemberMetadata,
    RangeAssignor,
    RoundRobinAssignor,
    TopicPartition,
    decode_assignment,
    encode_assignment,
)
from onceward.broker.client.assignors import Shares, owners_of
from onceward.broker.client.subscription import decode_subscription, encode_subscription
from onceward.broker.errors import ProtocolError


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in numbers]


def members(**topics: str) -> dict[str, MemberMetadata]:
    return {name: MemberMetadata(tuple(each.split())) for name, each in topics.items()}


def test_range_gives_each_member_a_contiguous_range_of_every_topic() -> None:
    shares = RangeAssignor().share_out(members(a="t u", b="t u"), {"t": 3, "u": 2})
    assert shares == {"a": tps("t", 0, 1) + tps("u", 0), "b": tps("t", 2) + tps("u", 1)}


def test_members_get_only_topics_they_subscribed_to() -> None:
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor()):
        shares = assignor.share_out(members(a="t", b="u"), {"t": 2, "u": 1})
        assert shares == {"a": tps("t", 0, 1), "b": tps("u", 0)}


def test_round_robin_deals_all_partitions_in_a_circle() -> None:
    shares = RoundRobinAssignor().share_out(members(a="t u", b="t u"), {"t": 3, "u": 1})
    assert shares == {"a": tps("t", 0, 2), "b": tps("t", 1) + tps("u", 0)}


def test_static_members_are_ordered_by_instance_id() -> None:
    group = {
        "x": MemberMetadata(("t",), group_instance_id="2"),
        "y": MemberMetadata(("t",), group_instance_id="1"),
    }
    assert RangeAssignor().share_out(group, {"t": 2}) == {"x": tps("t", 1), "y": tps("t", 0)}


def owning(
    shares: Shares, topics: dict[str, tuple[str, ...]], generation: int
) -> dict[str, MemberMetadata]:
    return {
        member: MemberMetadata(names, tuple(shares.get(member, ())), generation)
        for member, names in topics.items()
    }


def test_a_cooperative_join_first_only_revokes_then_gives() -> None:
    assignor = CooperativeStickyAssignor()
    topics = {"a": ("t",), "b": ("t",)}
    group = owning({"a": tps("t", 0, 1, 2, 3)}, topics, 1)
    first = assignor.share_out(group, {"t": 4})
    assert len(first["a"]) == 2
    assert first["b"] == [], "what a still owns is not given away yet"
    second = assignor.share_out(owning(first, topics, 2), {"t": 4})
    assert second["a"] == first["a"]
    assert sorted(second["a"] + second["b"]) == tps("t", 0, 1, 2, 3)


def test_the_claim_of_the_newest_generation_counts_and_equal_claims_cancel_out() -> None:
    claims = {
        "old": MemberMetadata(("t",), tuple(tps("t", 0, 1)), 1),
        "new": MemberMetadata(("t",), tuple(tps("t", 0, 2)), 2),
        "odd": MemberMetadata(("t",), tuple(tps("t", 2)), 2),
    }
    assert owners_of(claims) == {TopicPartition("t", 0): "new", TopicPartition("t", 1): "old"}


NAMES = ("a", "b", "c", "d")
subscriptions = st.dictionaries(
    st.sampled_from(NAMES), st.sets(st.sampled_from("tu"), min_size=1), min_size=1
)


@settings(max_examples=150, deadline=None)
@given(
    subscriptions,
    subscriptions,
    st.fixed_dictionaries({"t": st.integers(0, 9), "u": st.integers(0, 9)}),
)
def test_cooperative_sticky_always_ends_complete_balanced_and_still(
    before: dict[str, set[str]], after: dict[str, set[str]], counts: dict[str, int]
) -> None:
    assignor = CooperativeStickyAssignor()
    shares: Shares = {}
    for generation, topics in enumerate([before] * 3 + [after] * 4):
        named = {member: tuple(sorted(names)) for member, names in topics.items()}
        previous, shares = shares, assignor.share_out(owning(shares, named, generation), counts)
        given_out = Counter(tp for share in shares.values() for tp in share)
        assert not given_out or max(given_out.values()) == 1
        for member, share in shares.items():
            others = [tp for other in previous if other != member for tp in previous[other]]
            still_there = [tp for tp in others if owner_of(tp, previous) in named]
            assert not set(share) & set(still_there), "an owned partition was given away"
    wanted = {topic for names in after.values() for topic in names}
    assert sum(map(len, shares.values())) == sum(counts[topic] for topic in wanted)
    assert (
        assignor.share_out(
            owning(shares, {m: tuple(sorted(n)) for m, n in after.items()}, 9), counts
        )
        == shares
    )
    if len({frozenset(names) for names in after.values()}) == 1:
        loads = [len(share) for share in shares.values()]
        assert max(loads) - min(loads) <= 1


def owner_of(tp: TopicPartition, shares: Shares) -> str | None:
    return next((member for member, share in shares.items() if tp in share), None)


def test_subscriptions_and_assignments_survive_the_wire() -> None:
    owned = tps("t", 2, 0)
    data = encode_subscription(["t", "u"], owned=owned, generation=7, user_data=b"who")
    assert decode_subscription(data, "i") == MemberMetadata(
        ("t", "u"), tuple(sorted(owned)), 7, b"who", "i"
    )
    assert decode_assignment(encode_assignment(owned, b"x")) == (sorted(owned), b"x")
    assert decode_assignment(b"") == ([], b"")


def test_subscriptions_of_older_and_newer_members_are_understood() -> None:
    oldest = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    assert decode_subscription(oldest) == MemberMetadata(("t",))
    newest = b"\x00\x03" + encode_subscription(["t"], generation=3)[2:] + b"\x00\x04rack"
    assert decode_subscription(newest) == MemberMetadata(("t",), generation=3)


@given(st.binary(max_size=60))
def test_garbage_from_a_member_is_a_protocol_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ProtocolError:
            continue


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_cut_assignment_is_a_protocol_error(cut: int) -> None:
    whole = encode_assignment(tps("topic", 1, 2), b"data")
    with pytest.raises(ProtocolError):
        decode_assignment(whole[:-cut])
