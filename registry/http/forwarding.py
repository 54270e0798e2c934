"""Handing a write to the instance that leads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ..errors import RegistryError
from ..exchange import Address, BadAnswer, ask, connect

FORWARD_HEADER = "X-Forward"
PASSED_ON = ("content-type", "accept", "authorization")
CONNECT_TIMEOUT_S = 5.0


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
    """Over HTTP/1.1, one connection per request. The leader has ``timeout_s`` to answer.

    ``tls`` checks the leader's certificate when its URL is ``https``; None: as the system does.
    """

    def __init__(self, *, timeout_s: float = 25.0, tls: ssl.SSLContext | None = None) -> None:
        self._timeout = timeout_s
        self._tls = tls

    async def __call__(self, leader: str, request: ForwardedRequest) -> ForwardedAnswer | None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await connect(Address.parse(leader), self._tls)
        except OSError:  # TimeoutError is one
            return None
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        headers[FORWARD_HEADER] = "true"
        try:
            async with asyncio.timeout(self._timeout):
                answer = await ask(
                    connection, request.method, request.target, headers, request.body
                )
        except (OSError, EOFError, BadAnswer) as error:
            reason = str(error) or type(error).__name__
            text = f"Error while forwarding the request to the leader {leader}: {reason}"
            raise RegistryError(50003, text) from None
        return ForwardedAnswer(answer.status, answer.headers.get("content-type", ""), answer.body)
