"""One connection to one node: requests out, answers matched by correlation id.

Requests are pipelined; a broker answers them in order. A request that is not answered in time
closes the connection, because everything behind it waits too (as Kafka's ``NetworkClient`` does).

A peer whose machine lost power is silent for ever where it owes an answer. It says so only when it
is sent something, which is what ``probe`` is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.api import APIS, Api, ApiKey
from ..protocol.codec import decode_response, encode_request
from ..protocol.frame import FrameDecoder
from ..protocol.headers import RequestHeader
from ..protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from .errors import ConnectionFailed, kafka_error

SOFTWARE_NAME = "onceward"
SOFTWARE_VERSION = "0.1.0"
MAX_RESPONSE_BYTES = 512 * 1024 * 1024
API_VERSIONS_VERSION = 3
MAX_CORRELATION_ID = 0x7FFFFFFF


class _Waiting(NamedTuple):
    api_key: int
    version: int
    answer: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class Connection(asyncio.Protocol):
    """``peer`` is for error messages. ``handshake`` must be awaited before any other request.

    ``on_trouble`` is called when the peer reset the connection, or did not answer in time.
    """

    def __init__(
        self, *, client_id: str, peer: str, on_trouble: Callable[[], None] | None = None
    ) -> None:
        self._client_id = client_id
        self.peer = peer
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._frames = FrameDecoder(MAX_RESPONSE_BYTES)
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._correlation_id = 0
        self._probe_id: int | None = None
        self._closed_because: str | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.features_epoch = -1

    @property
    def closed(self) -> bool:
        return self._closed_because is not None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._on_frame(frame)
        except ProtocolError as error:
            self.close(f"{self.peer} sent what cannot be parsed: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        is_news = exc is not None and not self.closed
        self.close(f"connection to {self.peer} lost" + (f": {exc}" if exc else ""))
        if is_news and self._on_trouble is not None:
            self._on_trouble()

    # requests

    async def request(
        self, api_key: int, version: int, message: Any, timeout: float, *, answered: bool = True
    ) -> Any:
        """Send and wait at most ``timeout`` seconds; ``answered=False`` for acks=0: returns None.

        Raises ``ConnectionFailed``. Cancelling leaves the connection intact: the answer is dropped.
        """
        if self._transport is None or self._closed_because is not None:
            reason = self._closed_because or f"not connected to {self.peer}"
            raise ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, reason, sent=False)
        correlation_id = self._next_id()
        header = RequestHeader(api_key, version, correlation_id, self._client_id)
        buffers = encode_request(header, message)
        answer: asyncio.Future[Any] = self._loop.create_future()
        if answered:
            timer = self._loop.call_later(timeout, self._on_timeout, correlation_id, timeout)
            self._waiting[correlation_id] = _Waiting(api_key, version, answer, timer)
        else:
            answer.set_result(None)
        self._transport.writelines(buffers)
        return await answer

    def probe(self) -> None:
        """If something is in flight, send a request whose answer nobody waits for.

        A peer that is well answers it in its turn; one that has forgotten the connection resets it,
        and what is in flight fails now and not at its timeout.
        """
        is_idle = self._transport is None or not self._waiting or not self._versions
        if is_idle or self.closed or self._probe_id is not None:
            return
        assert self._transport is not None
        known = self._versions.get(ApiKey.API_VERSIONS, (0, 0))[1]
        version = min(API_VERSIONS_VERSION, known)
        self._probe_id = self._next_id()
        header = RequestHeader(ApiKey.API_VERSIONS, version, self._probe_id, self._client_id)
        self._transport.writelines(encode_request(header, _who_we_are()))

    def _next_id(self) -> int:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & MAX_CORRELATION_ID
        return correlation_id

    def _on_timeout(self, correlation_id: int, timeout: float) -> None:
        waiting = self._waiting.pop(correlation_id)
        name = ApiKey(waiting.api_key).name
        message = f"{self.peer} did not answer {name} within {timeout * 1000:.0f} ms"
        if not waiting.answer.done():
            failure = ConnectionFailed(ErrorCode.REQUEST_TIMED_OUT, message, sent=True)
            waiting.answer.set_exception(failure)
        self.close(message)
        if self._on_trouble is not None:
            self._on_trouble()

    def _on_frame(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id == self._probe_id:
            self._probe_id = None
            return
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise ProtocolError(f"an answer to request {correlation_id}, which is not waiting")
        waiting.timer.cancel()
        if waiting.answer.done():
            return
        try:
            version = waiting.version
            if waiting.api_key == ApiKey.API_VERSIONS and _is_unsupported(frame):
                version = 0
            message = decode_response(waiting.api_key, version, frame)[1]
        except ProtocolError as error:
            failure = ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, str(error), sent=True)
            waiting.answer.set_exception(failure)
            raise
        waiting.answer.set_result(message)

    def close(self, reason: str = "closed by this client") -> None:
        """Close after what is written has left; everything in flight fails with
        ``ConnectionFailed(sent=True)``.
        """
        if self._closed_because is not None:
            return
        self._closed_because = reason
        if self._transport is not None:
            self._transport.close()
        for waiting in self._waiting.values():
            waiting.timer.cancel()
            if not waiting.answer.done():
                failure = ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, reason, sent=True)
                waiting.answer.set_exception(failure)
        self._waiting.clear()

    # versions

    async def handshake(self, timeout: float) -> None:
        """ApiVersions, stepping down to v0 when the broker does not know ours (error 35)."""
        key = ApiKey.API_VERSIONS
        response = await self.request(key, API_VERSIONS_VERSION, _who_we_are(), timeout)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self.request(key, 0, ApiVersionsRequest(), timeout)
        if response.error_code:
            raise kafka_error(response.error_code, f"{self.peer} refused ApiVersions")
        self._learn(response)

    def _learn(self, response: ApiVersionsResponse) -> None:
        self._versions = {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
        self.features_epoch = response.finalized_features_epoch
        if self.features_epoch >= 0:
            self.features = {f.name: f.max_version_level for f in response.finalized_features}

    def negotiate(
        self, api: Api, *, min_version: int | None = None, max_version: int | None = None
    ) -> int:
        """The newest version both sides speak within the caller's bounds.

        Raises ``KafkaError(UNSUPPORTED_VERSION)`` saying who speaks what.
        """
        lowest = max(api.min_version, min_version or 0)
        highest = api.max_version if max_version is None else min(api.max_version, max_version)
        theirs = self._versions.get(api.key)
        if theirs is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self.peer} does not offer {api.key.name}"
            )
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.key.name}: this client needs {lowest} to {highest}, "
                f"{self.peer} speaks {theirs[0]} to {theirs[1]}",
            )
        return version


def _who_we_are() -> ApiVersionsRequest:
    return ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )


def _is_unsupported(frame: bytes) -> bool:
    """An ApiVersions answer with error 35 has the body of version 0 whatever was asked."""
    return frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


API_OF_REQUEST = {api.request: api for api in APIS.values()}
