"""The cluster a Kafka sink writes to: connections, topics, and what its errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from onceward.broker.client import (
    Admin,
    Client,
    ErrorCode,
    KafkaError,
    NewTopic,
    ProducerFenced,
)

from ..engine.worker import client_of
from .errors import SinkError, SinkFenced, SinkTimeout, SinkUnavailable

T = TypeVar("T")

_LANES: Final = 8
"""Connections to each node. A broker answers one connection in order, and a commit waits for
disks."""
_CLIENT_SHARE: Final = 0.8
"""Of the timeout: then there is time to say what the client had to wait for."""
_MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``."""
_NOT_ALLOWED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_WRONG: Final = _NOT_ALLOWED | {
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.INVALID_REQUIRED_ACKS,
}


class Target:
    """``topic`` is created if it says how many partitions. ``limit`` is the largest record batch it
    takes, in bytes, as far as known. ``timeout`` in seconds bounds what ``guarded`` runs.
    """

    def __init__(self, described: str, bootstrap: str, topic: NewTopic, timeout: float) -> None:
        self.described = described
        self.topic = topic
        self.timeout = timeout
        self.lanes: list[str] = []
        self.limit = _MAX_MESSAGE_BYTES
        self.knows_limit = False
        self.is_compacted = False
        self._bootstrap = bootstrap
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._is_checked = False

    def new_client(self) -> Client:
        return client_of(
            self._bootstrap,
            client_id="onceward",
            request_timeout_ms=int(self.timeout * _CLIENT_SHARE * 1000),
        )

    def admin(self, client: Client) -> Admin:
        return Admin(client, timeout_ms=int(self.timeout * 1000))

    async def connected(self) -> Client:
        """The client, after a look at the topic if something failed since the last one."""
        async with self._connecting:
            client = self._client
            if client is None:
                client = self.new_client()
                try:
                    await client.start()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
                self.lanes = [client.new_lane("sink") for _ in range(_LANES)]
            if not self._is_checked:
                await self.declare(client, self.topic)
                await self._learn_limits(client)
                self._is_checked = True
            return client

    async def declare(self, client: Client, topic: NewTopic) -> None:
        """Create the topic if it is missing. Raises SinkError, KafkaError."""
        admin = self.admin(client)
        if not await admin.describe_topics([topic.name]):
            if topic.partitions < 1:
                raise SinkError(
                    f"{self.described}: there is no topic {topic.name!r}, or this user may not "
                    "see it; create it, or give partitions="
                )
            error = (await admin.create_topics([topic]))[topic.name]
            if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise SinkError(
                    f"{self.described}: topic {topic.name!r} cannot be created: {error}"
                ) from error
        await client.topic(topic.name, timeout_ms=int(self.timeout * 1000))

    async def _learn_limits(self, client: Client) -> None:
        configs = await self.configs(client, self.topic.name)
        self.knows_limit = "max.message.bytes" in configs
        self.limit = int(configs.get("max.message.bytes", _MAX_MESSAGE_BYTES))
        self.is_compacted = "compact" in configs.get("cleanup.policy", "")

    async def configs(self, client: Client, topic: str) -> dict[str, str]:
        """Empty if it is not allowed to ask."""
        try:
            found = await self.admin(client).describe_configs(topic)
        except KafkaError as error:
            if error.code in _NOT_ALLOWED:
                return {}
            raise
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    async def close(self) -> None:
        """Idempotent."""
        client, self._client = self._client, None
        self._is_checked = False
        if client is not None:
            await client.close()

    async def guarded(self, work: Awaitable[T]) -> T:
        """At most for ``timeout`` seconds. Raises SinkUnavailable, SinkError."""
        try:
            async with asyncio.timeout(self.timeout):
                return await work
        except TimeoutError:
            self._is_checked = False
            raise SinkTimeout(
                f"{self.described} did not answer within {self.timeout:g} s"
            ) from None
        except KafkaError as error:
            self._is_checked = False
            raise self._judged(error) from error

    def _judged(self, error: KafkaError) -> SinkUnavailable | SinkError:
        # 47 is how a partition's leader says it; or the transaction was aborted for its timeout.
        is_old = error.code is ErrorCode.INVALID_PRODUCER_EPOCH
        if isinstance(error, ProducerFenced) or is_old:
            return SinkFenced(f"{self.described}: {error}")
        if error.code in _TOO_LARGE and not self.knows_limit:
            return SinkError(
                f"{self.described}: {error}. The topic's limit is not known, as DescribeConfigs "
                "is not allowed: allow it, or raise max.message.bytes"
            )
        if error.code in _WRONG:
            return SinkError(f"{self.described}: {error}")
        return SinkUnavailable(f"{self.described}: {error}")
