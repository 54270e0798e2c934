"""A Kafka client of a few lines: messages in, messages out, over a real socket."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from onceward.broker import Broker
from onceward.broker.protocol.api import APIS
from onceward.broker.protocol.codec import decode_response, encode_request
from onceward.broker.protocol.headers import RequestHeader

TIMEOUT_S = 10.0


class Wire:
    """One connection. ``send`` and ``receive`` pipeline; ``call`` does both."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self.reader, self.writer, self.client_id = reader, writer, client_id
        self._correlation_id = 0

    @classmethod
    async def connect(cls, address: str, client_id: str = "wire") -> Wire:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
        return cls(reader, writer, client_id)

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()

    def send(self, request: Any, version: int) -> tuple[int, int, int]:
        """Returns what ``receive`` wants."""
        key = next(api.key for api in APIS.values() if api.request is type(request))
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, self.client_id)
        self.writer.writelines(encode_request(header, request))
        return int(key), version, self._correlation_id

    async def receive(self, sent: tuple[int, int, int]) -> Any:
        key, version, expected = sent
        correlation_id, response = decode_response(key, version, await self.receive_frame())
        assert correlation_id == expected, "answers leave in request order"
        return response

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def call(self, request: Any, version: int) -> Any:
        return await self.receive(self.send(request, version))

    async def closed_by_peer(self) -> bool:
        """Whether the broker ends the connection without sending anything more."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


async def connect(broker: Broker, client_id: str = "wire") -> Wire:
    return await Wire.connect(broker.bootstrap, client_id)
