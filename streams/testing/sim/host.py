"""A simulated machine: it has a disk and an address, and survives its processes."""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from .disk import SimDisk
from .errors import HostDied
from .loop import EPOCH_S, START_S, HostLoop, Main
from .transport import FakeSocket

if TYPE_CHECKING:
    from .transport import SimTransport
    from .world import World


class Step(NamedTuple):
    """One act of a host on the world outside its memory, about to take effect.

    ``kind``: "write" "truncate" "rename" "remove" "fsync" "fsync_dir" "send" "receive" and
    "database", a call to a database outside of the world's hosts.
    ``number`` counts per host from 1, over all its incarnations. ``detail``: the path, or
    "-> broker 123 bytes". ``data`` and ``connection`` (its id) belong to "send" and "receive".
    """

    kind: str
    number: int
    detail: str
    data: bytes = b""
    connection: int = 0


class Host:
    """Made by ``World.host``. Runs at most one process at a time."""

    def __init__(self, world: World, name: str, index: int, *, clock_skew_s: float) -> None:
        self.world = world
        self.name = name
        self.ip = f"10.0.{index >> 8}.{index & 255}"
        self.clock_skew_s = clock_skew_s
        """Added to the wall clock; changing it is a jump of that clock."""
        self.powered = True
        self.incarnation = 0
        self.paused = False
        self.steps = 0
        self.main: asyncio.Task[Any] | None = None
        self.loop: HostLoop | None = None
        self.transports: dict[SimTransport, None] = {}
        self.disk = SimDisk(self)
        self.real_directories: list[str] = []
        """Where its processes may write on the real disk: what is not simulated."""
        self._pauses = 0
        self._rngs = 0

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    @property
    def alive(self) -> bool:
        """A process runs."""
        return self.loop is not None

    # -- life and death -------------------------------------------------------------------------

    def start(self, coro_fn: Main, *args: Any) -> asyncio.Task[Any]:
        """Boot if necessary and start a process; its main task is ``coro_fn(*args)``.

        When that ends, the process ends as with ``asyncio.run``: the other tasks are cancelled and
        awaited, the kernel closes the sockets. Raises RuntimeError when a process runs already.
        """
        if self.loop is not None:
            raise RuntimeError(f"a process runs on {self.name} already")
        self.powered = True
        self.paused = False
        self.incarnation += 1
        self.world.record("start", self.name, self.incarnation)
        loop = self.loop = HostLoop(self.world, self)
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(loop)
        try:
            self.main = contextvars.Context().run(self._create_main, loop, coro_fn, args)
        finally:
            asyncio._set_running_loop(outer)
        return self.main

    def _create_main(
        self, loop: HostLoop, coro_fn: Main, args: tuple[Any, ...]
    ) -> asyncio.Task[Any]:
        name = f"{self.name} main"
        main: asyncio.Task[Any] = loop.create_task(_process(loop, coro_fn, args), name=name)
        main.add_done_callback(lambda task: self._exited(loop, task))
        return main

    def _exited(self, loop: HostLoop, main: asyncio.Task[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        self.world.record("exit", self.name, type(error).__name__)
        if error is not None:
            self.world.host_failed(self, "the main task failed", error)
        if self.loop is loop:
            self._stop(silent=False)

    def kill(self) -> None:
        """SIGKILL: nothing runs any more. The kernel closes the sockets, the page cache stays."""
        self.world.record("kill", self.name)
        self._stop(silent=False)

    def power_off(self) -> None:
        """Peers see silence; what was not synced is lost, torn or kept, as the seed has it."""
        self.world.record("power off", self.name)
        self.powered = False
        self._stop(silent=True)
        self.disk.power_cut(self.world.rng("disk"))

    def _stop(self, *, silent: bool) -> None:
        loop, self.loop, self.main = self.loop, None, None
        if loop is not None:
            loop.die()
        self.paused = False
        self._pauses += 1
        self.world.network.host_stopped(self, silent=silent)
        self.disk.kill()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds. The kernel goes on acknowledging."""
        self.pause_until_resumed()
        self.world.after(seconds, self._resume, self._pauses)

    def pause_until_resumed(self) -> None:
        """SIGSTOP."""
        self.world.record("pause", self.name)
        self.paused = True
        self._pauses += 1
        if self.loop is not None:
            self.loop.halt()

    def resume(self) -> None:
        """SIGCONT. Without a pause nothing happens."""
        self._resume(self._pauses)

    def _resume(self, pause: int) -> None:
        if self.paused and pause == self._pauses:
            self.world.record("resume", self.name)
            self.paused = False
            if self.loop is not None:
                self.loop.go_on()

    # -- what a process gets --------------------------------------------------------------------

    def wall_ms(self) -> int:
        """This machine's wall clock, ms since 1970."""
        return int(self.wall_s() * 1000)

    def wall_s(self) -> float:
        """The same in seconds."""
        return EPOCH_S - START_S + self.world.now + self.clock_skew_s

    def bound_socket(self, name: str, port: int) -> Any:
        """What ``socket.create_server`` returns, for ``loop.create_server(sock=...)``.

        ``name`` is this host's. Port 0 is not known here.
        """
        return FakeSocket((self.ip, port), None)

    def rng(self) -> random.Random:
        """A new generator, for a process started now."""
        self._rngs += 1
        return random.Random(f"{self.world.seed}/{self.name}/{self._rngs}")

    def step(self, kind: str, detail: str, data: bytes = b"", connection: int = 0) -> None:
        """An I/O step of this host is about to take effect. Raises HostDied: it must not.

        ``detail`` is the path, or the name of the peer.
        """
        running = asyncio._get_running_loop()
        if isinstance(running, HostLoop) and running.dead:
            raise HostDied(self.name)
        self.steps += 1
        on_step = self.world.on_step
        if on_step is not None:
            process = self.loop
            if kind in ("send", "receive"):
                arrow = "->" if kind == "send" else "<-"
                detail = f"{arrow} {detail} {len(data)} bytes"
            on_step(self, Step(kind, self.steps, detail, data, connection))
            if self.loop is not process:
                raise HostDied(self.name)


async def _process(loop: HostLoop, coro_fn: Main, args: tuple[Any, ...]) -> Any:
    try:
        result = await coro_fn(*args)
    except (HostDied, GeneratorExit):
        raise
    except BaseException:
        await _end_tasks(loop)
        raise
    await _end_tasks(loop)
    return result


async def _end_tasks(loop: HostLoop) -> None:
    """As ``asyncio.run`` does after its main task."""
    me = asyncio.current_task()
    others = [task for task in loop.live_tasks() if task is not me]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
