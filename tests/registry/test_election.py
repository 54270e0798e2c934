"""The election against a scripted coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from onceward.broker.client import Client, ConnectionFailed, ErrorCode, KafkaError
from onceward.broker.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from onceward.registry.election import Election
from onceward.registry.leadership import Identity

ME = Identity("me.test", 8081)
OTHER = Identity("a.test", 8081)


class NoDelay:
    def delay(self, failures: int) -> float:
        return 0.0


class Coordinator:
    """Takes the place of a client: a group of this member and whoever ``others`` are."""

    def __init__(self, *others: Identity) -> None:
        self.backoff = NoDelay()
        self.others = others
        self.joins: list[Identity] = []
        self.protocols: set[tuple[str, str]] = set()
        self.assignment = b""
        self.refuse_next: dict[type, ErrorCode] = {}
        self.forgotten = 0
        self.left = False
        self.is_away = False

    def new_lane(self, purpose: str) -> str:
        return purpose

    def close_lane(self, lane: str) -> None:
        return

    def forget_coordinator(self, target: object, error: KafkaError) -> None:
        self.forgotten += 1

    async def request(self, target: object, message: Any, **options: object) -> Any:
        await asyncio.sleep(0)
        if self.is_away:
            raise ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, "nobody answers", sent=True)
        refused = self.refuse_next.pop(type(message), ErrorCode.NONE)
        match message:
            case JoinGroupRequest():
                return self.join(message, refused)
            case SyncGroupRequest():
                if message.assignments:
                    self.assignment = bytes(message.assignments[0].assignment)
                return SyncGroupResponse(error_code=refused, assignment=self.assignment)
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=refused)
            case LeaveGroupRequest():
                self.left = True
                return LeaveGroupResponse()
        raise AssertionError(message)

    def join(self, message: JoinGroupRequest, refused: ErrorCode) -> JoinGroupResponse:
        [protocol] = message.protocols
        self.protocols.add((message.protocol_type, protocol.name))
        if refused:
            return JoinGroupResponse(error_code=refused)
        self.joins.append(Identity.decode(bytes(protocol.metadata)))
        members = [("me", bytes(protocol.metadata))]
        members += [(f"other{index}", one.encode()) for index, one in enumerate(self.others)]
        return JoinGroupResponse(
            generation_id=len(self.joins),
            protocol_type="sr",
            protocol_name="v0",
            leader="me",
            member_id="me",
            members=[
                JoinGroupResponse.JoinGroupResponseMember(member_id=name, metadata=metadata)
                for name, metadata in members
            ],
        )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def election_on(coordinator: Coordinator, *, session_timeout_ms: int = 10_000) -> Election:
    return Election(
        cast(Client, coordinator),
        ME,
        heartbeat_interval_ms=5,
        session_timeout_ms=session_timeout_ms,
    )


async def test_alone_it_leads_and_says_so_from_then_on() -> None:
    coordinator = Coordinator()
    election = election_on(coordinator)
    await election.start()
    await until(lambda: election.is_self)
    assert coordinator.protocols == {("sr", "v0")}
    coordinator.refuse_next[HeartbeatRequest] = ErrorCode.REBALANCE_IN_PROGRESS
    await until(lambda: len(coordinator.joins) == 2)
    assert [one.leading for one in coordinator.joins] == [False, True]
    assert election.is_self  # it goes on writing while the group sorts itself out
    await election.stop()
    assert coordinator.left and not election.is_self


async def test_another_with_a_smaller_url_leads() -> None:
    election = election_on(Coordinator(OTHER))
    await election.start()
    await until(lambda: election.leader is not None)
    assert (election.leader, election.is_self) == (OTHER, False)
    await election.stop()


async def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    coordinator = Coordinator()
    election = election_on(coordinator)
    for request in (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest):
        coordinator.refuse_next[request] = ErrorCode.NOT_COORDINATOR
    await election.start()
    await until(lambda: election.is_self and not coordinator.refuse_next)
    await until(lambda: coordinator.forgotten == 3)
    await election.stop()


async def test_a_lost_membership_is_no_leadership() -> None:
    coordinator = Coordinator()
    changes: list[bool] = []
    election = Election(
        cast(Client, coordinator),
        ME,
        heartbeat_interval_ms=5,
        on_change=lambda: changes.append(election.is_self),
    )
    await election.start()
    await until(lambda: election.is_self)
    coordinator.refuse_next[HeartbeatRequest] = ErrorCode.UNKNOWN_MEMBER_ID
    await until(lambda: len(coordinator.joins) == 2 and election.is_self)
    assert changes == [True, False, True]
    await election.stop()


async def test_a_deposed_leader_finds_out_who_leads() -> None:
    coordinator = Coordinator()
    election = election_on(coordinator)
    await election.start()
    await until(lambda: election.is_self)
    coordinator.others = (Identity("z.test", 8081, leading=True),)
    election.deposed()
    assert not election.is_self
    await until(lambda: election.leader is not None)
    assert election.leader is not None and election.leader.host == "z.test"
    assert [one.leading for one in coordinator.joins] == [False, False]
    await election.stop()


async def test_a_coordinator_that_was_away_longer_than_a_session_finds_the_leader_it_had() -> None:
    """Nobody was replaced meanwhile: the coordinator was not there to do it. No round follows."""
    coordinator = Coordinator()
    election = election_on(coordinator, session_timeout_ms=20)
    await election.start()
    await until(lambda: election.is_self)
    coordinator.is_away = True
    await until(lambda: not election.is_self)
    coordinator.is_away = False
    await until(lambda: election.is_self)
    assert len(coordinator.joins) == 1
    await election.stop()
