"""The group coordinator as the handlers see it: protocol messages in, protocol messages out.

Checks what needs no state, picks the partition, and turns errors into the fields of each response.
Which topics exist is the handlers' knowledge: they answer UNKNOWN_TOPIC_OR_PARTITION themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ErrorCode, KafkaError
from ...protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ...types import CONSUMER_OFFSETS_TOPIC, Clock, TopicPartition
from ..log_writer import LogWriter
from ..result import ProducerIdAndEpoch, Result, Token
from ..runtime import CoordinatorRuntime, PartitionState
from .classic_group import GroupState
from .config import GroupConfig
from .group_shard import Decision, GroupShard, PartitionErrors
from .membership import Caller
from .offsets import Commit, TopicPartitions
from .presence import NO_CONNECTION
from .rebalance import join_error, sync_error

if TYPE_CHECKING:
    from random import Random

R = TypeVar("R")
_MEMBER_LIST_SINCE_LEAVE = 3
_LOADING_SINCE_TXN_COMMIT = 2
_GROUP_ERROR_SINCE_COMMIT = 9
_GROUP_ERROR_SINCE_DESCRIBE = 6


class GroupCoordinator:
    """Serves all groups of this broker.

    writer: the log of ``__consumer_offsets``, which has ``partitions`` partitions.
    rng: gives member ids. on_failure: see ``CoordinatorRuntime``.
    """

    def __init__(
        self,
        *,
        writer: LogWriter,
        partitions: int,
        config: GroupConfig,
        clock: Clock,
        rng: Random,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._config = config
        self._rng = rng
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            topic=CONSUMER_OFFSETS_TOPIC,
            partitions=partitions,
            writer=writer,
            shard_factory=lambda _partition: GroupShard(config),
            clock=clock,
            on_failure=on_failure,
        )

    async def start(self) -> None:
        """Load all groups; requests answer COORDINATOR_LOAD_IN_PROGRESS until then."""
        await self._runtime.start()

    async def stop(self) -> None:
        """Stop serving; parked requests are answered NOT_COORDINATOR."""
        await self._runtime.stop()

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that owns the group."""
        return self._runtime.partition_for(group_id)

    # -- membership -------------------------------------------------------------------------------

    async def join_group(
        self,
        request: JoinGroupRequest,
        *,
        client_id: str | None,
        client_host: str,
        api_version: int,
        connection_id: int = NO_CONNECTION,
    ) -> JoinGroupResponse:
        """Parked until the rebalance completes, at most about the longest rebalance timeout."""
        timeout = request.session_timeout_ms
        config = self._config
        if not config.min_session_timeout_ms <= timeout <= config.max_session_timeout_ms:
            return join_error(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        prefix = request.group_instance_id or client_id or ""
        caller = Caller(
            client_id=client_id or "",
            client_host=client_host,
            api_version=api_version,
            connection_id=connection_id,
            new_member_id=f"{prefix}-{_random_uuid(self._rng)}",
        )
        try:
            return await self._write(
                request.group_id,
                lambda shard, now_ms, token: shard.join_group(request, caller, now_ms, token),
            )
        except KafkaError as error:
            return join_error(request.member_id, error.code)

    async def sync_group(
        self, request: SyncGroupRequest, *, connection_id: int = NO_CONNECTION
    ) -> SyncGroupResponse:
        """Parked until the leader's assignment is committed."""
        try:
            return await self._write(
                request.group_id,
                lambda shard, now_ms, token: shard.sync_group(
                    request, connection_id, now_ms, token
                ),
            )
        except KafkaError as error:
            return sync_error(error.code)

    async def heartbeat(
        self, request: HeartbeatRequest, *, connection_id: int = NO_CONNECTION
    ) -> HeartbeatResponse:
        try:
            return await self._write(
                request.group_id,
                lambda shard, now_ms, _token: shard.heartbeat(request, connection_id, now_ms),
            )
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Members are restored with a full session: nobody is harmed by waiting (Kafka too).
                return HeartbeatResponse()
            return HeartbeatResponse(error_code=error.code)

    async def leave_group(
        self, request: LeaveGroupRequest, *, api_version: int
    ) -> LeaveGroupResponse:
        """Up to v2 one member with a top-level error, from v3 on a list with an error each."""
        is_batch = api_version >= _MEMBER_LIST_SINCE_LEAVE
        identities = (
            [(each.member_id, each.group_instance_id) for each in request.members]
            if is_batch
            else [(request.member_id, None)]
        )
        try:
            codes = await self._write(
                request.group_id,
                lambda shard, now_ms, _token: shard.leave_group(
                    request.group_id, identities, now_ms
                ),
            )
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.code)
        if not is_batch:
            return LeaveGroupResponse(error_code=codes[0])
        return LeaveGroupResponse(
            members=[
                LeaveGroupResponse.MemberResponse(
                    member_id=member_id, group_instance_id=instance_id, error_code=code
                )
                for (member_id, instance_id), code in zip(identities, codes, strict=True)
            ]
        )

    def connection_closed(self, connection_id: int) -> None:
        """The server lost a connection: members that asked for it start their grace.

        Call it once, after the last request of that connection was handed over.
        """
        for partition in range(self._runtime.partitions):
            if self._runtime.state(partition) is PartitionState.ACTIVE:
                self._runtime.submit(
                    partition,
                    lambda shard, now_ms, _token: shard.connection_closed(connection_id, now_ms),
                )

    # -- offsets ----------------------------------------------------------------------------------

    async def commit_offsets(
        self, request: OffsetCommitRequest, *, api_version: int
    ) -> OffsetCommitResponse:
        """Errors are per partition, also those that concern the whole commit."""
        commits = _commits(request)
        missing = (
            ErrorCode.GROUP_ID_NOT_FOUND
            if api_version >= _GROUP_ERROR_SINCE_COMMIT
            else ErrorCode.ILLEGAL_GENERATION
        )
        errors = await self._commit(
            request.group_id,
            commits,
            lambda shard, now_ms, _token: shard.commit_offsets(
                request.group_id,
                commits,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation=request.generation_id_or_member_epoch,
                now_ms=now_ms,
                retention_ms=request.retention_time_ms,
                missing_group=missing,
            ),
        )
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponse.OffsetCommitResponsePartition(
                            partition_index=each.partition_index,
                            error_code=errors[TopicPartition(topic.name, each.partition_index)],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def txn_commit_offsets(
        self, request: TxnOffsetCommitRequest, *, api_version: int, guard: object | None
    ) -> TxnOffsetCommitResponse:
        """Offsets become visible when the transaction commits. Errors are per partition.

        That the group is part of the transaction is checked before, by the transaction coordinator;
        ``guard`` is from the log of the group's partition, of before that check (None: a
        transaction was open there). INVALID_TXN_STATE when the transaction ended meanwhile.
        Clients before v2 know COORDINATOR_NOT_AVAILABLE but not that a coordinator can be loading.
        """
        commits = _commits(request)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

        def decide(shard: GroupShard, now_ms: int, _token: Token) -> Result[PartitionErrors]:
            result = shard.commit_offsets(
                request.group_id,
                commits,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation=request.generation_id,
                now_ms=now_ms,
                producer=producer,
            )
            result.guard = guard
            return result

        errors = await self._commit(request.group_id, commits, decide)
        if api_version < _LOADING_SINCE_TXN_COMMIT:
            errors = {
                partition: (
                    ErrorCode.COORDINATOR_NOT_AVAILABLE
                    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    else code
                )
                for partition, code in errors.items()
            }
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index,
                            error_code=errors[TopicPartition(topic.name, each.partition_index)],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def fetch_offsets(
        self, group_id: str, topics: Sequence[TopicPartitions] | None, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """One group of an OffsetFetch, in the layout of v8. Raises KafkaError for all of it."""
        return await self._read(
            group_id,
            lambda shard, _now_ms: shard.fetch_offsets(group_id, topics, require_stable),
        )

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        partitions = [
            TopicPartition(topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        try:
            errors = await self._write(
                request.group_id,
                lambda shard, _now_ms, _token: shard.delete_offsets(request.group_id, partitions),
            )
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(
                            partition_index=each.partition_index,
                            error_code=errors[TopicPartition(topic.name, each.partition_index)],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def topics_deleted(self, topics: Iterable[str]) -> None:
        """Forget the offsets of deleted topics. Raises KafkaError."""
        gone = frozenset(topics)
        for partition in range(self._runtime.partitions):
            await self._runtime.write(
                partition, lambda shard, _now_ms, _token: shard.topics_deleted(gone)
            )

    async def complete_transaction(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a transaction on a partition of ``__consumer_offsets``. Raises KafkaError."""
        await self._runtime.complete_transaction(
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            transaction_version=transaction_version,
        )

    # -- administration ---------------------------------------------------------------------------

    async def describe_groups(
        self, request: DescribeGroupsRequest, *, api_version: int
    ) -> DescribeGroupsResponse:
        """An unknown group is Dead, with GROUP_ID_NOT_FOUND from v6 on."""
        return DescribeGroupsResponse(
            groups=[await self._describe(group_id, api_version) for group_id in request.groups]
        )

    async def _describe(
        self, group_id: str, api_version: int
    ) -> DescribeGroupsResponse.DescribedGroup:
        try:
            return await self._read(group_id, lambda shard, _now_ms: shard.describe_group(group_id))
        except KafkaError as error:
            described = DescribeGroupsResponse.DescribedGroup(
                group_id=group_id, error_code=error.code
            )
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                described.group_state = GroupState.DEAD.value
                if api_version < _GROUP_ERROR_SINCE_DESCRIBE:
                    described.error_code = ErrorCode.NONE
                else:
                    described.error_message = error.message
            return described

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """All groups; one partition that cannot answer makes the whole answer an error."""
        groups: list[ListGroupsResponse.ListedGroup] = []
        try:
            for partition in range(self._runtime.partitions):
                groups.extend(
                    await self._runtime.read(
                        partition,
                        lambda shard, _now_ms: shard.list_groups(
                            request.states_filter, request.types_filter
                        ),
                    )
                )
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(groups=groups)

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponse.DeletableGroupResult(
                    group_id=group_id, error_code=await self._delete(group_id)
                )
                for group_id in request.groups_names
            ]
        )

    async def _delete(self, group_id: str) -> ErrorCode:
        try:
            # Commits may have made a group with the empty name, so it can be deleted.
            await self._runtime.write(
                self.partition_for(group_id),
                lambda shard, _now_ms, _token: shard.delete_group(group_id),
            )
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    # -- the way to the shard ---------------------------------------------------------------------

    async def _write(self, group_id: str, decision: Decision[R]) -> R:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return await self._runtime.write(self.partition_for(group_id), decision)

    async def _read(self, group_id: str, question: Callable[[GroupShard, int], R]) -> R:
        return await self._runtime.read(self.partition_for(group_id), question)

    async def _commit(
        self, group_id: str, commits: Sequence[Commit], decision: Decision[PartitionErrors]
    ) -> PartitionErrors:
        """The error of every partition. Unlike others, commits may name the empty group (Kafka)."""
        try:
            return await self._runtime.write(self.partition_for(group_id), decision)
        except KafkaError as error:
            return dict.fromkeys((commit.partition for commit in commits), error.code)


def _commits(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> list[Commit]:
    topics: list[Any] = list(request.topics)
    return [
        Commit(
            TopicPartition(topic.name, each.partition_index),
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata,
        )
        for topic in topics
        for each in topic.partitions
    ]


def _random_uuid(rng: Random) -> str:
    """A version 4 UUID in its text form."""
    number = rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    text = f"{number:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
