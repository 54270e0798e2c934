"""Request headers v1 and v2, response headers v0 and v1."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import ProtocolError, UnsupportedVersionError
from .api import APIS, ApiKey
from .primitives import skip_tags

_FIXED = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    """What precedes every request; ``client_id`` is the client's own label."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request_header(header: RequestHeader) -> bytearray:
    """v2 for flexible versions (the client id stays a plain nullable string), else v1."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    size = -1 if header.client_id is None else len(client_id)
    out = bytearray(_FIXED.pack(header.api_key, header.api_version, header.correlation_id, size))
    out += client_id
    if header.api_version >= APIS[header.api_key].first_flexible:
        out.append(0)
    return out


def decode_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The header and the position after it.

    Raises ProtocolError when it is malformed, UnsupportedVersionError when no such API exists (the
    layout of its header cannot be known). The version is not checked.
    """
    try:
        api_key, api_version, correlation_id, size = _FIXED.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            raise UnsupportedVersionError(api_key, api_version, correlation_id)
        position = _FIXED.size
        client_id = None
        if size >= 0:
            position += size
            if position > len(frame):
                raise ProtocolError("the client id is longer than its message")
            client_id = frame[_FIXED.size : position].decode()
        if api_version >= api.first_flexible:
            count, position = frame[position], position + 1
            position = skip_tags(frame, position, count, len(frame))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def response_header_is_flexible(api_key: int, version: int) -> bool:
    """ApiVersions answers always have header v0: the client may have guessed the version wrong."""
    return api_key != ApiKey.API_VERSIONS and version >= APIS[api_key].first_flexible


def decode_response_header(frame: bytes, flexible: bool) -> tuple[int, int]:
    """The correlation id and the position after the header. Raises ProtocolError."""
    try:
        (correlation_id,) = struct.unpack_from(">i", frame)
        if not flexible:
            return correlation_id, 4
        return correlation_id, skip_tags(frame, 5, frame[4], len(frame))
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"malformed response header: {error}") from error
