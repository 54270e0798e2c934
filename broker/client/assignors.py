"""Partition assignors of the classic group protocol. Pure: members and partition counts in, bytes
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..types import TopicPartition
from .subscription import MemberMetadata, encode_assignment

Shares = dict[str, list[TopicPartition]]


class Assignor(Protocol):
    """Kafka's ``ConsumerPartitionAssignor``.

    The client frames what goes on the wire as Kafka's ConsumerProtocolSubscription, so that tools
    can read it: topics, owned partitions and generation are always in it.
    """

    @property
    def name(self) -> str:
        """Protocol name; all members of a group must share one."""

    @property
    def cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance (KIP-429)."""

    def metadata(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes:
        """User data of this member's subscription; ``b""`` = use the consumer's ``user_data``."""

    def assign(
        self, members: Mapping[str, MemberMetadata], partitions: Mapping[str, int]
    ) -> dict[str, bytes]:
        """On the leader: complete assignment bytes per member id, made with ``encode_assignment``.

        ``partitions`` is the partition count of every topic some member subscribes to (topics that
        do not exist are missing). A cooperative assignor must not give away a partition that
        another member owns (``withhold_owned`` takes those out): it goes to its new owner in the
        rebalance that follows, after the old one has let go.
        """

    def on_assignment(self, assignment: bytes, generation: int) -> bool:
        """On every member: the complete assignment bytes it was given.

        Returns whether a cooperative member must join again although it has nothing to revoke:
        what others wait for is free already. So it is after the restart of a static member, which
        is given the assignment that its predecessor did not live to carry out.
        """


class RangeAssignor:
    """Topic by topic: a contiguous range per member; the first members get the larger ranges."""

    name = "range"
    cooperative = False

    def metadata(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes:
        return b""

    def on_assignment(self, assignment: bytes, generation: int) -> bool:
        """Nothing to remember."""
        return False

    def assign(
        self, members: Mapping[str, MemberMetadata], partitions: Mapping[str, int]
    ) -> dict[str, bytes]:
        shares = self.share_out(members, partitions)
        return {member: encode_assignment(share) for member, share in shares.items()}

    def share_out(
        self, members: Mapping[str, MemberMetadata], partitions: Mapping[str, int]
    ) -> Shares:
        """The partitions of each member."""
        shares: Shares = {member: [] for member in members}
        ordered = _in_order(members)
        for topic, count in sorted(partitions.items()):
            subscribed = [member for member in ordered if topic in members[member].topics]
            first = 0
            for index, member in enumerate(subscribed):
                size = count // len(subscribed) + (index < count % len(subscribed))
                shares[member] += [TopicPartition(topic, n) for n in range(first, first + size)]
                first += size
        return shares


class RoundRobinAssignor(RangeAssignor):
    """All partitions of all topics in a circle over the members."""

    name = "roundrobin"

    def share_out(
        self, members: Mapping[str, MemberMetadata], partitions: Mapping[str, int]
    ) -> Shares:
        shares: Shares = {member: [] for member in members}
        circle = _in_order(members)
        for tp in _all_partitions(partitions):
            for turn, member in enumerate(circle):
                if tp.topic in members[member].topics:
                    shares[member].append(tp)
                    circle = circle[turn + 1 :] + circle[: turn + 1]
                    break
        return shares


class CooperativeStickyAssignor(RangeAssignor):
    """Balanced, and partitions stay where they are as far as balance allows (KIP-429)."""

    name = "cooperative-sticky"
    cooperative = True

    def share_out(
        self, members: Mapping[str, MemberMetadata], partitions: Mapping[str, int]
    ) -> Shares:
        owners = owners_of(members)
        return withhold_owned(self.target(members, partitions, owners), owners)

    def target(
        self,
        members: Mapping[str, MemberMetadata],
        partitions: Mapping[str, int],
        owners: Mapping[TopicPartition, str],
    ) -> Shares:
        """The balanced assignment that ``share_out`` moves towards."""
        shares: Shares = {member: [] for member in _in_order(members)}
        free = []
        for tp in _all_partitions(partitions):
            owner = owners.get(tp)
            if owner is not None and tp.topic in members[owner].topics:
                shares[owner].append(tp)
            else:
                free.append(tp)
        takers = {topic: [m for m in shares if topic in members[m].topics] for topic in partitions}
        # Those that few members may take first: the others can still go anywhere.
        for tp in sorted(free, key=lambda tp: len(takers[tp.topic])):
            if takers[tp.topic]:
                shares[min(takers[tp.topic], key=lambda m: len(shares[m]))].append(tp)
        while _move_one(shares, members):
            pass
        return shares


def _move_one(shares: Shares, members: Mapping[str, MemberMetadata]) -> bool:
    """Move one partition from a member to one that has at least two fewer; False when balanced."""
    by_load = sorted(shares, key=lambda member: len(shares[member]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(shares[giver]) - len(shares[taker]) < 2:
                break
            for tp in reversed(shares[giver]):
                if tp.topic in members[taker].topics:
                    shares[giver].remove(tp)
                    shares[taker].append(tp)
                    return True
    return False


def owners_of(members: Mapping[str, MemberMetadata]) -> dict[TopicPartition, str]:
    """Who owns what. The claim of the newest generation counts; two equal claims cancel out."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, metadata in members.items():
        for tp in metadata.owned:
            generation, _ = claims.get(tp, (-2, None))
            if metadata.generation > generation:
                claims[tp] = (metadata.generation, member)
            elif metadata.generation == generation:
                claims[tp] = (generation, None)
    return {tp: member for tp, (_, member) in claims.items() if member is not None}


def withhold_owned(shares: Shares, owners: Mapping[TopicPartition, str]) -> Shares:
    """Take out what a member would get while another still owns it (it must be revoked first)."""
    return {
        member: sorted(tp for tp in share if owners.get(tp, member) == member)
        for member, share in shares.items()
    }


def _in_order(members: Mapping[str, MemberMetadata]) -> list[str]:
    """Static members first, by instance id: a restart with a new member id changes nothing."""

    def order(member: str) -> tuple[bool, str]:
        instance_id = members[member].group_instance_id
        return instance_id is None, instance_id or member

    return sorted(members, key=order)


def _all_partitions(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, count in sorted(partitions.items())
        for number in range(count)
    ]
