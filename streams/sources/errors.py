"""What sources raise towards the engine."""

from __future__ import annotations

from ..errors import StreamsError, WorkerError


class SourceUnavailable(StreamsError):
    """The system does not answer now: the source goes on from its last position after a while."""


class SourceError(WorkerError):
    """The source cannot go on as it is declared, or has a bad row and the policy is ``stop``."""
