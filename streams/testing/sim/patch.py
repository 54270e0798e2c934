"""The doors of the standard library through which a process sees its machine.

Inside a simulated process they lead to the simulated machine; elsewhere nothing changes. What
would leave the simulation (a thread, a socket, a blocking sleep) raises. Not covered, because C
code does not ask the module: ``datetime.now()`` and the clocks of extension modules.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
import uuid
from asyncio import _get_running_loop
from collections.abc import Callable
from typing import Any

from .loop import HostLoop


class SimulationEscape(RuntimeError):
    """A simulated process tried to use the real machine."""


def install() -> None:
    """Replace them, once per interpreter. ``from time import time`` must come after it."""
    if getattr(time.time, "simulated", False):
        return
    _install_clocks()
    _install_entropy()
    _install_identity()
    _forbid(time, "sleep", "a blocking time.sleep")
    _forbid(threading.Thread, "start", "a thread")
    _forbid(socket.socket, "__init__", "a real socket")
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: what a process writes outside of the simulation is no longer there to judge,
    and would be written again by a record that is run again."""
    if event not in ("open", "sqlite3.connect", "subprocess.Popen"):
        return
    loop: Any = _get_running_loop()
    if not _is_host(loop):
        return
    target = str(arguments[0])
    if event == "open" and (not _writes(*arguments[1:]) or _is_no_effect(target)):
        return
    if target.startswith(tuple(loop.host.real_directories)):
        return
    raise SimulationEscape(
        f"{_WATCHED[event]} {target} inside a simulated process: an effect outside of sends, "
        "tables and sinks happens again when a record is run again after a crash; send it to a "
        "topic, or write it through a sink (onceward.streams.sinks)"
    )


_WATCHED = {
    "open": "writing to the file",
    "sqlite3.connect": "opening the database",
    "subprocess.Popen": "starting the program",
}


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _is_no_effect(path: str) -> bool:
    """An import leaves compiled modules behind."""
    return "__pycache__" in path or path == os.devnull


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    replacement = make(getattr(owner, name))
    replacement.simulated = True
    setattr(owner, name, replacement)


def _install_clocks() -> None:
    for name, scale in (("time", 0), ("time_ns", 1_000_000)):
        _replace(time, name, _wall(scale))
    for name in ("monotonic", "perf_counter"):
        _replace(time, name, _monotonic)
        _replace(time, f"{name}_ns", _monotonic_ns)


def _wall(scale: int) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def make(real: Callable[[], Any]) -> Callable[[], Any]:
        def wall() -> Any:
            loop: Any = _get_running_loop()
            if loop.__class__ is not HostLoop:
                return real()
            now = loop.host.wall_s()
            return int(now * 1000) * scale if scale else now

        return wall

    return make


def _monotonic(real: Callable[[], float]) -> Callable[[], float]:
    def monotonic() -> float:
        loop: Any = _get_running_loop()
        return loop.time() if loop.__class__ is HostLoop else real()

    return monotonic


def _monotonic_ns(real: Callable[[], int]) -> Callable[[], int]:
    def monotonic_ns() -> int:
        loop: Any = _get_running_loop()
        if loop.__class__ is HostLoop:
            return int(loop.time() * 1e9)
        return real()

    return monotonic_ns


def _install_entropy() -> None:
    """``os.urandom`` and what is made of it; the generator that seeds itself does so in C."""

    def urandom(real: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def simulated(size: int, /) -> bytes:
            loop: Any = _get_running_loop()
            return loop.world.rng("entropy").randbytes(size) if _is_host(loop) else real(size)

        return simulated

    def seed(real: Callable[..., None]) -> Callable[..., None]:
        def simulated(self: random.Random, a: Any = None, version: int = 2) -> None:
            loop: Any = _get_running_loop()
            if a is None and _is_host(loop):
                a = loop.world.rng("entropy").getrandbits(256)
            real(self, a, version)

        return simulated

    def uuid1(real: Callable[..., uuid.UUID]) -> Callable[..., uuid.UUID]:
        def simulated(*args: Any, **options: Any) -> uuid.UUID:
            loop: Any = _get_running_loop()
            if not _is_host(loop):
                return real(*args, **options)
            return uuid.UUID(bytes=loop.world.rng("entropy").randbytes(16), version=1)

        return simulated

    _replace(os, "urandom", urandom)
    _replace(random, "_urandom", urandom)  # SystemRandom and secrets
    _replace(random.Random, "seed", seed)
    _replace(uuid, "uuid1", uuid1)


def _install_identity() -> None:
    def gethostname(real: Callable[[], str]) -> Callable[[], str]:
        def simulated() -> str:
            loop: Any = _get_running_loop()
            return loop.host.name if _is_host(loop) else real()

        return simulated

    def getpid(real: Callable[[], int]) -> Callable[[], int]:
        def simulated() -> int:
            loop: Any = _get_running_loop()
            return 1000 + loop.incarnation if _is_host(loop) else real()

        return simulated

    _replace(socket, "gethostname", gethostname)
    _replace(os, "getpid", getpid)


def _forbid(owner: Any, name: str, what: str) -> None:
    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **options: Any) -> Any:
            if _is_host(_get_running_loop()):
                raise SimulationEscape(f"{what} inside a simulated process")
            return real(*args, **options)

        return guarded

    _replace(owner, name, make)


def _is_host(loop: Any) -> bool:
    return loop.__class__ is HostLoop
