from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from onceward.broker.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from onceward.broker.protocol.api import APIS, ApiKey
from onceward.broker.protocol.codec import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from onceward.broker.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
)
from onceward.broker.protocol.schema import decode_struct, encode_struct
from onceward.broker.types import Buffer

Generate = Callable[..., Any]
MessageVersion = tuple[type[Any], int]


def body_of(buffers: list[Buffer]) -> bytes:
    """The frame without its size prefix, which must be right."""
    frame = b"".join(buffers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def every_api_version() -> list[tuple[int, int]]:
    return [
        (api.key, version)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    ]


def test_every_request_version_round_trips_with_its_header(generate: Generate) -> None:
    for key, version in every_api_version():
        for seed in range(20):
            message = generate(APIS[key].request, version, seed=seed, big=True)
            header = RequestHeader(key, version, seed * 1000, [None, "", "client-ü"][seed % 3])
            frame = body_of(encode_request(header, message))
            assert decode_request(frame) == (header, message), (key, version, seed)


def test_every_response_version_round_trips_with_its_header(generate: Generate) -> None:
    for key, version in every_api_version():
        for seed in range(20):
            message = generate(APIS[key].response, version, seed=seed, big=True)
            if key == ApiKey.API_VERSIONS:
                message.error_code = 0
            frame = body_of(encode_response(key, version, seed - 3, message))
            assert decode_response(key, version, frame) == (seed - 3, message), (key, version)


def test_a_message_cut_at_any_byte_is_a_protocol_error(
    every_message: list[MessageVersion], generate: Generate
) -> None:
    for cls, version in every_message:
        data = encode_struct(cls, version, generate(cls, version, seed="cut"))
        for size in range(min(len(data), 250)):
            with pytest.raises(ProtocolError):
                decode_struct(cls, version, data[:size])


def test_a_request_frame_cut_at_any_byte_is_a_protocol_error(generate: Generate) -> None:
    for key, version in [(ApiKey.HEARTBEAT, 3), (ApiKey.HEARTBEAT, 4), (ApiKey.API_VERSIONS, 3)]:
        header = RequestHeader(key, version, 1, "client")
        frame = body_of(encode_request(header, generate(APIS[key].request, version)))
        for size in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode_request(frame[:size])


def test_garbage_decodes_or_is_a_protocol_error_and_nothing_else(
    every_message: list[MessageVersion], generate: Generate
) -> None:
    rng = random.Random(11)
    for cls, version in every_message:
        valid = encode_struct(cls, version, generate(cls, version, seed="mutate"))
        for _ in range(25):
            if valid and rng.random() < 0.6:
                data = bytearray(valid)
                for _ in range(rng.randint(1, 3)):
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255])
            else:
                data = bytearray(rng.randbytes(rng.randrange(80)))
            try:
                decode_struct(cls, version, data)
            except ProtocolError:
                pass


def test_garbage_frames_are_protocol_errors_too() -> None:
    rng = random.Random(12)
    for _ in range(3000):
        frame = bytearray(rng.randbytes(rng.randrange(60)))
        frame[:4] = rng.choice([*APIS, 99]).to_bytes(2, "big") + rng.randrange(14).to_bytes(
            2, "big"
        )
        for decode in (decode_request, lambda data: decode_response(ApiKey.FETCH, 12, data)):
            try:
                decode(bytes(frame))
            except ProtocolError:
                pass


def test_trailing_bytes_are_ignored_in_requests_and_refused_in_responses() -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 1, None)
    frame = body_of(encode_request(header, HeartbeatRequest("g", 1, "m")))
    assert decode_request(frame + b"\x00") == decode_request(frame)
    answer = body_of(encode_response(ApiKey.HEARTBEAT, 4, 1, HeartbeatResponse()))
    with pytest.raises(ProtocolError, match="1 bytes are left after HeartbeatResponse"):
        decode_response(ApiKey.HEARTBEAT, 4, answer + b"\x00")


def test_the_client_id_is_a_plain_string_in_flexible_headers() -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 258, "me")
    frame = body_of(encode_request(header, HeartbeatRequest("g", 1, "m")))
    assert frame.startswith(b"\x00\x0c\x00\x04\x00\x00\x01\x02\x00\x02me\x00\x02g")
    plain = RequestHeader(ApiKey.HEARTBEAT, 3, 258, None)
    frame = body_of(encode_request(plain, HeartbeatRequest("g", 1, "m")))
    assert frame.startswith(b"\x00\x0c\x00\x03\x00\x00\x01\x02\xff\xff\x00\x01g")


