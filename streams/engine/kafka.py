"""Where the engine gets its client from: the one seam between it and the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from onceward.broker.client import Admin, Client, Consumer, Producer

if TYPE_CHECKING:
    from random import Random


class Kafka(Protocol):
    """One worker's connection to a cluster, and what is built on it."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    def admin(self) -> Admin: ...
    def consumer(self, **options: Any) -> Consumer: ...
    def producer(self, **options: Any) -> Producer: ...
    def now_ms(self) -> int: ...


class KafkaCluster:
    """``Kafka`` over the client of this distribution. Options are those of Consumer and
    Producer."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        request_timeout_ms: int,
        clock: Callable[[], int],
        rng: Random,
    ) -> None:
        self._clock = clock
        self._client = Client(
            bootstrap,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            clock=clock,
            rng=rng,
        )

    async def start(self) -> None:
        await self._client.start()

    async def close(self) -> None:
        await self._client.close()

    def admin(self) -> Admin:
        return Admin(self._client)

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(self._client, **options)

    def producer(self, **options: Any) -> Producer:
        return Producer(self._client, **options)

    def now_ms(self) -> int:
        return self._clock()
