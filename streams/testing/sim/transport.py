"""One end of a simulated TCP connection: asyncio's transport and the kernel's socket below it."""

from __future__ import annotations

import asyncio
import collections
import enum
import errno
import socket
from typing import TYPE_CHECKING, Any

from .errors import HostDied

if TYPE_CHECKING:
    from .loop import HostLoop
    from .network import Network

Address = tuple[str, int]
MAX_READ = 256 * 1024
"""asyncio reads at most this much at a time."""
HIGH_WATER = 64 * 1024
FIRST_RETRANSMIT_S = 0.2
"""After which what was not acknowledged is sent again, the first time; then twice as long..."""
LONGEST_RETRANSMIT_S = 120.0
DATA_RETRIES = 15
"""...and so often, as Linux."""


class Segment(enum.Enum):
    DATA = "data"
    FIN = "fin"
    RST = "rst"
    SYNACK = "syn ack"


class FakeSocket:
    """What ``get_extra_info("socket")`` and ``Server.sockets`` hand out."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(self, local: Address, remote: Address | None) -> None:
        self._local = local
        self._remote = remote

    def getsockname(self) -> Address:
        return self._local

    def getpeername(self) -> Address:
        if self._remote is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self._remote

    def setsockopt(self, *_: object) -> None:
        pass

    def getsockopt(self, *_: object) -> int:
        return 0

    def setblocking(self, flag: bool) -> None:
        pass

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class SimTransport(asyncio.Transport):
    """The lower half (``_unread``, ``held``, ``gone``) is the kernel's and survives the process
    as long as a kernel would keep it; the upper half is asyncio's selector transport."""

    peer: SimTransport

    def __init__(
        self, network: Network, loop: HostLoop, connection: int, local: Address, remote: Address
    ) -> None:
        fake = FakeSocket(local, remote)
        super().__init__({"peername": remote, "sockname": local, "socket": fake})
        self.network = network
        self.world = network.world
        self.loop = loop
        self.host = loop.host
        self.connection = connection
        self.local, self.remote = local, remote
        self.gone = False
        """The kernel has no such socket any more."""
        self.held: list[tuple[Segment, Any]] = []
        self._vanished = False  # nobody is left who would send again
        self._retransmitting = False
        self._protocol: Any = None
        self._buffered = False
        self._open = False  # the protocol was told
        # receiving
        self._unread: collections.deque[bytes] = collections.deque()
        self._fin_received = False
        self._error: OSError | None = None
        self._eof_told = False
        self._reading_paused = False
        self._read_scheduled = False
        # sending
        self._buffer: collections.deque[bytes] = collections.deque()
        self._buffer_size = 0
        self._in_flight = 0  # bytes the other program has not read
        self._last_arrival = 0.0
        self._eof_written = False
        self._fin_sent = False
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._writing_paused = False
        # ending
        self._closing = False
        self._lost_called = False
        self.host.transports[self] = None

    @property
    def is_open(self) -> bool:
        """The program was told of the connection, and the kernel still has it."""
        return self._open and not self.gone

    # -- beginning ------------------------------------------------------------------------------

    def begin(self, factory: Any, opening: Any = None) -> None:
        """The program has the socket; ``opening`` is its connect call, None where it accepted."""
        if opening is not None and opening.connected.done():  # cancelled meanwhile
            self._close_socket()
            return
        self.set_protocol(factory())
        self.loop.call_soon(self._made, opening)  # as asyncio: not within the factory's turn

    def _made(self, opening: Any) -> None:
        self._protocol.connection_made(self)
        self._open = True
        self._schedule_read()
        if opening is not None and not opening.connected.done():
            opening.connected.set_result((self, self._protocol))

    # -- segments -------------------------------------------------------------------------------

    def send(self, kind: Segment, payload: Any = None) -> None:
        """Hand a segment to the network; it arrives after those sent before."""
        when = self.world.now + self.network.latency(self.host, self.peer.host)
        if when < self._last_arrival:
            when = self._last_arrival
        self._last_arrival = when
        self.world.at(when, self._arrive, kind, payload)

    def release(self, when: float) -> None:
        """The partition is over: send again what it held back, not before ``when``."""
        held, self.held = self.held, []
        self._last_arrival = max(self._last_arrival, when)
        for kind, payload in held:
            self.send(kind, payload)

    def _arrive(self, kind: Segment, payload: Any) -> None:
        """A segment of this end reaches the other host."""
        peer = self.peer
        source, target = self.host, peer.host
        if self.held or self.network.blocked(source, target):
            if not self._vanished:
                self.held.append((kind, payload))
            return
        if not target.powered:
            if kind is Segment.DATA or kind is Segment.FIN:
                self._retransmit(0)
            return
        if kind is Segment.DATA:
            self.network.arrived(source, target, self.connection, payload)
        else:
            self.world.record(kind.value, self.connection, source.name)
        if peer.gone:
            if kind is Segment.DATA and not self.gone:
                self.world.after(self.network.latency(target, source), self.reset)
            return
        if kind is Segment.RST:
            peer.reset()
        elif kind is Segment.SYNACK:
            peer.loop.call_soon(peer.begin, payload.factory, payload)
        else:
            if kind is Segment.DATA:
                peer._unread.append(payload)
            else:
                peer._fin_received = True
            peer._schedule_read()

    def _retransmit(self, attempt: int) -> None:
        """Nobody acknowledges: the kernel sends the first lost segment again and again."""
        if attempt == 0:
            if self._retransmitting:
                return
            self._retransmitting = True
        if attempt == DATA_RETRIES:
            self._fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        elif not self.gone and self._error is None:
            delay = min(FIRST_RETRANSMIT_S * 2.0**attempt, LONGEST_RETRANSMIT_S)
            self.world.after(delay, self._again, attempt)

    def _again(self, attempt: int) -> None:
        source, target = self.host, self.peer.host
        if not target.powered or self.network.blocked(source, target):
            self._retransmit(attempt + 1)
            return
        # The machine has booted meanwhile, and its kernel knows no such connection.
        there, back = (self.network.latency(*ends) for ends in ((source, target), (target, source)))
        self.world.after(there + back, self.reset)

    def reset(self) -> None:
        """An RST arrives. The program reads what came before it, then the error."""
        self._fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _fail(self, error: OSError) -> None:
        if not self.gone and self._error is None:
            self.world.record("failed", self.connection, self.host.name, error.errno)
            self._error = error
            self._schedule_read()

    def forget(self) -> None:
        """The kernel lost this connection; the program is told, the peer is not.

        Of a connection that the program does not know yet it cannot be told: nothing happens.
        """
        if self.is_open and not self._closing:
            self._fatal(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            self._drop_socket()

    # -- writing --------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        data = bytes(data)
        if not data or self._closing or self.gone:
            return
        self._step("send", data)
        if self._error is not None:
            self._fatal(self._error)
        elif self._buffer or self._in_flight + len(data) > self.network.window:
            self._buffer.append(data)
            self._buffer_size += len(data)
            self._drain()
            if self._buffer_size > self._high and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()
        else:
            self._transmit(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._eof_written and not self._closing:
            self._eof_written = True
            if not self._buffer:
                self._send_fin()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._buffer_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def _transmit(self, data: bytes) -> None:
        self._in_flight += len(data)
        network = self.network
        if len(data) > 1 and network.rng.random() < network.split_p:
            at = network.rng.randrange(1, len(data))
            self.send(Segment.DATA, data[:at])
            data = data[at:]
        self.send(Segment.DATA, data)

    def _drain(self) -> None:
        """Send from the buffer what the window takes."""
        while self._buffer and self._in_flight < self.network.window:
            room = self.network.window - self._in_flight
            data = self._buffer.popleft()
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._buffer_size -= len(data)
            self._transmit(data)

    def _window_opened(self, size: int) -> None:
        """The other program has read ``size`` bytes, and the news is here."""
        self._in_flight -= size
        if self._buffer and not self.gone:
            self.loop.call_soon(self._write_ready)

    def _write_ready(self) -> None:
        if self.gone or not self._buffer:
            return
        self._drain()
        if self._writing_paused and self._buffer_size <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if not self._buffer:
            if self._closing:
                self._lost(None)
            elif self._eof_written:
                self._send_fin()

    def _send_fin(self) -> None:
        if not self._fin_sent:
            self._fin_sent = True
            self.send(Segment.FIN)

    # -- reading --------------------------------------------------------------------------------

    def _schedule_read(self) -> None:
        if self._read_scheduled or self._reading_paused or not self._open or self.gone:
            return
        if self._unread or self._error is not None or (self._fin_received and not self._eof_told):
            self._read_scheduled = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if self._reading_paused or self._closing or self.gone:
            return
        if self._unread:
            data = self._take()
            self._deliver(data)
            self._schedule_read()
        elif self._error is not None:
            self._fatal(self._error)
        elif self._fin_received and not self._eof_told:
            self._eof_told = True
            if not self._protocol.eof_received():
                self.close()

    def _take(self) -> bytes:
        """What the next ``recv`` returns; the step happens before it does."""
        unread = self._unread
        if len(unread) == 1 and len(unread[0]) <= MAX_READ:
            data = unread[0]
            self._step("receive", data)
            unread.clear()
        else:
            joined = b"".join(unread)
            data = joined[:MAX_READ]
            self._step("receive", data)
            unread.clear()
            if len(joined) > MAX_READ:
                unread.append(joined[MAX_READ:])
        peer = self.peer
        if peer._buffer:
            delay = self.network.latency(self.host, peer.host)
            self.world.after(delay, peer._window_opened, len(data))
        else:
            peer._in_flight -= len(data)
        return data

    def _deliver(self, data: bytes) -> None:
        if not self._buffered:
            self._protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest:
            buffer = self._protocol.get_buffer(len(rest))
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            self._protocol.buffer_updated(count)
            rest = rest[count:]

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._schedule_read()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    # -- ending ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Send what is buffered, then ``connection_lost(None)``."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self.loop.call_soon(self._lost, None)

    def abort(self) -> None:
        """Drop what is buffered, then ``connection_lost(None)``."""
        self._drop_buffer()
        if not self._closing:
            self._closing = True
        self.loop.call_soon(self._lost, None)

    def is_closing(self) -> bool:
        return self._closing

    def _fatal(self, error: OSError) -> None:
        self._drop_buffer()
        self._closing = True
        self.loop.call_soon(self._lost, error)

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._buffer_size = 0

    def _lost(self, error: OSError | None) -> None:
        if self._lost_called:
            return
        self._lost_called = True
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            self._close_socket()

    def _close_socket(self) -> None:
        """``close(2)``: unread data makes it an RST."""
        if self.gone:
            return
        self._closing = True
        if self._error is None:
            if self._unread:
                self.send(Segment.RST)
            else:
                self._send_fin()
        self._drop_socket()

    def _drop_socket(self) -> None:
        self.gone = True
        self.host.transports.pop(self, None)
        if self.peer.gone:
            self.network.closed(self.connection)

    def process_died(self, *, silent: bool) -> None:
        """What the process had not handed to the kernel is lost. ``silent``: so is the kernel."""
        if self.gone:
            return
        self._drop_buffer()
        if silent:
            self._closing = self._vanished = True
            self.held.clear()
            self._drop_socket()
        else:
            self._close_socket()

    # -- the rest -------------------------------------------------------------------------------

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> Any:
        return self._protocol

    def _step(self, kind: str, data: bytes) -> None:
        """Count it. Raises HostDied when the program is dead, or dies now."""
        if self.world.ended:
            return
        if self.loop.dead:
            raise HostDied(self.host.name)
        if self.world.on_step is None:
            self.host.steps += 1
        else:
            self.host.step(kind, self.peer.host.name, data, self.connection)
