"""The constructor options of aiokafka, with its names and defaults, and what becomes of them.

An option that promises something this client does not do is refused, never ignored. Here, at the
edge to the program, the real clock and randomness come in; both may be given instead.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import ErrorCode
from ...errors import KafkaError as ClientError
from ...protocol.messages import MetadataRequest
from ...types import Clock
from ..assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
)
from ..cluster import METADATA_MAX_VERSION, Client
from ..metadata import TopicInfo
from ..offsets import Isolation
from ..resolver import OffsetReset
from .errors import KafkaConnectionError, translated

DEFAULT_PORT = 9092
COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd", None)

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[Any], Any]
Partitioner = Callable[[bytes | None, list[int], list[int]], int]


class ConfigurationError(ValueError):
    """An option has a value that cannot be honoured; the message says which and why."""


def system_clock() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """What consumers and producers share.

    ``api_version`` has no effect; ``loop`` only lets the object be made before its loop runs.
    """

    bootstrap_servers: str | Sequence[str] = "localhost"
    client_id: str | None = None
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 40_000
    retry_backoff_ms: int = 100
    connections_max_idle_ms: int | None = 540_000
    security_protocol: str = "PLAINTEXT"
    ssl_context: Any = None
    sasl_mechanism: str = "PLAIN"
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_oauth_token_provider: Any = None
    loop: Any = None
    api_version: Any = None
    clock: Clock = system_clock
    rng: random.Random | None = None

    def __post_init__(self) -> None:
        if self.security_protocol != "PLAINTEXT":
            raise ConfigurationError(
                f"security_protocol={self.security_protocol!r} is not supported yet, "
                "only PLAINTEXT is"
            )
        for name in (
            "ssl_context",
            "sasl_plain_username",
            "sasl_plain_password",
            "sasl_kerberos_domain_name",
            "sasl_oauth_token_provider",
        ):
            if getattr(self, name) is not None:
                raise ConfigurationError(f"{name} is not supported yet: TLS and SASL are missing")
        if self.connections_max_idle_ms not in (None, 540_000):
            raise ConfigurationError(
                "connections_max_idle_ms is not supported: idle connections are kept"
            )
        for name in ("loop", "api_version"):
            if getattr(self, name) is not None:
                warnings.warn(f"{name} is deprecated", DeprecationWarning, stacklevel=5)

    def new_client(self) -> Client:
        return Client(
            bootstrap_string(self.bootstrap_servers),
            client_id=self.client_id or "onceward-aiokafka",
            request_timeout_ms=self.request_timeout_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=max(1_000, self.retry_backoff_ms),
            clock=self.clock,
            rng=self.random,
        )

    @property
    def random(self) -> random.Random:
        return self.rng or random.Random()


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(ConnectionOptions):
    """``acks`` None = 1, or all with idempotence, as in aiokafka."""

    acks: Literal[0, 1, -1, "all"] | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    compression_type: str | None = None
    max_batch_size: int = 16_384
    partitioner: Partitioner | None = None
    max_request_size: int = 1_048_576
    linger_ms: int = 0
    enable_idempotence: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.acks not in (0, 1, -1, "all", None):
            raise ConfigurationError(f"acks={self.acks!r} is none of 0, 1, -1 and 'all'")
        if self.compression_type not in COMPRESSIONS:
            raise ConfigurationError(f"compression_type={self.compression_type!r} is not known")
        if self.idempotent and self.acks not in (-1, "all", None):
            raise ConfigurationError(f"acks={self.acks} does not go with enable_idempotence=True")

    @property
    def idempotent(self) -> bool:
        return self.enable_idempotence or self.transactional_id is not None

    @property
    def required_acks(self) -> int:
        if self.acks is None:
            return -1 if self.idempotent else 1
        return -1 if self.acks == "all" else self.acks


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ConnectionOptions):
    """``consumer_timeout_ms`` is how often a waiting consumer looks after its membership."""

    group_id: str | None = None
    group_instance_id: str | None = None
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    fetch_min_bytes: int = 1
    max_partition_fetch_bytes: int = 1_048_576
    auto_offset_reset: OffsetReset = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    check_crcs: bool = True
    partition_assignment_strategy: Sequence[Any] = ("roundrobin",)
    max_poll_interval_ms: int = 300_000
    rebalance_timeout_ms: int | None = None
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    consumer_timeout_ms: int = 200
    max_poll_records: int | None = None
    exclude_internal_topics: bool = True
    isolation_level: Isolation = "read_uncommitted"
    client_rack: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_records(self.max_poll_records)
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigurationError(
                f"auto_offset_reset={self.auto_offset_reset!r} is none of earliest, latest, none"
            )
        if self.isolation_level not in ("read_committed", "read_uncommitted"):
            raise ConfigurationError(f"isolation_level={self.isolation_level!r} is not known")
        if self.client_rack is not None:
            raise ConfigurationError("client_rack is not supported: records come from the leader")
        self.assignors()

    def assignors(self) -> list[Assignor]:
        """Ours, by the names or the ``name`` attributes of what was given."""
        return [assignor_named(given) for given in self.partition_assignment_strategy]


def check_max_records(count: int | None) -> None:
    """Raises ValueError unless it is None or a positive integer."""
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ConfigurationError(f"{count!r} records at most: it must be a positive integer")


def assignor_named(given: Any) -> Assignor:
    """From "range", "roundrobin", "cooperative-sticky", or a class or object with such a name."""
    name = given if isinstance(given, str) else getattr(given, "name", None)
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor()):
        if name == assignor.name:
            return assignor
    raise ConfigurationError(
        f"partition_assignment_strategy {given!r} is not supported: use range, roundrobin or "
        "cooperative-sticky"
    )


def bootstrap_string(servers: str | Sequence[str]) -> str:
    """ "host:port,host:port" from what aiokafka accepts; the port defaults to 9092."""
    given = servers.split(",") if isinstance(servers, str) else servers
    return ",".join(_with_port(server.strip()) for server in given)


def _with_port(server: str) -> str:
    host, _, port = server.rpartition(":")
    bare_ipv6 = ":" in host and not host.startswith("[")
    if host and port.isdigit() and not bare_ipv6:
        return server
    if bare_ipv6:
        server = f"[{server}]"
    return f"{server}:{DEFAULT_PORT}"


async def connect(client: Client) -> None:
    """One attempt per server. Raises KafkaConnectionError, with the client closed."""
    nothing = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        await client.request(None, nothing, max_version=METADATA_MAX_VERSION)
        await client.start()
    except ClientError as error:
        await client.close()
        message = f"Unable to bootstrap from {client.bootstrap}: {error}"
        raise KafkaConnectionError(message) from error


async def touch_topic(client: Client, name: str) -> None:
    """Ask for a topic as aiokafka does: a broker that creates topics on demand creates it."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    await client.request(None, request, max_version=METADATA_MAX_VERSION)


async def topic_info(client: Client, name: str) -> TopicInfo:
    """The topic's metadata. Waits for it ``request_timeout_ms``, then raises
    UnknownTopicOrPartitionError.
    """
    client.refresh_metadata_when_old()
    known = client.metadata.topics.get(name)
    if known is not None and known.error == ErrorCode.NONE:
        return known
    try:
        if known is None:
            await touch_topic(client, name)
        return await client.topic(name)
    except ClientError as error:
        raise translated(error) from error
