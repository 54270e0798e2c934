"""What sinks raise towards the engine."""

from __future__ import annotations

from ..errors import StreamsError, WorkerError


class SinkUnavailable(StreamsError):
    """The system does not answer, or nobody knows whether it did what it was asked to.

    The engine runs everything since the last commit again, after a while.
    """


class SinkTimeout(SinkUnavailable):
    """No answer in time. The next batch is half as large, if it was the size that took so long."""


class SinkFenced(SinkUnavailable):
    """Another worker took the partition over: nothing of this batch took effect."""


class SinkError(WorkerError):
    """The sink cannot be used as it is declared, or refuses a row and the policy is ``stop``."""
