"""The network between simulated hosts: names, latency, partitions and how connections begin.

It behaves as TCP looks from above. Bytes arrive in order or not at all; a partition holds them
back and they go on after it; a machine that is gone answers nothing, a process that is gone is
answered for by its kernel (refusal, FIN, RST).
"""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .transport import FakeSocket, Segment, SimTransport

if TYPE_CHECKING:
    import random

    from .host import Host
    from .loop import HostLoop
    from .world import World

LOCAL_NAMES = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1"})
SYN_RETRIES = 6
"""With a second before the first and twice as much before each further one, as Linux."""
RETRANSMIT_S = 0.2
"""At most this long after a partition the first held segment gets through."""
FIRST_EPHEMERAL = 32768


class Connection(NamedTuple):
    """An open connection, for faults and observers."""

    id: int
    client: Host
    server: Host
    port: int


class SimServer(asyncio.AbstractServer):
    """What ``create_server`` returns."""

    def __init__(self, network: Network, loop: HostLoop, factory: Any, port: int) -> None:
        self._network = network
        self.loop = loop
        self.factory = factory
        self.port = port
        self._serving = True
        self._closed = loop.create_future()

    @property
    def sockets(self) -> tuple[FakeSocket, ...]:
        return (FakeSocket((self.loop.host.ip, self.port), None),) if self._serving else ()

    def get_loop(self) -> HostLoop:
        return self.loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        pass

    def close(self) -> None:
        """Accept nothing more; open connections live on."""
        if self._serving:
            self._serving = False
            self._network.unlisten(self)
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    async def serve_forever(self) -> None:
        try:
            await self.loop.create_future()
        finally:
            self.close()

    async def __aenter__(self) -> SimServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Network:
    """``World.network``. The attributes may be changed at any time, also within a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.min_latency_s = 50e-6
        self.mean_latency_s = 300e-6
        self.tail_p = 0.02
        """How often a packet is lost and sent again..."""
        self.tail_s = 0.05
        """...which takes at most this long."""
        self.split_p = 0.2
        """How often a write arrives in two pieces."""
        self.window = 1 << 20
        """Bytes a connection takes that the other program has not read."""
        self.on_segment: Callable[[Host, Host, int, bytes], None] | None = None
        """Sees (source, destination, connection id, bytes) whenever bytes arrive."""
        self.rng = world.rng("network")
        self._names: dict[str, Host] = {}
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._clients: dict[int, SimTransport] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._isolated: set[str] = set()
        self._slow: dict[str, float] = {}
        self._ids = 0
        self._ports = FIRST_EPHEMERAL

    def add(self, host: Host) -> None:
        """Its name and its address resolve from now on."""
        self._names[host.name] = self._names[host.ip] = host

    def resolve(self, source: Host, name: str | None) -> Host:
        """Raises socket.gaierror as a resolver does."""
        if name is None or name in LOCAL_NAMES:
            return source
        host = self._names.get(name)
        if host is None:
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {name}")
        return host

    def getaddrinfo(self, source: Host, name: Any, port: Any) -> list[Any]:
        host = self.resolve(source, name)
        stream = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        return [(*stream, "", (host.ip, int(port or 0)))]

    # -- conditions -----------------------------------------------------------------------------

    def latency(self, source: Host, target: Host) -> float:
        """Seconds one segment takes."""
        rng = self.rng
        if source is target:
            return 5e-6 + rng.random() * 10e-6
        draw = rng.random
        seconds = self.min_latency_s - math.log(1.0 - draw()) * self.mean_latency_s
        if draw() < self.tail_p:
            seconds += draw() * self.tail_s
        if self._slow:
            seconds *= self._slow.get(source.name, 1.0) * self._slow.get(target.name, 1.0)
        return seconds

    def blocked(self, source: Host, target: Host) -> bool:
        """Nothing gets from the one to the other."""
        if source is target:
            return False
        if self._isolated and (source.name in self._isolated or target.name in self._isolated):
            return True
        return bool(self._blocked) and (source.name, target.name) in self._blocked

    def partition(self, a: Host | str, b: Host | str, *, oneway: bool = False) -> None:
        """What ``a`` sends to ``b`` is held back until ``heal``; the other way too."""
        one, other = _name(a), _name(b)
        self.world.record("partition", one, other, oneway)
        self._blocked.add((one, other))
        if not oneway:
            self._blocked.add((other, one))

    def isolate(self, host: Host | str) -> None:
        """A partition between this host and all others."""
        self.world.record("isolate", _name(host))
        self._isolated.add(_name(host))

    def slow(self, host: Host | str, factor: float) -> None:
        """Segments from and to this host take ``factor`` times as long; 1 ends it."""
        self.world.record("slow", _name(host), factor)
        self._slow.pop(_name(host), None)
        if factor != 1.0:
            self._slow[_name(host)] = factor

    def heal(self, a: Host | str | None = None, b: Host | str | None = None) -> None:
        """End the partition of two hosts, the isolation of one, or (no argument) all and slowness.

        What was held back arrives soon.
        """
        if a is None:
            self.world.record("heal")
            self._blocked.clear()
            self._isolated.clear()
            self._slow.clear()
        elif b is None:
            self.world.record("heal", _name(a))
            self._isolated.discard(_name(a))
        else:
            self.world.record("heal", _name(a), _name(b))
            self._blocked -= {(_name(a), _name(b)), (_name(b), _name(a))}
        for client in list(self._clients.values()):
            for end in (client, client.peer):
                if end.held and not self.blocked(end.host, end.peer.host):
                    end.release(self.world.now + self.rng.random() * RETRANSMIT_S)

    # -- connections ----------------------------------------------------------------------------

    def connections(self) -> list[Connection]:
        """The connections that both programs know and neither has lost, oldest first."""
        return [
            Connection(number, end.host, end.peer.host, end.remote[1])
            for number, end in self._clients.items()
            if end.is_open and end.peer.is_open
        ]

    def reset(self, connection: Connection | int) -> None:
        """Both ends get an RST, as from a middlebox. A connection that is closed stays so."""
        client = self._clients.get(_id(connection))
        if client is None:
            return
        self.world.record("reset", client.connection)
        for end in (client, client.peer):
            self.world.after(self.latency(end.peer.host, end.host), end.reset)

    def reset_one(self, rng: random.Random) -> Connection | None:
        """Reset a connection drawn from the open ones; None when there is none."""
        connections = self.connections()
        if not connections:
            return None
        connection = rng.choice(connections)
        self.reset(connection)
        return connection

    def half_open(self, connection: Connection | int, *, forgets: str = "server") -> None:
        """One end ("server" or "client") loses the connection without a word to the other.

        The other end learns it when it sends: it is answered with an RST.
        """
        client = self._clients.get(_id(connection))
        if client is None:
            return
        self.world.record("half open", client.connection, forgets)
        (client if forgets == "client" else client.peer).forget()

    def listen(self, loop: HostLoop, factory: Any, name: str | None, port: int) -> SimServer:
        """Raises OSError: the port is taken, or the name is another host's."""
        host = loop.host
        if self.resolve(host, name) is not host:
            raise OSError(errno.EADDRNOTAVAIL, f"{name} is not an address of {host.name}")
        if not port:
            port = self._ephemeral()
        if (host.name, port) in self._servers:
            raise OSError(errno.EADDRINUSE, f"port {port} is in use")
        server = SimServer(self, loop, factory, port)
        self._servers[host.name, port] = server
        return server

    def server(self, host: Host, port: int) -> SimServer | None:
        return self._servers.get((host.name, port))

    def unlisten(self, server: SimServer) -> None:
        key = (server.loop.host.name, server.port)
        if self._servers.get(key) is server:
            del self._servers[key]

    def host_stopped(self, host: Host, *, silent: bool) -> None:
        """The kernel cleans up after a process; ``silent``: there is no kernel any more."""
        for key in [key for key in self._servers if key[0] == host.name]:
            del self._servers[key]
        for transport in list(host.transports):
            transport.process_died(silent=silent)

    def connect(
        self, loop: HostLoop, factory: Any, name: str, port: int, connected: asyncio.Future[Any]
    ) -> None:
        """Resolve, shake hands, and resolve ``connected`` with (transport, protocol)."""
        target = self.resolve(loop.host, name)
        self._ids += 1
        opening = _Opening(self, loop, factory, target, port, connected, self._ids)
        self.world.after(self.latency(loop.host, target), opening.syn, 0)

    def accept(self, opening: _Opening, server: SimServer) -> None:
        """The kernel of the listening host: no program is asked, the backlog has room."""
        loop, number = opening.loop, opening.number
        near, far = (loop.host.ip, self._ephemeral()), (opening.target.ip, server.port)
        client = SimTransport(self, loop, number, near, far)
        accepted = SimTransport(self, server.loop, number, far, near)
        client.peer, accepted.peer = accepted, client
        self._clients[number] = client
        self.world.record("accept", number, loop.host.name, opening.target.name)
        server.loop.call_soon(accepted.begin, server.factory)
        accepted.send(Segment.SYNACK, opening)

    def closed(self, connection: int) -> None:
        """Both ends are gone."""
        self._clients.pop(connection, None)

    def arrived(self, source: Host, target: Host, connection: int, data: bytes) -> None:
        self.world.record("net", connection, source.name, len(data), zlib.crc32(data))
        if self.on_segment is not None:
            self.on_segment(source, target, connection, data)

    def _ephemeral(self) -> int:
        self._ports += 1
        return self._ports


