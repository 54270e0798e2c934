"""Handing a write to the instance that leads."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from ..errors import RegistryError

FORWARD_HEADER = "X-Forward"
PASSED_ON = ("content-type", "accept", "authorization")
MAX_ANSWER_BYTES = 64_000_000


class ForwardedRequest(NamedTuple):
    """What is sent on. ``target`` is path and query as they came."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class ForwardedAnswer(NamedTuple):
    """What the leader said."""

    status: int
    content_type: str
    body: bytes


class Forwarder(Protocol):
    """Sends a request to the leader's URL."""

    async def __call__(self, leader: str, request: ForwardedRequest) -> ForwardedAnswer | None:
        """None when the leader could not be reached, so that it has not seen the request.

        Raises ``RegistryError`` 50003 when it may have.
        """


class HttpForwarder:
    """Over HTTP/1.1, one connection per request, on the threads of ``executor``.

    ``tls`` checks the leader's certificate when its URL is ``https``.
    """

    def __init__(
        self, executor: Executor, *, timeout_s: float = 25.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._executor = executor
        self._timeout = timeout_s
        self._tls = tls

    async def __call__(self, leader: str, request: ForwardedRequest) -> ForwardedAnswer | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._send, leader, request)

    def _send(self, leader: str, request: ForwardedRequest) -> ForwardedAnswer | None:
        connection = self._connection(leader)
        try:
            try:
                connection.connect()
            except OSError:
                return None
            headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
            headers[FORWARD_HEADER] = "true"
            try:
                connection.request(request.method, request.target, request.body, headers)
                response = connection.getresponse()
                body = response.read(MAX_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as error:
                text = f"Error while forwarding the request to the leader {leader}: {error}"
                raise RegistryError(50003, text) from None
            content_type = response.getheader("content-type") or ""
            return ForwardedAnswer(response.status, content_type, body)
        finally:
            connection.close()

    def _connection(self, leader: str) -> http.client.HTTPConnection:
        url = urlsplit(leader)
        if url.scheme == "https":
            return http.client.HTTPSConnection(
                url.hostname or "", url.port, timeout=self._timeout, context=self._tls
            )
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=self._timeout)
