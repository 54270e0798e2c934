"""What a restart restores: replaying the log gives the hard state the live shard had."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward.broker.errors import ErrorCode

T0 = ("t", 0)


def hard_state(groups: Any) -> Any:
    """Everything that must survive, as plain values."""
    return (
        {
            group_id: repr(group.persisted)
            for group_id, group in groups.shard.groups.items()
            if group.persisted is not None
        },
        {
            group_id: {partition: repr(offset) for partition, offset in offsets.items()}
            for group_id, offsets in groups.shard.offsets.committed.items()
        },
        {
            producer: {
                group_id: {partition: repr(offset) for partition, offset in offsets.items()}
                for group_id, offsets in pending.items()
            }
            for producer, pending in groups.shard.offsets.pending.items()
        },
    )


def settled_groups(groups: Any) -> dict[str, str]:
    """Live groups without a draft, as the record that would restore them."""
    return {
        group_id: repr(group.metadata_value(now_ms=group.state_timestamp))
        for group_id, group in groups.shard.groups.items()
        if group.state.value in ("Stable", "Empty") and group.persisted is not None
    }


def test_a_stable_group_goes_on_after_a_restart(groups: Any) -> None:
    leader, follower = groups.stable(2)
    groups.commit_offsets({T0: 5}, member_id=leader, generation=1)
    restarted = groups.restart()
    assert restarted.state == "Stable"
    assert restarted.heartbeat(leader, 1) is ErrorCode.NONE
    assert restarted.sync(follower, 1).answer.assignment == b"a1"
    assert restarted.fetch(T0) == {T0: (5, ErrorCode.NONE)}
    assert restarted.group().leader == leader
    assert restarted.group().rebalance_timeout_ms == 60_000


def test_sessions_start_anew_after_a_restart(groups: Any) -> None:
    groups.stable(session=10_000)
    groups.advance(9_000)
    restarted = groups.restart()
    restarted.advance(9_999)
    assert restarted.state == "Stable"
    restarted.advance(1)
    assert restarted.state == "Empty"


def test_generations_never_go_back_after_a_restart(groups: Any) -> None:
    (member,) = groups.stable()
    groups.leave((member, None))
    assert groups.group().generation == 2
    restarted = groups.restart()
    assert restarted.state == "Empty"
    _, call = restarted.join_known()
    restarted.advance(0)
    assert call.answer.generation_id == 3


def test_a_rebalance_without_assignment_is_forgotten_and_the_members_rejoin(groups: Any) -> None:
    (member,) = groups.stable()
    newcomer, _ = groups.join_known()
    assert groups.join(member).answer.generation_id == 2
    restarted = groups.restart()
    assert restarted.group().generation == 1
    assert restarted.sync(member, 2).error is ErrorCode.ILLEGAL_GENERATION
    assert restarted.heartbeat(newcomer, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert restarted.join(member).answer.generation_id == 2


def test_a_replaced_static_member_is_restored_under_its_new_id(groups: Any) -> None:
    old = groups.join(instance="i")
    groups.advance(0)
    groups.assign([old.member_id])
    new = groups.join(instance="i")
    restarted = groups.restart()
    assert restarted.heartbeat(old.member_id, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert restarted.sync(new.member_id, 1, instance="i").answer.assignment == b"a0"
    assert restarted.join(instance="i").answer.generation_id == 1


def test_pending_transactions_survive_a_restart(groups: Any) -> None:
    groups.commit_offsets({T0: 5})
    groups.commit_offsets({T0: 9}, producer=1)
    restarted = groups.restart()
    assert restarted.fetch(T0, stable=True) == {T0: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    restarted.end_transaction(1, commit=True)
    assert restarted.restart().fetch(T0) == {T0: (9, ErrorCode.NONE)}


def test_a_deleted_group_stays_deleted(groups: Any) -> None:
    groups.commit_offsets({T0: 5})
    groups.delete_group()
    assert groups.restart().shard.groups == {}


PROCESSES = 4
KINDS = {
    "join": ([b"x", b"y"], 8),
    "start": ([3, 9], 4),
    "settle": ([True, True, False], 14),
    "sync": ([None], 2),
    "leave": ([None], 2),
    "beat": ([None], 4),
    "commit": ([None, 1, 2], 10),
    "end": ([True, False], 5),
    "delete": (["group", "offset", "topic"], 2),
    "close": ([None], 2),
    "time": ([0, 3_000, 3_000, 20_000, 700_000], 8),
    "restart": ([None], 1),
}


def random_steps(seed: int, count: int, without: str = "") -> Iterator[tuple[str, str, int, Any]]:
    """(kind, group, process, detail)"""
    rng = random.Random(seed)
    kinds = [kind for kind in KINDS if kind != without]
    weights = [KINDS[kind][1] for kind in kinds]
    for kind in rng.choices(kinds, weights, k=count):
        details: Any = KINDS[kind][0]
        yield kind, rng.choice("ggh"), rng.randrange(PROCESSES), rng.choice(details)


class Session:
    """Plays random steps with four processes, of which the last two are static members."""

    def __init__(self, groups: Any) -> None:
        self.groups = groups
        self.member_ids: dict[tuple[str, int], str] = {}
        self.calls: list[tuple[tuple[str, int], Any]] = []

    def instance(self, process: int) -> str | None:
        return f"i{process}" if process >= 2 else None

    def play(self, step: tuple[str, str, int, Any]) -> None:
        kind, group, process, detail = step
        act: Callable[[str, int, Any], None] = getattr(self, kind)
        act(group, process, detail)
        for who, call in self.calls:
            if not call.parked and call.member_id:
                self.member_ids[who] = call.member_id
        self.calls = [(who, call) for who, call in self.calls if call.parked]

    def generation(self, group: str) -> int:
        found = self.groups.shard.groups.get(group)
        return -1 if found is None else found.generation

    def _join(self, group: str, process: int, member_id: str, **options: Any) -> None:
        call = self.groups.join(
            member_id,
            group=group,
            instance=self.instance(process),
            connection=process,
            grace=process * 1_000 - 1_000 if process else -1,
            session=10_000,
            rebalance=15_000,
            **options,
        )
        self.calls.append(((group, process), call))

    def join(self, group: str, process: int, metadata: bytes) -> None:
        member_id = self.member_ids.get((group, process), "")
        self._join(group, process, member_id, protocols=(("p", metadata), ("q", b"")))

    def start(self, group: str, process: int, version: int) -> None:
        self._join(group, process, "", protocols=(("q", b""), ("p", b"x")), version=version)

    def sync(self, group: str, process: int, _detail: Any) -> None:
        members = {member: b"a" for (name, _), member in self.member_ids.items() if name == group}
        member_id = self.member_ids.get((group, process), "")
        generation = self.generation(group)
        self.groups.sync(
            member_id, generation, members, group=group, instance=self.instance(process)
        )

    def settle(self, group: str, _process: int, sync: bool) -> None:
        """Every process that is in the group rejoins and, if asked, syncs."""
        inside = [process for (name, process) in self.member_ids if name == group]
        for process in inside:
            self.play(("join", group, process, b"x"))
        self.groups.advance(0)
        self.play(("beat", group, 0, None))
        for process in inside if sync else ():
            self.sync(group, process, None)

    def leave(self, group: str, process: int, _detail: Any) -> None:
        member_id = self.member_ids.get((group, process), "")
        self.groups.leave((member_id, self.instance(process)), group=group)

    def beat(self, group: str, process: int, _detail: Any) -> None:
        member_id = self.member_ids.get((group, process), "")
        self.groups.heartbeat(member_id, self.generation(group), group=group, connection=process)

    def commit(self, group: str, process: int, producer: int | None) -> None:
        member_id = self.member_ids.get((group, process), "")
        self.groups.commit_offsets(
            {T0: process, ("t", process): 1},
            group=group,
            member_id=member_id,
            generation=self.generation(group) if member_id else -1,
            producer=producer,
        )

    def end(self, _group: str, process: int, commit: bool) -> None:
        self.groups.end_transaction(process % 2 + 1, commit=commit)

    def delete(self, group: str, _process: int, what: str) -> None:
        if what == "group":
            self.groups.delete_group(group)
        elif what == "offset":
            self.groups.delete_offsets(T0, group=group)
        else:
            self.groups.delete_topics("t")

    def close(self, _group: str, process: int, _detail: Any) -> None:
        self.groups.close_connection(process)

    def time(self, _group: str, _process: int, ms: int) -> None:
        self.groups.advance(ms)

    def restart(self, _group: str, _process: int, _detail: Any) -> None:
        self.groups = self.groups.restart()
        self.calls = []


@pytest.mark.parametrize("seed", range(40))
def test_replaying_the_log_gives_the_live_hard_state_after_any_operations(
    new_groups: Callable[..., Any], seed: int
) -> None:
    session = Session(new_groups(offsets_retention_minutes=5 if seed % 4 == 0 else 10_080))
    for number, step in enumerate(random_steps(seed, 200)):
        session.play(step)
        live = session.groups
        for group in live.shard.groups.values():
            if group.state.value in ("Stable", "Empty"):
                assert all(member.awaiting_join is None for member in group.members.values())
        if number % 4 == 0:
            restored = live.restart()
            assert hard_state(restored) == hard_state(live)
            settled = settled_groups(live)
            restored_groups = settled_groups(restored)
            assert {group_id: restored_groups[group_id] for group_id in settled} == settled


@pytest.mark.parametrize("seed", range(40))
def test_every_parked_request_is_answered_in_the_end(
    new_groups: Callable[..., Any], seed: int
) -> None:
    session = Session(new_groups())
    for step in random_steps(seed, 150, without="restart"):
        session.play(step)
    # Nobody speaks any more: sessions, rebalances and bounds run out.
    session.groups.advance(3_600_000)
    assert session.groups.waiting == set()
    assert all(not group.members for group in session.groups.shard.groups.values())
    assert session.groups.shard.connections.members == {}
