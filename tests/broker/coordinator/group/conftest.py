"""A dialogue with one group shard: requests, answers, records, time. Nothing asynchronous.

``Dialogue`` does what ``CoordinatorRuntime`` does, in the order it does it: decide, append, replay,
set timers; answers when committed. Time moves only by ``advance``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from onceward.broker.coordinator.group.classic_group import ClassicGroup
from onceward.broker.coordinator.group.config import GroupConfig
from onceward.broker.coordinator.group.group_shard import GroupShard
from onceward.broker.coordinator.group.membership import Caller
from onceward.broker.coordinator.group.offsets import Commit
from onceward.broker.coordinator.group.records import (
    GroupRecord,
    OffsetRecord,
    parse_record,
)
from onceward.broker.coordinator.loading import LoadedLog
from onceward.broker.coordinator.log_writer import LoadedBatch
from onceward.broker.coordinator.result import (
    Cancel,
    ProducerIdAndEpoch,
    Reply,
    Result,
    Timer,
    Token,
)
from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from onceward.broker.types import TopicPartition


class Entry(NamedTuple):
    """A record (or, with ``commit`` set, a marker) of the log."""

    producer_id: int
    key: bytes
    value: bytes | None
    commit: bool | None = None


@dataclass
class Call:
    """A request and, once it came, its answer."""

    dialogue: Dialogue
    token: Token

    @property
    def parked(self) -> bool:
        return self.token not in self.dialogue.answers

    @property
    def answer(self) -> Any:
        assert not self.parked, "not answered yet"
        return self.dialogue.answers[self.token]

    @property
    def error(self) -> ErrorCode:
        answer = self.answer
        return answer.code if isinstance(answer, KafkaError) else ErrorCode(answer.error_code)

    @property
    def member_id(self) -> str:
        return str(self.answer.member_id)


@dataclass
class Dialogue:
    config: GroupConfig = field(default_factory=GroupConfig)
    now: int = 1_000_000
    log: list[Entry] = field(default_factory=list)
    refusal: KafkaError | None = None
    holding: bool = False

    def __post_init__(self) -> None:
        self.shard = GroupShard(self.config)
        self.timers: dict[Any, int] = {}
        self.answers: dict[Token, Any] = {}
        self.waiting: set[Token] = set()
        self._held: list[Callable[[], None]] = []
        self._tokens = 0
        self._names = 0
        self._seen = len(self.log)
        loaded = LoadedLog()
        for offset, entry in enumerate(self.log):
            records = [(entry.key, entry.value)] if entry.commit is None else []
            loaded.add(LoadedBatch(offset, entry.producer_id, 0, entry.commit, records))
        for survivor in loaded.survivors():
            self.shard.replay(*survivor)
        self._run(lambda shard, now, _token: shard.on_loaded(now))

    # -- the runtime, in short --------------------------------------------------------------------

    def _run(self, operation: Callable[[GroupShard, int, Token], Result[Any]]) -> Call:
        self._tokens += 1
        token = Token(self._tokens)
        call = Call(self, token)
        self.waiting.add(token)
        try:
            result = self._append(operation(self.shard, self.now, token))
        except KafkaError as error:
            self._answer(token, error)
            return call
        for effect in result.effects:
            if isinstance(effect, Timer):
                self.timers[effect.key] = effect.deadline_ms
            elif isinstance(effect, Cancel):
                self.timers.pop(effect.key, None)

        def deliver() -> None:
            for effect in result.effects:
                if isinstance(effect, Reply):
                    self._answer(effect.token, effect.response)
            if not result.parked:
                self._answer(token, result.response)

        if self.holding:
            self._held.append(deliver)
        else:
            deliver()
        return call

    def _answer(self, token: Token, response: Any) -> None:
        assert token in self.waiting, "answered twice, or nobody asked"
        self.waiting.remove(token)
        self.answers[token] = response

    def _append(self, result: Result[Any]) -> Result[Any]:
        if not result.records:
            return result
        if self.refusal is not None:
            error, self.refusal = self.refusal, None
            if result.refused is None:
                raise error
            return self._append(result.refused(error))
        producer_id = -1 if result.transactional is None else result.transactional.producer_id
        for key, value in result.records:
            self.log.append(Entry(producer_id, key, value))
            self.shard.replay(len(self.log) - 1, producer_id, key, value)
        return result

    def commit(self) -> None:
        """The log commits: held answers go out."""
        held, self._held = self._held, []
        for deliver in held:
            deliver()

    def advance(self, ms: int) -> None:
        """Let time pass; timers fire at their deadline, in order."""
        end = self.now + ms
        while True:
            due = sorted((at, str(key), key) for key, at in self.timers.items() if at <= end)
            if not due:
                break
            at, _, key = due[0]
            self.now = max(self.now, at)
            del self.timers[key]
            self._run(lambda shard, now, _token, key=key: shard.on_timer(key, now))  # type: ignore[misc]
        self.now = end

    def restart(self) -> Dialogue:
        """The broker died and came back: only the log is left."""
        return Dialogue(self.config, self.now, list(self.log))

    def new_records(self) -> list[GroupRecord | OffsetRecord | None]:
        """Records appended since the last call."""
        new = self.log[self._seen :]
        self._seen = len(self.log)
        return [parse_record(entry.key, entry.value) for entry in new if entry.commit is None]

    # -- requests ---------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        protocol_type: str = "consumer",
        session: int = 10_000,
        rebalance: int = 60_000,
        version: int = 9,
        grace: int = -1,
        connection: int = 1,
        client_id: str = "client",
    ) -> Call:
        self._names += 1
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
            connection_grace_ms=grace,
        )
        caller = Caller(client_id, "/host", version, connection, f"{client_id}-{self._names}")
        return self._run(lambda shard, now, token: shard.join_group(request, caller, now, token))

    def join_known(self, **options: Any) -> tuple[str, Call]:
        """A new dynamic member: both round trips. Returns its id and the second, parked call."""
        first = self.join(**options)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        connection: int = 1,
    ) -> Call:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        return self._run(
            lambda shard, now, token: shard.sync_group(request, connection, now, token)
        )

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        *,
        group: str = "g",
        instance: str | None = None,
        connection: int = 1,
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self._run(lambda shard, now, _token: shard.heartbeat(request, connection, now)).error

    def leave(self, *identities: tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
        answer: list[ErrorCode] = self._run(
            lambda shard, now, _token: shard.leave_group(group, identities, now)
        ).answer
        return answer

    def close_connection(self, connection: int) -> None:
        self._run(lambda shard, now, _token: shard.connection_closed(connection, now))

    def commit_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        retention: int = -1,
        producer: int | None = None,
    ) -> Call:
        commits = [
            Commit(TopicPartition(*partition), offset, 0, metadata)
            for partition, offset in offsets.items()
        ]
        return self._run(
            lambda shard, now, _token: shard.commit_offsets(
                group,
                commits,
                member_id=member_id,
                group_instance_id=instance,
                generation=generation,
                now_ms=now,
                retention_ms=retention,
                producer=None if producer is None else ProducerIdAndEpoch(producer, 0),
            )
        )

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        self.log.append(Entry(producer, b"", None, commit))
        self.shard.replay_marker(producer, commit)

    def fetch(
        self, *partitions: tuple[str, int], group: str = "g", stable: bool = False
    ) -> dict[tuple[str, int], tuple[int, ErrorCode]]:
        """(offset, error) by partition; no partitions = all."""
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
            for topic, index in partitions
        ]
        found = self.shard.fetch_offsets(group, topics or None, stable)
        return {
            (topic.name, each.partition_index): (each.committed_offset, ErrorCode(each.error_code))
            for topic in found.topics
            for each in topic.partitions
        }

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> Call:
        wanted = [TopicPartition(*partition) for partition in partitions]
        return self._run(lambda shard, _now, _token: shard.delete_offsets(group, wanted))

    def delete_topics(self, *topics: str) -> None:
        self._run(lambda shard, _now, _token: shard.topics_deleted(topics))

    def delete_group(self, group: str = "g") -> ErrorCode:
        answer = self._run(lambda shard, _now, _token: shard.delete_group(group)).answer
        return answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE

    # -- shortcuts --------------------------------------------------------------------------------

    def group(self, group: str = "g") -> ClassicGroup:
        return self.shard.groups[group]

    @property
    def state(self) -> str:
        return self.group().state.value

    def stable(self, size: int = 1, **options: Any) -> list[str]:
        """A Stable group; the first of the returned member ids leads. Assignments are ``a0``..."""
        calls = [self.join_known(**options) for _ in range(size)]
        self.advance(0)
        if size > 1:
            # The initial rebalance ended with whoever was there: let everybody rejoin once.
            assert all(not call.parked for _, call in calls)
        self.assign([member_id for member_id, _ in calls])
        return [member_id for member_id, _ in calls]

    def assign(self, members: list[str]) -> None:
        """All members sync; the leader of the group brings the assignments ``a0``..."""
        group = self.group()
        assignments = {member: b"a%d" % index for index, member in enumerate(members)}
        followers = [member for member in members if member != group.leader]
        calls = [self.sync(member, group.generation) for member in followers]
        assert group.leader is not None
        calls.append(self.sync(group.leader, group.generation, assignments))
        assert all(call.error is ErrorCode.NONE for call in calls)


@pytest.fixture
def groups() -> Iterator[Dialogue]:
    """A fresh shard; at the end no answered call is left without its answer."""
    yield Dialogue()


@pytest.fixture
def new_groups() -> Callable[..., Dialogue]:
    """Shards with settings: ``new_groups(max_size=2)``."""

    def make(**settings: Any) -> Dialogue:
        return Dialogue(GroupConfig(**settings))

    return make
