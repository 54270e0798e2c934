"""Connections to the nodes of a cluster: opened on demand, one per node and lane."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ..errors import ErrorCode, KafkaError
from .backoff import Backoff
from .connection import Connection
from .errors import ConnectionFailed
from .metadata import Node

FIRST_DIAL_SHARE = 0.25
"""Of the timeout, for the first attempt to reach a node; each further one in a row has twice as
long (Kafka's ``socket.connection.setup.timeout.ms`` grows like that). A machine that is gone
answers nothing: whoever waits for it alone neither reaches another nor sees it come back."""


class Failures(NamedTuple):
    """What happened at a node since it was last reached."""

    in_a_row: int = 0
    not_before: float = 0.0
    reason: str = ""


class Connector(Protocol):
    """Opens a connection; ``loop.create_connection`` unless somebody gives another way."""

    async def __call__(
        self, protocol_factory: Callable[[], Connection], host: str, port: int
    ) -> tuple[object, Connection]: ...


class ConnectionPool:
    """A *lane* is a connection of its own: brokers answer one connection in order, so long polls
    and parked joins must not stand before anything else.

    After a failure a node is left alone for a while, longer each time; ``on_failure`` hears of it.
    When one connection to a node is in trouble, or a new one, those that wait for answers are
    probed. One attempt takes at most ``timeout_ms``, and the first ones after a success less.
    """

    def __init__(
        self,
        *,
        client_id: str,
        address_of: Callable[[int], Node | None],
        backoff: Backoff,
        timeout_ms: int,
        connect: Connector | None,
        on_failure: Callable[[], None],
    ) -> None:
        self._client_id = client_id
        self._address_of = address_of
        self._backoff = backoff
        self._timeout = timeout_ms / 1000
        self._connect = connect
        self._on_failure = on_failure
        self._connections: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._failures: dict[int, Failures] = {}
        self._lanes = itertools.count(1)
        self._features_epoch = -1
        self._closed = False
        self.features: Mapping[str, int] = {}
        """Finalised features of the newest epoch any node told."""

    async def close(self) -> None:
        """Close everything; requests in flight fail with ConnectionFailed. Idempotent."""
        self._closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def new_lane(self, purpose: str) -> str:
        """A lane that nobody else uses."""
        return f"{purpose}-{next(self._lanes)}"

    def close_lane(self, lane: str) -> None:
        """Close the lane's connections."""
        for key in [key for key in self._connections if key[1] == lane]:
            self._connections.pop(key).close()

    def any_open(self, lane: str) -> Connection | None:
        """An open connection of the lane, to whatever node."""
        for (_, used_lane), connection in self._connections.items():
            if used_lane == lane and not connection.closed:
                return connection
        return None

    def failures(self, node_id: int) -> int:
        """How often in a row the node could not be reached."""
        return self._failures.get(node_id, Failures()).in_a_row

    def rename(self, old: int, new: int) -> None:
        """The node reached as ``old`` turned out to be ``new``: keep its connections as that."""
        for key in [key for key in self._connections if key[0] == old]:
            if (new, key[1]) not in self._connections:
                self._connections[new, key[1]] = self._connections.pop(key)

    async def get(self, node_id: int, lane: str, deadline: float) -> Connection:
        """The open connection, else a new one. Raises ``ConnectionFailed(sent=False)``."""
        key = (node_id, lane)
        connection = self._connections.get(key)
        if connection is not None and not connection.closed:
            return connection
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.create_task(self._open(node_id, lane))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        timeout = max(deadline - asyncio.get_running_loop().time(), 0.001)
        done, _ = await asyncio.wait((opening,), timeout=timeout)
        if not done or opening.cancelled():
            known = self._failures.get(node_id)
            because = f": {known.reason}" if known else ""
            reason = f"no connection to node {node_id} in time{because}"
            raise ConnectionFailed(ErrorCode.REQUEST_TIMED_OUT, reason, sent=False)
        return opening.result()

    def _opened(self, key: tuple[int, str], task: asyncio.Task[Connection]) -> None:
        del self._opening[key]
        if not task.cancelled():
            task.exception()  # Nobody may be waiting any more: then nobody needs to know.

    async def _open(self, node_id: int, lane: str) -> Connection:
        loop = asyncio.get_running_loop()
        failures, not_before, _ = self._failures.get(node_id, Failures())
        await asyncio.sleep(max(0.0, not_before - loop.time()))
        share = min(FIRST_DIAL_SHARE * 2.0 ** min(failures, 30), 1.0)
        try:
            connection = await self._dial(node_id, self._timeout * share)
        except KafkaError as error:
            failures += 1
            not_before = loop.time() + self._backoff.delay(failures)
            self._failures[node_id] = Failures(failures, not_before, str(error.message))
            self._probe(node_id)
            self._on_failure()
            raise
        if self._failures.pop(node_id, None) is not None:
            self._probe(node_id)
        self._connections[node_id, lane] = connection
        if connection.features_epoch >= self._features_epoch:
            self._features_epoch = connection.features_epoch
            self.features = connection.features
        return connection

    def _probe(self, node_id: int) -> None:
        """A bootstrap server's connections are its node's, too."""
        node = self._address_of(node_id)
        peer = None if node is None else f"{node.host}:{node.port}"
        for connection in list(self._connections.values()):
            if connection.peer == peer:
                connection.probe()

    async def _dial(self, node_id: int, timeout: float) -> Connection:
        """A connection with its versions known; ``timeout`` in seconds is for each half."""
        node = self._address_of(node_id)
        if node is None or self._closed:
            reason = "client closed" if self._closed else f"node {node_id} is not known"
            raise ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, reason, sent=False)
        peer = f"{node.host}:{node.port}"

        def factory() -> Connection:
            return Connection(
                client_id=self._client_id, peer=peer, on_trouble=lambda: self._probe(node_id)
            )

        connect: Connector = self._connect or asyncio.get_running_loop().create_connection
        try:
            async with asyncio.timeout(timeout):
                _, connection = await connect(factory, node.host, node.port)
        except (OSError, TimeoutError) as error:
            reason = f"cannot connect to {peer}: {str(error) or 'timed out'}"
            raise ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, reason, sent=False) from error
        try:
            await connection.handshake(timeout)
        except ConnectionFailed as error:
            connection.close()
            raise ConnectionFailed(error.code, str(error.message), sent=False) from error
        except BaseException:
            connection.close()
            raise
        return connection
