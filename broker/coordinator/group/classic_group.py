"""One group of the classic protocol: its members and the state of its rebalance.

Two kinds of state live here and the difference matters after a crash:

- *hard*: what the last ``GroupMetadata`` record said (``persisted``). Only ``apply`` changes it,
  and only replay calls that. A group that is Stable or Empty equals its record.
- *soft*: the draft of the rebalance under way (states PreparingRebalance and CompletingRebalance
  with their members, generation, protocol and leader), parked requests, pending members,
  connections. Operations change it directly; a crash forgets it and the clients rejoin, as with
  Apache Kafka.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ErrorCode, KafkaError
from ..result import Token
from .presence import Presence
from .records import GroupMetadataValue

Protocols = tuple[tuple[str, bytes], ...]
"""(assignor name, opaque subscription) in the member's order of preference."""

CONSUMER_PROTOCOL = "consumer"

MemberMetadata = GroupMetadataValue.MemberMetadata


class GroupState(enum.Enum):
    """State of a classic group (Kafka: ``ClassicGroupState``).

    EMPTY: no members; only offsets may be left. Initial.
        JoinGroup: the first member starts a rebalance. SyncGroup, Heartbeat: UNKNOWN_MEMBER_ID.
        LeaveGroup: UNKNOWN_MEMBER_ID, except of a pending member. OffsetCommit: accepted without a
        generation ("simple" consumers, admin tools). OffsetDelete, DeleteGroups: allowed.
        first join -> PREPARING_REBALANCE; deleted, or its last offset expired -> DEAD.
    PREPARING_REBALANCE: waiting for the members to rejoin.
        JoinGroup: parked. SyncGroup: REBALANCE_IN_PROGRESS. Heartbeat: REBALANCE_IN_PROGRESS, and
        the session is renewed. LeaveGroup: removes the member. OffsetCommit of the ending
        generation: accepted, so that members can commit before they give partitions up.
        all rejoined or the rebalance timeout passed -> COMPLETING_REBALANCE; nobody left -> EMPTY.
    COMPLETING_REBALANCE: the generation is decided; waiting for the leader's assignment.
        JoinGroup: unchanged metadata gets the same answer again, else a new rebalance. SyncGroup:
        parked until the leader's arrives. Heartbeat: accepted. OffsetCommit: REBALANCE_IN_PROGRESS
        (transactional ones are accepted). LeaveGroup: a new rebalance.
        assignment committed -> STABLE; join, leave, expiry, no SyncGroup in time ->
        PREPARING_REBALANCE.
    STABLE: every member has its assignment.
        JoinGroup: of the leader or with changed metadata a new rebalance; of an unchanged follower
        the current generation; of a new process of a static member a change of its member id
        without a rebalance.
        SyncGroup: the assignment. Heartbeat, OffsetCommit: accepted. LeaveGroup: a new rebalance.
        join, leave, expiry -> PREPARING_REBALANCE.
    DEAD: the group does not exist (any more). Final; a removed group is not kept in memory, so this
        is only what DescribeGroups says of an unknown id.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""Moves of a live group. Recovery goes from record to record (Stable or Empty to any of them)."""

REBALANCING = frozenset({GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})


