"""The client's view of a cluster: connections, metadata, api versions, features, coordinators."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import FindCoordinatorRequest, MetadataRequest
from ..types import Clock, TopicPartition
from .backoff import Backoff
from .connection import API_OF_REQUEST, Connection
from .errors import ConnectionFailed, kafka_error
from .metadata import ClusterMetadata, Node, PartitionInfo, TopicInfo
from .pool import ConnectionPool, Connector

if TYPE_CHECKING:
    from random import Random

GROUP = 0
TRANSACTION = 1
DEFAULT_LANE = ""
METADATA_MAX_VERSION = 12
FIND_COORDINATOR_MAX_VERSION = 3


class Coordinator(NamedTuple):
    """A request target: whichever node coordinates this group or transactional id now."""

    kind: int
    key: str

    @classmethod
    def group(cls, group_id: str) -> Self:
        return cls(GROUP, group_id)

    @classmethod
    def transaction(cls, transactional_id: str) -> Self:
        return cls(TRANSACTION, transactional_id)


Target = int | Coordinator | None
"""A node id, a coordinator, or any node."""


class Client:
    """One per process; every consumer, producer and admin shares its connections.

    ``bootstrap`` is "host:port,host:port", with or without "kafka://". ``clock`` is the wall clock;
    intervals use the event loop's time. A *lane* is a connection of its own to a node: brokers
    answer one connection in order, so long polls and parked joins must not stand before anything
    else.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "onceward",
        request_timeout_ms: int = 30_000,
        metadata_max_age_ms: int = 300_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        clock: Clock,
        rng: Random,
        connect: Connector | None = None,
    ) -> None:
        self.client_id = client_id
        self.clock = clock
        self.request_timeout_ms = request_timeout_ms
        self.metadata = ClusterMetadata()
        self._bootstrap = parse_bootstrap(bootstrap)
        self._metadata_max_age = metadata_max_age_ms / 1000
        self.rng = rng
        self.backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, rng)
        self._pool = ConnectionPool(
            client_id=client_id,
            address_of=self._address_of,
            backoff=self.backoff,
            timeout_ms=request_timeout_ms,
            connect=connect,
            on_failure=self.request_metadata_refresh,
        )
        self._coordinators: dict[Coordinator, int] = {}
        self._coordinator_nodes: dict[int, Node] = {}
        self._interest: set[str] = set()
        self._refresh_lock = asyncio.Lock()
        self._refreshes_begun = 0
        self._refresh_error: KafkaError | None = None
        self._refreshed_at = float("-inf")
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    # life

    async def start(self) -> None:
        """Connect to any bootstrap server, trying them again and again. Raises KafkaError when none
        answers in the request timeout.
        """
        await self.refresh_metadata()

    async def close(self) -> None:
        """Close every connection; requests in flight fail with ConnectionFailed. Idempotent."""
        self._closed = True
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.host}:{node.port}" for node in self._bootstrap)

    @property
    def transaction_version(self) -> int:
        """Finalised level of the feature ``transaction.version`` (2 = KIP-890); 0 when unknown."""
        return self._pool.features.get("transaction.version", 0)

    def new_lane(self, purpose: str) -> str:
        """A lane that nobody else uses."""
        return self._pool.new_lane(purpose)

    def close_lane(self, lane: str) -> None:
        """Close the lane's connections."""
        self._pool.close_lane(lane)

    # requests

    async def request(
        self,
        target: Target,
        message: Any,
        *,
        lane: str = DEFAULT_LANE,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: int | None = None,
        answered: bool = True,
    ) -> Any:
        """Send once, in the newest version both sides speak within the bounds; return the response.

        The whole call, connecting and looking up a coordinator included, takes at most
        ``timeout_ms``. Raises ``ConnectionFailed``, or KafkaError(UNSUPPORTED_VERSION). Error codes
        inside the response are the caller's business.
        """
        loop = asyncio.get_running_loop()
        timeout = (self.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = loop.time() + timeout
        connection = await self._connection_to(target, lane, deadline)
        api = API_OF_REQUEST[type(message)]
        version = connection.negotiate(api, min_version=min_version, max_version=max_version)
        remaining = max(deadline - loop.time(), 0.001)
        return await connection.request(api.key, version, message, remaining, answered=answered)

    async def call(
        self,
        target: Target,
        message: Any,
        *,
        errors: Callable[[Any], Iterable[int]],
        lane: str = DEFAULT_LANE,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: int | None = None,
        backoff: Backoff | None = None,
        repeat_unanswered: bool = True,
    ) -> Any:
        """``request`` again and again until ``errors(response)`` has no retriable code.

        A code that says "not me" makes a coordinator target be looked up again. After
        ``timeout_ms`` the last error is raised. Without ``repeat_unanswered`` so is
        ``ConnectionFailed(sent=True)``, at once: for requests that must not be repeated once the
        broker may have acted on them.
        """
        loop = asyncio.get_running_loop()
        timeout = (self.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = loop.time() + timeout
        for failures in itertools.count(1):
            remaining_ms = max(int((deadline - loop.time()) * 1000), 1)
            error: KafkaError | None
            try:
                response = await self.request(
                    target,
                    message,
                    lane=lane,
                    min_version=min_version,
                    max_version=max_version,
                    timeout_ms=min(remaining_ms, self.request_timeout_ms),
                )
            except KafkaError as failure:
                unanswered = isinstance(failure, ConnectionFailed) and failure.sent
                if not failure.retriable or self._closed or (unanswered and not repeat_unanswered):
                    raise
                error = failure
            else:
                error = first_retriable(errors(response))
                if error is None:
                    return response
            self.forget_coordinator(target, error)
            delay = (backoff or self.backoff).delay(failures)
            if loop.time() + delay >= deadline:
                raise error
            await asyncio.sleep(delay)
        raise AssertionError("unreachable")

    def forget_coordinator(self, target: Target, error: KafkaError) -> None:
        """Look the coordinator up again next time, if ``error`` says that it may have moved."""
        if isinstance(target, Coordinator) and error.code in _COORDINATOR_MAY_HAVE_MOVED:
            self._coordinators.pop(target, None)

    # connections

    async def _connection_to(self, target: Target, lane: str, deadline: float) -> Connection:
        if target is None:
            return await self._any_connection(lane, deadline)
        if isinstance(target, Coordinator):
            target = await self._find_coordinator(target, deadline)
        return await self._pool.get(target, lane, deadline)

    async def _any_connection(self, lane: str, deadline: float) -> Connection:
        connection = self._pool.any_open(lane)
        if connection is not None:
            return connection
        nodes = list(self.metadata.nodes)
        self.rng.shuffle(nodes)
        candidates = nodes + [-1 - i for i in range(len(self._bootstrap))]
        # Those that could be reached last time come first: one that hangs may take all the time.
        candidates.sort(key=self._pool.failures)
        for last, node_id in enumerate(candidates, start=1 - len(candidates)):
            try:
                return await self._pool.get(node_id, lane, deadline)
            except ConnectionFailed:
                if last == 0:
                    raise
        raise AssertionError("there is at least one bootstrap server")

    def _address_of(self, node_id: int) -> Node | None:
        """Bootstrap servers count down from -1 until metadata tells their ids."""
        if node_id < 0:
            return self._bootstrap[-1 - node_id]
        return self.metadata.nodes.get(node_id) or self._coordinator_nodes.get(node_id)

    # coordinators

    async def _find_coordinator(self, wanted: Coordinator, deadline: float) -> int:
        loop = asyncio.get_running_loop()
        request = FindCoordinatorRequest(key=wanted.key, key_type=wanted.kind)
        for failures in itertools.count(1):
            known = self._coordinators.get(wanted)
            if known is not None:
                return known
            connection = await self._any_connection(DEFAULT_LANE, deadline)
            api = API_OF_REQUEST[FindCoordinatorRequest]
            version = connection.negotiate(api, max_version=FIND_COORDINATOR_MAX_VERSION)
            remaining = max(deadline - loop.time(), 0.001)
            try:
                response = await connection.request(api.key, version, request, remaining)
            except ConnectionFailed as error:
                raise ConnectionFailed(error.code, str(error.message), sent=False) from error
            if not response.error_code:
                self._coordinator_nodes[response.node_id] = Node(response.host, response.port)
                self._coordinators[wanted] = response.node_id
                continue
            refused = kafka_error(response.error_code, response.error_message)
            delay = self.backoff.delay(failures)
            if not refused.retriable or loop.time() + delay >= deadline:
                raise refused
            await asyncio.sleep(delay)
        raise AssertionError("unreachable")

    # metadata

    async def refresh_metadata(self, topics: Collection[str] = ()) -> None:
        """Load metadata of everything anybody asked for, and of ``topics`` from now on.

        Callers that come while one load waits to begin share it, and its failure.
        """
        self._interest.update(topics)
        begun = self._refreshes_begun
        async with self._refresh_lock:
            if self._refreshes_begun > begun:
                if self._refresh_error is not None:
                    raise self._refresh_error
                return
            self._refreshes_begun += 1
            try:
                await self._load_metadata()
            except KafkaError as error:
                self._refresh_error = error
                raise
            except asyncio.CancelledError:
                self._refreshes_begun = begun  # nothing to share
                raise
            self._refresh_error = None

    async def _load_metadata(self) -> None:
        wanted = sorted(self._interest)
        response = await self.call(
            None,
            _metadata_request(wanted),
            errors=lambda r: (r.error_code,),
            max_version=METADATA_MAX_VERSION,
        )
        self.metadata.update(response)
        self._refreshed_at = asyncio.get_running_loop().time()
        ids = {node: node_id for node_id, node in self.metadata.nodes.items()}
        for index, node in enumerate(self._bootstrap):
            if node in ids:
                self._pool.rename(-1 - index, ids[node])

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Ask for these topics from the next refresh on."""
        self._interest.update(topics)

    def forget_topic(self, name: str) -> None:
        """Stop asking for a topic that was deleted."""
        self._interest.discard(name)
        self.metadata.forget(name)

    def request_metadata_refresh(self) -> None:
        """Refresh in the background, at most one at a time; failures show when the data is used."""
        if self._closed or self._background:
            return
        task = asyncio.create_task(self._refresh_quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh_metadata()
        except KafkaError:
            await asyncio.sleep(self.backoff.delay(1))

    def refresh_metadata_when_old(self, max_age_ms: int | None = None) -> None:
        """Start a background refresh when the cache is older than ``max_age_ms``."""
        limit = self._metadata_max_age if max_age_ms is None else max_age_ms / 1000
        if asyncio.get_running_loop().time() - self._refreshed_at > limit:
            self.request_metadata_refresh()

    async def topic(self, name: str, *, timeout_ms: int | None = None) -> TopicInfo:
        """The topic, waiting until it exists. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION ...)."""
        loop = asyncio.get_running_loop()
        timeout = (self.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = loop.time() + timeout
        for failures in itertools.count(1):
            info = self.metadata.topics.get(name)
            if info is not None and not info.error:
                return info
            await self.refresh_metadata([name])
            info = self.metadata.topics.get(name)
            if info is not None and not info.error:
                return info
            code = info.error if info else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            error = kafka_error(code, f"topic {name}")
            delay = self.backoff.delay(failures)
            if not error.retriable or loop.time() + delay >= deadline:
                raise error
            await asyncio.sleep(delay)
        raise AssertionError("unreachable")

    async def partitions_for(self, topic: str, *, timeout_ms: int | None = None) -> list[int]:
        """Partition numbers in order; waits until the topic exists, at most ``timeout_ms``."""
        return sorted((await self.topic(topic, timeout_ms=timeout_ms)).partitions)

    async def leader(self, tp: TopicPartition, *, timeout_ms: int | None = None) -> PartitionInfo:
        """The partition with its leader, waiting until it has one."""
        loop = asyncio.get_running_loop()
        timeout_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = loop.time() + timeout_ms / 1000
        for failures in itertools.count(1):
            info = self.metadata.partition(tp)
            if info is not None:
                return info
            remaining_ms = max(int((deadline - loop.time()) * 1000), 0)
            topic = await self.topic(tp.topic, timeout_ms=remaining_ms)
            known = tp.partition in topic.partitions
            if known and self.metadata.partition(tp) is not None:
                continue
            delay = self.backoff.delay(failures)
            if loop.time() + delay >= deadline:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE if known else _UNKNOWN, str(tp))
            await asyncio.sleep(delay)
            await self.refresh_metadata([tp.topic])
        raise AssertionError("unreachable")


_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_COORDINATOR_MAY_HAVE_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def first_retriable(codes: Iterable[int]) -> KafkaError | None:
    """The first code that is an error and worth another try."""
    for code in codes:
        if code:
            error = kafka_error(code)
            if error.retriable:
                return error
    return None


def _metadata_request(topics: list[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
    )


def parse_bootstrap(bootstrap: str) -> list[Node]:
    """Servers separated by commas, with or without "kafka://"; IPv6 hosts in brackets.

    Raises ValueError.
    """
    nodes = []
    for part in bootstrap.split(","):
        address = part.strip().removeprefix("kafka://").rstrip("/")
        if not address:
            continue
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{part.strip()!r} is not host:port")
        nodes.append(Node(host.strip("[]"), int(port)))
    if not nodes:
        raise ValueError("no bootstrap server given")
    return nodes
