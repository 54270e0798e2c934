"""Accepts connections on one address and knows those that are open."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Callable

from .connection import Address, Connection, Limits, Serve

logger = logging.getLogger(__name__)

BACKLOG = 512
BIND_ATTEMPTS = 20


def parse_address(text: str) -> Address:
    """``host:port``, ``[v6]:port`` or Kafka's ``PROTOCOL://host:port``. Raises ValueError."""
    bare = text.rpartition("://")[2]
    host, separator, port = bare.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address is HOST:PORT, got {text!r}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def format_address(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


class Listener:
    """``on_close`` is told the id of every connection that ends."""

    def __init__(
        self,
        *,
        serve: Serve,
        limits: Limits,
        max_connections: int,
        max_idle_s: float,
        on_close: Callable[[int], None],
    ) -> None:
        self._serve = serve
        self._limits = limits
        self._max_connections = max_connections
        self._max_idle_s = max_idle_s
        self._on_close = on_close
        self._connections: dict[int, Connection] = {}
        self._ids = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event = asyncio.Event()
        self._all_closed.set()
        self.address = Address("", 0)

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, listen: Address) -> None:
        """Bind and accept, on all addresses that the host has (an empty host: on every one).

        Port 0 is one free port for all of them. Raises OSError when the address is taken.
        """
        self._server, port = await self._bind(listen)
        bound = self._server.sockets[0].getsockname()
        self.address = Address(listen.host or bound[0], port)
        self._check_idle()

    async def _bind(self, listen: Address) -> tuple[asyncio.Server, int]:
        loop = asyncio.get_running_loop()
        host, wanted = listen.host or None, listen.port
        for attempt in itertools.count(1):
            try:
                server = await loop.create_server(self._connection, host, wanted, backlog=BACKLOG)
            except OSError as error:
                # Free at one address, taken at another.
                if listen.port or error.errno != errno.EADDRINUSE or attempt >= BIND_ATTEMPTS:
                    raise
                wanted = 0
                continue
            port, *others = {sock.getsockname()[1] for sock in server.sockets}
            if not others:
                return server, port
            # Each address (of IPv4 and of IPv6) got a free port of its own.
            server.close()
            wanted = port
        raise AssertionError("unreachable")

    def stop_accepting(self) -> None:
        """Take no new connection and no further request; what was received is still answered."""
        if self._server is not None:
            self._server.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self._connections.values()):
            connection.stop_reading()

    async def close(self, grace_s: float) -> None:
        """Answer what was received and close; what is left after the grace is cut."""
        for connection in list(self._connections.values()):
            connection.close_when_answered()
        try:
            await asyncio.wait_for(self._all_closed.wait(), grace_s)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Cut everything at once."""
        self.stop_accepting()
        for connection in list(self._connections.values()):
            connection.abort()

    def _connection(self) -> Connection:
        return Connection(
            connection_id=next(self._ids),
            serve=self._serve,
            limits=self._limits,
            on_open=self._opened,
            on_close=self._closed,
        )

    def _opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._max_connections:
            logger.warning("refusing a connection: max.connections is reached")
            return False
        self._connections[connection.peer.connection_id] = connection
        self._all_closed.clear()
        return True

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection.peer.connection_id, None)
        if not self._connections:
            self._all_closed.set()
        self._on_close(connection.peer.connection_id)

    def _check_idle(self) -> None:
        """Kafka's ``connections.max.idle.ms``; it also ends a peer that never completes a frame."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._max_idle_s
        for connection in list(self._connections.values()):
            if connection.last_activity < oldest and connection.unanswered == 0:
                connection.close()
        self._idle_timer = loop.call_later(max(self._max_idle_s / 4, 0.05), self._check_idle)
