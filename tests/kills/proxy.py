"""Holds one request back in the fault proxy, at exactly the moment meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from onceward.broker.protocol.codec import decode_request, decode_response
from onceward.broker.protocol.headers import RequestHeader
from onceward.streams.testing.proxy import FaultProxy, Frame

Matches = Callable[[RequestHeader, Any], bool]


class Hold:
    """The next request that matches, and what follows it on its connection, stays in the proxy
    until ``release``; ``held`` is set meanwhile.

    ``answer`` is the broker's late answer to it, which counts although the client may have given
    up.
    """

    def __init__(self, proxy: FaultProxy, matches: Matches) -> None:
        self.held = asyncio.Event()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._matches = matches
        self._released = asyncio.Event()
        self._frame: Frame | None = None
        proxy.intercept = self._intercept
        proxy.watch = self._watch

    def release(self) -> None:
        self._released.set()

    async def _intercept(self, frame: Frame) -> bool:
        if frame.is_request and not self.held.is_set() and not self._released.is_set():
            header, message = decode_request(frame.data)
            if self._matches(header, message):
                self._frame = frame
                frame.connection.broker_outlives_client = True
                self.held.set()
                await self._released.wait()
        return True

    def _watch(self, frame: Frame) -> None:
        held = self._frame
        if held is None or frame.is_request or frame.connection is not held.connection:
            return
        if frame.header is not None and frame.header == held.header and not self.answer.done():
            header = frame.header
            answer = decode_response(header.api_key, header.api_version, frame.data)[1]
            self.answer.set_result(answer)
