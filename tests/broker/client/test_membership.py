"""Groups against a running cluster: rebalances, static members, lost memberships."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from onceward.broker.client import (
    Admin,
    Assignor,
    Client,
    Consumer,
    CooperativeStickyAssignor,
    Coordinator,
    ErrorCode,
    KafkaError,
    MemberFenced,
    MemberMetadata,
    OffsetAndMetadata,
    Producer,
    RangeAssignor,
    TopicPartition,
    encode_assignment,
)
from onceward.broker.protocol.messages import LeaveGroupRequest

from .conftest import NewTopicFixture
from .wire import PATIENCE_S

EAGER = RangeAssignor()
COOPERATIVE = CooperativeStickyAssignor()


class Diary:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.user_data: list[bytes] = []

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", [tp.partition for tp in partitions]))

    async def on_assigned(self, partitions: Sequence[TopicPartition], user_data: bytes) -> None:
        self.events.append(("assigned", [tp.partition for tp in partitions]))
        self.user_data.append(user_data)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", [tp.partition for tp in partitions]))


class Member:
    def __init__(self, client: Client, topic: str, assignor: Assignor, **options: Any) -> None:
        options = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6_000} | options
        self.consumer = Consumer(client, group_id=topic, assignors=[assignor], **options)
        self.diary = Diary()
        self.consumer.subscribe([topic], self.diary)

    @property
    def owned(self) -> list[int]:
        return sorted(tp.partition for tp in self.consumer.assignment)


async def run_until(condition: Callable[[], bool], *members: Member) -> None:
    """Poll the members in turn until ``condition`` holds and no rebalance is pending."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition() or any(member.consumer.rebalancing for member in members):
            for member in members:
                await member.consumer.fetch(timeout_ms=10)


@contextlib.asynccontextmanager
async def stopped_after(*members: Member) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for member in members:
            await member.consumer.stop()


