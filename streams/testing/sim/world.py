"""The world of a simulated run: one clock, one heap of events, every choice from one seed."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import heapq
import itertools
import random
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .errors import HostError, LivenessFailure, NothingScheduled, OutOfTime
from .host import Host, Step
from .loop import START_S, describe_wait
from .network import Network
from .patch import install

_HASH_AT = 256


class World:
    """Hosts, their network, and time. ``seed`` decides everything that happens.

    ``on_step`` is called before every step of every host; it may kill or power off the host, and
    the step then does not happen. ``errors`` collects what no process handled. Run it in a process
    with ``gc.disable()``: a finalizer that runs at another allocation is another history.
    """

    def __init__(self, seed: int | str, *, keep_trace: bool = False) -> None:
        install()
        self.seed = seed
        self.now = START_S
        self.hosts: dict[str, Host] = {}
        self.errors: list[HostError] = []
        self.trace: list[str] | None = [] if keep_trace else None
        self.on_step: Callable[[Host, Step], None] | None = None
        self.callbacks = 0
        """How many callbacks ran on all hosts: the measure of a run's size."""
        self.steps = 0
        """How many events of the heap were handled, rounds of callbacks included."""
        self.ended = False
        self._random_state = random.getstate()
        random.seed(f"{seed}/global")
        self._rngs: dict[str, random.Random] = {}
        self.numbers = itertools.count(random.Random(f"{seed}/numbers").getrandbits(48))
        """What tasks and futures are hashed by. Those of other worlds have other numbers: asyncio
        keeps all tasks of a program in one set."""
        self.heap: list[tuple[float, int, Callable[..., object] | None, Any]] = []
        """(when, order, function, arguments) or, for a timer, (when, order, None, handle)."""
        self._seq = 0
        self.cancelled_timers = 0
        self._graveyard: list[object] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._hash_of_moments = hashlib.blake2b(digest_size=16)
        self._unhashed: list[tuple[object, ...]] = []
        self._moments: list[float] = []
        self.limit = 0.0
        """The virtual time at which the present ``run`` gives up."""
        self._max_steps = 0
        self.network = Network(self)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # see ``end``

    # -- randomness and record ------------------------------------------------------------------

    def rng(self, purpose: str) -> random.Random:
        """The generator of one purpose; drawing from one never shifts another."""
        rng = self._rngs.get(purpose)
        if rng is None:
            rng = self._rngs[purpose] = random.Random(f"{self.seed}/{purpose}")
        return rng

    def record(self, *event: object) -> None:
        """Into the digest, with the time and how much has run so far. No ids, no addresses."""
        self._moments += (self.now, self.callbacks, self._seq)
        self._unhashed.append(event)
        if len(self._unhashed) >= _HASH_AT:
            self._hash_up()
        if self.trace is not None:
            self.trace.append(repr((self.now, self.callbacks, self._seq, event)))

    def note(self, *event: object) -> None:
        """Into the trace only."""
        if self.trace is not None:
            self.trace.append(repr((self.now, event)))

    @property
    def digest(self) -> str:
        """Equal for two runs in which the same things happened in the same order."""
        self._hash_up()
        both = self._hash.copy()
        both.update(self._hash_of_moments.digest())
        return both.hexdigest()

    def _hash_up(self) -> None:
        # Without the brackets, and what happened apart from when, so that it does not matter where
        # the lines were split. Packed, since a float's ``repr`` takes long.
        if self._unhashed:
            self._hash.update(f"{repr(self._unhashed)[1:-1]}, ".encode())
            self._hash_of_moments.update(struct.pack(f"<{len(self._moments)}d", *self._moments))
            self._unhashed.clear()
            self._moments.clear()

    # -- hosts ----------------------------------------------------------------------------------

    def host(self, name: str, *, clock_skew_s: float = 0.0) -> Host:
        """A new machine. Raises ValueError when there is one of that name."""
        if name in self.hosts:
            raise ValueError(f"there is a host {name!r} already")
        host = Host(self, name, len(self.hosts) + 1, clock_skew_s=clock_skew_s)
        self.hosts[name] = host
        self.network.add(host)
        return host

    def host_failed(self, host: Host, message: str, error: BaseException | None) -> None:
        """Note an exception that nobody in the process handled."""
        if not self.ended:
            self.record("error", host.name, message, type(error).__name__)
            self.errors.append(HostError(self.now, host.name, message, error))

    def bury(self, dead: object) -> None:
        """Keep it to the end: dropping it would run finalizers of a dead process."""
        self._graveyard.append(dead)

    # -- events ---------------------------------------------------------------------------------

    def at(self, when: float, fn: Callable[..., object], *args: Any) -> None:
        """Call ``fn(*args)`` at a virtual time, outside every host."""
        self._seq += 1
        heapq.heappush(self.heap, (when, self._seq, fn, args))

    def after(self, delay: float, fn: Callable[..., object], *args: Any) -> None:
        """``at``, ``delay`` seconds from now."""
        self._seq += 1
        heapq.heappush(self.heap, (self.now + delay, self._seq, fn, args))

    def push(self, when: float, fn: Callable[..., object]) -> None:
        """``at`` for the loops."""
        self._seq += 1
        heapq.heappush(self.heap, (when, self._seq, fn, ()))

    def push_timer(self, when: float, timer: asyncio.TimerHandle) -> None:
        self._seq += 1
        heapq.heappush(self.heap, (when if when > self.now else self.now, self._seq, None, timer))

    def compact(self) -> None:
        """Most timers are timeouts that never fire: clear them out when they are the majority."""
        if self.cancelled_timers * 2 > len(self.heap):
            # In place: ``run`` holds the list.
            self.heap[:] = [
                entry for entry in self.heap if entry[2] is not None or not entry[3]._cancelled
            ]
            heapq.heapify(self.heap)
            self.cancelled_timers = 0

    def run(
        self,
        until: Callable[[], object] | asyncio.Future[Any],
        *,
        max_virtual_s: float = 600,
        max_steps: int = 5_000_000,
        stop_at_errors: bool = False,
    ) -> None:
        """Let it happen until ``until`` is true (or done). May be called within an event loop.

        ``until`` is asked after every event. ``stop_at_errors``: also until there is one. Raises
        NothingScheduled when nothing can happen any more, OutOfTime at a limit.
        """
        self.limit = self.now + max_virtual_s
        self._max_steps = self.steps + max_steps
        outer = asyncio._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_close_generator)
        asyncio._set_running_loop(None)
        try:
            done = until.done if isinstance(until, asyncio.Future) else until
            self._run(done, self.errors if stop_at_errors else ())
        finally:
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)

    def _run(self, done: Callable[[], object], errors: Sequence[HostError]) -> None:
        heap, pop = self.heap, heapq.heappop
        while not done() and not errors:
            if not heap:
                raise self._stuck(NothingScheduled, "nothing is scheduled any more")
            if heap[0][0] > self.limit:
                raise self._stuck(OutOfTime, "the limit of virtual time is reached")
            if self.steps >= self._max_steps:
                raise self._stuck(OutOfTime, "the limit of steps is reached")
            when, _, fn, args = pop(heap)
            if fn is None and args._cancelled:
                self.cancelled_timers -= 1
                continue
            self.steps += 1
            self.now = when
            if fn is None:
                args._loop.fire(args)
            else:
                fn(*args)

    def _stuck(self, kind: type[LivenessFailure], message: str) -> LivenessFailure:
        return kind(f"{message} (at {self.now - START_S:.3f} s)", self.waiting())

    def waiting(self) -> list[str]:
        """Every live task of every host and where it waits: ``host: task: function > ...``."""
        lines = []
        for host in self.hosts.values():
            if host.loop is None:
                lines.append(f"{host.name}: no process")
                continue
            state = " (paused)" if host.paused else ""
            lines += [
                f"{host.name}{state}: {task.get_name()}: {describe_wait(task)}"
                for task in host.loop.live_tasks()
            ]
        return lines

    def end(self) -> None:
        """Stop everything for ever, without a word to the programs. Idempotent.

        A world is never freed: to drop a suspended coroutine is to run its ``finally`` blocks, and
        that is what death here must not do. A program of many worlds forks for every few dozen.
        """
        if self.ended:
            return
        for host in self.hosts.values():
            if host.loop is not None:
                host.loop.die()
                host.loop = None
        self.ended = True
        random.setstate(self._random_state)


def _close_generator(generator: Any) -> None:
    """What asyncio does with an async generator that is dropped before its end."""
    loop = asyncio._get_running_loop()
    if loop is not None:
        loop.create_task(generator.aclose())