def test_unknown_tags_in_a_request_header_are_skipped() -> None:
    head = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x02me" + b"\x02\x00\x01x\x81\x01\x02yz"
    body = encode_struct(HeartbeatRequest, 4, HeartbeatRequest("g", 1, "m"))
    header, message = decode_request(head + body)
    assert header == RequestHeader(ApiKey.HEARTBEAT, 4, 7, "me")
    assert message == HeartbeatRequest("g", 1, "m")
    assert decode_request_header(head + body) == (header, len(head))


def test_unknown_tags_in_a_response_header_are_skipped() -> None:
    body = encode_struct(HeartbeatResponse, 4, HeartbeatResponse(3, 27))
    frame = b"\x00\x00\x00\x07" + b"\x01\x05\x02hi" + body
    assert decode_response(ApiKey.HEARTBEAT, 4, frame) == (7, HeartbeatResponse(3, 27))


def test_api_versions_answers_have_no_tagged_section_in_their_header() -> None:
    answer = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(18, 0, 4)])
    frame = body_of(encode_response(ApiKey.API_VERSIONS, 3, 5, answer))
    assert frame.startswith(b"\x00\x00\x00\x05" + b"\x00\x00" + b"\x02" + b"\x00\x12")
    assert decode_response(ApiKey.API_VERSIONS, 3, frame) == (5, answer)


def test_an_unsupported_api_versions_request_is_answered_in_the_layout_of_version_0() -> None:
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersionsResponse.ApiVersion(18, 0, 4)],
    )
    frame = body_of(encode_response(ApiKey.API_VERSIONS, 0, 5, answer))
    assert decode_response(ApiKey.API_VERSIONS, 4, frame) == (5, answer)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_an_unknown_version_of_api_versions_still_has_its_correlation_id(version: int) -> None:
    supported = RequestHeader(ApiKey.API_VERSIONS, 4, 77, "cli")
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = bytearray(body_of(encode_request(supported, request)))
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request(bytes(frame))
    error = caught.value
    assert (error.api_key, error.api_version, error.correlation_id) == (18, version, 77)


def test_an_unknown_api_is_unsupported_and_not_malformed() -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request(b"\x03\xe7\x00\x01\x00\x00\x00\x09\xff\xff")
    assert (caught.value.api_key, caught.value.correlation_id) == (999, 9)


def test_encoding_a_version_that_does_not_exist_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="there is no version 5 of api key 12"):
        encode_response(ApiKey.HEARTBEAT, 5, 1, HeartbeatResponse())
    with pytest.raises(ValueError, match="there is no version 0 of api key 999"):
        encode_request(RequestHeader(999, 0, 1, None), HeartbeatRequest())


def test_large_record_sets_are_neither_copied_nor_joined() -> None:
    batches: list[Buffer] = [b"a" * 5000, memoryview(b"b" * 3000), bytearray(b"c" * 10)]
    partitions = [
        FetchResponse.PartitionData(0, records=batches),
        FetchResponse.PartitionData(1, records=b"small"),
        FetchResponse.PartitionData(2, records=None),
        FetchResponse.PartitionData(3, records=batches[0]),
    ]
    topic = FetchResponse.FetchableTopicResponse("t", partitions=partitions)
    for version in (11, 12):
        buffers = encode_response(ApiKey.FETCH, version, 1, FetchResponse(responses=[topic]))
        by_reference = [id(buffer) for buffer in buffers if len(buffer) > 9]
        assert [id(batch) for batch in [*batches, batches[0]]] == [
            reference for reference in by_reference if reference in set(map(id, batches))
        ]
        _, decoded = decode_response(ApiKey.FETCH, version, body_of(buffers))
        found = [partition.records for partition in decoded.responses[0].partitions]
        assert found == [b"".join(batches), b"small", None, batches[0]]


def test_decoded_record_sets_are_views_of_the_frame() -> None:
    partition = ProduceRequest.PartitionProduceData(0, b"r" * 2000)
    topic = ProduceRequest.TopicProduceData("t", partition_data=[partition])
    header = RequestHeader(ApiKey.PRODUCE, 9, 1, None)
    frame = body_of(encode_request(header, ProduceRequest(topic_data=[topic])))
    _, message = decode_request(frame)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
