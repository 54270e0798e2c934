"""Saying which record failed: the errors that stop a worker, and the search for a bad record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import AgentError, WorkerError
from .block import RecordAt


def agent_error(agent: str, records: list[RecordAt], cause: BaseException) -> WorkerError:
    """What stops the worker when ``agent`` raised ``cause`` with ``records`` in hand."""
    reason = f"{type(cause).__name__}: {cause}"
    error: WorkerError
    if records:
        tp = records[0].block.tp
        error = AgentError(agent, tp.topic, tp.partition, records[0].offset, reason)
    else:
        error = WorkerError(f"agent {agent!r} failed before it read a record: {reason}")
    error.__cause__ = cause
    return error


def first_undecodable(
    decode: Callable[[bytes], Any], raw: list[bytes | None], values: list[Any], error: Exception
) -> tuple[int, BaseException]:
    """Index of the first record that cannot be decoded and why; ``values`` gets those before it."""
    values.clear()
    for index, data in enumerate(raw):
        try:
            values.append(None if data is None else decode(data))
        except Exception as cause:  # noqa: BLE001 - codecs are user code
            return index, cause
    return len(raw), error
