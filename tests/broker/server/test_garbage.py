"""What a broker does with bytes that are not Kafka's, while another client goes on working."""

from __future__ import annotations

import asyncio
import random
import struct
import tracemalloc

import pytest

from onceward.broker import Broker
from onceward.broker.protocol.api import APIS, ApiKey
from onceward.broker.protocol.codec import decode_response, encode_request
from onceward.broker.protocol.headers import RequestHeader
from onceward.broker.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FetchRequest,
    JoinGroupRequest,
    MetadataRequest,
    ProduceRequest,
)

from ..wire import Wire, connect


async def works(broker: Broker) -> None:
    """An ordinary client is served."""
    async with await connect(broker) as wire:
        response = await wire.call(MetadataRequest(topics=[]), 9)
        assert response.cluster_id == broker.metadata.cluster_id


def header(key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104857601),
        framed(b""),
        framed(b"\x00"),
        framed(header(999, 0)),
        framed(header(-1, 0)),
        framed(header(ApiKey.PRODUCE, 0)),
        framed(header(ApiKey.PRODUCE, 2)),
        framed(header(ApiKey.PRODUCE, 99)),
        framed(header(ApiKey.METADATA, -1)),
        framed(header(ApiKey.METADATA, 1) + struct.pack(">i", 2**31 - 1)),
        framed(header(ApiKey.FIND_COORDINATOR, 4) + b"\x00" + b"\xff\xff\xff\xff\x0f"),
        framed(header(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 5) + b"ab"),
        framed(header(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    ],
    ids=lambda sent: repr(sent[:24]),
)
async def test_garbage_ends_its_connection_and_no_other(broker: Broker, sent: bytes) -> None:
    async with await connect(broker) as wire:
        wire.writer.write(sent)
        assert await wire.closed_by_peer()
    await works(broker)


async def test_random_bytes_never_harm_the_broker(broker: Broker) -> None:
    rng = random.Random(7)
    for _ in range(150):
        async with await connect(broker) as wire:
            content = rng.randbytes(rng.randrange(1, 300))
            if rng.random() < 0.7:
                key, version = rng.choice(list(APIS)), rng.randrange(0, 13)
                content = framed(header(key, version) + content)
            wire.writer.write(content)
            wire.writer.write_eof()
            await asyncio.wait_for(wire.reader.read(), 10)
    await works(broker)


async def test_valid_requests_with_flipped_bits_never_harm_the_broker(broker: Broker) -> None:
    rng = random.Random(11)
    requests = [
        (CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")]), 5),
        (FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")], max_wait_ms=1), 11),
        (JoinGroupRequest(group_id="g", session_timeout_ms=100, protocol_type="consumer"), 7),
        (
            ProduceRequest(
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name="t",
                        partition_data=[
                            ProduceRequest.PartitionProduceData(index=0, records=bytes(80))
                        ],
                    )
                ]
            ),
            9,
        ),
    ]
    for turn in range(200):
        request, version = requests[turn % len(requests)]
        key = next(api.key for api in APIS.values() if api.request is type(request))
        frame = bytearray(b"".join(encode_request(RequestHeader(key, version, 1, "fuzz"), request)))
        for _ in range(rng.randrange(1, 4)):
            frame[rng.randrange(12, len(frame))] ^= 1 << rng.randrange(8)
        async with await connect(broker) as wire:
            wire.writer.write(frame)
            wire.writer.write_eof()
            await asyncio.wait_for(wire.reader.read(), 10)
    await works(broker)


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    wire.writer.write(framed(header(ApiKey.API_VERSIONS, 99, 7) + b"\x00whatever"))
    correlation_id, response = decode_response(ApiKey.API_VERSIONS, 0, await wire.receive_frame())
    assert correlation_id == 7
    assert response.error_code == 35
    [own] = response.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
    again = await wire.call(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4
    )
    assert again.error_code == 0


async def test_unknown_tagged_fields_are_skipped(wire: Wire) -> None:
    tags = b"\x01" + b"\xf0\x01" + b"\x03abc"  # one tag, number 240, three bytes
    body = b"\x01" + b"\x00" * 3  # no topics, three booleans
    head = struct.pack(">hhih", ApiKey.METADATA, 9, 5, -1) + tags
    wire.writer.write(framed(head + body + tags))
    correlation_id, response = decode_response(ApiKey.METADATA, 9, await wire.receive_frame())
    assert correlation_id == 5
    assert response.cluster_id


async def test_bytes_after_a_request_are_ignored_as_librdkafka_needs(wire: Wire) -> None:
    """Its Metadata v13 for all topics: null in one byte too many, three bytes left at the end."""
    wire.writer.write(framed(header(ApiKey.METADATA, 13, 3) + bytes(5) + b"\x01\x00\x00"))
    correlation_id, response = decode_response(ApiKey.METADATA, 13, await wire.receive_frame())
    assert correlation_id == 3
    assert {topic.name for topic in response.topics} == {
        "__consumer_offsets",
        "__transaction_state",
    }


async def test_a_cut_frame_is_forgotten_with_its_connection(broker: Broker) -> None:
    async with await connect(broker) as wire:
        wire.writer.write(struct.pack(">i", 50_000) + bytes(1000))
        await wire.writer.drain()
    await works(broker)


async def test_claimed_sizes_take_no_memory_until_the_bytes_come(broker: Broker) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        wires = [await connect(broker) for _ in range(50)]
        for wire in wires:
            wire.writer.write(struct.pack(">i", 100_000_000) + bytes(100))
        huge_array = framed(header(ApiKey.METADATA, 1) + struct.pack(">i", 2**30))
        wires[0].writer.write(huge_array)
        await works(broker)
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < 20_000_000
    finally:
        tracemalloc.stop()
        for wire in wires:
            await wire.close()


async def test_slow_clients_do_not_hold_up_others(broker: Broker) -> None:
    slow = [await connect(broker) for _ in range(20)]
    request = b"".join(encode_request(RequestHeader(3, 9, 1, "slow"), MetadataRequest(topics=[])))
    for byte in request[:-1]:
        for wire in slow:
            wire.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    await works(broker)
    for wire in slow:
        wire.writer.write(request[-1:])
        assert await wire.receive_frame()
        await wire.close()