@dataclass(slots=True)
class Member:
    """A member of the group. Timeouts in milliseconds.

    awaiting_join, awaiting_sync: token of the parked request.
    is_new: its first JoinGroup was not answered yet, so it cannot send heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    is_new: bool = False
    presence: Presence = field(default_factory=Presence)

    @classmethod
    def restored(cls, stored: MemberMetadata, group: GroupMetadataValue) -> Member:
        """A member as the log knows it: only its subscription for the chosen protocol is left."""
        rebalance_timeout = stored.rebalance_timeout
        return cls(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=(
                stored.session_timeout if rebalance_timeout < 0 else rebalance_timeout
            ),
            session_timeout_ms=stored.session_timeout,
            protocol_type=group.protocol_type,
            protocols=((group.protocol or "", stored.subscription),),
        )

    def stored(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        """The member in a record of a group that chose ``protocol_name``."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    def equals_stored(self, stored: MemberMetadata, protocol_name: str | None) -> bool:
        return self.stored(protocol_name, stored.assignment) == stored

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The subscription for one protocol; empty if the member does not speak it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The member's first preference among ``candidates``, all of which it supports."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup:
    """State and questions about it; the protocol itself is in ``membership`` and ``rebalance``."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.state_timestamp = -1
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.persisted: GroupMetadataValue | None = None
        # Soft:
        self.pending_members: dict[str, Presence] = {}
        self.pending_sync: set[str] = set()
        self.replacing: dict[str, Member] = {}
        self.initial_delay_left_ms: int | None = None
        self.new_member_added = False

    # -- hard state: only replay ------------------------------------------------------------------

    def apply(self, value: GroupMetadataValue) -> None:
        """Become what a ``GroupMetadata`` record says; soft state of members it names is kept."""
        known = self.members | self.replacing
        self.replacing = {}
        self.persisted = value
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol_name = value.protocol
        self.leader = value.leader
        self.state_timestamp = value.current_state_timestamp
        self.members = {}
        self.static_members = {}
        self.initial_delay_left_ms = None
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        for stored in value.members:
            member = known.get(stored.member_id)
            if member is None or not member.equals_stored(stored, value.protocol):
                # Replaying history: what the group knew of the member came from an older record.
                member = Member.restored(stored, value)
            member.assignment = stored.assignment
            self.members[member.member_id] = member
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id

    def metadata_value(
        self,
        *,
        now_ms: int,
        members: Sequence[Member] | None = None,
        assignments: Mapping[str, bytes] | None = None,
    ) -> GroupMetadataValue:
        """The record that makes the present draft hard.

        ``members`` and ``assignments`` stand in for the group's own; a member without an assignment
        gets an empty one.
        """
        chosen = list(self.members.values()) if members is None else members
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=now_ms,
            members=[
                member.stored(
                    self.protocol_name,
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b""),
                )
                for member in chosen
            ],
        )

    # -- soft state -------------------------------------------------------------------------------

    def move_to(self, state: GroupState) -> None:
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(f"group {self.group_id}: {self.state.name} -> {state.name}")
        self.state = state

    def add(self, member: Member) -> None:
        """Add a member to the draft; the first one leads and gives the protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member (or pending member) from the draft; another one leads if it did."""
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def elect_leader(self) -> bool:
        """Keep the leader if it rejoined, else take the first that did. False if none did."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    # -- questions --------------------------------------------------------------------------------

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(
            member.awaiting_join is not None for member in self.members.values()
        )

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join: one of them is spoken by all members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        candidates = self._candidates()
        return any(name in candidates for name, _ in protocols)

    def select_protocol(self, members: Sequence[Member] | None = None) -> str:
        """The vote: each member votes for its first preference among what all support.

        Ties go to the protocol whose first vote came from the longest-standing member.
        """
        voters = list(self.members.values()) if members is None else members
        candidates = self._candidates(voters)
        if not candidates:
            raise RuntimeError(f"group {self.group_id}: members share no protocol")
        votes: dict[str, int] = {}
        for member in voters:
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _candidates(self, members: Sequence[Member] | None = None) -> set[str]:
        """Protocols every member supports."""
        supported = [
            {name for name, _ in member.protocols}
            for member in (self.members.values() if members is None else members)
        ]
        return set.intersection(*supported) if supported else set()

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member that may act under these ids.

        Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another process holds the instance id.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no instance {group_instance_id}")
            if holder != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id} is held by another member"
                )
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id}")
        return member

    def validate_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not {self.generation}"
            )

    def validate_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        transactional: bool,
    ) -> Member | None:
        """Whether offsets may be committed under these ids (Kafka: ``validateOffsetCommit``).

        Returns the committing member; ``None`` for a commit from outside the group. Raises
        KafkaError.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return None
        if generation < 0 and not member_id and group_instance_id is None:
            if transactional:
                # Producers older than KIP-447 say nothing about the group.
                return None
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has active members")
        member = self.validate_member(member_id, group_instance_id)
        self.validate_generation(generation)
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the group awaits its assignment")
        return member

    def subscribed_topics(self) -> set[str] | None:
        """Topics of all members; ``None`` if that is not known (not consumers, foreign bytes)."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(_subscribed_topics(member.metadata(self.protocol_name)))
            except (struct.error, UnicodeDecodeError):
                return None
        return topics


def _subscribed_topics(subscription: bytes) -> Iterator[str]:
    """Topics of a ``ConsumerProtocolSubscription`` of any version: version, then the names."""
    _version, count = struct.unpack_from(">hi", subscription)
    position = 6
    for _ in range(count):
        (length,) = struct.unpack_from(">h", subscription, position)
        position += 2
        if length < 0 or position + length > len(subscription):
            raise struct.error("truncated subscription")
        yield subscription[position : position + length].decode()
        position += length
