"""The group protocol "onceward": tasks to workers, sticky, and who fences whom. Pure.

A task (the partitions with one number of all topics of a sub-topology) always goes to one member.
Every member tells its transactional id and whom it last knew to own what; the leader passes the
owners on and tells whoever inherits partitions of a member that is gone to fence that member's
transactional id, so that a dead worker's transaction is aborted at once instead of after its
timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from onceward.broker.client import (
    MemberMetadata,
    TopicPartition,
    decode_assignment,
    encode_assignment,
)

Owners = dict[TopicPartition, list[str]]
Packed = dict[str, dict[str, list[int]]]


class SubscriptionData(msgspec.Struct, omit_defaults=True):
    """What a member tells: its transactional id, and who owned what as of a generation.

    A partition has several owners from when it was handed to an heir until the heir says it has it:
    the dead one is still to be fenced if that assignment never arrives.
    """

    transactional_id: str
    generation: int = -1
    owners: Packed = {}


class AssignmentData(msgspec.Struct, omit_defaults=True):
    """What a member is told: whom to fence before reading offsets, and who owns what now."""

    fence: list[str] = []
    owners: Packed = {}


class TaskAssignor:
    """``Assignor`` for ``groups``: the topics of each sub-topology, which are kept together."""

    name = "onceward"
    cooperative = True

    def __init__(self, groups: Sequence[Sequence[str]], transactional_id: str) -> None:
        self._groups = [tuple(group) for group in groups]
        self._known = SubscriptionData(transactional_id)

    def metadata(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes:
        return msgspec.json.encode(self._known)

    def on_assignment(self, assignment: bytes, generation: int) -> bool:
        """Whether partitions were withheld from others for this member to let go of."""
        assigned, user_data = decode_assignment(assignment)
        told = parse_assignment_data(user_data)
        me = self._known.transactional_id
        self._known = SubscriptionData(me, generation, told.owners)
        held = _unpack({me: told.owners.get(me, {})})
        return not held.keys() <= set(assigned)

    def assign(
        self, members: Mapping[str, MemberMetadata], partitions: Mapping[str, int]
    ) -> dict[str, bytes]:
        said = {member: _parse_subscription(data.user_data) for member, data in members.items()}
        previous = _previous_owners(said.values())
        holders = current_holders(members)
        target = assign_tasks(self._groups, members, holders, partitions)
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        now: Owners = {}
        alive = {data.transactional_id for data in said.values()}
        for tp, member in target.items():
            holder = holders.get(tp, member)
            now[tp] = [said[holder].transactional_id]
            if tp not in holders:  # the heir may never hear of this round: it may be superseded
                now[tp] += [dead for dead in previous.get(tp, ()) if dead not in alive]
            if holder == member:
                given[member].append(tp)  # else withheld until the holder has let go of it
        owners = _pack(now)
        result = {}
        for member, tps in given.items():
            new = (tp for tp in tps if tp not in holders)
            gone = {owner for tp in new for owner in previous.get(tp, ())} - alive
            told = AssignmentData(sorted(gone), owners)
            result[member] = encode_assignment(sorted(tps), msgspec.json.encode(told))
        return result


def parse_assignment_data(user_data: bytes) -> AssignmentData:
    """Empty for bytes that are not ours (a group led by another kind of client)."""
    try:
        return msgspec.json.decode(user_data, type=AssignmentData)
    except msgspec.MsgspecError:
        return AssignmentData()


def current_holders(members: Mapping[str, MemberMetadata]) -> dict[TopicPartition, str]:
    """Who holds each partition now; of two claims the one of the later generation counts."""
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member in sorted(members):
        data = members[member]
        for tp in data.owned:
            if tp not in claims or data.generation > claims[tp][0]:
                claims[tp] = (data.generation, member)
    return {tp: member for tp, (_, member) in claims.items()}


def assign_tasks(
    groups: Sequence[Sequence[str]],
    members: Mapping[str, MemberMetadata],
    holders: Mapping[TopicPartition, str],
    partitions: Mapping[str, int],
) -> dict[TopicPartition, str]:
    """Member per partition: balanced to one task, moving as few tasks as that allows."""
    tasks = _tasks(groups, partitions)
    order = sorted(members, key=lambda member: (members[member].group_instance_id or "", member))
    if not order:
        return {}
    kept: dict[str, list[int]] = {member: [] for member in order}
    for index, (_, tps) in enumerate(tasks):
        holder = next((holders[tp] for tp in tps if tp in holders), None)
        if holder is not None:
            kept[holder].append(index)
    floor, extra = divmod(len(tasks), len(order))
    homeless = set(range(len(tasks)))
    for member in sorted(order, key=lambda each: -len(kept[each])):
        allowed = floor + 1 if extra > 0 and len(kept[member]) > floor else floor
        extra -= allowed > floor
        kept[member] = _keep(kept[member], allowed, tasks)
        homeless.difference_update(kept[member])
    for index in sorted(homeless):
        group = tasks[index][0]
        member = min(order, key=lambda each: _load(kept[each], group, tasks))
        kept[member].append(index)
    return {tp: member for member, mine in kept.items() for index in mine for tp in tasks[index][1]}


def _load(
    mine: list[int], group: int, tasks: list[tuple[int, list[TopicPartition]]]
) -> tuple[int, int]:
    return len(mine), sum(tasks[index][0] == group for index in mine)


def _keep(
    mine: list[int], allowed: int, tasks: list[tuple[int, list[TopicPartition]]]
) -> list[int]:
    """Give up tasks of the sub-topologies this member has most of."""
    kept = list(mine)
    while len(kept) > allowed:
        crowd = max(kept, key=lambda index: (_load(kept, tasks[index][0], tasks)[1], index))
        kept.remove(crowd)
    return kept


def _tasks(
    groups: Sequence[Sequence[str]], partitions: Mapping[str, int]
) -> list[tuple[int, list[TopicPartition]]]:
    """``(sub-topology, partitions)`` per task; topics that do not exist are left out."""
    tasks = []
    for number, group in enumerate(groups):
        topics = [topic for topic in sorted(group) if topic in partitions]
        for partition in range(max((partitions[topic] for topic in topics), default=0)):
            tps = [TopicPartition(t, partition) for t in topics if partition < partitions[t]]
            tasks.append((number, tps))
    return tasks


def _parse_subscription(user_data: bytes) -> SubscriptionData:
    try:
        return msgspec.json.decode(user_data, type=SubscriptionData)
    except msgspec.MsgspecError:
        return SubscriptionData("")


def _previous_owners(said: Iterable[SubscriptionData]) -> Owners:
    """The owners as the member with the newest knowledge knows them."""
    newest: SubscriptionData | None = None
    for data in said:
        if newest is None or data.generation > newest.generation:
            newest = data
    return {} if newest is None else _unpack(newest.owners)


def _pack(owners: Owners) -> Packed:
    packed: Packed = {}
    for tp in sorted(owners):
        for owner in owners[tp]:
            packed.setdefault(owner, {}).setdefault(tp.topic, []).append(tp.partition)
    return packed


def _unpack(packed: Packed) -> Owners:
    owners: Owners = {}
    for owner, topics in packed.items():
        for topic, numbers in topics.items():
            for partition in numbers:
                owners.setdefault(TopicPartition(topic, partition), []).append(owner)
    return owners
