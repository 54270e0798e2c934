from __future__ import annotations

import asyncio

import pytest

from onceward.broker.client import ConnectionFailed, ErrorCode, KafkaError
from onceward.broker.protocol import messages as m
from onceward.broker.protocol.api import ApiKey

from .fake import NODE, Closes, FakeBroker, Hangs


async def test_the_newest_version_both_sides_speak_is_used() -> None:
    broker = FakeBroker()
    broker.api_versions[ApiKey.METADATA] = (0, 7)
    async with broker.client():
        pass
    assert broker.versions[m.MetadataRequest] == 7


async def test_no_common_version_is_an_error_that_names_both_ranges() -> None:
    broker = FakeBroker()
    broker.api_versions[ApiKey.METADATA] = (90, 99)
    client = broker.client()
    with pytest.raises(KafkaError, match=r"METADATA.* needs 0 to 12.* 90 to 99") as failed:
        await client.start()
    assert failed.value.code == ErrorCode.UNSUPPORTED_VERSION
    await client.close()


async def test_an_api_the_broker_does_not_offer_is_an_error() -> None:
    broker = FakeBroker()
    del broker.api_versions[ApiKey.END_TXN]
    async with broker.client() as client:
        with pytest.raises(KafkaError, match="does not offer END_TXN"):
            await client.request(NODE, m.EndTxnRequest())


async def test_a_broker_that_does_not_know_our_api_versions_is_asked_with_version_0() -> None:
    broker = FakeBroker()
    refusal = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    broker.answer(m.ApiVersionsRequest, refusal)
    async with broker.client() as client:
        assert client.metadata.cluster_id == "fake"
    assert broker.versions[m.ApiVersionsRequest] == 0


async def test_requests_are_pipelined_and_answers_find_their_callers() -> None:
    broker = FakeBroker()
    broker.on(m.HeartbeatRequest, lambda r: m.HeartbeatResponse(error_code=r.generation_id))
    async with broker.client() as client:
        answers = await asyncio.gather(
            *(client.request(NODE, m.HeartbeatRequest(generation_id=n)) for n in range(20))
        )
    assert [answer.error_code for answer in answers] == list(range(20))
    assert broker.connections == 1


async def test_a_request_without_answer_times_out_and_closes_the_connection() -> None:
    broker = FakeBroker()
    broker.answer(m.HeartbeatRequest, Hangs())
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client:
        with pytest.raises(ConnectionFailed, match="did not answer HEARTBEAT") as failed:
            await client.request(NODE, m.HeartbeatRequest(), timeout_ms=20)
        assert failed.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert failed.value.sent
        await client.request(NODE, m.HeartbeatRequest())
    assert broker.connections == 2


async def test_a_lost_connection_fails_everything_in_flight_as_sent() -> None:
    broker = FakeBroker()
    broker.answer(m.HeartbeatRequest, Hangs(), Hangs(), Closes())
    async with broker.client() as client:
        results = await asyncio.gather(
            *(client.request(NODE, m.HeartbeatRequest()) for _ in range(3)),
            return_exceptions=True,
        )
    assert all(isinstance(r, ConnectionFailed) and r.sent for r in results)


async def test_cancelling_a_request_drops_its_answer_and_keeps_the_connection() -> None:
    broker = FakeBroker()
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client:
        task = asyncio.create_task(client.request(NODE, m.HeartbeatRequest()))
        await asyncio.sleep(0)
        task.cancel()
        await client.request(NODE, m.HeartbeatRequest())
    assert broker.connections == 1


async def test_an_answer_nobody_asked_for_closes_the_connection() -> None:
    broker = FakeBroker()
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client:
        connection = await client._pool.get(NODE, "", asyncio.get_running_loop().time() + 1)
        connection.data_received(b"\x00\x00\x00\x04\x00\x00\x00\x63")
        assert connection.closed
        await client.request(NODE, m.HeartbeatRequest())
    assert broker.connections == 2


async def test_who_waits_for_a_rebooted_machine_learns_it_from_another_connection() -> None:
    broker = FakeBroker()
    broker.answer(m.HeartbeatRequest, Hangs(), Hangs())
    broker.on(m.HeartbeatRequest, lambda _: m.HeartbeatResponse())
    async with broker.client() as client, asyncio.timeout(10):
        waiting = [
            asyncio.create_task(client.request(NODE, m.HeartbeatRequest(), lane=lane))
            for lane in ("poll", "other")
        ]
        await broker.received(m.HeartbeatRequest, 2)
        broker.reboot()
        with pytest.raises(ConnectionFailed, match="lost: by peer"):
            await client.request(NODE, m.HeartbeatRequest())
        for each in waiting:
            with pytest.raises(ConnectionFailed, match="lost: by peer") as failed:
                await each
            assert failed.value.sent


async def test_who_waits_learns_it_when_the_node_is_reached_again_or_cannot_be() -> None:
    for refused in (0, 1):
        broker = FakeBroker()
        broker.answer(m.HeartbeatRequest, Hangs(), Hangs())
        async with broker.client() as client, asyncio.timeout(10):
            poll = asyncio.create_task(client.request(NODE, m.HeartbeatRequest(), lane="poll"))
            await broker.received(m.HeartbeatRequest)
            broker.reboot()
            broker.refuse_connections = refused
            silent = client.request(NODE, m.HeartbeatRequest(), lane="fresh", timeout_ms=20)
            with pytest.raises(ConnectionFailed):
                await silent
            with pytest.raises(ConnectionFailed, match="lost: by peer"):
                await poll


async def test_a_connection_whose_peer_is_well_outlives_the_trouble_of_another() -> None:
    """It is asked once more, and the answer is dropped; idle ones are left alone."""
    broker = FakeBroker()
    broker.answer(m.HeartbeatRequest, Hangs(), Hangs())
    async with broker.client() as client:
        await client.request(NODE, m.MetadataRequest(), lane="idle")
        poll = asyncio.create_task(client.request(NODE, m.HeartbeatRequest(), lane="poll"))
        await broker.received(m.HeartbeatRequest)
        asked = len(broker.sent(m.ApiVersionsRequest))
        with pytest.raises(ConnectionFailed, match="did not answer"):
            await client.request(NODE, m.HeartbeatRequest(), lane="slow", timeout_ms=20)
        await broker.received(m.ApiVersionsRequest, asked + 2)
        await asyncio.sleep(0)
        await client.request(NODE, m.MetadataRequest(), lane="poll")
        assert not poll.done()
        assert broker.connections == 4
        assert len(broker.sent(m.ApiVersionsRequest)) == asked + 2, "a handshake and a probe"
        poll.cancel()
