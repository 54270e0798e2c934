"""Records nobody could handle, written to the dead letter topic as they came, with the reason."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from .block import Headers, RecordAt
from .output import Outputs


class Failure(NamedTuple):
    """Why: the exception's class and text, a short traceback, and the agent (None: decoding)."""

    error: str
    traceback: str
    agent: str | None

    @classmethod
    def of(cls, cause: BaseException, agent: str | None) -> Failure:
        frames = traceback.extract_tb(cause.__traceback__)[-3:]
        places = "; ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
        return cls(f"{type(cause).__name__}: {cause}", places, agent)


def emit(
    outputs: Outputs, topic: str, record: RecordAt, failure: Failure, extra: Headers = ()
) -> None:
    """Append ``record`` to ``topic``: key, value and headers unchanged, plus headers of ours.

    ``onceward-error``, ``onceward-traceback``, ``onceward-agent``, ``onceward-topic``,
    ``onceward-partition``, ``onceward-offset``, all text, and ``extra``.
    """
    block, index = record
    reasons: list[tuple[str, bytes | None]] = [
        ("onceward-error", failure.error.encode("utf-8", "replace")),
        ("onceward-traceback", failure.traceback.encode("utf-8", "replace")),
        ("onceward-topic", block.tp.topic.encode()),
        ("onceward-partition", b"%d" % block.tp.partition),
        ("onceward-offset", b"%d" % record.offset),
    ]
    if failure.agent is not None:
        reasons.append(("onceward-agent", failure.agent.encode()))
    reasons.extend(extra)
    output = outputs.open(topic)
    output.headers[len(output.values)] = (*block.headers_of(index), *reasons)
    output.keys.append(block.keys[index])
    output.values.append(block.raw_values[index])
    output.timestamps.append(block.timestamps[index])
