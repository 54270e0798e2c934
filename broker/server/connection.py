"""One client connection: bytes in, frames through the dispatcher, answers out in request order.

Two limits keep one client from using the broker's memory: requests that are queued or unanswered
(by count and by bytes) pause reading, and a peer that does not read its answers pauses processing.
Garbage closes the connection; so does a bug, with its traceback in the log (whether the broker can
go on is the dispatcher's question).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

from ..errors import ProtocolError
from ..protocol.frame import FrameDecoder
from ..types import Buffer
from .deferred import Deferred

logger = logging.getLogger(__name__)

Answer = Sequence[Buffer] | None
"""An encoded response, or None where the protocol sends none (Produce with acks=0)."""


class Address(NamedTuple):
    host: str
    port: int


class Peer(NamedTuple):
    """What handlers may know of a connection. ``local`` is the address the client connected to."""

    connection_id: int
    host: str
    local: Address


class Limits(NamedTuple):
    """Per connection. ``request_bytes`` is ``socket.request.max.bytes``; the rest is ours."""

    request_bytes: int
    in_flight_requests: int = 128
    in_flight_bytes: int = 16 * 1024 * 1024
    write_buffer_bytes: int = 1024 * 1024


Serve = Callable[[Peer, bytes], Awaitable[Answer | Deferred[Answer]]]
"""Handles one frame. Raises ProtocolError to have the connection closed."""

REQUESTS_PER_TURN = 16
"""After this many requests without a pause the other connections get a turn."""


class _Slot:
    """The place of one answer in the outgoing order."""

    __slots__ = ("answer", "done", "size", "task")

    def __init__(self, size: int) -> None:
        self.size = size
        self.done = False
        self.answer: Answer = None
        self.task: asyncio.Future[Answer] | None = None


class Connection(asyncio.Protocol):
    def __init__(
        self,
        *,
        connection_id: int,
        serve: Serve,
        limits: Limits,
        on_open: Callable[[Connection], bool],
        on_close: Callable[[Connection], None],
    ) -> None:
        """``on_open`` answers whether the connection is welcome; ``on_close`` follows if it was."""
        self.peer = Peer(connection_id, "", Address("", 0))
        self._serve = serve
        self._limits = limits
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(limits.request_bytes)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[bytes] = deque()
        self._answers: deque[_Slot] = deque()
        self._bytes_in_flight = 0
        self._write_paused = False
        self._read_paused = False
        self._closing = False
        self._serving = False
        self._lost = False
        self._reported = False
        self._reading_ended = False
        self._finishing = False
        self._wakeup: asyncio.Future[None] | None = None
        self._processor: asyncio.Task[None] | None = None
        self._abandonable: set[asyncio.Future[Answer]] = set()
        self.last_activity = self._loop.time()

    # -- transport events -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        remote = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer = Peer(self.peer.connection_id, remote[0], Address(local[0], local[1]))
        if not self._on_open(self):
            self._closing = True
            transport.abort()
            return
        self._processor = self._loop.create_task(self._process())
        self._processor.add_done_callback(self._processor_done)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self.last_activity = self._loop.time()
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as error:
            self._reject(error)
            return
        if frames:
            self._queue.extend(frames)
            self._bytes_in_flight += sum(map(len, frames))
            self._limit_reading()
            self._wake()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._lost = True
        self._queue.clear()
        self._wake()
        for waiting in list(self._abandonable):
            waiting.cancel()
        self._report_closed()

    def _report_closed(self) -> None:
        """Once, when the transport is gone and the last request was handed over."""
        processor = self._processor
        if self._lost and not self._reported and processor is not None and processor.done():
            self._reported = True
            self._on_close(self)

    # -- lifetime -------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """Requests received and not answered yet."""
        return len(self._queue) + len(self._answers) + self._serving

    def stop_reading(self) -> None:
        """Take no further request; those received are still answered."""
        self._reading_ended = True
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def close_when_answered(self) -> None:
        """Take no further request; close once those received are answered."""
        self.stop_reading()
        self._finishing = True
        self._close_if_finished()

    def _close_if_finished(self) -> None:
        if self._finishing and not self.unanswered:
            self.close()

    def close(self) -> None:
        """Close once what is already written has been sent; unprocessed requests are dropped."""
        self._closing = True
        self._queue.clear()
        self._wake()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    def _reject(self, error: ProtocolError) -> None:
        logger.info("closing connection from %s: %s", self.peer.host, error)
        self.close()

    # -- processing -----------------------------------------------------------------------------

    async def _process(self) -> None:
        turn = 0
        while not self._closing:
            if not self._may_process():
                turn = 0
                self._wakeup = self._loop.create_future()
                await self._wakeup
                continue
            turn += 1
            if turn > REQUESTS_PER_TURN:
                turn = 0
                await asyncio.sleep(0)
                continue
            await self._process_one(self._queue.popleft())
            self._close_if_finished()

    def _may_process(self) -> bool:
        room = len(self._answers) < self._limits.in_flight_requests
        return bool(self._queue) and room and not self._write_paused

    async def _process_one(self, frame: bytes) -> None:
        slot = _Slot(len(frame))
        self._serving = True
        try:
            answer = await self._serve(self.peer, frame)
        except ProtocolError as error:
            self._reject(error)
            return
        finally:
            self._serving = False
        if isinstance(answer, Deferred):
            self._answers.append(slot)
            self._start(slot, answer)
        elif self._answers:
            slot.answer, slot.done = answer, True
            self._answers.append(slot)
        else:
            self._finish(slot.size, answer)

    def _start(self, slot: _Slot, deferred: Deferred[Answer]) -> None:
        slot.task = waiting = asyncio.ensure_future(deferred.awaitable)
        if deferred.abandonable:
            self._abandonable.add(waiting)
        waiting.add_done_callback(lambda done: self._deferred_done(slot, done))

    def _deferred_done(self, slot: _Slot, done: asyncio.Future[Answer]) -> None:
        self._abandonable.discard(done)
        slot.done = True
        if done.cancelled():
            self.close()
            return
        error = done.exception()
        if error is not None:
            self._failed(error)
            return
        slot.answer = done.result()
        while self._answers and self._answers[0].done:
            first = self._answers.popleft()
            self._finish(first.size, first.answer)
        self._wake()
        self._close_if_finished()

    def _finish(self, size: int, answer: Answer) -> None:
        self._bytes_in_flight -= size
        if answer is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(answer)
        self._limit_reading()

    # -- limits ---------------------------------------------------------------------------------

    def _limit_reading(self) -> None:
        """Pause at a limit, resume at half of it."""
        if self._transport is None or self._closing or self._reading_ended:
            return
        requests, in_flight = self.unanswered, self._bytes_in_flight
        limits = self._limits
        if not self._read_paused:
            if requests >= limits.in_flight_requests or in_flight >= limits.in_flight_bytes:
                self._read_paused = True
                self._transport.pause_reading()
        elif (
            requests <= limits.in_flight_requests // 2 and in_flight <= limits.in_flight_bytes // 2
        ):
            self._read_paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    # -- failures -------------------------------------------------------------------------------

    def _processor_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
        # A turn later: what the last request started has then made its first step.
        self._loop.call_soon(self._report_closed)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, ProtocolError):
            self._reject(error)
            return
        logger.error("request from %s failed", self.peer.host, exc_info=error)
        self.close()
