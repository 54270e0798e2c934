"""Tasks to workers: balanced, sticky, together, and dead owners fenced."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from onceward.broker.client import MemberMetadata, TopicPartition, decode_assignment
from onceward.streams.engine.assignor import (
    TaskAssignor,
    assign_tasks,
    current_holders,
    parse_assignment_data,
)

GROUPS = [("a", "b"), ("c",)]


def member(
    owned: list[TopicPartition] | None = None, generation: int = -1, data: bytes = b""
) -> MemberMetadata:
    return MemberMetadata(("a", "b", "c"), tuple(owned or ()), generation, data, None)


@given(
    members=st.integers(1, 6),
    counts=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=6),
)
def test_every_partition_is_assigned_once_balanced_and_co_partitioned(
    members: int, counts: tuple[int, int], moves: list[tuple[bool, int]]
) -> None:
    partitions = {"a": counts[0], "b": counts[0], "c": counts[1]}
    alive = {f"m{n}" for n in range(members)}
    holders: dict[TopicPartition, str] = {}
    for joins, number in [(True, 0), *moves]:
        name = f"m{number}"
        alive = alive | {name} if joins else (alive - {name} or alive)
        holders = {tp: owner for tp, owner in holders.items() if owner in alive}
        infos = {each: member() for each in alive}
        found = assign_tasks(GROUPS, infos, holders, partitions)
        assert set(found) == {
            TopicPartition(t, n) for t, count in partitions.items() for n in range(count)
        }
        for n in range(counts[0]):
            assert found[TopicPartition("a", n)] == found[TopicPartition("b", n)]
        tasks = [found[TopicPartition("a", n)] for n in range(counts[0])]
        tasks += [found[TopicPartition("c", n)] for n in range(counts[1])]
        loads = [tasks.count(each) for each in alive]
        assert max(loads) - min(loads) <= 1
        assert assign_tasks(GROUPS, infos, found, partitions) == found
        holders = found


def test_a_new_member_takes_only_its_share() -> None:
    partitions = {"a": 4, "b": 4, "c": 2}
    before = assign_tasks(GROUPS, {"m1": member(), "m2": member()}, {}, partitions)
    infos = {"m1": member(), "m2": member(), "m3": member()}
    after = assign_tasks(GROUPS, infos, before, partitions)
    moved = {tp for tp in before if before[tp] != after[tp]}
    assert all(after[tp] == "m3" for tp in moved)


def test_of_two_claims_on_a_partition_the_later_generation_counts() -> None:
    tp = TopicPartition("a", 0)
    members = {"m1": member([tp], 3), "m2": member([tp], 4)}
    assert current_holders(members) == {tp: "m2"}


class Group:
    """Members that rejoin round by round, as the client has them do."""

    def __init__(self) -> None:
        self.assignors: dict[str, TaskAssignor] = {}
        self.owned: dict[str, list[TopicPartition]] = {}
        self.fence: dict[str, list[str]] = {}
        self.generation = 0

    def join(self, name: str) -> None:
        self.assignors[name] = TaskAssignor(GROUPS, f"txn-{name}")
        self.owned[name] = []

    def leave(self, name: str) -> None:
        del self.assignors[name], self.owned[name]

    def rebalance(self, leader: str, *, deaf: Collection[str] = ()) -> None:
        """``deaf`` members do not hear of this round: the next one supersedes it."""
        infos = {
            name: member(
                self.owned[name],
                self.generation,
                assignor.metadata([], self.owned[name], self.generation),
            )
            for name, assignor in self.assignors.items()
        }
        self.generation += 1
        given_ = self.assignors[leader].assign(infos, {"a": 2, "b": 2, "c": 2})
        for name, assignment in given_.items():
            if name in deaf:
                continue
            self.assignors[name].on_assignment(assignment, self.generation)
            self.owned[name], data = decode_assignment(assignment)
            self.fence[name] = parse_assignment_data(data).fence


def test_partitions_are_withheld_until_their_holder_let_go_of_them() -> None:
    group = Group()
    group.join("m1")
    group.rebalance("m1")
    assert len(group.owned["m1"]) == 6
    group.join("m2")
    group.rebalance("m1")
    assert group.owned["m2"] == []
    assert len(group.owned["m1"]) < 6
    group.rebalance("m2")
    assert sorted(group.owned["m1"] + group.owned["m2"]) == [
        TopicPartition(t, n) for t in "abc" for n in (0, 1)
    ]
    assert group.fence == {"m1": [], "m2": []}


def test_a_restarted_member_learns_that_others_wait_for_what_it_was_to_let_go_of() -> None:
    """The group gives a static member its old assignment back, without a rebalance."""
    first = TaskAssignor(GROUPS, "txn-m1")
    everything = [TopicPartition(t, n) for t in "abc" for n in (0, 1)]
    infos = {
        "m1": member(everything, 1, first.metadata([], everything, 1)),
        "m2": member([], -1, TaskAssignor(GROUPS, "txn-m2").metadata([], [], -1)),
    }
    counts = {"a": 2, "b": 2, "c": 2}
    given_ = first.assign(infos, counts)
    restarted = TaskAssignor(GROUPS, "txn-m1")
    assert restarted.on_assignment(given_["m1"], 2)
    assert not TaskAssignor(GROUPS, "txn-m2").on_assignment(given_["m2"], 2)
    kept, _ = decode_assignment(given_["m1"])
    infos["m1"] = member(kept, 2, restarted.metadata([], kept, 2))
    given_ = restarted.assign(infos, counts)
    assert not restarted.on_assignment(given_["m1"], 3)


def test_the_heir_of_a_dead_member_is_told_to_fence_it_even_by_a_new_leader() -> None:
    group = Group()
    for name in ("m1", "m2", "m3"):
        group.join(name)
    for _ in range(3):
        group.rebalance("m1")
    inherited = group.owned["m1"]
    assert inherited
    group.leave("m1")
    group.rebalance("m3")
    heirs = {name for name in ("m2", "m3") if set(group.owned[name]) & set(inherited)}
    assert heirs
    for name in ("m2", "m3"):
        assert group.fence[name] == (["txn-m1"] if name in heirs else [])
    group.rebalance("m3")
    assert not any(group.fence.values())


def test_an_heir_that_missed_its_assignment_is_told_to_fence_the_dead_member_again() -> None:
    """Else the dead one's open transaction holds the offsets back until its timeout."""
    group = Group()
    for name in ("m1", "m2", "m3"):
        group.join(name)
    for _ in range(3):
        group.rebalance("m1")
    inherited = set(group.owned["m1"])
    group.leave("m1")
    group.rebalance("m3", deaf=["m2"])
    assert not inherited & set(group.owned["m2"])
    group.rebalance("m3")
    assert inherited & set(group.owned["m2"])
    assert (group.fence["m2"], group.fence["m3"]) == (["txn-m1"], [])
    group.leave("m2")  # heard of its partitions, and may have written before it died as well
    group.rebalance("m3")
    assert "txn-m2" in group.fence["m3"]


def test_a_member_that_comes_back_with_its_old_id_is_not_fenced() -> None:
    group = Group()
    group.join("m1")
    group.join("m2")
    for _ in range(2):
        group.rebalance("m1")
    group.leave("m2")
    group.join("m2")
    group.rebalance("m1")
    assert not any(group.fence.values())


def test_data_of_other_clients_is_no_error() -> None:
    assigned = TaskAssignor(GROUPS, "t").assign({"m": member(data=b"\xff")}, {"a": 1, "b": 1})
    partitions, data = decode_assignment(assigned["m"])
    assert len(partitions) == 2
    assert msgspec.json.decode(data)
    assert parse_assignment_data(b"not ours").fence == []
