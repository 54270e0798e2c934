"""The event loop of one simulated process: asyncio's rules on the world's clock.

There is a loop per process and not one for the world, because that is where reality has its
choices. Inside a process asyncio promises that callbacks run in the order in which they were
scheduled, and here they do. Which process runs next, how long a message or a sync takes: that is
drawn from the seed. It also makes death simple: a loop that is not scheduled any more runs nothing,
not even a ``finally``.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import types
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVarTuple, cast

from .errors import HostDied
from .transport import FakeSocket

if TYPE_CHECKING:
    from .host import Host
    from .network import Network
    from .world import World

START_S = 1000.0
"""Virtual seconds at which every world begins."""
EPOCH_S = 1_700_000_000.0
"""The wall clock then, in seconds since 1970."""
CALLBACK_S = 25e-6
"""Virtual processor time of one callback: a loop that waits by spinning sees the clock move."""
WAKE_JITTER_S = 20e-6
"""At most this long a process waits for the processor when it has something to do."""
MAX_ROUNDS = 1000
"""After so many rounds of a busy process the world looks at its limits."""
COMPACT_AT = 256
"""So many cancelled timers are left where they are."""
EXECUTOR_S = 2e-3
"""At most this long a job for the thread pool takes."""

Ts = TypeVarTuple("Ts")
_set_running_loop = asyncio._set_running_loop
_get_running_loop = asyncio._get_running_loop
_copy_context = contextvars.copy_context
_new_handle = object.__new__


class SimFuture(asyncio.Future[Any]):
    """Hashed by a number and not by its address, so that a set of futures has a fixed order."""

    number = 0

    def __hash__(self) -> int:
        if not self.number:  # most futures are never hashed
            self.number = next(cast("HostLoop", self.get_loop()).world.numbers)
        return self.number


class SimTask(asyncio.Task[Any]):
    """See ``SimFuture``. It is hashed when it is made, since asyncio keeps a set of all tasks."""

    number = 0

    def __hash__(self) -> int:
        if not self.number:
            self.number = next(cast("HostLoop", self.get_loop()).world.numbers)
        return self.number


class _Handle(asyncio.Handle):
    """asyncio's handle without its look at the debug mode, and filled in by the loop: a third of
    its cost."""

    __slots__ = ()
    _callback: Callable[..., object] | None
    _args: Sequence[Any]
    _context: contextvars.Context
    _loop: HostLoop

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()

    def __repr__(self) -> str:
        return f"<callback {_name_of(self._callback)}>"


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()
    _callback: Callable[..., object] | None
    _context: contextvars.Context
    _loop: HostLoop
    _args: Sequence[Any]
    _when: float
    _scheduled: bool

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = None
            self._args = ()
            if self._scheduled:
                world = self._loop.world
                world.cancelled_timers += 1
                if world.cancelled_timers > COMPACT_AT:
                    world.compact()

    def __repr__(self) -> str:
        return f"<timer {_name_of(self._callback)}>"


def _name_of(callback: object) -> str:
    """No addresses: what we name ends in digests."""
    return str(getattr(callback, "__qualname__", type(callback).__name__))


class HostLoop(asyncio.BaseEventLoop):
    """Made by ``Host.start``. ``dead`` once its process is; it then keeps all it ever had."""

    world: World
    host: Host
    _task_factory: Any

    def __init__(self, world: World, host: Host) -> None:
        self.dead = self.halted = False
        super().__init__()
        self.set_debug(False)
        self.world = world
        self.host = host
        self.incarnation = host.incarnation
        self._tasks: list[weakref.ref[SimTask]] = []
        self._prune_at = 64
        self._ready: collections.deque[_Handle | _TimerHandle] = collections.deque()
        self._armed = False
        self._busy_until = 0.0
        self._jitter = world.rng("schedule").random

    # -- time and order -------------------------------------------------------------------------

    get_debug = bool  # False; every future asks, so not in Python

    def time(self) -> float:
        return self.world.now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = _new_handle(_Handle)
        handle._context = _copy_context() if context is None else context
        handle._loop = self
        handle._callback = callback
        handle._args = args
        handle._cancelled = False
        self._ready.append(handle)
        if not self._armed:
            self._arm()
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _new_handle(_TimerHandle)
        timer._context = _copy_context() if context is None else context
        timer._loop = self
        timer._callback = callback
        timer._args = args
        timer._cancelled = False
        timer._when = when
        timer._scheduled = True
        self.world.push_timer(when, timer)
        return timer

    def fire(self, timer: _TimerHandle) -> None:
        """The timer is due. A dead process's timers are kept, never run."""
        timer._scheduled = False
        self._ready.append(timer)
        if not self._armed:
            self._arm()

    def block(self, seconds: float) -> None:
        """The process does nothing else for this long: a blocking system call."""
        self._busy_until = max(self._busy_until, self.world.now) + seconds

    def _arm(self) -> None:
        if self.halted:
            return
        self._armed = True
        world = self.world
        when = world.now if world.now > self._busy_until else self._busy_until
        world.push(when + self._jitter() * WAKE_JITTER_S, self._turn)

    def _turn(self) -> None:
        """Rounds of ready callbacks, until there is none or somebody else's turn comes first."""
        halted = self.halted  # in a variable, since callbacks change the attribute
        if halted:
            self._armed = False
            return
        world, ready = self.world, self._ready
        heap = world.heap
        _set_running_loop(self)
        try:
            for _ in range(MAX_ROUNDS):  # what is scheduled while we run needs no wake-up
                count = len(ready)
                world.steps += 1
                world.callbacks += count
                if world.trace is not None:
                    world.note("runs", self.host.name, count)
                for _ in range(count):
                    handle = ready.popleft()
                    if handle._cancelled:
                        continue
                    try:
                        handle._context.run(handle._callback, *handle._args)  # type: ignore[arg-type]
                    except BaseException as error:  # noqa: BLE001 - as asyncio.Handle._run
                        self._failed(handle, error)
                    if self.halted:
                        world.bury(handle)  # it may hold the last reference to a coroutine
                        self._armed = False
                        return
                when = world.now + count * CALLBACK_S
                if when < self._busy_until:
                    when = self._busy_until
                self._busy_until = when
                if not ready:
                    self._armed = False
                    return
                if (heap and heap[0][0] <= when) or when > world.limit:
                    break
                world.now = when
            world.push(self._busy_until + self._jitter() * WAKE_JITTER_S, self._turn)
        finally:
            _set_running_loop(None)

    def _failed(self, handle: _Handle | _TimerHandle, error: BaseException) -> None:
        if isinstance(error, HostDied) and self.dead:
            return
        if isinstance(error, HostDied | SystemExit | KeyboardInterrupt):
            raise error
        if error.__traceback__ is not None:
            # Our caller's frame would keep alive whatever runs last in it.
            error.__traceback__ = error.__traceback__.tb_next
        message = f"exception in {handle!r}"
        self.call_exception_handler({"message": message, "exception": error})

    def halt(self) -> None:
        """Run no callback after the present one, until ``go_on``."""
        self.halted = True

    def go_on(self) -> None:
        """Continue after ``halt``."""
        if not self.dead:
            self.halted = False
            if self._ready and not self._armed:
                self._arm()

    def die(self) -> None:
        """Run nothing any more. Nothing is dropped: a dropped coroutine runs its ``finally``."""
        self.dead = self.halted = True
        tasks = self.live_tasks()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.world.bury((self, tasks))

    # -- futures and tasks ----------------------------------------------------------------------

    def create_future(self) -> SimFuture:
        return SimFuture(loop=self)

    def create_task(
        self, coro: Any, *, name: Any = None, context: Any = None, **options: Any
    ) -> Any:
        if self._task_factory is not None:
            return super().create_task(coro, name=name, context=context, **options)
        if name is None:
            name = getattr(coro, "__qualname__", "task")
        if context is None and not options:
            task = SimTask(coro, loop=self, name=name)
        else:
            task = SimTask(coro, loop=self, name=name, context=context, **options)
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) > self._prune_at:
            self._tasks = [weakref.ref(task) for task in self.live_tasks()]
            self._prune_at = 64 + 2 * len(self._tasks)
        return task

    def live_tasks(self) -> list[SimTask]:
        """The tasks that are not done, in the order in which they were made."""
        tasks = [reference() for reference in self._tasks]
        return [task for task in tasks if task is not None and not task.done()]

    # -- no threads, no signals -----------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], Any], *args: *Ts) -> Any:
        """``func`` runs here, after the time a thread would have taken."""
        future = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except (SystemExit, KeyboardInterrupt, HostDied):
                raise
            except BaseException as error:  # noqa: BLE001 - as concurrent.futures
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._jitter() * EXECUTOR_S, call)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        pass

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.world.host_failed(
            self.host, context.get("message", "unhandled exception"), context.get("exception")
        )

    # -- driven by the world --------------------------------------------------------------------

    def is_running(self) -> bool:
        return _get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def run_forever(self) -> None:
        raise RuntimeError("a simulated process is run by World.run")

    def run_until_complete(self, future: Any) -> Any:
        raise RuntimeError("a simulated process is run by World.run")

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __del__(self, _warn: Any = None) -> None:
        pass

    # -- network --------------------------------------------------------------------------------

    @property
    def _network(self) -> Network:
        return self.world.network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return self._network.getaddrinfo(self.host, host, port)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        return sockaddr[0], str(sockaddr[1])

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """``loop.create_connection`` to a simulated host. Raises OSError as sockets do."""
        _refuse(options)
        connected = self.create_future()
        self._network.connect(self, protocol_factory, host, port, connected)
        return await connected

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """``loop.create_server`` on this host. Raises OSError (EADDRINUSE, EADDRNOTAVAIL)."""
        bound = options.get("sock")
        if isinstance(bound, FakeSocket):
            del options["sock"]
            host, port = bound.getsockname()
        _refuse(options)
        return self._network.listen(self, protocol_factory, host, port or 0)


def _refuse(options: dict[str, Any]) -> None:
    for name in ("ssl", "sock"):
        if options.get(name):
            raise NotImplementedError(f"{name}= is not simulated")


def describe_wait(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the functions of its await chain, outermost first, with line numbers."""
    chain: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(chain) < 40:
        frame, awaited = _frame_and_awaited(awaited)
        if frame is None:
            break
        file = frame.f_code.co_filename.replace("\\", "/").split("/")
        chain.append(f"{frame.f_code.co_qualname} ({'/'.join(file[-2:])}:{frame.f_lineno})")
    waiter = getattr(task, "_fut_waiter", None)
    if isinstance(waiter, asyncio.Task):
        chain.append(f"task {waiter.get_name()}")
    return " > ".join(chain) or "not started"


def _frame_and_awaited(awaited: Any) -> tuple[types.FrameType | None, Any]:
    for prefix in ("cr", "ag", "gi"):
        frame = getattr(awaited, f"{prefix}_frame", None)
        if frame is not None:
            inner = "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await"
            return frame, getattr(awaited, inner, None)
    return None, None


Main = Callable[..., Coroutine[Any, Any, Any]]
