"""What a simulated run can end with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class HostDied(BaseException):
    """The machine died under the code that runs on it. Not an Exception: nothing may go on.

    Raised by the I/O call at which the host was killed, and by every later one of what is still
    unwinding. None of them has an effect.
    """


class LivenessFailure(Exception):
    """The run did not reach its end. ``waiting`` says, per live task, what it waits for."""

    def __init__(self, message: str, waiting: Sequence[str] = ()) -> None:
        super().__init__("\n  ".join([message, *waiting]))
        self.waiting = list(waiting)


class NothingScheduled(LivenessFailure):
    """A deadlock: no timer, no segment under way, nothing to run, and the end is not reached."""


class OutOfTime(LivenessFailure):
    """The limit of virtual time or of steps is reached before the end."""


class HostError(NamedTuple):
    """An exception that nobody handled in a process. ``at`` is virtual seconds."""

    at: float
    host: str
    message: str
    exception: BaseException | None
