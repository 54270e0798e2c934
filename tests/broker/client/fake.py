"""A cluster of one node in memory, whose answers a test writes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from onceward.broker.client import Client
from onceward.broker.client.connection import Connection
from onceward.broker.protocol import messages as m
from onceward.broker.protocol.api import APIS
from onceward.broker.protocol.codec import decode_request, encode_response
from onceward.broker.protocol.frame import FrameDecoder
from onceward.broker.types import Buffer

NODE = 1
ADDRESS = ("fake", 9092)


class Hangs:
    """As an answer: none ever comes."""


class Closes:
    """As an answer: the connection is closed instead."""


Handler = Callable[[Any], Any]


class FakeBroker:
    """``on(RequestClass, handler)``; handlers get the request and return a response, ``Hangs()`` or
    ``Closes()``. ``answer`` queues answers for the next requests of a class, before its handler.
    After ``reboot`` it knows none of its connections, and resets those that send something.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.versions: dict[type[Any], int] = {}
        self.connections = 0
        self.reboots = 0
        self.refuse_connections = 0
        self.api_versions = {api.key: (api.min_version, api.max_version) for api in APIS.values()}
        self.features = {"transaction.version": 2}
        self.topics: dict[str, int] = {}
        self._handlers: dict[type[Any], Handler] = {
            m.ApiVersionsRequest: self._on_api_versions,
            m.MetadataRequest: self.metadata,
            m.FindCoordinatorRequest: lambda _: m.FindCoordinatorResponse(
                node_id=NODE, host=ADDRESS[0], port=ADDRESS[1]
            ),
        }
        self._queued: defaultdict[type[Any], list[Any]] = defaultdict(list)

    def client(self, **options: Any) -> Client:
        return Client(
            f"{ADDRESS[0]}:{ADDRESS[1]}",
            clock=lambda: 0,
            rng=Random(1),
            connect=self.connect,
            retry_backoff_ms=1,
            retry_backoff_max_ms=2,
            **options,
        )

    def reboot(self) -> None:
        self.reboots += 1

    def on(self, request: type[Any], handler: Handler) -> None:
        self._handlers[request] = handler

    def answer(self, request: type[Any], *answers: Any) -> None:
        self._queued[request] += answers

    def answers_again(self, request: type[Any]) -> None:
        """Forget the queued answers."""
        self._queued[request].clear()

    def sent(self, request: type[Any]) -> list[Any]:
        """Requests of a class, in order of arrival."""
        return [each for each in self.requests if isinstance(each, request)]

    async def received(self, request: type[Any], count: int = 1) -> None:
        """Return when so many requests of a class have arrived. Raises TimeoutError."""
        async with asyncio.timeout(10):
            while len(self.sent(request)) < count:
                await asyncio.sleep(0.001)

    async def connect(
        self, factory: Callable[[], Connection], host: str, port: int
    ) -> tuple[object, Connection]:
        if self.refuse_connections:
            self.refuse_connections -= 1
            raise ConnectionRefusedError(f"{host}:{port}")
        self.connections += 1
        protocol = factory()
        transport = _Transport(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def handle(self, request: Any) -> Any:
        self.requests.append(request)
        queued = self._queued[type(request)]
        answer = queued.pop(0) if queued else self._handlers[type(request)]
        return answer(request) if callable(answer) else answer

    def _on_api_versions(self, _: m.ApiVersionsRequest) -> m.ApiVersionsResponse:
        response = m.ApiVersionsResponse
        return response(
            api_keys=[
                response.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.api_versions.items()
            ],
            finalized_features_epoch=1,
            finalized_features=[
                response.FinalizedFeatureKey(name=name, max_version_level=level)
                for name, level in self.features.items()
            ],
        )

    def metadata(self, request: m.MetadataRequest) -> m.MetadataResponse:
        response = m.MetadataResponse
        names = [t.name for t in request.topics] if request.topics is not None else self.topics
        return response(
            brokers=[
                response.MetadataResponseBroker(node_id=NODE, host=ADDRESS[0], port=ADDRESS[1])
            ],
            cluster_id="fake",
            controller_id=NODE,
            topics=[self._topic(name) for name in names if name is not None],
        )

    def _topic(self, name: str) -> m.MetadataResponse.MetadataResponseTopic:
        response = m.MetadataResponse
        if name not in self.topics:
            return response.MetadataResponseTopic(name=name, error_code=3)
        return response.MetadataResponseTopic(
            name=name,
            partitions=[
                response.MetadataResponsePartition(
                    partition_index=n, leader_id=NODE, leader_epoch=0
                )
                for n in range(self.topics[name])
            ],
        )


class _Transport(asyncio.WriteTransport):
    def __init__(self, broker: FakeBroker, protocol: Connection) -> None:
        super().__init__()
        self._broker = broker
        self._protocol = protocol
        self._frames = FrameDecoder(1 << 30)
        self._closed = False
        self._opened_after = broker.reboots

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Buffer) -> None:
        if self._opened_after < self._broker.reboots:
            self.close(ConnectionResetError("by peer"))
            return
        for frame in self._frames.feed(bytes(data)):
            header, request = decode_request(frame)
            self._broker.versions[type(request)] = header.api_version
            answer = self._broker.handle(request)
            if isinstance(answer, Closes):
                self.close()
            elif not isinstance(answer, Hangs):
                version = header.api_version
                if isinstance(answer, m.ApiVersionsResponse) and answer.error_code:
                    version = 0  # As every broker does, so that any client can read it.
                buffers = encode_response(header.api_key, version, header.correlation_id, answer)
                self._deliver(b"".join(bytes(buffer) for buffer in buffers))

    def _deliver(self, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._protocol.data_received, data)

    def close(self, error: Exception | None = None) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closed
