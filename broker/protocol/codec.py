"""Whole frames: requests and responses with their headers, in both directions."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from ..errors import ErrorCode, ProtocolError, UnsupportedVersionError
from ..types import Buffer
from .api import APIS, Api, ApiKey
from .headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    response_header_is_flexible,
)
from .schema import Encode, compile_encoder, decode_at

__all__ = [
    "RequestHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
]

_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")


def decode_request(frame: bytes) -> tuple[RequestHeader, Any]:
    """The header and the message of a frame without its size prefix.

    Raises UnsupportedVersionError when the header names an API or version that ``APIS`` lacks,
    ProtocolError for anything that cannot be parsed. Bytes after the message are ignored, as Kafka
    does: librdkafka 2.16 leaves three after a Metadata v13 that asks for all topics.
    """
    header, position = decode_request_header(frame)
    api = APIS[header.api_key]
    if not api.supports(header.api_version):
        raise UnsupportedVersionError(header.api_key, header.api_version, header.correlation_id)
    message, _ = decode_at(api.request, header.api_version, frame, position)
    return header, message


def encode_request(header: RequestHeader, message: Any) -> list[Buffer]:
    """The frame with its size prefix, as buffers in order; large record sets are not copied.

    ValueError when that version does not exist or cannot carry a value of the message.
    """
    api = _api(header.api_key, header.api_version)
    encode = compile_encoder(api.request, header.api_version)
    return _frame(encode, message, bytearray(4) + encode_request_header(header))


def encode_response(api_key: int, version: int, correlation_id: int, message: Any) -> list[Buffer]:
    """As ``encode_request``, for the answer to a request of that key and version."""
    encode, flexible = _response_encoder(api_key, version)
    head = bytearray(_SIZE_AND_CORRELATION.pack(0, correlation_id))
    if flexible:
        head.append(0)
    return _frame(encode, message, head)


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """The correlation id and the message. Raises ProtocolError.

    A broker that does not know the version of an ApiVersions request answers UNSUPPORTED_VERSION in
    the layout of v0, whatever was asked.
    """
    api = _api(api_key, version)
    flexible = response_header_is_flexible(api_key, version)
    correlation_id, position = decode_response_header(frame, flexible)
    if api_key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
        version = 0
    message, after = decode_at(api.response, version, frame, position)
    _reject_trailing(frame, after, api.response)
    return correlation_id, message


_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def _api(api_key: int, version: int) -> Api:
    api = APIS.get(api_key)
    if api is None or not api.supports(version):
        raise ValueError(f"there is no version {version} of api key {api_key}")
    return api


@cache
def _response_encoder(api_key: int, version: int) -> tuple[Encode, bool]:
    api = _api(api_key, version)
    return compile_encoder(api.response, version), response_header_is_flexible(api_key, version)


def _frame(encode: Encode, message: Any, head: bytearray) -> list[Buffer]:
    """Encodes behind ``head``, whose first four bytes are kept for the size of the rest."""
    out: list[Buffer] = []
    last = encode(message, head, out)
    if last:
        out.append(last)
    _SIZE.pack_into(head, 0, sum(map(len, out)) - 4)
    return out


def _reject_trailing(frame: bytes, position: int, cls: type) -> None:
    if position != len(frame):
        raise ProtocolError(f"{len(frame) - position} bytes are left after {cls.__qualname__}")