async def test_an_eager_group_gives_everything_up_and_shares_anew(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(4)
    first = Member(client, topic, EAGER)
    await run_until(lambda: first.owned == [0, 1, 2, 3], first)
    second = Member(client, topic, EAGER)
    async with stopped_after(first, second):
        await run_until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        assert first.diary.events[:2] == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
        assert sorted(first.owned + second.owned) == [0, 1, 2, 3]
        generation = first.consumer.group_metadata.generation_id
        assert generation == second.consumer.group_metadata.generation_id
        await second.consumer.stop()
        await run_until(lambda: first.owned == [0, 1, 2, 3], first)
    assert second.owned == []


async def test_a_cooperative_group_moves_only_what_must_move(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(4)
    first = Member(client, topic, COOPERATIVE)
    await run_until(lambda: first.owned == [0, 1, 2, 3], first)
    second = Member(client, topic, COOPERATIVE)
    async with stopped_after(first, second):
        await run_until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        moved = second.owned
        told = [event for event in first.diary.events if event[1]]
        assert told == [("assigned", [0, 1, 2, 3]), ("revoked", moved)]
        assert [event for event in second.diary.events if event[1]] == [("assigned", moved)]


async def test_a_cooperative_member_reads_on_while_others_join(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    first = Member(client, topic, COOPERATIVE)
    slow = Member(client, topic, COOPERATIVE)
    async with stopped_after(first, slow):
        await run_until(lambda: len(first.owned) == len(slow.owned) == 1, first, slow)
        third = Member(client, topic, COOPERATIVE)
        async with stopped_after(third):
            await third.consumer.fetch(timeout_ms=100)
            async with asyncio.timeout(PATIENCE_S):
                while not first.consumer.rebalancing:
                    await first.consumer.fetch(timeout_ms=20)
            producer = Producer(client)
            await producer.produce(topic, first.owned[0], [None], [b"x"], timestamps=1)
            values: list[bytes | None] = []
            async with asyncio.timeout(PATIENCE_S):
                while not values:
                    for batch in await first.consumer.fetch(timeout_ms=100):
                        values += batch.records.values
            assert first.consumer.rebalancing, "slow has not joined again yet"
            everybody = (first, slow, third)
            await run_until(lambda: sum(len(m.owned) for m in everybody) == 2, *everybody)


async def test_a_static_member_that_restarts_gets_its_partitions_without_a_rebalance(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(4)
    first = Member(client, topic, COOPERATIVE, group_instance_id="one")
    second = Member(client, topic, COOPERATIVE, group_instance_id="two")
    await run_until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    owned, generation = second.owned, first.consumer.group_metadata.generation_id
    heard = len(first.diary.events)
    await second.consumer.stop()
    again = Member(client, topic, COOPERATIVE, group_instance_id="two")
    async with stopped_after(first, again):
        await run_until(lambda: again.owned == owned, first, again)
        assert again.consumer.group_metadata.generation_id == generation
        assert len(first.diary.events) == heard
        await again.consumer.leave_group()
        await run_until(lambda: first.owned == [0, 1, 2, 3], first)


async def test_a_static_member_is_fenced_by_its_successor(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    old = Member(client, topic, COOPERATIVE, group_instance_id="one")
    await run_until(lambda: old.owned == [0, 1], old)
    new = Member(client, topic, COOPERATIVE, group_instance_id="one")
    async with stopped_after(old, new):
        await run_until(lambda: new.owned == [0, 1], new)
        with pytest.raises(MemberFenced):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await old.consumer.fetch(timeout_ms=20)
        with pytest.raises(MemberFenced):
            await old.consumer.fetch(timeout_ms=0)


async def test_a_member_that_was_removed_loses_its_partitions_and_joins_again(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    member = Member(client, topic, COOPERATIVE)
    async with stopped_after(member):
        await run_until(lambda: member.owned == [0, 1], member)
        before = member.consumer.group_metadata
        await remove(client, topic, before.member_id)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1)}
        with pytest.raises(KafkaError) as refused:
            await member.consumer.commit(offsets)
        expected = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        assert refused.value.code in expected
        await run_until(lambda: ("lost", [0, 1]) in member.diary.events, member)
        await run_until(lambda: member.owned == [0, 1], member)
        assert member.diary.events[-2:] == [("lost", [0, 1]), ("assigned", [0, 1])]
        assert member.consumer.group_metadata.member_id != before.member_id


async def remove(client: Client, group_id: str, member_id: str) -> None:
    """As an administrator does."""
    identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
    request = LeaveGroupRequest(group_id=group_id, members=[identity])
    response = await client.request(Coordinator.group(group_id), request, min_version=3)
    assert [m.error_code for m in response.members] == [0]


async def test_positions_follow_the_partition_to_its_new_owner(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    producer = Producer(client)
    for partition in range(2):
        await producer.produce(topic, partition, [None] * 3, [b"x"] * 3, timestamps=1)
    first = Member(client, topic, COOPERATIVE)
    await run_until(lambda: first.owned == [0, 1], first)
    tps = sorted(first.consumer.assignment)
    await first.consumer.commit({tp: OffsetAndMetadata(2) for tp in tps})
    second = Member(client, topic, COOPERATIVE)
    async with stopped_after(first, second):
        await run_until(lambda: len(second.owned) == 1, first, second)
        moved = TopicPartition(topic, second.owned[0])
        with pytest.raises(KeyError):
            first.consumer.position(moved)
        async with asyncio.timeout(PATIENCE_S):
            while second.consumer.position(moved) is None:
                await second.consumer.fetch(timeout_ms=0)
                await asyncio.sleep(0.005)
        assert second.consumer.position(moved) in (2, 3)


async def test_new_partitions_are_assigned_without_being_asked_for(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(1)
    member = Member(client, topic, COOPERATIVE)
    async with stopped_after(member):
        await run_until(lambda: member.owned == [0], member)
        assert await Admin(client).create_partitions({topic: 3}) == {topic: None}
        await run_until(lambda: member.owned == [0, 1, 2], member)


class Telling(RangeAssignor):
    """An assignor of one's own: members say who they are, the leader tells everybody."""

    name = "telling"

    def assign(self, members: Any, partitions: Any) -> dict[str, bytes]:
        heard: dict[str, MemberMetadata] = dict(members)
        everybody = b",".join(sorted(each.user_data for each in heard.values()))
        shares = self.share_out(members, partitions)
        return {member: encode_assignment(share, everybody) for member, share in shares.items()}


async def test_an_assignor_of_ones_own_exchanges_user_data(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(2)
    first = Member(client, topic, Telling(), user_data=lambda: b"a")
    second = Member(client, topic, Telling(), user_data=lambda: b"b")
    async with stopped_after(first, second):
        await run_until(lambda: len(first.owned) == len(second.owned) == 1, first, second)
        assert first.diary.user_data[-1] == second.diary.user_data[-1] == b"a,b"


async def test_seeking_in_on_assigned_comes_before_the_committed_offset(
    client: Client, new_topic: NewTopicFixture
) -> None:
    topic = await new_topic(1)
    tp = TopicPartition(topic, 0)
    producer = Producer(client)
    await producer.produce(topic, 0, [None] * 3, [b"0", b"1", b"2"], timestamps=1)

    class Seeking(Diary):
        async def on_assigned(self, partitions: Sequence[TopicPartition], user_data: bytes) -> None:
            for each in partitions:
                consumer.seek(each, 2)

    consumer = Consumer(client, group_id=topic)
    consumer.subscribe([topic], Seeking())
    values: list[bytes | None] = []
    async with asyncio.timeout(PATIENCE_S):
        while not values:
            for batch in await consumer.fetch(timeout_ms=500):
                values += batch.records.values
    assert values == [b"2"]
    assert consumer.position(tp) == 3
    await consumer.stop()
