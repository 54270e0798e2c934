"""The groups of one partition of ``__consumer_offsets``: a replicated state machine.

``replay`` is the only mutator of hard state: a group's last record (``ClassicGroup.apply``) and the
offsets. Operations decide on it and return records; they change only soft state, which is listed in
``classic_group``, and ``connections``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...errors import ErrorCode, KafkaError
from ...protocol.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListGroupsResponse,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ...types import TopicPartition
from ..result import ProducerIdAndEpoch, Record, Result, Timer, TimerKey, Token
from . import membership
from .classic_group import CONSUMER_PROTOCOL, ClassicGroup, GroupState, Member
from .config import GroupConfig
from .membership import Caller, Identity
from .offsets import Commit, OffsetStore, TopicPartitions, commit_records
from .presence import Connections
from .rebalance import GroupOperation, GroupTimer, TimerKind, join_error, sync_error
from .records import GroupRecord, OffsetRecord, group_tombstone, offset_tombstone, parse_record

R = TypeVar("R")
PartitionErrors = dict[TopicPartition, ErrorCode]
GROUP_TYPE = "classic"
_MAX_TOMBSTONES_PER_BATCH = 1000


class GroupShard:
    """Groups and offsets of one partition. Every method is one atomic step."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self.connections = Connections()

    # -- replay -----------------------------------------------------------------------------------

    def replay(self, offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply one record of the log. Raises ProtocolError for bytes nobody here wrote."""
        record = parse_record(key, value)
        if isinstance(record, OffsetRecord):
            self.offsets.replay_offset(
                offset, producer_id, record.group_id, record.partition, record.value
            )
            if record.value is not None:
                # A consumer outside any group commits: its group exists through its offsets.
                self._get_or_create(record.group_id)
            else:
                self._forget_if_unused(record.group_id)
        elif isinstance(record, GroupRecord):
            if record.value is None:
                self._replay_group_tombstone(record.group_id)
            else:
                self._get_or_create(record.group_id).apply(record.value)

    def _replay_group_tombstone(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        group.move_to(GroupState.DEAD)
        for member_id, presence in group.pending_members.items():
            self.connections.forget(presence, group_id, member_id)
        if self.offsets.has_any(group_id):
            self._get_or_create(group_id)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Apply the end of a producer's transaction."""
        for group_id in self.offsets.replay_marker(producer_id, commit):
            self._forget_if_unused(group_id)

    def on_loaded(self, now_ms: int) -> Result[None]:
        """Every member gets a full session to be heard in; a group that is too large rebalances."""
        result: Result[None] = Result(effects=[self._next_retention_check(now_ms)])
        for group in self.groups.values():
            operation = self._operation(group, now_ms)
            for member in group.members.values():
                operation.arm_session(member)
            if len(group.members) > self._config.max_size:
                operation.prepare_rebalance()
            result.records.extend(operation.result.records)
            result.effects.extend(operation.result.effects)
        return result

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[None]:
        """An expiry is an ordinary write; a timer of something that is gone means nothing."""
        if not isinstance(key, GroupTimer):
            raise TypeError(f"not a timer of this shard: {key!r}")
        if key.kind is TimerKind.RETENTION:
            return self._expire_offsets(now_ms)
        group = self.groups.get(key.group_id)
        if group is None:
            return Result()
        operation = self._operation(group, now_ms)
        if key.kind is TimerKind.SESSION:
            operation.session_is_over(key.member_id)
        elif key.kind is TimerKind.GRACE:
            operation.grace_is_over(key.member_id)
        elif key.kind is TimerKind.JOIN:
            operation.join_time_is_over()
        else:
            operation.sync_time_is_over()
        self._forget_if_unused(key.group_id)
        return operation.result

    # -- membership -------------------------------------------------------------------------------

    def join_group(
        self, request: JoinGroupRequest, caller: Caller, now_ms: int, token: Token
    ) -> Result[JoinGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                unknown = join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                return Result(response=unknown)
            group = self._get_or_create(request.group_id)
        operation = self._operation(group, now_ms)
        membership.join(operation, request, caller, token)
        self._forget_if_unused(request.group_id)
        return operation.result

    def sync_group(
        self, request: SyncGroupRequest, connection_id: int, now_ms: int, token: Token
    ) -> Result[SyncGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            return Result(response=sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        operation = self._operation(group, now_ms)
        membership.sync(operation, request, connection_id, token)
        return operation.result

    def heartbeat(
        self, request: HeartbeatRequest, connection_id: int, now_ms: int
    ) -> Result[HeartbeatResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            return Result(response=HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        operation = self._operation(group, now_ms)
        membership.heartbeat(operation, request, connection_id)
        return operation.result

    def leave_group(
        self, group_id: str, identities: Sequence[Identity], now_ms: int
    ) -> Result[list[ErrorCode]]:
        """The response is the error of each identity."""
        group = self.groups.get(group_id)
        if group is None:
            return Result(response=[ErrorCode.UNKNOWN_MEMBER_ID] * len(identities))
        operation = self._operation(group, now_ms)
        membership.leave(operation, identities)
        self._forget_if_unused(group_id)
        return operation.result

    def connection_closed(self, connection_id: int, now_ms: int) -> Result[None]:
        """Start the grace of members that are heard on no connection any more."""
        result: Result[None] = Result()
        for group_id, member_id in self.connections.close(connection_id):
            group = self.groups.get(group_id)
            if group is not None:
                operation = self._operation(group, now_ms)
                membership.close_connection(operation, member_id, connection_id)
                result.effects.extend(operation.result.effects)
        return result

    # -- offsets ----------------------------------------------------------------------------------

    def commit_offsets(
        self,
        group_id: str,
        commits: Sequence[Commit],
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        now_ms: int,
        retention_ms: int = -1,
        producer: ProducerIdAndEpoch | None = None,
        missing_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
    ) -> Result[PartitionErrors]:
        """Commit offsets, inside ``producer``'s transaction if given.

        The response has an error per partition. Raises KafkaError when the whole commit is refused:
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS;
        ``missing_group`` if a generation of an unknown group is given.
        """
        group = self.groups.get(group_id)
        member = None
        if group is not None:
            member = group.validate_commit(
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation=generation,
                transactional=producer is not None,
            )
        elif generation >= 0:
            raise KafkaError(missing_group, f"no group {group_id}")
        records, errors = commit_records(
            group_id,
            commits,
            max_metadata_size=self._config.offset_metadata_max_size,
            retention_ms=retention_ms,
            now_ms=now_ms,
        )
        result: Result[PartitionErrors] = Result(records, errors, transactional=producer)
        if group is not None and member is not None and producer is None:
            operation = self._operation(group, now_ms)
            operation.arm_session(member)
            result.effects.extend(operation.result.effects)
        return result

    def fetch_offsets(
        self, group_id: str, topics: Sequence[TopicPartitions] | None, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        return self.offsets.fetch(group_id, topics, require_stable=require_stable)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Result[PartitionErrors]:
        """Forget offsets of topics the group does not subscribe to.

        Raises GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for members that are no consumers.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        subscribed: set[str] | None = set()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != CONSUMER_PROTOCOL:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members")
            subscribed = group.subscribed_topics()
        errors: PartitionErrors = {}
        deleted = []
        for partition in partitions:
            if subscribed is None or partition.topic in subscribed:
                errors[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                errors[partition] = ErrorCode.NONE
                deleted.append(partition)
        return Result(list(self.offsets.deletions(group_id, deleted)), errors)

    def topics_deleted(self, topics: Iterable[str]) -> Result[None]:
        """Forget all offsets of topics that do not exist any more."""
        gone = set(topics)
        records: list[Record] = []
        for group_id in list(self.groups):
            partitions = [
                partition
                for partition in self.offsets.partitions(group_id)
                if partition.topic in gone
            ]
            records.extend(self.offsets.deletions(group_id, partitions))
        return Result(records)

    def _expire_offsets(self, now_ms: int) -> Result[None]:
        """Tombstones for expired offsets and for groups that have nothing left."""
        result: Result[None] = Result()
        for group in self.groups.values():
            if len(result.records) >= _MAX_TOMBSTONES_PER_BATCH:
                # The rest follows at once, in a batch of its own.
                result.effects.append(Timer(GroupTimer(TimerKind.RETENTION), now_ms))
                return result
            expired = self.offsets.expired(
                group, retention_ms=self._config.offsets_retention_ms, now_ms=now_ms
            )
            result.records.extend(
                offset_tombstone(group.group_id, partition) for partition in expired
            )
            nothing_left = len(expired) == len(self.offsets.committed.get(group.group_id, ()))
            if (
                nothing_left
                and group.state is GroupState.EMPTY
                and not group.pending_members
                and not self.offsets.has_pending(group.group_id)
            ):
                result.records.append(group_tombstone(group.group_id))
        result.effects.append(self._next_retention_check(now_ms))
        return result

    def _next_retention_check(self, now_ms: int) -> Timer:
        interval = self._config.offsets_retention_check_interval_ms
        return Timer(GroupTimer(TimerKind.RETENTION), now_ms + interval)

    # -- administration ---------------------------------------------------------------------------

    def delete_group(self, group_id: str) -> Result[None]:
        """Forget an Empty group with its offsets, pending ones too.

        Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} is {group.state.value}")
        partitions = self.offsets.partitions(group_id)
        records = [offset_tombstone(group_id, partition) for partition in partitions]
        return Result([*records, group_tombstone(group_id)])

    def describe_group(self, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        is_stable = group.state is GroupState.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[
                _described(member, group.protocol_name if is_stable else None)
                for member in group.members.values()
            ],
        )

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        """Groups in one of ``states`` and of one of ``types``, ignoring case; empty = any."""
        wanted = {state.lower() for state in states}
        if types and GROUP_TYPE not in {kind.lower() for kind in types}:
            return []
        return [
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in self.groups.values()
            if not wanted or group.state.value.lower() in wanted
        ]

    # -- groups -----------------------------------------------------------------------------------

    def _operation(self, group: ClassicGroup, now_ms: int) -> GroupOperation:
        return GroupOperation(group, self._config, self.connections, now_ms)

    def _get_or_create(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def _forget_if_unused(self, group_id: str) -> None:
        """Drop a group the log knows nothing of, once its last pending member or offset is gone."""
        group = self.groups.get(group_id)
        if (
            group is not None
            and group.persisted is None
            and group.state is GroupState.EMPTY
            and not group.pending_members
            and not self.offsets.has_any(group_id)
        ):
            del self.groups[group_id]


def _described(
    member: Member, protocol_name: str | None
) -> DescribeGroupsResponse.DescribedGroupMember:
    """Subscription and assignment are shown only of a Stable group, as Kafka does."""
    described = DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )
    if protocol_name is not None:
        described.member_metadata = member.metadata(protocol_name)
        described.member_assignment = member.assignment
    return described


Decision = Callable[[GroupShard, int, Token], Result[R]]
"""An operation as the facade hands it to the runtime."""
