"""Runs many independent jobs in forked processes, and survives what they do.

A fork has everything imported and prepared; nothing is torn down, a child ends with ``os._exit``.
A child runs several jobs, because a fork costs as much as a fifth of a run, but not all of them,
because without a garbage collector (it would make runs differ) its memory only grows.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import selectors
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
_HEAD = struct.Struct(">I")


class Died(NamedTuple):
    """A child ended, or was ended, in the middle of a job. ``reason`` is for people."""

    reason: str


@dataclass
class _Child(Generic[T]):
    pid: int
    pipe: int
    items: deque[T]
    deadline: float
    buffer: bytearray = field(default_factory=bytearray)
    too_slow: bool = False


class Runner(Generic[T]):
    """``run(item)`` for every item, ``jobs`` at a time, ``batch`` per child.

    A result must be picklable. One item may take ``limit_s`` of real time. Raises whatever is
    raised to the caller while it iterates; children are ended then.
    """

    def __init__(
        self, run: Callable[[T], Any], *, jobs: int | None, batch: int = 25, limit_s: float = 120.0
    ) -> None:
        self._run = run
        self._jobs = jobs or available_cores()
        self._batch = batch
        self._limit_s = limit_s
        self._children: dict[int, _Child[T]] = {}

    def results(self, items: Sequence[T]) -> Iterator[tuple[T, Any]]:
        """(item, result or Died) as they come."""
        share = max(1, min(self._batch, -(-len(items) // self._jobs)))
        waiting = deque(
            deque(items[start : start + share]) for start in range(0, len(items), share)
        )
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or self._children:
                    while waiting and len(self._children) < self._jobs:
                        self._fork(waiting.popleft(), selector)
                    for key, _ in selector.select(timeout=1.0):
                        yield from self._receive(self._children[key.fd], selector, waiting)
                    self._end_the_slow()
            finally:
                for child in list(self._children.values()):
                    os.kill(child.pid, signal.SIGKILL)
                    self._reap(child, selector)

    def _fork(self, items: deque[T], selector: selectors.BaseSelector) -> None:
        ours, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Threads of the parent do not exist in the child, and it uses nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(ours)
            _be_child(theirs, list(items), self._run)
        os.close(theirs)
        child = _Child(pid, ours, items, time.monotonic() + self._limit_s)
        self._children[ours] = child
        selector.register(ours, selectors.EVENT_READ)

    def _receive(
        self,
        child: _Child[T],
        selector: selectors.BaseSelector,
        waiting: deque[deque[T]],
    ) -> Iterator[tuple[T, Any]]:
        data = os.read(child.pipe, 1 << 20)
        if not data:
            yield from self._ended(child, selector, waiting)
            return
        child.buffer += data
        while len(child.buffer) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(child.buffer)
            if len(child.buffer) < _HEAD.size + size:
                break
            result = pickle.loads(child.buffer[_HEAD.size : _HEAD.size + size])
            del child.buffer[: _HEAD.size + size]
            child.deadline = time.monotonic() + self._limit_s
            yield child.items.popleft(), result

    def _ended(
        self,
        child: _Child[T],
        selector: selectors.BaseSelector,
        waiting: deque[deque[T]],
    ) -> Iterator[tuple[T, Any]]:
        status = self._reap(child, selector)
        if not child.items:
            return
        reason = f"the process ended with status {status}"
        if child.too_slow:
            reason = f"it took more than {self._limit_s:g} s of real time"
        elif status < 0:
            reason = f"the process was ended by signal {-status}"
        yield child.items.popleft(), Died(reason)
        if child.items:
            waiting.appendleft(child.items)

    def _end_the_slow(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if now > child.deadline and not child.too_slow:
                child.too_slow = True
                os.kill(child.pid, signal.SIGKILL)

    def _reap(self, child: _Child[T], selector: selectors.BaseSelector) -> int:
        selector.unregister(child.pipe)
        os.close(child.pipe)
        del self._children[child.pipe]
        _, status = os.waitpid(child.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _be_child(pipe: int, items: list[T], run: Callable[[T], Any]) -> None:
    """Never returns: a forked child must not go on with what its parent was doing."""
    status = 1
    try:
        gc.disable()
        logging.disable(logging.CRITICAL)  # thousands of crashes, each told by every process
        for item in items:
            data = pickle.dumps(run(item))
            _write(pipe, _HEAD.pack(len(data)) + data)
        status = 0
    except BaseException:  # noqa: BLE001 - a child's last word; the parent sees its status
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_child(run: Callable[[T], Any], item: T, *, limit_s: float = 120.0) -> Any:
    """One job in a child of its own: its result, or Died."""
    ((_, result),) = Runner(run, jobs=1, limit_s=limit_s).results([item])
    return result