class _Opening(NamedTuple):
    """A connect call under way."""

    network: Network
    loop: HostLoop
    factory: Any
    target: Host
    port: int
    connected: asyncio.Future[Any]
    number: int

    def syn(self, attempt: int) -> None:
        network, source, target = self.network, self.loop.host, self.target
        if self.loop.dead or self.connected.done():
            return
        if network.blocked(source, target) or not target.powered:
            if attempt < SYN_RETRIES:
                network.world.after(2.0**attempt, self.syn, attempt + 1)
            else:
                self.loop.call_soon(self.fail, TimeoutError(errno.ETIMEDOUT, "connect timed out"))
            return
        server = network.server(target, self.port)
        if server is None:
            network.world.record("refused", self.number)
            error = ConnectionRefusedError(
                errno.ECONNREFUSED, f"connection to {target.name}:{self.port} refused"
            )
            delay = network.latency(target, source)
            network.world.after(delay, self.loop.call_soon, self.fail, error)
            return
        network.accept(self, server)

    def fail(self, error: OSError) -> None:
        if not self.connected.done():
            self.connected.set_exception(error)


def _name(host: Host | str) -> str:
    return host if isinstance(host, str) else host.name


def _id(connection: Connection | int) -> int:
    return connection if isinstance(connection, int) else connection.id
